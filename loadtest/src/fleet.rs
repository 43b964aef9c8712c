//! Deterministic readings: sensors of ten sites that report two fields at the same interval.

use bytes::Bytes;
use clap::ValueEnum;
use serde::Deserialize;

/// The first day: 2025-01-15T00:00:00Z, so that the following year is past.
pub const START_S: i64 = 1_736_899_200;
pub const HOUR_S: i64 = 3600;
pub const DAY_S: i64 = 86_400;
pub const SITES: i64 = 10;
/// Readings are in the middle of each minute, so that the borders of windows do not matter.
const WITHIN_MINUTE_MS: i64 = 30_000;
const DAY_MINUTES: i64 = 1440;

/// The shape of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Values {
    /// Slow waves without noise.
    Waves,
    /// A daily curve with noise, as of thermometers.
    Noise,
}

/// The sensors and the range of their readings.
#[derive(Debug, Clone, Copy)]
pub struct Fleet {
    /// Start of the first interval in seconds since the epoch.
    pub start_s: i64,
    pub sensors: i64,
    /// The number of readings per sensor.
    pub ticks: i64,
    /// The time between two readings of a sensor, in milliseconds.
    pub interval_ms: i64,
    pub values: Values,
}

/// The order in which readings are sent.
#[derive(Debug, Clone, Copy)]
pub enum Order {
    /// All sensors in turn, tick by tick.
    Time,
    /// Per period, all readings of one sensor, then those of the next.
    Sensor { period_ms: i64 },
    /// Tick by tick, but a share of the readings is late. The delay differs between sensors.
    Late { share: f64, by_ms: i64 },
}

/// Readings in an order. A reading is identified by its line number.
#[derive(Debug, Clone, Copy)]
pub struct Delivery {
    pub fleet: Fleet,
    pub order: Order,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    pub sensor: i64,
    /// In milliseconds since the epoch.
    pub time_ms: i64,
    /// Two decimals, like real thermometers.
    pub temp_hundredths: i64,
    pub humidity: i64,
}

impl Fleet {
    /// The fields of a reading. Every reading has both.
    pub const FIELDS: [&str; 2] = ["temp", "humidity"];

    /// Returns sensors with one reading per minute.
    pub fn by_minute(sensors: i64, ticks: i64) -> Self {
        Self { start_s: START_S, sensors, ticks, interval_ms: 60_000, values: Values::Waves }
    }

    pub fn readings(&self) -> i64 {
        self.sensors * self.ticks
    }

    /// Returns the end of the last interval in seconds since the epoch.
    pub fn end_s(&self) -> i64 {
        self.start_s + (self.ticks * self.interval_ms + 999) / 1000
    }

    /// Returns the number of readings of a sensor in this many seconds.
    pub fn ticks_in(&self, seconds: i64) -> i64 {
        seconds * 1000 / self.interval_ms
    }

    /// Returns a reading of a sensor. Ticks before the first one are valid.
    pub fn reading(&self, sensor: i64, tick: i64) -> Reading {
        let time_ms = self.start_s * 1000 + tick * self.interval_ms + WITHIN_MINUTE_MS.min(self.interval_ms / 2);
        let (temp_hundredths, humidity) = match self.values {
            Values::Waves => (2000 + (sensor * 7 + tick * 3).rem_euclid(900), 30 + (sensor + tick).rem_euclid(60)),
            Values::Noise => {
                let minute = tick * self.interval_ms / 60_000 + sensor * 37;
                // Rises for half a day and falls for the other half.
                let curve = (minute.rem_euclid(DAY_MINUTES) - DAY_MINUTES / 2).abs();
                let noise = pseudorandom(sensor << 32 | tick);
                (1500 + sensor % 100 * 10 + curve + noise % 25, 40 + curve / 36 + noise / 25 % 3)
            }
        };
        Reading { sensor, time_ms, temp_hundredths, humidity }
    }

    /// Returns the readings of a day by sensor and time as tab-separated values: sensor, site, time, fields.
    pub fn day_table(&self, day: i64) -> String {
        let ticks = self.ticks_in(DAY_S);
        let mut table = String::new();
        for sensor in 0..self.sensors {
            for tick in day * ticks..(day + 1) * ticks {
                let reading = self.reading(sensor, tick);
                let name = sensor_name(sensor);
                let site = site_name(sensor);
                let time = reading.time_ms / 1000;
                table += &format!("{name}\t{site}\t{time}\t{:.2}\t{}\n", reading.temp(), reading.humidity);
            }
        }
        table
    }
}

impl Delivery {
    /// Returns a delivery tick by tick.
    pub fn in_time_order(fleet: Fleet) -> Self {
        Self { fleet, order: Order::Time }
    }

    /// Returns the number of POSTs of this many lines.
    pub fn posts(&self, lines: i64) -> usize {
        usize::try_from(round_up(self.fleet.readings(), lines) / lines).unwrap_or_default()
    }

    /// Returns the reading with this line number.
    pub fn reading(&self, number: i64) -> Reading {
        let Fleet { sensors, interval_ms, .. } = self.fleet;
        match self.order {
            Order::Time => self.fleet.reading(number % sensors, number / sensors),
            Order::Sensor { period_ms } => {
                let each = period_ms / interval_ms;
                let period = number / (each * sensors);
                let within = number % (each * sensors);
                self.fleet.reading(within / each, period * each + within % each)
            }
            Order::Late { share, by_ms } => {
                let sensor = number % sensors;
                let slot = number / sensors;
                // A late slot sends the reading of the same slot one delay earlier, which was skipped then.
                let delay = 1 + pseudorandom(sensor) % (by_ms / interval_ms).max(1);
                let is_late = is_selected(sensor << 32 | slot.rem_euclid(delay), share);
                self.fleet.reading(sensor, if is_late { slot - delay } else { slot })
            }
        }
    }

