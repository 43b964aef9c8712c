//! Which points are measured, and with what: what is varied, and all else.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

use crate::bodies::Fleet;
use crate::stats::to_f64;

/// Seconds between two readings of a sensor.
const INTERVAL_S: i64 = 60;
/// Readings of a point that ends with them.
const READINGS: usize = 2_000_000;
/// A point that ends with its readings is cut off after this. A store that takes 30,000 readings/s gets through.
const LONGEST: Duration = Duration::from_secs(60);
/// The same for filling the store: that of 100 million readings takes minutes.
const LONGEST_FILLING: Duration = Duration::from_secs(1200);
/// How many sensors and connections hourglass takes as it is configured by default.
const SENSORS_BY_DEFAULT: usize = 1_000_000;
const CONNECTIONS_BY_DEFAULT: usize = 1024;
const CONNECTIONS_PER_ADDRESS_BY_DEFAULT: usize = 256;
/// Connections by which a server is told and asked things.
const CONNECTIONS_BESIDES: usize = 16;

/// What is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Series {
    /// 1,000 to 1,000,000 sensors, 5,000 readings per POST, 8 connections, 2 million readings.
    Sensors,
    /// 1 to 5,000 readings per POST, 1,000 sensors, 64 connections, for 8 seconds.
    ReadingsPerPost,
    /// 1 to 1,024 connections, one reading per POST, 1,000 sensors, for 8 seconds.
    Connections,
    /// 2 million readings of 1,000 sensors into an empty store, and into one that was filled before.
    Stored,
}

/// How much there is of everything.
#[derive(Debug, Clone, Args)]
pub struct Sizes {
    /// Readings that the store is filled with.
    #[arg(long, default_value_t = 100_000_000)]
    pub filled: usize,
    /// Sensors, readings and seconds times this: small for a look whether it works.
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
}

/// What is measured at once, by a hourglass of its own.
#[derive(Debug, Clone)]
pub struct Point {
    /// The varied quantity.
    pub at: usize,
    /// Whose readings.
    pub fleet: Fleet,
    /// Readings per POST.
    pub lines: usize,
    /// Each with one POST under way.
    pub connections: usize,
    /// Readings that are in the store before.
    pub filled: usize,
    /// Filling takes so long at most.
    pub longest_filling: Duration,
    /// Readings that are measured, at most.
    pub readings: usize,
    /// For so long at most.
    pub longest: Duration,
}

impl Series {
    /// All of them, or the only one.
    pub fn all(only: Option<Self>) -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied().filter(move |series| only.is_none_or(|only| only == *series))
    }

    /// What it is called in flags and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sensors => "sensors",
            Self::ReadingsPerPost => "readings-per-post",
            Self::Connections => "connections",
            Self::Stored => "stored",
        }
    }

    /// What is varied, in words.
    pub fn varied(self) -> &'static str {
        match self {
            Self::Sensors => "sensors",
            Self::ReadingsPerPost => "readings per POST",
            Self::Connections => "connections",
            Self::Stored => "readings in the store before",
        }
    }

    /// Its points, in order.
    pub fn points(self, sizes: &Sizes) -> Result<Vec<Point>> {
        ensure!(sizes.scale.is_finite() && sizes.scale > 0.0, "--scale must be above 0");
        let by_readings = |at, sensors: usize, filled| {
            let readings = sizes.scaled(READINGS).max(2 * sensors);
            Point { readings, ..Point::of(at, sensors, filled, LONGEST) }
        };
        let by_time = |at, lines, connections| {
            let longest = Duration::from_secs_f64((8.0 * sizes.scale).max(0.2));
            Point { lines, connections, ..Point::of(at, 1000, 0, longest) }
        };
        let points = match self {
            Self::Sensors => {
                let sensors = [1000, 10_000, 100_000, 1_000_000].map(|sensors| sizes.scaled(sensors));
                sensors.map(|sensors| by_readings(sensors, sensors, 0)).into()
            }
            Self::ReadingsPerPost => [1, 10, 100, 1000, 5000].map(|lines| by_time(lines, lines, 64)).into(),
            Self::Connections => [1, 4, 16, 64, 256, 1024].map(|count| by_time(count, 1, count)).into(),
            Self::Stored => [0, sizes.scaled(sizes.filled)].map(|filled| by_readings(filled, 1000, filled)).into(),
        };
        Ok(points)
    }
}

impl Sizes {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, above 0 and below 2^53")]
    fn scaled(&self, count: usize) -> usize {
        if count == 0 { 0 } else { ((to_f64(count) * self.scale).round() as usize).max(1) }
    }
}

impl Point {
    /// With as many readings as there is time for, as gateways send them.
    fn of(at: usize, sensors: usize, filled: usize, longest: Duration) -> Self {
        let fleet = Fleet { sensors, interval_s: INTERVAL_S };
        let longest_filling = LONGEST_FILLING;
        Self { at, fleet, lines: 5000, connections: 8, filled, longest_filling, readings: usize::MAX, longest }
    }

    /// What hourglass must be told: everything is as it is by default, unless a bound would end the point.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let (sensors, connections) = (self.fleet.sensors, self.connections + CONNECTIONS_BESIDES);
        let mut variables = Vec::new();
        if sensors >= SENSORS_BY_DEFAULT {
            variables.push(("HOURGLASS_LIMITS__SENSORS", (2 * sensors).to_string()));
        }
        if connections > CONNECTIONS_BY_DEFAULT {
            variables.push(("HOURGLASS_SERVER__CONNECTIONS", connections.to_string()));
        }
        if connections > CONNECTIONS_PER_ADDRESS_BY_DEFAULT {
            variables.push(("HOURGLASS_SERVER__CONNECTIONS_PER_ADDRESS", connections.to_string()));
        }
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(series: Series, scale: f64) -> Vec<Point> {
        series.points(&Sizes { filled: 100_000_000, scale }).unwrap()
    }

    #[test]
    fn every_sensor_has_two_readings_at_least() {
        for scale in [1.0, 0.01, 3.0, 0.0001] {
            let points = points(Series::Sensors, scale);
            assert!(points.iter().all(|point| point.readings >= 2 * point.fleet.sensors && point.at > 0), "{scale}");
        }
        let sensors: Vec<usize> = points(Series::Sensors, 0.01).iter().map(|point| point.at).collect();
        assert_eq!(sensors, [10, 100, 1000, 10_000]);
        assert!(Series::Sensors.points(&Sizes { filled: 1, scale: 0.0 }).is_err());
    }

    #[test]
    fn hourglass_is_told_only_of_bounds_that_would_end_a_point() {
        let told = |series| {
            let told = points(series, 1.0).iter().map(Point::variables).collect::<Vec<_>>();
            told.into_iter().flatten().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(told(Series::Sensors), ["HOURGLASS_LIMITS__SENSORS=2000000"]);
        assert_eq!(
            told(Series::Connections),
            [
                "HOURGLASS_SERVER__CONNECTIONS_PER_ADDRESS=272",
                "HOURGLASS_SERVER__CONNECTIONS=1040",
                "HOURGLASS_SERVER__CONNECTIONS_PER_ADDRESS=1040",
            ]
        );
        assert!(told(Series::ReadingsPerPost).is_empty() && told(Series::Stored).is_empty());
    }

    #[test]
    fn the_store_is_empty_and_then_filled() {
        let filled = |scale| points(Series::Stored, scale).iter().map(|point| point.filled).collect::<Vec<_>>();
        assert_eq!((filled(1.0), filled(0.01)), (vec![0, 100_000_000], vec![0, 1_000_000]));
    }
}
