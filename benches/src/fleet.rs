//! Bodies of line protocol from a fleet of thermometers with random walks, the same in every run. The values resemble
//! those of `hourglass-loadtest`, because their compression ratio affects the results.

use std::fmt::Write;

/// The time of the first reading: 2026-01-15T00:00:00Z.
pub const START_MS: i64 = 1_768_435_200_000;
/// Milliseconds between two readings of one sensor.
const INTERVAL_MS: i64 = 60_000;
/// Upper bound of the random delay of a reading in milliseconds.
const JITTER_MS: u64 = 500;

/// Sensors that report two fields once a minute, all in turn.
#[derive(Debug, Clone)]
pub struct Fleet {
    /// The values of each sensor, in hundredths of a degree and tenths of a percent.
    values: Vec<(i64, i64)>,
    next: usize,
    random: u64,
}

impl Fleet {
    /// Creates a fleet of this many sensors, before their first readings.
    #[must_use]
    pub fn new(sensors: usize) -> Self {
        let mut fleet = Self { values: Vec::new(), next: 0, random: 0x9e37_79b9_7f4a_7c15 };
        fleet.values = (0..sensors).map(|_| (fleet.below(3000), 200 + fleet.below(750))).collect();
        fleet
    }

    /// Returns the number of sensors.
    #[must_use]
    pub fn sensors(&self) -> usize {
        self.values.len()
    }

    /// Returns a body of the next lines.
    pub fn body(&mut self, lines: usize) -> String {
        let mut body = String::with_capacity(lines * 80);
        (0..lines).for_each(|_| self.line(&mut body));
        body
    }

    /// Returns the next `lines` lines, in bodies of `each` lines.
    pub fn bodies(&mut self, lines: usize, each: usize) -> Vec<String> {
        (0..lines).step_by(each).map(|start| self.body(each.min(lines - start))).collect()
    }

    fn line(&mut self, body: &mut String) {
        const SITES: [&str; 4] = ["berlin", "lyon", "porto", "turku"];
        let sensor = self.next % self.values.len();
        let tick = self.next / self.values.len();
        self.next += 1;
        let jitter = i64::try_from(self.random % JITTER_MS).unwrap_or_default();
        let time = START_MS + i64::try_from(tick).unwrap_or_default() * INTERVAL_MS + jitter;
        let (temp, humidity) = self.values[sensor];
        let temp = (temp + self.below(41) - 20).clamp(0, 4500);
        let humidity = (humidity + self.below(11) - 5).clamp(200, 950);
        self.values[sensor] = (temp, humidity);
        let site = SITES[sensor % SITES.len()];
        let cents = temp % 100;
        let temp = temp / 100;
        let tenths = humidity % 10;
        let humidity = humidity / 10;
        // Writing to a String cannot fail.
        let _ = writeln!(
            body,
            "climate,sensor=s{sensor:06},site={site} temp={temp}.{cents:02},humidity={humidity}.{tenths} {time}000000"
        );
    }

    /// Returns a number from 0 to below the bound by xorshift, which is random enough for a walk.
    fn below(&mut self, bound: u64) -> i64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        i64::try_from(self.random % bound).unwrap_or_default()
    }
}
