//! What is sent: deterministic readings, made before the clock starts.

use std::fmt::Write;

use bytes::Bytes;

/// The first reading's time: 2026-01-15T00:00:00Z.
pub const START_S: i64 = 1_768_435_200;

/// Sensors that each report two fields at the same interval, one tick of all after the other.
#[derive(Debug, Clone, Copy)]
pub struct Fleet {
    /// How many.
    pub sensors: usize,
    /// Seconds between two readings of one.
    pub interval_s: i64,
}

/// A reading.
pub struct Reading {
    /// Its sensor's number.
    pub sensor: usize,
    /// Seconds.
    pub time: i64,
    /// Hundredths: two decimals, as thermometers send it.
    pub temp_hundredths: usize,
    /// A whole number.
    pub humidity: usize,
}

impl Fleet {
    /// `readings` lines in time order, `lines` to a body.
    pub fn bodies(&self, readings: usize, lines: usize) -> Vec<Bytes> {
        let mut bodies = Vec::with_capacity(readings.div_ceil(lines));
        let mut body = String::with_capacity(lines * 80);
        for number in 0..readings {
            line(&mut body, &self.reading(number));
            if (number + 1) % lines == 0 || number + 1 == readings {
                bodies.push(Bytes::from(std::mem::replace(&mut body, String::with_capacity(lines * 80))));
            }
        }
        bodies
    }

    /// The one of that number in time order: a slow wave per sensor.
    pub fn reading(&self, number: usize) -> Reading {
        let (sensor, tick) = (number % self.sensors, number / self.sensors);
        Reading {
            sensor,
            time: START_S + i64::try_from(tick).unwrap_or(0) * self.interval_s,
            temp_hundredths: 2000 + (sensor * 7 + tick * 3) % 900,
            humidity: 30 + (sensor + tick) % 60,
        }
    }
}

fn line(body: &mut String, reading: &Reading) {
    let Reading { sensor, time, temp_hundredths, humidity } = reading;
    let (whole, hundredths) = (temp_hundredths / 100, temp_hundredths % 100);
    // Writing to a String cannot fail.
    let _ = writeln!(
        body,
        "climate,sensor=s{sensor:06},site=a temp={whole}.{hundredths:02},humidity={humidity} {time}000000000"
    );
}
