//! Plans the points: the varied quantity, and all others.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

use crate::bodies::Fleet;
use crate::stats::to_f64;

/// Seconds between two readings of a sensor.
const INTERVAL_S: i64 = 60;
/// Number of readings of a point that is not limited by time.
const READINGS: usize = 2_000_000;
/// Maximum time of such a point. It is enough at 30,000 readings/s.
const LONGEST: Duration = Duration::from_secs(60);
/// Maximum time for filling the store; 100 million readings take minutes.
const LONGEST_FILLING: Duration = Duration::from_secs(1200);
/// The default limits of hourglass for sensors and connections.
const SENSORS_BY_DEFAULT: usize = 1_000_000;
const CONNECTIONS_BY_DEFAULT: usize = 1024;
const CONNECTIONS_PER_ADDRESS_BY_DEFAULT: usize = 256;
/// Additional connections, for administration and queries.
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

/// The sizes of the run.
#[derive(Debug, Clone, Args)]
pub struct Sizes {
    /// Number of readings to fill the store with.
    #[arg(long, default_value_t = 100_000_000)]
    pub filled: usize,
    /// Factor of sensors, readings and seconds; use a small one for a quick test.
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
}

/// One point, which is measured with a fresh hourglass.
#[derive(Debug, Clone)]
pub struct Point {
    /// The varied quantity.
    pub at: usize,
    pub fleet: Fleet,
    /// Readings per POST.
    pub lines: usize,
    /// Number of connections, each with one POST at a time.
    pub connections: usize,
    /// Readings in the store before the measured part.
    pub filled: usize,
    /// Maximum time for filling.
    pub longest_filling: Duration,
    /// Maximum number of measured readings.
    pub readings: usize,
    /// Maximum time of the measured part.
    pub longest: Duration,
}

impl Series {
    /// All series, or only this one.
    pub fn all(only: Option<Self>) -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied().filter(move |series| only.is_none_or(|only| only == *series))
    }

    /// The name in flags and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sensors => "sensors",
            Self::ReadingsPerPost => "readings-per-post",
            Self::Connections => "connections",
            Self::Stored => "stored",
        }
    }

    /// A description of the varied quantity.
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
    /// A point with as many readings as there is time for, in batches like those of a gateway.
    fn of(at: usize, sensors: usize, filled: usize, longest: Duration) -> Self {
        let fleet = Fleet { sensors, interval_s: INTERVAL_S };
        let longest_filling = LONGEST_FILLING;
        Self { at, fleet, lines: 5000, connections: 8, filled, longest_filling, readings: usize::MAX, longest }
    }

    /// The environment variables for hourglass: the defaults, except for limits that the point would exceed.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let (sensors, connections) = (self.fleet.sensors, self.connections + CONNECTIONS_BESIDES);
        let mut variables = Vec::new();
        if sensors >= SENSORS_BY_DEFAULT {
            variables.push(("HOURGLASS_LIMITS_SENSORS", (2 * sensors).to_string()));
        }
        if connections > CONNECTIONS_BY_DEFAULT {
            variables.push(("HOURGLASS_SERVER_CONNECTIONS", connections.to_string()));
        }
        if connections > CONNECTIONS_PER_ADDRESS_BY_DEFAULT {
            variables.push(("HOURGLASS_SERVER_CONNECTIONS_PER_ADDRESS", connections.to_string()));
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
        assert_eq!(told(Series::Sensors), ["HOURGLASS_LIMITS_SENSORS=2000000"]);
        assert_eq!(
            told(Series::Connections),
            [
                "HOURGLASS_SERVER_CONNECTIONS_PER_ADDRESS=272",
                "HOURGLASS_SERVER_CONNECTIONS=1040",
                "HOURGLASS_SERVER_CONNECTIONS_PER_ADDRESS=1040",
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
