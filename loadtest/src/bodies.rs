//! What is sent: deterministic readings, made before the clock starts.

use std::fmt::Write;

use bytes::Bytes;

/// The first reading's time: 2026-01-15T00:00:00Z.
const START_S: i64 = 1_768_435_200;

/// Sensors that each report two fields at the same interval, one tick of all after the other.
pub struct Fleet {
    /// How many.
    pub sensors: usize,
    /// Seconds between two readings of one.
    pub interval_s: i64,
}

impl Fleet {
    /// `readings` lines in time order, `lines` to a body.
    pub fn bodies(&self, readings: usize, lines: usize) -> Vec<Bytes> {
        let mut bodies = Vec::with_capacity(readings.div_ceil(lines));
        let mut body = String::with_capacity(lines * 80);
        for number in 0..readings {
            self.line(&mut body, number);
            if (number + 1) % lines == 0 || number + 1 == readings {
                bodies.push(Bytes::from(std::mem::replace(&mut body, String::with_capacity(lines * 80))));
            }
        }
        bodies
    }

    /// A slow wave per sensor with two decimals, as thermometers send it.
    fn line(&self, body: &mut String, number: usize) {
        let (sensor, tick) = (number % self.sensors, number / self.sensors);
        let time = START_S + i64::try_from(tick).unwrap_or(0) * self.interval_s;
        let temp = 2000 + (sensor * 7 + tick * 3) % 900;
        let humidity = 30 + (sensor + tick) % 60;
        // Writing to a String cannot fail.
        let _ = writeln!(
            body,
            "climate,sensor=s{sensor:06},site=a temp={}.{:02},humidity={humidity} {time}000000000",
            temp / 100,
            temp % 100
        );
    }
}
