//! Measures how cost grows with one quantity at a time: sensors, readings per POST, connections, or stored readings.
//! Starts hourglass with a fresh folder for every point, and loads it as fast as possible.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use super::measure;
use crate::fleet::{Delivery, Fleet, float, round_up};
use crate::load::closed::Load;
use crate::report::{Output, Results};
use crate::servers::peer::{Peer, hourglass_peer};
use crate::servers::process;
use crate::servers::programs::{ProgramOptions, Programs};
use crate::servers::system::{Configuration, System};
use crate::stats::{quantile_ms, three_digits};

/// Number of readings of a point that is not limited by time.
const READINGS: i64 = 2_000_000;
/// Maximum time of such a point. It is enough at 30,000 readings/s.
const POINT_TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum time for filling the store; 100 million readings take minutes.
const FILL_TIME_MAX: Duration = Duration::from_secs(1200);
/// Number of parts in which a store is filled, to see how cost grows meanwhile.
const PARTS: usize = 20;
/// Limits of hourglass that would end a point.
const LIMIT: i64 = 4_000_000;
const MIB: f64 = 1_048_576.0;

/// Measure how cost grows with the number of sensors, readings per POST, connections and stored readings.
#[derive(Debug, Args)]
pub struct Growth {
    /// The hourglass to measure.
    #[arg(long, value_parser = hourglass_peer(), default_value = "hourglass-embedded")]
    peer: Peer,
    /// Run only this series.
    #[arg(long)]
    only: Option<Series>,
    /// Number of readings to fill the store with. 100 million take 10 GB in --folder.
    #[arg(long, default_value_t = 100_000_000)]
    filled: i64,
    /// Factor of sensors, readings and seconds; use a small one for a quick test.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    #[command(flatten)]
    programs: ProgramOptions,
    #[command(flatten)]
    output: Output,
}

/// The varied quantity.
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

/// One point, measured with a fresh hourglass.
#[derive(Debug, Clone, Copy)]
struct Point {
    /// The value of the varied quantity.
    quantity: i64,
    /// Number of POSTs in the store before the measured part.
    filled: usize,
    load: Load,
}

pub async fn run(options: Growth) -> Result<()> {
    ensure!(options.scale.is_finite() && options.scale > 0.0, "--scale must be above 0");
    let programs = options.programs.programs();
    let mut results = Results::new();
    results.systems.push(options.peer.row(&programs, "")?);
    for series in Series::value_variants().iter().filter(|series| options.only.is_none_or(|only| only == **series)) {
        for point in series.points(options.filled, options.scale) {
            println!("{}: {}", series.name(), point.quantity);
            point.measure(&options, &programs, series.name(), &mut results).await.context(series.name())?;
            results.write(&options.output)?;
        }
    }
    results.finish(&options.output)
}

impl Series {
    fn name(self) -> &'static str {
        match self {
            Self::Sensors => "sensors",
            Self::ReadingsPerPost => "readings per POST",
            Self::Connections => "connections",
            Self::Stored => "readings in the store before",
        }
    }

    /// Returns its points, in order.
    #[expect(clippy::cast_possible_truncation, reason = "a count, above 0 and below 2^53")]
    fn points(self, filled: i64, scale: f64) -> Vec<Point> {
        let scaled = |count: i64| if count == 0 { 0 } else { ((float(count) * scale).round() as i64).max(1) };
        // Batches like those of a gateway, as many readings as there is time for.
        let by_readings = |quantity, sensors: i64, filled: i64| {
            let readings = scaled(READINGS).max(2 * sensors);
            let delivery =
                Delivery::in_time_order(Fleet::by_minute(sensors, round_up(filled + readings, sensors) / sensors));
            let filled = usize::try_from(filled / 5000).unwrap_or_default();
            let posts = delivery.posts(5000) - filled;
            Point {
                quantity,
                filled,
                load: Load { first: filled, posts, time_max: POINT_TIME_MAX, ..Load::all(delivery) },
            }
        };
        let by_time = |quantity, lines, connections| {
            let delivery = Delivery::in_time_order(Fleet::by_minute(1000, 100_000_000));
            let time_max = Duration::from_secs_f64((8.0 * scale).max(0.2));
            let load = Load { first: 0, posts: usize::MAX, lines, connections, delivery, time_max };
            Point { quantity, filled: 0, load }
        };
        match self {
            Self::Sensors => {
                let sensors = [1000, 10_000, 100_000, 1_000_000].map(scaled);
                sensors.map(|sensors| by_readings(sensors, sensors, 0)).into()
            }
            Self::ReadingsPerPost => [1, 10, 100, 1000, 5000].map(|lines| by_time(lines, lines, 64)).into(),
            Self::Connections => {
                [1, 4, 16, 64, 256, 1024].map(|count: u16| by_time(count.into(), 1, count.into())).into()
            }
            Self::Stored => [0, scaled(filled)].map(|filled| by_readings(filled, 1000, filled)).into(),
        }
    }
}

