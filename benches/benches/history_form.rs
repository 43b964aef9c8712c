//! The form of sealed days beside `pco`, a codec for columns of numbers: bytes per reading, and nanoseconds per reading to
//! encode and to decode, for a day of one sensor with two fields, one reading per minute or per second. Prints a Markdown
//! table: `cargo bench -p hourglass-benches --bench history_form`. Each time is the shortest of many runs on one
//! thread.
//!
//! `pco` gets each column alone: timestamps as milliseconds, numbers as numbers. A sealed day also has the names, types
//! and missing values, which `pco` would need as well. A decoded day is a set of readings in both cases.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hourglass::bucket::Readings;
use hourglass::reading::Value;
use hourglass::store::sealed::{pack, unpack_readings};
use mimalloc::MiMalloc;
use pco::ChunkConfig;
use pco::standalone::{simple_compress, simple_decompress};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const NS_PER_MS: i64 = 1_000_000;
/// 2026-01-15T00:00:00Z, in milliseconds.
const START_MS: i64 = 1_768_435_200_000;
const DAY_S: i64 = 86_400;

/// One sensor's day: milliseconds, a number with a fraction, a whole number.
struct Day {
    times: Vec<i64>,
    temp: Vec<f64>,
    count: Vec<i64>,
}

/// A source of pseudorandom numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from(self.0 >> 33).unwrap_or_default() % bound
    }
}

/// Converts hundredths to a number.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn hundredths(number: i64) -> f64 {
    number as f64 / 100.0
}

/// Builds the day of a named shape of values.
fn day(values: &str, interval_s: i64) -> Day {
    let mut random = Random(7);
    let mut walk = 100_000;
    let mut day = Day { times: Vec::new(), temp: Vec::new(), count: Vec::new() };
    for tick in 0..DAY_S / interval_s {
        let minute = tick * interval_s / 60;
        let curve = (minute % 1440 - 720).abs();
        walk += random.below(41) - 20;
        let (temp, count) = match values {
            "slow waves" => (hundredths(2000 + tick * 3 % 900), 30 + tick % 60),
            "a daily curve, noise of two decimals" => {
                (hundredths(1500 + curve + random.below(25)), 40 + curve / 36 + random.below(3))
            }
            "a random walk, all bits of the fraction" => {
                (hundredths(walk) + hundredths(random.below(1 << 30)) / 1e7, walk)
            }
            // A counter, and a status.
            _ => (hundredths(tick * 100), tick * 37 + random.below(37)),
        };
        // Clocks are some milliseconds off.
        let jitter = if values.starts_with("a daily") { random.below(20) } else { 0 };
        day.times.push(START_MS + tick * interval_s * 1000 + jitter);
        day.temp.push(temp);
        day.count.push(count);
    }
    day
}

impl Day {
    fn readings(&self) -> Readings {
        let columns = [
            (Arc::from("temp"), self.temp.iter().map(|value| Some(Value::Float(*value))).collect()),
            (Arc::from("count"), self.count.iter().map(|value| Some(Value::Integer(*value))).collect()),
        ];
        let times = self.times.iter().map(|ms| ms * NS_PER_MS).collect();
        Readings::from_columns(times, columns).unwrap_or_else(|_| unreachable!("times rise"))
    }

    fn compress_with_pco(&self, level: usize) -> [Vec<u8>; 3] {
        let config = ChunkConfig::default().with_compression_level(level);
        let done = "pco compresses numbers in memory";
        [
            simple_compress(&self.times, &config).expect(done),
            simple_compress(&self.temp, &config).expect(done),
            simple_compress(&self.count, &config).expect(done),
        ]
    }
}

fn decompress_with_pco(packed: &[Vec<u8>; 3]) -> Readings {
    let valid = "it was just compressed";
    let times = simple_decompress::<i64>(&packed[0]).expect(valid);
    let temp = simple_decompress(&packed[1]).expect(valid);
    let count = simple_decompress(&packed[2]).expect(valid);
    Day { times, temp, count }.readings()
}

/// Returns the shortest time of many runs.
fn shortest_time<T>(runs: usize, mut run: impl FnMut() -> T) -> Duration {
    let time_run = |_| {
        let started = Instant::now();
        black_box(run());
        started.elapsed()
    };
    (0..runs).map(time_run).min().unwrap_or_default()
}

fn main() {
    // `cargo test` runs it without this argument.
    let runs: usize = if std::env::args().any(|argument| argument == "--bench") { 400 } else { 1 };
    println!("| a day of one sensor | readings | form | B per reading | encode, ns | decode, ns | B × decode |");
    println!("|---|---|---|---|---|---|---|");
    for values in [
        "slow waves",
        "a daily curve, noise of two decimals",
        "a random walk, all bits of the fraction",
        "whole numbers",
    ] {
        for interval_s in [60, 1] {
            let day = day(values, interval_s);
            let readings = day.readings();
            let count = f64::from(u32::try_from(day.times.len()).unwrap_or(1));
            let runs = if interval_s == 1 { runs.div_ceil(20) } else { runs };
            let row = |form: &str, bytes: usize, encode: Duration, decode: Duration| {
                let [bytes, encode, decode] = [
                    f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)),
                    encode.as_secs_f64() * 1e9,
                    decode.as_secs_f64() * 1e9,
                ]
                .map(|all| all / count);
                println!(
                    "| {values} | {count} | {form} | {bytes:.2} | {encode:.0} | {decode:.0} | {:.0} |",
                    bytes * decode
                );
            };
            let ours = pack(&readings);
            assert!(unpack_readings(&ours, 0).is_ok_and(|unpacked| unpacked.times() == readings.times()));
            // A set of readings caches its packed columns, so every run needs a fresh set.
            let mut fresh_sets = (0..runs).map(|_| day.readings()).collect::<Vec<_>>();
            let encode = shortest_time(runs, || fresh_sets.pop().map(|readings| pack(&readings)));
            row("columns, zstd", ours.len(), encode, shortest_time(runs, || unpack_readings(&ours, 0)));
            for level in [4, 8] {
                let packed = day.compress_with_pco(level);
                assert!(decompress_with_pco(&packed).times() == readings.times());
                let bytes = packed.iter().map(Vec::len).sum();
                row(
                    &format!("pco, level {level}"),
                    bytes,
                    shortest_time(runs, || day.compress_with_pco(level)),
                    shortest_time(runs, || decompress_with_pco(&packed)),
                );
            }
        }
    }
}
