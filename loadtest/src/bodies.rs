//! Generates deterministic readings as bodies of line protocol.

use bytes::Bytes;

/// The time of the first reading: 2026-01-15T00:00:00Z.
pub const START_S: i64 = 1_768_435_200;

/// Sensors that report two fields at the same interval, all in turn.
#[derive(Debug, Clone, Copy)]
pub struct Fleet {
    pub sensors: usize,
    /// Seconds between two readings of one sensor.
    pub interval_s: i64,
}

pub struct Reading {
    /// The number of the sensor.
    pub sensor: usize,
    /// In seconds since the epoch.
    pub time: i64,
    /// In hundredths: two decimals, like real thermometers.
    pub temp_hundredths: usize,
    pub humidity: usize,
}

impl Fleet {
    /// `readings` lines in time order, in bodies of `lines` lines.
    pub fn bodies(&self, readings: usize, lines: usize) -> Vec<Bytes> {
        (0..readings).step_by(lines.max(1)).map(|first| self.body(first, lines.min(readings - first))).collect()
    }

    /// A body of `lines` lines, from line number `first` on.
    pub fn body(&self, first: usize, lines: usize) -> Bytes {
        let mut body = Vec::with_capacity(lines * 80);
        for number in first..first + lines {
            line(&mut body, &self.reading(number));
        }
        Bytes::from(body)
    }

    /// The reading with this number in time order. Each sensor's values are a slow wave.
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

/// Does not use `format!`, which takes ten times as long; some bodies are generated during the measurement.
fn line(body: &mut Vec<u8>, reading: &Reading) {
    body.extend_from_slice(b"climate,sensor=s");
    digits(body, reading.sensor, 6);
    body.extend_from_slice(b",site=a temp=");
    digits(body, reading.temp_hundredths / 100, 1);
    body.push(b'.');
    digits(body, reading.temp_hundredths % 100, 2);
    body.extend_from_slice(b",humidity=");
    digits(body, reading.humidity, 1);
    body.push(b' ');
    digits(body, usize::try_from(reading.time).unwrap_or(0), 1);
    body.extend_from_slice(b"000000000\n");
}

/// Writes a whole number with at least `least` digits.
fn digits(body: &mut Vec<u8>, value: usize, least: usize) {
    let start = body.len();
    let mut rest = value;
    while rest > 0 || body.len() - start < least {
        body.push(b"0123456789"[rest % 10]);
        rest /= 10;
    }
    body[start..].reverse();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_hold_every_reading_once_in_order() {
        let fleet = Fleet { sensors: 3, interval_s: 60 };
        let bodies = fleet.bodies(7, 3);
        let text = |bodies: &[Bytes]| String::from_utf8(bodies.concat()).unwrap();
        let first = format!("climate,sensor=s000000,site=a temp=20.00,humidity=30 {START_S}000000000");
        let last = format!("climate,sensor=s000000,site=a temp=20.06,humidity=32 {}000000000", START_S + 120);
        let lines: Vec<String> = text(&bodies).lines().map(str::to_owned).collect();
        assert_eq!((bodies.len(), lines.len(), &lines[0], &lines[6]), (3, 7, &first, &last));
        assert_eq!(text(&bodies[1..]), text(&[fleet.body(3, 4)]));
        let mut body = Vec::new();
        for (value, least) in [(0, 1), (0, 2), (7, 1), (999_999, 6), (1_000_000, 6)] {
            digits(&mut body, value, least);
        }
        assert_eq!(String::from_utf8(body).unwrap(), "00079999991000000");
    }
}
