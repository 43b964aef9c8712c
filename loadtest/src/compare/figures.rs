//! The figures that are compared, and how to compute each from seconds or from whole runs.

use std::collections::BTreeMap;

use crate::report::results::{Results, SecondRow};
use crate::run::recorder::percentile_of_classes;
use crate::run::schedule::count;
use crate::run::senders::DROPPED;

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Higher is better.
    More,
    /// Lower is better.
    Less,
}

/// Computes a figure from some seconds of a run.
pub type OfSeconds = fn(&[&SecondRow]) -> Option<f64>;

/// A figure to compare.
pub struct Figure {
    /// The name, with the unit.
    pub name: &'static str,
    /// Which way is better.
    pub wanted: Wanted,
    /// The figure of a whole run.
    pub of: fn(&Results) -> Option<f64>,
    /// The minimum change that counts if a side has fewer than three runs and there are no figures per second.
    pub floor_of_few: f64,
    /// The figure of some seconds, if it can be computed from them. Then seconds are resampled too, else only runs.
    pub of_seconds: Option<OfSeconds>,
}

pub const FIGURES: [Figure; 9] = [
    Figure {
        name: "achieved readings/s",
        wanted: Wanted::More,
        of: |run| Some(run.totals.achieved_per_s),
        floor_of_few: 0.0,
        of_seconds: Some(|seconds| Some(mean(seconds, |second| count(second.acked)))),
    },
    Figure {
        name: "ack p50 ms",
        wanted: Wanted::Less,
        of: |run| Some(run.ack_ms.p50),
        floor_of_few: 0.0,
        of_seconds: Some(|seconds| percentile(seconds, 0.5)),
    },
    Figure {
        name: "ack p90 ms",
        wanted: Wanted::Less,
        of: |run| Some(run.ack_ms.p90),
        floor_of_few: 0.0,
        of_seconds: Some(|seconds| percentile(seconds, 0.9)),
    },
    Figure {
        name: "ack p99 ms",
        wanted: Wanted::Less,
        of: |run| Some(run.ack_ms.p99),
        floor_of_few: 0.0,
        of_seconds: Some(|seconds| percentile(seconds, 0.99)),
    },
    Figure {
        name: "ack p99.9 ms",
        wanted: Wanted::Less,
        of: |run| Some(run.ack_ms.p999),
        floor_of_few: 0.0,
        of_seconds: Some(|seconds| percentile(seconds, 0.999)),
    },
    Figure {
        name: "CPU us per reading",
        wanted: Wanted::Less,
        of: |run| cpu_us(&run.seconds.iter().collect::<Vec<_>>()),
        floor_of_few: 0.0,
        of_seconds: Some(cpu_us),
    },
    Figure { name: "peak resident MiB", wanted: Wanted::Less, of: peak_mib, floor_of_few: 0.25, of_seconds: None },
    Figure {
        name: "drain s",
        wanted: Wanted::Less,
        of: |run| Some(run.totals.drain_s),
        floor_of_few: 2.0,
        of_seconds: None,
    },
    Figure { name: "tries failed, share", wanted: Wanted::Less, of: error_share, floor_of_few: 0.5, of_seconds: None },
];

/// A percentile in milliseconds, over all POSTs acked in these seconds.
pub fn percentile(seconds: &[&SecondRow], share: f64) -> Option<f64> {
    let mut classes: BTreeMap<u32, u64> = BTreeMap::new();
    for (class, of_class) in seconds.iter().flat_map(|second| &second.classes) {
        *classes.entry(*class).or_default() += of_class;
    }
    percentile_of_classes(classes.iter(), share)
}

/// CPU microseconds per acked reading, over the seconds for which CPU is known.
fn cpu_us(seconds: &[&SecondRow]) -> Option<f64> {
    let known = seconds.iter().filter_map(|second| Some((second.cpu_s?, second.acked)));
    let (cpu_s, acked) = known.fold((0.0, 0), |(cpu_s, acked), (more, readings)| (cpu_s + more, acked + readings));
    (acked > 0).then(|| cpu_s * 1e6 / count(acked))
}

fn peak_mib(run: &Results) -> Option<f64> {
    Some(run.usage.as_ref()?.peak_mib.values().sum())
}

fn error_share(run: &Results) -> Option<f64> {
    let failed: u64 = run.errors.iter().filter(|(how, _)| *how != DROPPED).map(|(_, count)| count).sum();
    let unsent = run.totals.given_up_posts;
    Some(count(failed + unsent) / count(run.totals.tries.max(1)))
}

fn mean(seconds: &[&SecondRow], of: fn(&SecondRow) -> f64) -> f64 {
    let sum: f64 = seconds.iter().map(|second| of(second)).sum();
    sum / crate::stats::to_f64(seconds.len().max(1))
}