    /// Returns the body of a POST of this many lines.
    pub fn body(&self, post: usize, lines: i64) -> Bytes {
        let first = i64::try_from(post).unwrap_or_default() * lines;
        self.lines(first, lines.min(self.fleet.readings() - first))
    }

    /// Returns line protocol starting at line number `first`.
    pub fn lines(&self, first: i64, lines: i64) -> Bytes {
        let mut body = Vec::with_capacity(usize::try_from(lines).unwrap_or_default() * 80);
        for number in first..first + lines {
            self.reading(number).write(&mut body);
        }
        Bytes::from(body)
    }
}

impl Reading {
    pub fn temp(&self) -> f64 {
        float(self.temp_hundredths) / 100.0
    }

    /// Appends the line. It avoids `format!`, which is ten times slower, because bodies are generated during the
    /// measurement.
    fn write(&self, body: &mut Vec<u8>) {
        body.extend_from_slice(b"climate,sensor=s");
        digits(body, self.sensor, 6);
        body.extend_from_slice(b",site=site");
        digits(body, self.sensor % SITES, 1);
        body.extend_from_slice(b" temp=");
        digits(body, self.temp_hundredths / 100, 1);
        body.push(b'.');
        digits(body, self.temp_hundredths % 100, 2);
        body.extend_from_slice(b",humidity=");
        digits(body, self.humidity, 1);
        body.push(b' ');
        digits(body, self.time_ms, 1);
        body.extend_from_slice(b"000000\n");
    }
}

/// Appends an integer with at least `min_digits` digits.
fn digits(body: &mut Vec<u8>, value: i64, min_digits: usize) {
    let start = body.len();
    let mut rest = value.unsigned_abs();
    while rest > 0 || body.len() - start < min_digits {
        body.push(b'0' + u8::try_from(rest % 10).unwrap_or_default());
        rest /= 10;
    }
    body[start..].reverse();
}

/// Returns a pseudorandom non-negative number (splitmix64).
pub fn pseudorandom(number: i64) -> i64 {
    let mut x = number.cast_unsigned().wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 1).cast_signed()
}

/// Returns true for this share of all numbers.
pub fn is_selected(number: i64, share: f64) -> bool {
    float(pseudorandom(number) % 1_000_000) < share * 1e6
}

/// Returns the tag of a sensor.
pub fn sensor_name(sensor: i64) -> String {
    format!("s{sensor:06}")
}

/// Returns the site tag of a sensor.
pub fn site_name(sensor: i64) -> String {
    format!("site{}", sensor % SITES)
}

pub fn sensor_key(sensor: i64) -> String {
    format!("climate,sensor={},site={}", sensor_name(sensor), site_name(sensor))
}

pub fn round_up(number: i64, multiple: i64) -> i64 {
    (number + multiple - 1) / multiple * multiple
}

#[expect(clippy::cast_precision_loss, reason = "numbers stay below 2^53")]
pub fn float(whole: i64) -> f64 {
    whole as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn text(body: &[u8]) -> String {
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[test]
    fn bodies_hold_every_reading_once_in_order() {
        let delivery = Delivery::in_time_order(Fleet::by_minute(3, 2));
        let bodies: Vec<Bytes> = (0..delivery.posts(4)).map(|post| delivery.body(post, 4)).collect();
        let lines: Vec<String> = text(&bodies.concat()).lines().map(str::to_owned).collect();
        let first = format!("climate,sensor=s000000,site=site0 temp=20.00,humidity=30 {}000000000", START_S + 30);
        let last = format!("climate,sensor=s000002,site=site2 temp=20.17,humidity=33 {}000000000", START_S + 90);
        assert_eq!((bodies.len(), lines.len(), &lines[0], &lines[5]), (2, 6, &first, &last));
    }

    #[test]
    fn every_order_has_every_reading_once() {
        for values in [Values::Waves, Values::Noise] {
            let fleet = Fleet { ticks: 48, interval_ms: 3_600_000, values, ..Fleet::by_minute(3, 0) };
            let all = |order| {
                let delivery = Delivery { fleet, order };
                (0..fleet.readings()).map(|n| text(&delivery.lines(n, 1))).collect::<BTreeSet<_>>()
            };
            let expected = all(Order::Time);
            assert_eq!((expected.len(), &all(Order::Sensor { period_ms: DAY_S * 1000 })), (144, &expected));
            let tables: String = (0..2).map(|day| fleet.day_table(day)).collect();
            assert_eq!(tables.lines().count(), 144);
            let late = all(Order::Late { share: 0.3, by_ms: 5 * HOUR_S * 1000 });
            // Readings that are late at the end are not sent. As many from before the start are sent instead.
            assert!(late.len() == 144 && (100..144).contains(&late.intersection(&expected).count()));
        }
    }

    #[test]
    fn number_and_delay_of_late_readings_follow_the_scenario() {
        let order = Order::Late { share: 0.2, by_ms: 60 * 60_000 };
        let delivery = Delivery { fleet: Fleet::by_minute(100, 1000), order };
        let delays: Vec<i64> = (0..100_000)
            .map(|n| {
                let reading = delivery.reading(n);
                (START_S * 1000 + n / 100 * 60_000 + 30_000 - reading.time_ms) / 60_000
            })
            .collect();
        let late = delays.iter().filter(|delay| **delay > 0).count();
        assert!((18_000..22_000).contains(&late), "{late}");
        let min = delays.iter().min().unwrap();
        let max = delays.iter().max().unwrap();
        assert!(*min == 0 && (55..=60).contains(max), "{min} to {max}");
    }
}
