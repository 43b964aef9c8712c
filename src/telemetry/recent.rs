//! What the last half hour was like, for people: rates, how long acks took, how far the store was behind, how its disk fills. Prometheus knows
//! more; this is for whoever has none. One atomic addition per ack; the rest is sampled.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

/// How often a sample is taken.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);
/// Most samples: half an hour.
const SAMPLES: usize = 360;
/// How long the store must have been watched before its growth says anything.
const GROWTH_AFTER: Duration = Duration::from_secs(600);

/// Buckets of ack times: four per doubling, from a microsecond on.
const BUCKETS: usize = 128;

#[derive(Debug)]
pub struct Recent {
    acks: [AtomicU64; BUCKETS],
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    samples: VecDeque<Sample>,
    /// Of the last sample.
    acks: Vec<u64>,
    accepted: u64,
    /// When it was taken.
    at: Option<Instant>,
    /// Bytes that the store took at times that are some minutes apart.
    sizes: VecDeque<(Instant, u64)>,
    disk: Disk,
}

/// What happened since the sample before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sample {
    /// Wall-clock time in milliseconds.
    pub time_ms: i64,
    /// Readings accepted per second.
    pub readings_per_second: f64,
    /// Writes acked per second.
    pub writes_per_second: f64,
    /// Seconds that half of the acks took at most, and 99 of 100; within a fifth. `None` if there were none.
    pub ack_p50_seconds: Option<f64>,
    pub ack_p99_seconds: Option<f64>,
    /// Readings that are acked and not stored.
    pub pending_readings: i64,
}

/// Bytes, as far as they are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Disk {
    pub log_free: Option<u64>,
    pub store_bytes: Option<u64>,
    pub store_free: Option<u64>,
}

impl Default for Recent {
    fn default() -> Self {
        Self { acks: std::array::from_fn(|_| AtomicU64::new(0)), kept: Mutex::default() }
    }
}

impl Recent {
    /// Counts an ack.
    pub fn acked(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.acks[bucket(micros)].fetch_add(1, Ordering::Relaxed);
    }

    /// Notes the bytes free on the log's disk.
    pub fn log_disk(&self, free: Option<u64>) {
        self.kept.lock().disk.log_free = free;
    }

    /// Notes the bytes that the store takes, and those free on its disk.
    pub fn store_space(&self, taken: Option<u64>, free: Option<u64>, now: Instant) {
        let mut kept = self.kept.lock();
        kept.disk = Disk { store_bytes: taken, store_free: free, ..kept.disk };
        kept.sizes.extend(taken.map(|taken| (now, taken)));
        if kept.sizes.len() > SAMPLES {
            kept.sizes.pop_front();
        }
    }

    /// Takes a sample. `accepted` counts all readings since the start.
    pub fn sample(&self, (now, time_ms): (Instant, i64), accepted: u64, pending: i64) {
        let acks: Vec<u64> = self.acks.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let mut kept = self.kept.lock();
        let seconds = kept.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        if seconds > 0.0 {
            let new: Vec<u64> = acks.iter().zip(&kept.acks).map(|(now, before)| now - before).collect();
            let rate = |count: u64| wide(count) / seconds;
            let sample = Sample {
                time_ms,
                readings_per_second: rate(accepted.saturating_sub(kept.accepted)),
                writes_per_second: rate(new.iter().sum()),
                ack_p50_seconds: quantile(&new, 0.5),
                ack_p99_seconds: quantile(&new, 0.99),
                pending_readings: pending,
            };
            kept.samples.push_back(sample);
            if kept.samples.len() > SAMPLES {
                kept.samples.pop_front();
            }
        }
        (kept.acks, kept.accepted, kept.at) = (acks, accepted, Some(now));
    }

    /// The samples, oldest first.
    #[must_use]
    pub fn samples(&self) -> Vec<Sample> {
        self.kept.lock().samples.iter().copied().collect()
    }

    #[must_use]
    pub fn disk(&self) -> Disk {
        self.kept.lock().disk
    }

    /// About how many days the store's disk lasts if the store goes on growing as it lately did; `None` if it does not grow, or was not watched for long.
    #[must_use]
    pub fn days_left(&self) -> Option<f64> {
        let kept = self.kept.lock();
        let free = kept.disk.store_free?;
        let ((since, before), (until, now)) = (kept.sizes.front()?, kept.sizes.back()?);
        let watched = until.saturating_duration_since(*since);
        let grown = now.checked_sub(*before).filter(|grown| *grown > 0 && watched >= GROWTH_AFTER)?;
        Some(wide(free) / (wide(grown) / watched.as_secs_f64() * 86_400.0))
    }
}

/// Bytes of memory that this process has, where the system tells.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// The bucket of a time: its highest bit, and the two bits behind it.
fn bucket(micros: u64) -> usize {
    let micros = micros.max(1);
    let octave = micros.ilog2();
    let quarter = if octave >= 2 { (micros >> (octave - 2)) & 3 } else { (micros << (2 - octave)) & 3 };
    (octave as usize * 4 + usize::try_from(quarter).unwrap_or(0)).min(BUCKETS - 1)
}

/// The end of a bucket, in seconds.
fn end(bucket: usize) -> f64 {
    let (octave, quarter) = (bucket / 4, bucket % 4);
    let quarters = u32::try_from(quarter).unwrap_or(0) + 5;
    2_f64.powi(i32::try_from(octave).unwrap_or(0)) * f64::from(quarters) / 4.0 / 1e6
}

/// The end of the bucket that has the item of this rank; `None` without items.
fn quantile(counts: &[u64], rank: f64) -> Option<f64> {
    let wanted = wide(counts.iter().sum()) * rank;
    let mut sum = 0;
    let found = counts.iter().position(|count| {
        sum += count;
        sum > 0 && wide(sum) >= wanted
    });
    found.map(end)
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
    fn an_ack_time_is_told_within_a_quarter() {
        for micros in [1, 2, 3, 7, 100, 999, 5_000, 123_456, 10_000_000] {
            let recent = Recent::default();
            let start = Instant::now();
            recent.sample((start, 0), 0, 0);
            recent.acked(Duration::from_micros(micros));
            recent.sample((start + Duration::from_secs(2), 2000), 10, 3);
            let [sample] = recent.samples()[..] else { panic!("one sample") };
            let told = sample.ack_p99_seconds.unwrap() * 1e6;
            let took = micros as f64;
            assert!(told > took * 0.999 && told <= took * 1.25 + 1e-9, "{micros}: {told}");
            let Sample { readings_per_second, writes_per_second, pending_readings, .. } = sample;
            assert_eq!((readings_per_second, writes_per_second, pending_readings), (5.0, 0.5, 3));
        }
    }

    #[test]
    fn the_disk_lasts_as_long_as_the_growth_says() {
        let (recent, start) = (Recent::default(), Instant::now());
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
