//! Compares two sides, each with the results of one or several runs of the same scenario, and reports what changed
//! beyond noise. `loadtest/README.md` explains the method.

mod bootstrap;
mod figures;

use std::path::Path;

use anyhow::{Result, bail, ensure};
use clap::Args;

use self::figures::{FIGURES, Figure, Wanted};
use crate::report::results::{Results, ScenarioFacts};
use crate::report::text::figure;

/// Compare results.
#[derive(Debug, Args)]
pub struct Compare {
    /// Files of `run --json` from before the change, comma-separated.
    old: String,
    /// Files of `run --json` from after the change, comma-separated.
    new: String,
    /// Also compare runs of different scenarios or settings.
    #[arg(long)]
    anyway: bool,
    /// Minimum change that counts, in percent. Default: 10 for one run per side, 3 for three or more, 5 otherwise.
    #[arg(long)]
    floor: Option<f64>,
    /// The seed of the resampling.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The result of comparing a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Within noise.
    Same,
    /// Better, beyond noise.
    Better,
    /// Worse, beyond noise.
    Worse,
    /// Not known on both sides.
    Unknown,
}

/// A figure on both sides.
#[derive(Debug)]
pub struct Line {
    /// The name, with the unit.
    pub name: &'static str,
    /// The median of the old runs.
    pub old: Option<f64>,
    /// The median of the new runs.
    pub new: Option<f64>,
    /// The ratio of new to old, and its 99 % interval.
    pub ratio: Option<(f64, f64, f64)>,
    pub verdict: Verdict,
}

/// Prints the comparison. Fails if something is worse.
pub fn run(options: &Compare) -> Result<()> {
    let read = |paths: &str| paths.split(',').map(|path| Results::read(Path::new(path))).collect::<Result<Vec<_>>>();
    let (old, new) = (read(&options.old)?, read(&options.new)?);
    if !options.anyway {
        ensure_alike(&old, &new)?;
    }
    let floor = options.floor.map_or_else(|| floor(old.len().min(new.len())), |percent| percent / 100.0);
    let lines = compare(&old, &new, floor, options.seed);
    print!("{}", table(&lines, floor));
    for side in [&old, &new] {
        side.iter().filter_map(Results::doubt).for_each(|doubt| println!("DOUBT: {doubt}"));
    }
    let worse: Vec<&str> = lines.iter().filter(|line| line.verdict == Verdict::Worse).map(|line| line.name).collect();
    if !worse.is_empty() {
        bail!("worse beyond noise: {}", worse.join(", "));
    }
    Ok(())
}

/// The minimum change that counts, for this many runs per side: one run does not show how runs differ from each other.
fn floor(runs: usize) -> f64 {
    match runs {
        0 | 1 => 0.10,
        2 => 0.05,
        _ => 0.03,
    }
}

/// Fails unless all runs did the same.
fn ensure_alike(old: &[Results], new: &[Results]) -> Result<()> {
    let all: Vec<&Results> = old.iter().chain(new).collect();
    let Some(first) = all.first() else { return Ok(()) };
    for other in &all {
        let (one, two) = (&first.scenario, &other.scenario);
        let differ = differences(one, two);
        ensure!(
            differ.is_empty(),
            "these runs did different things ({}); --anyway compares them all the same",
            differ.join(", ")
        );
        let [one, two] = [&first.server.how, &other.server.how];
        ensure!(one == two, "one server was {one}, another {two}; --anyway compares them all the same");
    }
    Ok(())
}

fn differences(one: &ScenarioFacts, two: &ScenarioFacts) -> Vec<String> {
    let pairs = [
        ("scenario", one.name.clone(), two.name.clone()),
        ("the scenario's text", one.fingerprint.clone(), two.fingerprint.clone()),
        ("rate", one.rate_per_s.to_string(), two.rate_per_s.to_string()),
        ("duration", one.duration_s.to_string(), two.duration_s.to_string()),
        ("connections", one.connections.to_string(), two.connections.to_string()),
        ("seed", one.seed.to_string(), two.seed.to_string()),
    ];
    pairs
        .into_iter()
        .filter(|(_, one, two)| one != two)
        .map(|(key, one, two)| format!("{key} {one} and {two}"))
        .collect()
}

/// Compares every figure.
pub fn compare(old: &[Results], new: &[Results], floor: f64, seed: u64) -> Vec<Line> {
    FIGURES.iter().map(|figure| line(figure, old, new, floor, seed)).collect()
}

fn line(figure: &Figure, old: &[Results], new: &[Results], floor: f64, seed: u64) -> Line {
    let of = |side: &[Results]| bootstrap::median(side.iter().filter_map(figure.of).collect());
    let (was, is) = (of(old), of(new));
    let name = figure.name;
    let (Some(was), Some(is)) = (was, is) else {
        return Line { name, old: was, new: is, ratio: None, verdict: Verdict::Unknown };
    };
    if was <= 0.0 {
        // There is no ratio to 0, so any increase from 0 is a change.
        let verdict = if is <= 0.0 { Verdict::Same } else { figure.wanted.verdict(true) };
        return Line { name, old: Some(was), new: Some(is), ratio: None, verdict };
    }
    let ratio = is / was;
    let (least, most) = bootstrap::interval(figure, old, new, seed);
    let floor = if old.len().min(new.len()) < 3 { floor.max(figure.floor_of_few) } else { floor };
    // On a logarithmic scale: halving and doubling are changes of the same size.
    let is_change = (least > 1.0 || most < 1.0) && ratio.ln().abs() > floor.ln_1p();
    let verdict = if is_change { figure.wanted.verdict(ratio > 1.0) } else { Verdict::Same };
    Line { name, old: Some(was), new: Some(is), ratio: Some((ratio, least, most)), verdict }
}

