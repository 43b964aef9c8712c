//! Records the results of the senders: latencies, in total and by second, failed attempts, and which POSTs were acked.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::posts::Post;
use super::schedule::count;

/// The longest latency that is recorded exactly: one hour, in microseconds.
const LONGEST_US: u64 = 3_600_000_000;
/// The latencies of a second are counted in classes; each is 3 % wider than the one before.
pub const CLASS: f64 = 1.03;

/// The outcome of a POST.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Not sent.
    #[default]
    Unsent,
    /// Sent, but not acked: it may be stored or not.
    Unknown,
    Acked,
}

/// The figures of one second, by the time of the ack.
#[derive(Debug, Default)]
pub struct Second {
    /// Acked readings.
    pub readings: u64,
    /// Failed attempts.
    pub errors: u64,
    /// The number of latencies, from due to ack, by class.
    pub classes: BTreeMap<u32, u64>,
}

pub struct Recorder {
    begin: Instant,
    duration: Duration,
    /// By the number of the POST.
    pub outcomes: Vec<Outcome>,
    /// Latencies from due to ack, in microseconds.
    pub corrected: Histogram<u64>,
    /// Latencies from the last attempt to the ack.
    pub service: Histogram<u64>,
    /// Delays by the load tester itself: from when a POST was due and a connection was free, to the first attempt.
    pub own_lag: Histogram<u64>,
    /// By second since the start.
    pub seconds: Vec<Second>,
    /// Failed attempts, by status or kind.
    pub errors: BTreeMap<String, u64>,
    /// Attempted POSTs, readings and bytes, each counted once.
    pub tried_posts: u64,
    pub tried_readings: u64,
    pub tried_bytes: u64,
    /// All attempts.
    pub tries: u64,
    /// Acked POSTs and readings, and readings acked within the duration.
    pub acked_posts: u64,
    pub acked_readings: u64,
    pub acked_in_time: u64,
    /// Connections opened after the first ones.
    pub reconnects: u64,
    /// POSTs that were given up; see `given_up_posts` in the results.
    pub given_up: u64,
    /// The latest timestamp in any attempted POST, in nanoseconds.
    pub reached: i64,
    /// The time of the last ack.
    pub last_ack: Duration,
}

/// An empty histogram with three significant digits.
pub fn histogram() -> Histogram<u64> {
    // Cannot fail: the upper bound is at least twice the lower one, and the digits are between 0 and 5.
    let new = Histogram::new_with_bounds(1, LONGEST_US, 3);
    new.unwrap_or_else(|error| unreachable!("a histogram's bounds: {error}"))
}

/// In microseconds, rounded up so that no duration is 0.
pub fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX).max(1)
}

impl Recorder {
    pub fn new(begin: Instant, duration: Duration, reached: i64) -> Self {
        Self {
            begin,
            duration,
            outcomes: Vec::new(),
            corrected: histogram(),
            service: histogram(),
            own_lag: histogram(),
            seconds: Vec::new(),
            errors: BTreeMap::new(),
            tried_posts: 0,
            tried_readings: 0,
            tried_bytes: 0,
            tries: 0,
            acked_posts: 0,
            acked_readings: 0,
            acked_in_time: 0,
            reconnects: 0,
            given_up: 0,
            reached,
            last_ack: Duration::ZERO,
        }
    }

    /// Records the first attempt of a POST, by a sender that was free since `free`.
    pub fn tried(&mut self, post: &Post, free: Instant, now: Instant) {
        self.set(post.number, Outcome::Unknown);
        self.tried_posts += 1;
        self.tried_readings += post.lines;
        self.tried_bytes += u64::try_from(post.body.len()).unwrap_or(0);
        self.reached = self.reached.max(post.reached);
        let possible = free.max(self.begin + post.due);
        self.own_lag.saturating_record(microseconds(now.saturating_duration_since(possible)));
    }

    /// Records a failed attempt.
    pub fn failed(&mut self, how: &str, now: Instant) {
        *self.errors.entry(how.to_owned()).or_default() += 1;
        self.second(now).errors += 1;
    }

    /// Records an ack; the last attempt was at `tried`.
    pub fn acked(&mut self, post: &Post, tried: Instant, now: Instant) {
        self.set(post.number, Outcome::Acked);
        let since_begin = now.saturating_duration_since(self.begin);
        let corrected = microseconds(since_begin.saturating_sub(post.due));
        self.corrected.saturating_record(corrected);
        self.service.saturating_record(microseconds(now.saturating_duration_since(tried)));
        self.acked_posts += 1;
        self.acked_readings += post.lines;
        if since_begin <= self.duration {
            self.acked_in_time += post.lines;
        }
        self.last_ack = self.last_ack.max(since_begin);
        let second = self.second(now);
        second.readings += post.lines;
        *second.classes.entry(class(corrected)).or_default() += 1;
    }

    /// Failed attempts.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    fn set(&mut self, number: usize, outcome: Outcome) {
        if self.outcomes.len() <= number {
            self.outcomes.resize(number + 1, Outcome::Unsent);
        }
        self.outcomes[number] = outcome;
    }

    fn second(&mut self, now: Instant) -> &mut Second {
        let at = now.saturating_duration_since(self.begin).as_secs();
        let at = usize::try_from(at).unwrap_or(0);
        while self.seconds.len() <= at {
            self.seconds.push(Second::default());
        }
        &mut self.seconds[at]
    }
}

/// A percentile in milliseconds, accurate to 1.5 %.
pub fn percentile_of_classes<'a>(classes: impl Iterator<Item = (&'a u32, &'a u64)> + Clone, share: f64) -> Option<f64> {
    let all: u64 = classes.clone().map(|(_, of_class)| of_class).sum();
    let mut below = 0;
    for (class, of_class) in classes {
        below += of_class;
        if count(below) >= count(all) * share {
            return Some(of_class_us(*class) / 1000.0);
        }
    }
    None
}

/// The class of a latency in microseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the logarithm of an hour is small")]
fn class(us: u64) -> u32 {
    (count(us.max(1)).ln() / CLASS.ln()).round() as u32
}

/// The latency in the middle of a class, in microseconds.
pub fn of_class_us(class: u32) -> f64 {
    CLASS.powf(f64::from(class))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_within_three_percent() {
        for us in [1, 7, 150, 12_345, 30_000_000] {
            let middle = of_class_us(class(us));
            let exact = count(us);
            assert!((middle / exact - 1.0).abs() < 0.02, "{us}: {middle}");
        }
    }

    #[test]
    fn percentiles_of_classes_are_near_the_exact_ones() {
        let mut classes = BTreeMap::new();
        (1..=1000).for_each(|ms| *classes.entry(class(ms * 1000)).or_default() += 1);
        for (share, exact) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = percentile_of_classes(classes.iter(), share).unwrap();
            assert!((found / exact - 1.0_f64).abs() < 0.02, "{share}: {found}");
        }
        assert_eq!(percentile_of_classes(BTreeMap::new().iter(), 0.5), None);
    }
}
