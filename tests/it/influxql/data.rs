//! Fixed readings in the past for both servers. Floats are sums of eighths, so sums are exact in any order.

mod odd;

pub use crate::support::{DAY, HOUR, MINUTE, SECOND};

/// Monday, 2024-06-03 10:00:00 UTC, where most measurements begin.
pub const BASE: i64 = 1_717_408_800 * SECOND;

/// Line protocol in two parts: stored readings, and late, overwriting or new ones.
#[derive(Default)]
pub struct Readings {
    pub first: Vec<String>,
    pub second: Vec<String>,
}

impl Readings {
    /// Returns the whole data set.
    pub fn all() -> Readings {
        let mut readings = Readings::default();
        readings.cpu();
        readings.memory();
        readings.dense();
        readings.weather();
        readings.gaps();
        readings.ties();
        readings.counters();
        readings.balance();
        readings.days();
        readings.late();
        readings.odd();
        readings
    }

    /// Adds two of three readings to the first part and the third to the second part.
    fn add(&mut self, number: i64, line: String) {
        if number % 3 == 2 { self.second.push(line) } else { self.first.push(line) }
    }

    /// Four hosts, a reading every two minutes for three hours, with fields of every type; some lack the region.
    fn cpu(&mut self) {
        let hosts = ["host=web01,region=eu", "host=web02,region=us", "region=eu,host=db01", "host=db02"];
        for number in 0..90 {
            for (which, tags) in (0..).zip(hosts) {
                let load = eighths(number * 7 + which, 800);
                let idle = 100.0 - load;
                let procs = 80 + chaos(number * 11 + which) % 50;
                let mut fields = format!("load={load},idle={idle},procs={procs}i");
                if number % 3 == 0 {
                    fields += if chaos(number + which) % 4 == 0 { ",ok=false" } else { ",ok=true" };
                }
                if number % 5 == which {
                    let state = ["idle", "busy", "full"][at(chaos(number * 3 + which) % 3)];
                    fields += &format!(",state=\"{state}\"");
                }
                let offset = if which == 3 { 30 * SECOND } else { 0 };
                self.add(number + which, format!("cpu,{tags} {fields} {}", BASE + number * 2 * MINUTE + offset));
            }
        }
    }

    /// Integers beside floats, with the same hosts as tags of another measurement.
    fn memory(&mut self) {
        for number in 0..36 {
            for (which, host) in (0..).zip(["web01", "db02"]) {
                let used = 1_000_000 + chaos(number * 5 + which) % 7_000;
                let free = eighths(number * 13 + which, 4000);
                let line = format!("mem,host={host} used={used}i,cached={}i,free={free}", used / 7 - 143_000);
                self.add(number, format!("{line} {}", BASE + number * 5 * MINUTE));
            }
        }
    }

    /// A reading every three seconds for an hour, so many small pages; the second part continues it.
    fn dense(&mut self) {
        for number in 0..1200 {
            let v = eighths(number * 17, 1600) - 100.0;
            let line = format!("dense,site=a v={v},n={number}i {}", BASE + number * 3 * SECOND);
            if number < 700 { self.first.push(line) } else { self.second.push(line) }
        }
    }

    /// Hourly readings around the clock changes on two continents.
    fn weather(&mut self) {
        let spans = [
            ("berlin", 1_711_670_400, 96), // 2024-03-29, four days
            ("berlin", 1_729_900_800, 96), // 2024-10-26, four days
            ("york", 1_709_942_400, 72),   // 2024-03-09, three days
            ("york", 1_730_505_600, 72),   // 2024-11-02, three days
        ];
        for (city, start, hours) in spans {
            for hour in 0..hours {
                let temp = eighths(hour * 3 + start % 97, 240) - 10.0;
                let mut fields = format!("temp={temp},humidity={}i", 30 + chaos(hour + start) % 60);
                if hour % 7 == 3 {
                    fields += &format!(",rain={}", eighths(hour, 64));
                }
                self.add(hour, format!("weather,city={city} {fields} {}", (start + hour * 3600) * SECOND));
            }
        }
    }

