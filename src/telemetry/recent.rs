//! Samples of the last half hour for `/api/v1/overview`: rates, ack times, readings not stored yet, and the growth of
//! the store. It serves installations without Prometheus. An ack costs one atomic addition; everything else is sampled.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

/// Interval of the samples.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of samples: half an hour.
const SAMPLES_MAX: usize = 360;
/// Maximum number of senders whose timestamps before 2000 are counted.
const SENDERS_MAX: usize = 100;
/// Minimum time of observation before the growth of the store is reported.
const GROWTH_AFTER: Duration = Duration::from_secs(600);

/// Number of buckets of ack times: four per doubling, starting at a microsecond.
const BUCKETS: usize = 128;

/// The samples of the last half hour, and the counters that the next sample is taken from.
#[derive(Debug)]
pub struct Recent {
    acks: [AtomicU64; BUCKETS],
    history: Mutex<History>,
    /// Timestamps before 2000 since the start, by the name of the sender's token.
    early: Mutex<BTreeMap<String, u64>>,
}

#[derive(Debug, Default)]
struct History {
    samples: VecDeque<Sample>,
    /// Ack counts by bucket at the last sample.
    acks: Vec<u64>,
    /// Number of accepted readings at the last sample.
    accepted: u64,
    /// Time of the last sample.
    sampled_at: Option<Instant>,
    /// Bytes that the store took, with the time of each measurement.
    sizes: VecDeque<(Instant, u64)>,
    disk: Disk,
}

/// The figures since the previous sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sample {
    /// Wall-clock time in milliseconds.
    pub time_ms: i64,
    /// Readings accepted per second.
    pub readings_per_second: f64,
    /// Writes acked per second.
    pub writes_per_second: f64,
    /// Median ack time in seconds, at most a quarter too long. `None` if there were no acks.
    pub ack_p50_seconds: Option<f64>,
    /// The 99th percentile of the ack time in seconds, as above.
    pub ack_p99_seconds: Option<f64>,
    /// Number of acked readings that are not stored yet.
    pub pending_readings: i64,
}

/// Disk space in bytes; `None` if unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Disk {
    pub log_free: Option<u64>,
    pub store_bytes: Option<u64>,
    pub store_free: Option<u64>,
}

impl Default for Recent {
    fn default() -> Self {
        Self { acks: std::array::from_fn(|_| AtomicU64::new(0)), history: Mutex::default(), early: Mutex::default() }
    }
}

