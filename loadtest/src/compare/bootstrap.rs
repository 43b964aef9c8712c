//! Bootstrap interval of the ratio of two figures: draws runs, and blocks of seconds in them, with replacement, many
//! times, and takes the ratio of each draw.

use super::figures::Figure;
use crate::report::results::{Results, SecondRow};
use crate::run::random::Random;

/// Number of draws. Leaving out 5 on each side gives the 99 % interval.
const DRAWS: usize = 1000;
/// Number of draws left out on each side.
const TAIL: usize = 5;
/// Seconds per block. Neighbouring seconds are correlated, so drawing single seconds would give too narrow an interval.
const BLOCK: usize = 5;
/// Seconds at the start that are left out, because connections and sensors are new.
const WARM_UP: usize = 2;

/// The interval of the ratio of new to old, without the most extreme draws.
pub fn interval(figure: &Figure, old: &[Results], new: &[Results], seed: u64) -> (f64, f64) {
    let mut random = Random::new(seed, &[crate::run::random::hash(figure.name.as_bytes())]);
    let mut ratios: Vec<f64> = (0..DRAWS)
        .filter_map(|_| {
            let (old, new) = (drawn(figure, old, &mut random)?, drawn(figure, new, &mut random)?);
            (old > 0.0).then_some(new / old)
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    match (ratios.get(TAIL), ratios.len().checked_sub(TAIL + 1).and_then(|at| ratios.get(at))) {
        (Some(least), Some(most)) => (*least, *most),
        // Without data, any ratio is possible.
        _ => (0.0, f64::INFINITY),
    }
}

/// The median over drawn runs, each made of drawn blocks.
fn drawn(figure: &Figure, runs: &[Results], random: &mut Random) -> Option<f64> {
    let figures = (0..runs.len()).filter_map(|_| {
        let run = &runs[below(random, runs.len())];
        match figure.of_seconds {
            Some(of_seconds) => of_seconds(&blocks(&run.seconds, run.scenario.duration_s, random)),
            None => (figure.of)(run),
        }
    });
    median(figures.collect())
}

/// As many seconds as the run has, block by block. Seconds after the duration, with only stragglers, belong to the last
/// block.
fn blocks<'a>(seconds: &'a [SecondRow], duration_s: f64, random: &mut Random) -> Vec<&'a SecondRow> {
    let whole = seconds.iter().enumerate().filter(|(at, _)| crate::stats::to_f64(*at) < duration_s).count();
    let warm = if whole > WARM_UP * 2 { WARM_UP } else { 0 };
    let seconds = &seconds[warm..whole];
    let length = BLOCK.min(seconds.len().div_ceil(3)).max(1);
    let mut drawn = Vec::with_capacity(seconds.len() + length);
    while drawn.len() < seconds.len() {
        let from = below(random, seconds.len());
        drawn.extend(seconds.iter().cycle().skip(from).take(length));
    }
    drawn
}

fn below(random: &mut Random, count: usize) -> usize {
    usize::try_from(random.below(u64::try_from(count).unwrap_or(0))).unwrap_or(0)
}

/// The median.
pub fn median(figures: Vec<f64>) -> Option<f64> {
    (!figures.is_empty()).then(|| crate::stats::median(figures))
}
