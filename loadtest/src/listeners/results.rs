//! The results, their file format, and their tables.

use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Listeners;
use super::churn::Churn;
use super::delay::Delay;
use crate::report::machine::Machine;
use crate::run::target::Target;
use crate::stats::{median, three_digits, to_f64};

/// Most that the 99th percentile of acks may be with listeners, in those without.
const RATIO_MAX: f64 = 1.2;
/// Most that memory may have grown more than without listeners: `tail.bytes`, and what so many connections take.
const GROWN_MAX_MIB: u64 = 32;
/// Most from an ack to the arrival.
const DELAY_MAX_MS: f64 = 1000.0;

/// The results of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    pub loadtest_version: String,
    /// The version that hourglass reports.
    pub version: String,
    /// The time when the run began, in RFC 3339.
    pub began: String,
    pub machine: Machine,
    pub store: String,
    pub clients: usize,
    pub at_once: usize,
    pub rate: u32,
    pub lines: u32,
    pub churn: Churn,
    pub delays: Vec<Delay>,
}

impl Results {
    /// Before anything was measured.
    pub fn before(options: &Listeners, target: &Target) -> Self {
        let began = Timestamp::try_from(SystemTime::now()).map(|began| format!("{began:.0}"));
        Self {
            loadtest_version: env!("CARGO_PKG_VERSION").to_owned(),
            version: target.version.clone(),
            began: began.unwrap_or_default(),
            machine: Machine::this(),
            store: target.how.to_owned(),
            clients: options.clients,
            at_once: options.at_once,
            rate: options.rate,
            lines: options.lines,
            churn: Churn::default(),
            delays: Vec::new(),
        }
    }

    /// Those of a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// Into a file.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// What is not as it should be.
    pub fn faults(&self) -> Vec<String> {
        let Churn { alone, heard, clients, .. } = &self.churn;
        let (ratio, grown) = (self.churn.ratio(), heard.grown_mib().saturating_sub(alone.grown_mib()));
        let mut faults = Vec::new();
        if *clients != self.clients {
            faults.push(format!("{clients} clients listened instead of {}", self.clients));
        }
        if ratio > RATIO_MAX {
            faults.push(format!("the p99 of acks is {ratio:.2} times that without listeners, more than {RATIO_MAX}"));
        }
        if grown > GROWN_MAX_MIB {
            faults.push(format!("listeners took {grown} MiB of memory, more than {GROWN_MAX_MIB}"));
        }
        for Delay { listeners, readings, arrived, max_ms, .. } in &self.delays {
            if *arrived != listeners * readings {
                faults.push(format!("{arrived} of {} readings arrived at {listeners} listeners", listeners * readings));
            }
            if *max_ms > DELAY_MAX_MS {
                faults.push(format!("a reading came to one of {listeners} listeners {max_ms:.0} ms after its ack"));
            }
        }
        faults
    }

    pub fn markdown(&self) -> String {
        let Self { machine, churn, .. } = self;
        let mut text = format!(
            "hourglass {} ({}), {} readings/s in POSTs of {}; {} cores ({}), {} GiB, load {}\n\n",
            self.version,
            self.store,
            self.rate,
            self.lines,
            machine.cores,
            machine.cpu,
            machine.memory_gib,
            machine.load_average_before
        );
        let heard = format!("{} listeners at once, {} in turn", self.at_once, three_digits(to_f64(churn.clients)));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| | nobody listens | {heard} |\n|---|---|---|");
        let mut row = |name: &str, of: &dyn Fn(&super::churn::Side) -> String| {
            let _ = writeln!(text, "| {name} | {} | {} |", of(&churn.alone), of(&churn.heard));
        };
        let ms = |figures: &[f64]| three_digits(median(figures.iter().copied()));
        row("POSTs acked", &|side| three_digits(to_f64(side.posts)));
        row("ack p50 ms, median of the rounds", &|side| ms(&side.p50_ms));
        row("ack p99 ms, median of the rounds", &|side| ms(&side.p99_ms));
        row("answers 503 to POSTs", &|side| side.refused.to_string());
        row("peak MiB before", &|side| side.peak_before_mib.to_string());
        row("peak MiB, first round", &|side| side.peak_mib.first().copied().unwrap_or_default().to_string());
        row("peak MiB, last round", &|side| side.peak_mib.last().copied().unwrap_or_default().to_string());
        let _ = writeln!(
            text,
            "\nThe p99 of acks is {:.2} times that without listeners. {} clients came in {:.0} s and got {} bytes; {} heard nothing, {} found no room at first.\n",
            churn.ratio(),
            three_digits(to_f64(churn.clients)),
            churn.seconds,
            three_digits(to_f64(churn.bytes)),
            churn.deaf,
            churn.full
        );
        text += "| listeners | timed readings | arrived | before the answer | from ack to arrival, p50 ms | p99 ms | max ms | told of a miss |\n";
        text += "|---|---|---|---|---|---|---|---|\n";
        for delay in &self.delays {
            let Delay { listeners, readings, arrived, before_ack, missed, p50_ms, p99_ms, max_ms } = delay;
            let times = [*p50_ms, *p99_ms, *max_ms].map(three_digits).join(" | ");
            let _ = writeln!(text, "| {listeners} | {readings} | {arrived} | {before_ack} | {times} | {missed} |");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::churn::Side;
    use super::*;

    fn side(p99: f64, peak: u64) -> Side {
        Side { p99_ms: vec![p99], peak_before_mib: 50, peak_mib: vec![peak], ..Side::default() }
    }

    fn results(heard: Side, delay: Delay) -> Results {
        Results {
            loadtest_version: "1".to_owned(),
            version: "1".to_owned(),
            began: String::new(),
            machine: Machine::this(),
            store: "embedded".to_owned(),
            clients: 100,
            at_once: 4,
            rate: 1000,
            lines: 10,
            churn: Churn { alone: side(1.0, 60), heard, clients: 100, ..Churn::default() },
            delays: vec![delay],
        }
    }

    #[test]
    fn what_misses_a_target_is_told() {
        let delay = |arrived, max_ms| Delay { listeners: 4, readings: 5, arrived, max_ms, ..Delay::default() };
        assert_eq!(results(side(1.1, 80), delay(20, 40.0)).faults(), Vec::<String>::new());
        for (heard, delay, word) in [
            (side(1.3, 60), delay(20, 40.0), "1.30 times"),
            (side(1.0, 93), delay(20, 40.0), "33 MiB"),
            (side(1.0, 60), delay(19, 40.0), "19 of 20"),
            (side(1.0, 60), delay(20, 1001.0), "1001 ms"),
        ] {
            let faults = results(heard, delay).faults();
            assert!(faults.len() == 1 && faults[0].contains(word), "{faults:?}");
        }
    }

    #[test]
    fn tables_have_all_columns_and_the_file_is_read_back() {
        let results = results(side(1.5, 70), Delay { listeners: 4, ..Delay::default() });
        let text = results.markdown();
        for table in text.split("\n\n").filter(|part| part.starts_with('|')) {
            let columns: Vec<usize> = table.lines().map(|line| line.matches('|').count()).collect();
            assert!(columns.len() > 2 && columns.iter().all(|count| *count == columns[0]), "{table}");
        }
        let text = serde_json::to_string(&results).unwrap();
        let again: Results = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
    }
}