impl Wanted {
    fn verdict(self, is_more: bool) -> Verdict {
        if (self == Self::More) == is_more { Verdict::Better } else { Verdict::Worse }
    }
}

fn table(lines: &[Line], floor: f64) -> String {
    let mut text = format!("{:<24}{:>12}{:>12}{:>8}  {:<18}verdict\n", "", "old", "new", "ratio", "99 % interval");
    for line in lines {
        let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), figure);
        let (ratio, interval) = match line.ratio {
            Some((ratio, least, most)) => (format!("{ratio:.3}"), format!("{least:.3} .. {most:.3}")),
            None => ("-".to_owned(), String::new()),
        };
        let verdict = match line.verdict {
            Verdict::Same => "within noise",
            Verdict::Better => "better",
            Verdict::Worse => "WORSE",
            Verdict::Unknown => "not known",
        };
        let (old, new) = (shown(line.old), shown(line.new));
        text += &format!("{:<24}{old:>12}{new:>12}{ratio:>8}  {interval:<18}{verdict}\n", line.name);
    }
    text + &format!("A change counts when the interval is clear of 1 and it is above {:.0} %.\n", floor * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::results::{SecondRow, tests::results};

    /// Results of thirty seconds with latencies around a class, the given CPU time, and some noise.
    fn run(class: u32, cpu_s: f64, seed: u64) -> Results {
        let mut random = crate::run::random::Random::new(seed, &[]);
        let mut results = results();
        results.seconds = (0..30)
            .map(|_| {
                let classes = (0..10).map(|more| (class + more, 10 + random.below(5))).collect();
                let wobble = 1.0 + 0.04 * f64::from(u32::try_from(random.below(100)).unwrap()) / 100.0;
                SecondRow { acked: 1000, cpu_s: Some(cpu_s * wobble), classes, ..SecondRow::default() }
            })
            .collect();
        let all = |share| figures::percentile(&results.seconds.iter().collect::<Vec<_>>(), share).unwrap();
        (results.ack_ms.p50, results.ack_ms.p99) = (all(0.5), all(0.99));
        results
    }

    fn verdicts(old: &[Results], new: &[Results]) -> Vec<(&'static str, Verdict)> {
        let lines = compare(old, new, floor(old.len().min(new.len())), 1);
        lines.iter().map(|line| (line.name, line.verdict)).collect()
    }

    #[test]
    fn the_same_is_within_noise() {
        let found = verdicts(&[run(200, 0.2, 1)], &[run(200, 0.2, 2)]);
        assert!(found.iter().all(|(_, verdict)| matches!(verdict, Verdict::Same | Verdict::Unknown)), "{found:?}");
    }

    #[test]
    fn what_is_slower_or_dearer_is_worse_and_the_other_way_round_better() {
        let (before, after) = ([run(200, 0.2, 1)], [run(215, 0.3, 2)]);
        let found = verdicts(&before, &after);
        for name in ["ack p50 ms", "ack p99 ms", "CPU us per reading"] {
            assert!(found.contains(&(name, Verdict::Worse)), "{name}: {found:?}");
        }
        let found = verdicts(&after, &before);
        assert!(found.contains(&("ack p99 ms", Verdict::Better)), "{found:?}");
        assert!(!found.iter().any(|(_, verdict)| *verdict == Verdict::Worse), "{found:?}");
    }

    #[test]
    fn one_bad_second_among_thirty_is_no_regression_of_the_99th_percentile_of_several_runs() {
        let good = || (1..=3).map(|seed| run(200, 0.2, seed)).collect::<Vec<_>>();
        let mut with_one = good();
        with_one[0].seconds[7].classes = vec![(350, 10)];
        let found = verdicts(&good(), &with_one);
        assert!(!found.iter().any(|(_, verdict)| *verdict == Verdict::Worse), "{found:?}");
    }

    #[test]
    fn errors_where_there_were_none_are_worse() {
        let (before, mut after) = (run(200, 0.2, 1), run(200, 0.2, 1));
        after.errors.insert("503".to_owned(), 12);
        let found = verdicts(&[before], &[after]);
        assert!(found.contains(&("tries failed, share", Verdict::Worse)), "{found:?}");
    }

    #[test]
    fn other_rates_and_scenarios_are_not_compared() {
        let (one, mut other) = ([results()], [results()]);
        assert!(ensure_alike(&one, &other).is_ok());
        other[0].scenario.rate_per_s *= 2.0;
        let refused = ensure_alike(&one, &other).unwrap_err().to_string();
        assert!(refused.contains("rate 1000 and 2000"), "{refused}");
    }
}
