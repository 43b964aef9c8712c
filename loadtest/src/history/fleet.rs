//! The data: sensors of ten sites that report two fields each minute, for days that are long over.

use std::fmt::Write;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// The first day: 2025-01-15T00:00:00Z, so that a year from then on is over.
pub const START_S: i64 = 1_736_899_200;
pub const DAY_S: i64 = 86_400;
/// Number of sites.
pub const SITES: i64 = 10;
/// Readings are in the middle of each minute, so that it does not matter to which window its ends belong.
const WITHIN_MINUTE_S: i64 = 30;
const DAY_MINUTES: i64 = 1440;

/// How the values go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Values {
    /// Slow waves without noise, as `peers` sends them.
    Waves,
    /// A daily curve with noise, as thermometers have it.
    Noise,
}

/// Flags for the size of the data.
#[derive(Debug, Clone, Copy, Args, Serialize, Deserialize)]
pub struct Fleet {
    /// Days of readings, from 2025-01-15 on.
    #[arg(long, default_value_t = 3)]
    pub days: i64,
    #[arg(long, default_value_t = 30)]
    pub sensors: i64,
    /// Seconds between two readings of a sensor.
    #[arg(long, default_value_t = 60)]
    pub interval_s: i64,
    #[arg(long, default_value = "waves")]
    pub values: Values,
}

/// A reading.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    pub sensor: i64,
    /// In seconds since the epoch.
    pub time: i64,
    /// Two decimals, like real thermometers.
    pub temp_hundredths: i64,
    pub humidity: i64,
}

impl Fleet {
    /// The number of readings.
    pub fn readings(&self) -> i64 {
        self.sensors * self.ticks()
    }

    /// The number of readings of a sensor.
    pub fn ticks(&self) -> i64 {
        self.days * DAY_S / self.interval_s
    }

    /// The end of the last day.
    pub fn end_s(&self) -> i64 {
        START_S + self.days * DAY_S
    }

    /// The fields of readings; every reading has both.
    pub const FIELDS: [&str; 2] = ["temp", "humidity"];

    /// A sensor's reading.
    pub fn reading(&self, sensor: i64, tick: i64) -> Reading {
        let time = START_S + tick * self.interval_s + WITHIN_MINUTE_S.min(self.interval_s / 2);
        let (temp_hundredths, humidity) = match self.values {
            Values::Waves => (2000 + (sensor * 7 + tick * 3) % 900, 30 + (sensor + tick) % 60),
            Values::Noise => {
                let minute = tick * self.interval_s / 60 + sensor * 37;
                // Rises for half a day and falls for the other half.
                let curve = (minute % DAY_MINUTES - DAY_MINUTES / 2).abs();
                let noise = scrambled(sensor << 32 | tick);
                (1500 + sensor % 100 * 10 + curve + noise % 25, 40 + curve / 36 + noise / 25 % 3)
            }
        };
        Reading { sensor, time, temp_hundredths, humidity }
    }

    /// Lines number `first` and after, in time order.
    pub fn lines(&self, first: i64, count: i64) -> Bytes {
        let mut body = String::with_capacity(usize::try_from(count).unwrap_or_default() * 80);
        for number in first..self.readings().min(first + count) {
            let Reading { sensor, time, temp_hundredths, humidity } =
                self.reading(number % self.sensors, number / self.sensors);
            // Writing to a String cannot fail.
            let _ = writeln!(
                body,
                "climate,sensor=s{sensor:06},site=site{} temp={}.{:02},humidity={humidity}i {time}",
                sensor % SITES,
                temp_hundredths / 100,
                temp_hundredths % 100,
            );
        }
        Bytes::from(body)
    }

    /// A day's readings by sensor and time, as tab-separated values: sensor, site, time, fields.
    pub fn table_of(&self, day: i64) -> String {
        let ticks = DAY_S / self.interval_s;
        let mut table = String::new();
        for sensor in 0..self.sensors {
            for tick in day * ticks..(day + 1) * ticks {
                let Reading { time, temp_hundredths, humidity, .. } = self.reading(sensor, tick);
                let (whole, part) = (temp_hundredths / 100, temp_hundredths % 100);
                let site = sensor % SITES;
                let _ = writeln!(table, "s{sensor:06}\tsite{site}\t{time}\t{whole}.{part:02}\t{humidity}");
            }
        }
        table
    }
}

/// A number that looks random (splitmix64), from 0 on.
fn scrambled(number: i64) -> i64 {
    let mut x = number.cast_unsigned().wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 1).cast_signed()
}

/// A sensor's tag.
pub fn sensor_name(sensor: i64) -> String {
    format!("s{sensor:06}")
}

/// A site's tag.
pub fn site_name(site: i64) -> String {
    format!("site{site}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reading_is_sent_once() {
        for values in [Values::Waves, Values::Noise] {
            let fleet = Fleet { days: 2, sensors: 3, interval_s: 3600, values };
            let text = |body: &Bytes| String::from_utf8(body.to_vec()).unwrap();
            let lines: String = (0..fleet.readings()).step_by(7).map(|first| text(&fleet.lines(first, 7))).collect();
            let mut by_lines: Vec<String> = lines
                .lines()
                .map(|line| line.replace("climate,sensor=", "").replace([',', ' '], "\t").replace("site=", ""))
                .map(|line| line.replace("temp=", "").replace("humidity=", ""))
                .map(|line| {
                    let [sensor, site, temp, humidity, time] = line.split('\t').collect::<Vec<_>>()[..] else {
                        panic!("{line}")
                    };
                    format!("{sensor}\t{site}\t{time}\t{temp}\t{}", humidity.trim_end_matches('i'))
                })
                .collect();
            by_lines.sort();
            let tables: String = (0..fleet.days).map(|day| fleet.table_of(day)).collect();
            let mut by_table: Vec<&str> = tables.lines().collect();
            by_table.sort_unstable();
            assert_eq!((by_lines.len(), by_lines), (144, by_table.iter().map(|line| (*line).to_owned()).collect()));
        }
    }
}