impl Point {
    /// Starts a fresh hourglass, fills it if needed, and loads it.
    async fn measure(&self, options: &Growth, programs: &Programs, series: &str, results: &mut Results) -> Result<()> {
        let limits =
            ["HOURGLASS_LIMITS_SENSORS", "HOURGLASS_SERVER_CONNECTIONS", "HOURGLASS_SERVER_CONNECTIONS_PER_ADDRESS"];
        let [sensors, connections, per_address] = limits;
        let mut variables = vec![(connections, "2048".to_owned()), (per_address, "2048".to_owned())];
        if self.load.delivery.fleet.sensors >= 1_000_000 {
            variables.push((sensors, LIMIT.to_string()));
        }
        let configuration = Configuration { variables, file: "" };
        let folder = &options.programs.folder;
        let mut system = System::start_with(options.peer, programs, folder, configuration).await?;
        if self.filled > 0 {
            self.fill(&system, results).await?;
        }
        let row = three_digits(float(self.quantity));
        for (column, value) in measure(&system, self.load).await? {
            results.add(series, &row, column, value);
        }
        results.add(series, &row, "disk MiB", system.data_bytes()? / MIB);
        system.stop()
    }

    /// Fills the store as far as the time allows. The next part starts without waiting for the store.
    async fn fill(&self, system: &System<'_>, results: &mut Results) -> Result<()> {
        let begun = Instant::now();
        let part = self.filled.div_ceil(PARTS);
        let mut first = 0;
        while first < self.filled && begun.elapsed() < FILL_TIME_MAX {
            let before = system.usage()?;
            let posts = part.min(self.filled - first);
            let load = Load { first, posts, time_max: Duration::MAX, ..self.load };
            let sent = load.send(system.address()?, "/write?db=bench").await?;
            let readings = load.readings(posts);
            first += posts;
            let row = three_digits(Load { first: 0, ..load }.readings(first));
            let resident: f64 = system.pids().into_iter().map(process::resident_mib).sum::<Result<f64>>()?;
            println!("   filled with {row}: {resident:.0} MiB resident");
            for (column, value) in [
                ("acked/s", readings / sent.took.as_secs_f64()),
                ("CPU µs", (system.usage()?.cpu_s - before.cpu_s) * 1e6 / readings),
                ("ack p99 ms", quantile_ms(&sent.acks, 0.99)),
                ("resident MiB", resident.round()),
                ("disk MiB", system.data_bytes()? / MIB),
            ] {
                results.add("readings stored, while the store is filled", &row, column, value);
            }
        }
        system.flush().await?;
        system.pids().into_iter().try_for_each(process::forget_peak)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sensor_has_two_readings_at_least() {
        for scale in [1.0, 0.01, 3.0, 0.0001] {
            for point in Series::Sensors.points(0, scale) {
                let fleet = point.load.delivery.fleet;
                assert!(fleet.ticks >= 2 && fleet.sensors == point.quantity && point.quantity > 0, "{scale}");
            }
        }
        let sensors: Vec<i64> = Series::Sensors.points(0, 0.01).iter().map(|point| point.quantity).collect();
        assert_eq!(sensors, [10, 100, 1000, 10_000]);
    }

    #[test]
    fn the_store_is_empty_and_then_filled() {
        let points = |scale| {
            let points = Series::Stored.points(100_000_000, scale);
            points.iter().map(|point| (point.quantity, point.filled, point.load.posts)).collect::<Vec<_>>()
        };
        assert_eq!(points(1.0), [(0, 0, 400), (100_000_000, 20_000, 400)]);
        assert_eq!(points(0.01), [(0, 0, 4), (1_000_000, 200, 4)]);
    }
}