impl Recent {
    /// Counts an ack.
    pub fn note_ack(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.acks[bucket(micros)].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts timestamps before 2000. Names of further senders than [`SENDERS_MAX`] are not kept.
    pub fn note_early(&self, sender: &str, count: u64) {
        let mut early = self.early.lock();
        if let Some(sum) = early.get_mut(sender) {
            *sum += count;
        } else if early.len() < SENDERS_MAX {
            early.insert(sender.to_owned(), count);
        }
    }

    /// Returns the senders of timestamps before 2000, and how many each has sent since the start.
    #[must_use]
    pub fn early_senders(&self) -> BTreeMap<String, u64> {
        self.early.lock().clone()
    }

    /// Records the free bytes on the disk of the WAL.
    pub fn log_disk(&self, free: Option<u64>) {
        self.history.lock().disk.log_free = free;
    }

    /// Records the bytes that the store takes, and the free bytes on its disk.
    pub fn store_space(&self, taken: Option<u64>, free: Option<u64>, now: Instant) {
        let mut history = self.history.lock();
        history.disk = Disk { store_bytes: taken, store_free: free, ..history.disk };
        history.sizes.extend(taken.map(|taken| (now, taken)));
        if history.sizes.len() > SAMPLES_MAX {
            history.sizes.pop_front();
        }
    }

    /// Takes a sample. `time_ms` is the wall-clock time, and `accepted` the number of readings since the start.
    pub fn sample(&self, now: Instant, time_ms: i64, accepted: u64, pending: i64) {
        let acks: Vec<u64> = self.acks.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let mut history = self.history.lock();
        let seconds =
            history.sampled_at.map_or(0.0, |sampled_at| now.saturating_duration_since(sampled_at).as_secs_f64());
        if seconds > 0.0 {
            let new: Vec<u64> = acks.iter().zip(&history.acks).map(|(now, before)| now - before).collect();
            let rate = |count: u64| wide(count) / seconds;
            let sample = Sample {
                time_ms,
                readings_per_second: rate(accepted.saturating_sub(history.accepted)),
                writes_per_second: rate(new.iter().sum()),
                ack_p50_seconds: quantile(&new, 0.5),
                ack_p99_seconds: quantile(&new, 0.99),
                pending_readings: pending,
            };
            history.samples.push_back(sample);
            if history.samples.len() > SAMPLES_MAX {
                history.samples.pop_front();
            }
        }
        history.acks = acks;
        history.accepted = accepted;
        history.sampled_at = Some(now);
    }

    /// Returns the samples, oldest first.
    #[must_use]
    pub fn samples(&self) -> Vec<Sample> {
        self.history.lock().samples.iter().copied().collect()
    }

    #[must_use]
    pub fn disk(&self) -> Disk {
        self.history.lock().disk
    }

    /// Estimates the days until the disk of the store is full at its recent growth. Returns `None` if the store does
    /// not grow, or was observed too shortly.
    #[must_use]
    pub fn days_left(&self) -> Option<f64> {
        let history = self.history.lock();
        let free = history.disk.store_free?;
        let (start, first_bytes) = history.sizes.front()?;
        let (end, last_bytes) = history.sizes.back()?;
        let observed = end.saturating_duration_since(*start);
        let growth = last_bytes.checked_sub(*first_bytes).filter(|growth| *growth > 0 && observed >= GROWTH_AFTER)?;
        Some(wide(free) / (wide(growth) / observed.as_secs_f64() * 86_400.0))
    }
}

/// Returns the bucket of a time by its highest bit and the two bits after it.
fn bucket(micros: u64) -> usize {
    let micros = micros.max(1);
    let octave = micros.ilog2();
    let quarter = if octave >= 2 { (micros >> (octave - 2)) & 3 } else { (micros << (2 - octave)) & 3 };
    (octave as usize * 4 + usize::try_from(quarter).unwrap_or(0)).min(BUCKETS - 1)
}

/// Returns the upper bound of a bucket in seconds.
fn upper_bound(bucket: usize) -> f64 {
    let octave = bucket / 4;
    let quarter = bucket % 4;
    let quarters = u32::try_from(quarter).unwrap_or(0) + 5;
    2_f64.powi(i32::try_from(octave).unwrap_or(0)) * f64::from(quarters) / 4.0 / 1e6
}

/// Returns the upper bound of the bucket with the item of this rank, or `None` without items.
fn quantile(counts: &[u64], rank: f64) -> Option<f64> {
    let wanted = wide(counts.iter().sum()) * rank;
    let mut sum = 0;
    let found = counts.iter().position(|count| {
        sum += count;
        sum > 0 && wide(sum) >= wanted
    });
    found.map(upper_bound)
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn wide(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_ack_time_is_at_most_a_quarter_too_long() {
        for micros in [1, 2, 3, 7, 100, 999, 5_000, 123_456, 10_000_000] {
            let recent = Recent::default();
            let start = Instant::now();
            recent.sample(start, 0, 0, 0);
            recent.note_ack(Duration::from_micros(micros));
            recent.sample(start + Duration::from_secs(2), 2000, 10, 3);
            let [sample] = recent.samples()[..] else { panic!("one sample") };
            let told = sample.ack_p99_seconds.unwrap() * 1e6;
            let took = micros as f64;
            assert!(told > took * 0.999 && told <= took * 1.25 + 1e-9, "{micros}: {told}");
            let Sample { readings_per_second, writes_per_second, pending_readings, .. } = sample;
            assert_eq!((readings_per_second, writes_per_second, pending_readings), (5.0, 0.5, 3));
        }
    }

    #[test]
    fn days_left_follow_from_the_growth() {
        let recent = Recent::default();
        let start = Instant::now();
        let at = |minutes: u64| start + Duration::from_secs(60 * minutes);
        recent.store_space(Some(1000), Some(86_400), at(0));
        recent.store_space(Some(1300), Some(86_400), at(5));
        assert_eq!(recent.days_left(), None, "too early to tell");
        recent.store_space(Some(2000), Some(86_400), at(10));
        let days = recent.days_left().unwrap();
        assert!((days - 0.6).abs() < 1e-9, "{days}");
        recent.store_space(Some(1000), Some(86_400), at(15));
        assert_eq!(recent.days_left(), None, "it does not grow");
    }
}