    /// Minutes with and without readings, and longer gaps; the second series starts late and ends early.
    fn gaps(&mut self) {
        for (number, minute) in (0..).zip([0, 1, 2, 5, 6, 12, 13, 14, 30, 31, 45, 59]) {
            let time = BASE + minute * MINUTE + 15 * SECOND;
            let line =
                format!("gaps,who=x v={},n={}i,s=\"s{minute}\",b={}", minute * 2 + 1, minute * 10, minute % 2 == 0);
            self.add(number, format!("{line} {time}"));
            if (5..=30).contains(&minute) {
                self.add(number + 1, format!("gaps,who=y v={},n={}i {}", 100 - minute, -minute, time + 20 * SECOND));
            }
        }
    }

    /// Few distinct values, for top, bottom, mode, distinct, min and max with ties.
    fn ties(&mut self) {
        for number in 0..40 {
            for (which, tags) in (0..).zip(["rack=r1,unit=u1", "rack=r1,unit=u2", "rack=r2,unit=u1"]) {
                let i = [3, 1, 2, 3, 2][at((number + which) % 5)];
                let s = ["red", "green", "red", "blue"][at((number + which) % 4)];
                let line = format!("ties,{tags} i={i}i,f={}.5,s=\"{s}\",b={}", i - 2, (number + which) % 4 != 0);
                self.add(number, format!("{line} {}", BASE + number * 30 * SECOND));
            }
        }
    }

    /// Counters with one restart; a reading every ten seconds, some missing.
    fn counters(&mut self) {
        let mut bytes = 0;
        let mut packets = 0.0;
        for number in 0..120 {
            if number == 70 {
                (bytes, packets) = (0, 0.0);
            }
            bytes += 100 + chaos(number) % 900;
            packets += eighths(number, 80);
            if number % 11 != 4 {
                let time = BASE + number * 10 * SECOND;
                self.add(number, format!("counters,port=eth0 bytes={bytes}i,packets={packets} {time}"));
            }
            if number % 4 == 0 {
                let line = format!("counters,port=eth1 bytes={}i,packets={}", bytes * 2, packets / 2.0);
                self.add(number / 4, format!("{line} {}", BASE + number * 10 * SECOND + 5 * SECOND));
            }
        }
    }

    /// Values on both sides of zero, and zeros to divide by.
    fn balance(&mut self) {
        for number in 0..80 {
            let net = eighths(number * 19, 160) - 10.0;
            let count = chaos(number * 23) % 7 - 3;
            for (account, sign) in [("a", 1), ("b", -1)] {
                let line = format!("balance,account={account} net={net},count={}i,zero=0,none=0i", count * sign);
                self.add(number, format!("{line} {}", BASE + number * MINUTE + i64::from(sign == 1) * SECOND));
            }
        }
    }

    /// A reading every twelve hours for nine weeks, across a new year.
    fn days(&mut self) {
        for number in 0..126 {
            let line = format!("days v={},n={number}i", eighths(number * 29, 80));
            self.add(number, format!("{line} {}", 1_701_388_800 * SECOND + number * 12 * HOUR));
        }
    }

    /// Even minutes backwards, then odd minutes; then some overwritten, extended and repeated.
    fn late(&mut self) {
        for number in (0..60).rev() {
            let line = format!("late,from=old v={number},kept={number}i {}", BASE + number * MINUTE);
            if number % 2 == 0 { self.first.push(line) } else { self.second.push(line) }
        }
        for number in 0..60 {
            match number % 6 {
                0 => self.second.push(format!("late,from=old v={} {}", number + 1000, BASE + number * MINUTE)),
                2 => self.second.push(format!("late,from=old added=\"new\" {}", BASE + number * MINUTE)),
                4 => self.second.push(format!("late,from=old v={number} {}", BASE + number * MINUTE)),
                _ => {}
            }
        }
        // The same instant twice in one request: the later line counts.
        for v in [1, 2, 3] {
            self.second.push(format!("late,from=twice v={v} {BASE}"));
        }
    }
}

/// A deterministic pseudo-random number.
fn chaos(seed: i64) -> i64 {
    let mixed = seed.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
    ((mixed ^ (mixed >> 29)).wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).rem_euclid(1 << 30)
}

/// Returns a multiple of an eighth, at least 0 and below `count` eighths.
#[allow(clippy::cast_precision_loss, reason = "the numbers are small")]
fn eighths(seed: i64, count: i64) -> f64 {
    (chaos(seed) % count) as f64 / 8.0
}

fn at(index: i64) -> usize {
    usize::try_from(index).expect("an index is not negative")
}
