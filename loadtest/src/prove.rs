//! Checks hourglass and other systems with the same oracle: kills during writes, retries, corrections and late
//! readings. Each system runs alone on the machine, with fresh folders and its default configuration. The check
//! compares the readings that it returns with those that it acked.

mod asking;
mod corrections;
mod crash;
mod late;
mod oracle;
mod reading;
mod retries;
mod writer;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use self::corrections::CorrectionCounts;
use self::crash::{Crashes, Cycle};
use self::late::Late;
use self::retries::Retries;
use self::writer::Subject;
use crate::report::{Output, Results};
use crate::servers::peer::Peer;
use crate::servers::programs::{ProgramOptions, Programs};
use crate::servers::system::System;

/// Titles of the tables.
const KILLED: &str = "acked and lost";
const RETRIED: &str = "duplicates kept";
const CORRECTED: &str = "winning corrections, of 40 each";
const LATE: &str = "late data in aggregates";

/// Check whether hourglass and other systems keep what they acked.
#[derive(Debug, Args)]
pub struct Prove {
    /// A system to check. You can repeat this flag.
    #[arg(long = "peer", value_enum, default_values_t = Peer::WRITERS)]
    peers: Vec<Peer>,
    /// Number of kills of each system.
    #[arg(long, default_value_t = 10)]
    cycles: usize,
    /// Maximum seconds of writes before a kill. Choose more than the time for which a system keeps acked readings only
    /// in memory; otherwise all of them are lost.
    #[arg(long, default_value_t = 20)]
    stream_seconds: u64,
    /// The seed of the random times of kills.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    programs: ProgramOptions,
    #[command(flatten)]
    output: Output,
}

/// The results of one system.
struct Proof {
    crashes: Crashes,
    retries: Retries,
    corrections: Vec<CorrectionCounts>,
    late: Late,
}

/// Runs everything. Fails if hourglass has a violation.
pub async fn run(options: Prove) -> Result<()> {
    let programs = options.programs.programs();
    let mut results = Results::new();
    let mut violations = Vec::new();
    for peer in &options.peers {
        println!("{}", peer.name());
        let proof = options.prove(*peer, &programs).await.with_context(|| peer.name())?;
        results.systems.push(peer.row(&programs, peer.design_note())?);
        proof.add_results(&mut results, peer.name());
        results.write(&options.output)?;
        if peer.is_hourglass() {
            violations.extend(proof.violations().into_iter().map(|violation| format!("{}: {violation}", peer.name())));
        }
    }
    results.finish(&options.output)?;
    ensure!(violations.is_empty(), "{}", violations.join("; "));
    Ok(())
}

impl Prove {
    /// Runs all checks on a system, each with a fresh folder.
    async fn prove(&self, peer: Peer, programs: &Programs) -> Result<Proof> {
        let start = async || {
            let system = System::start(peer, programs, &self.programs.folder).await?;
            anyhow::Ok(Subject { system, is_cached: false })
        };
        let stream = Duration::from_secs(self.stream_seconds);
        let crashes = crash::prove(&mut start().await?, self.cycles, stream, self.seed).await.context("kills")?;
        let retries = retries::prove(&mut start().await?).await.context("retries")?;
        let corrections = corrections::prove(&mut start().await?).await.context("corrections")?;
        let late = late::prove(&mut start().await?).await.context("late data")?;
        Ok(Proof { crashes, retries, corrections, late })
    }
}

impl Proof {
    #[expect(clippy::cast_precision_loss, reason = "counts of readings")]
    fn add_results(&self, results: &mut Results, peer: &str) {
        let Self { crashes, retries, corrections, late } = self;
        let mut add = |table: &str, column: &str, count: u64| results.add(table, peer, column, count as f64);
        add(KILLED, "kills", u64::try_from(crashes.cycles.len()).unwrap_or_default());
        add(KILLED, "acked", crashes.sum(|cycle| cycle.acked));
        add(KILLED, "acked and lost", crashes.sum(|cycle| cycle.lost));
        let oldest_loss_ms = crashes.cycles.iter().map(|cycle| cycle.lost_acked_ms_before).max().unwrap_or(0);
        add(KILLED, "oldest loss, ms before the kill", oldest_loss_ms);
        add(KILLED, "resent and lost", crashes.sum(|cycle| cycle.resent_lost));
        add(KILLED, "wrong values", crashes.sum(|cycle| cycle.wrong_values));
        add(KILLED, "duplicates", crashes.duplicates_at_end);
        add(RETRIED, "readings", retries.readings);
        add(RETRIED, "values returned", retries.returned);
        for counts in corrections {
            add(CORRECTED, &counts.kind, counts.read_at_end);
        }
        let sum = |count: fn(&CorrectionCounts) -> u64| corrections.iter().map(count).sum();
        add(CORRECTED, "missing in the first read", sum(|counts| counts.corrections - counts.read_first));
        add(CORRECTED, "unstable", sum(|counts| counts.unstable));
        add(CORRECTED, "both values returned", sum(|counts| counts.both_values));
        add(CORRECTED, "other field changed", sum(|counts| counts.corrections - counts.other_field_unchanged));
        add(LATE, "aggregates", late.after_restart.aggregates);
        add(LATE, "wrong before late data", late.on_time.wrong);
        add(LATE, "wrong after late data", late.at_once.wrong);
        add(LATE, "wrong after a restart", late.after_restart.wrong);
        add(LATE, "off by rounding", late.after_restart.rounded);
        for cycle in &crashes.cycles {
            results.add(KILLED, peer, "recovery, s", cycle.recovery_ms as f64 / 1000.0);
        }
        results.add(RETRIED, peer, "count after a retry", retries.count_after_retry);
        results.add(RETRIED, peer, "count after restart and retry", retries.count_after_restart);
        if let Some(seconds) = late.correct_after_s {
            results.add(LATE, peer, "correct after, s", seconds);
        }
    }

    /// Returns the violations of the guarantees of hourglass.
    fn violations(&self) -> Vec<String> {
        let Self { crashes, retries, corrections, late } = self;
        let mut violations = Vec::new();
        let mut count = |what: &str, count: u64| {
            if count > 0 {
                violations.push(format!("{count} {what}"));
            }
        };
        let lost = crashes.sum(|cycle| cycle.lost + cycle.resent_lost) + crashes.lost_at_end;
        count("acked readings are lost", lost);
        count("readings have other values", crashes.sum(|cycle| cycle.wrong_values));
        count("readings have duplicates", crashes.sum(|cycle| cycle.duplicates) + crashes.duplicates_at_end);
        let counts = [retries.count_after_retry, retries.count_after_restart];
        let right = f64::from(u32::try_from(retries.readings).unwrap_or(u32::MAX));
        count("counts are wrong after a retry", counts.iter().map(|count| u64::from(*count != right)).sum());
        for counts in corrections {
            let CorrectionCounts { corrections, read_first, read_at_end, .. } = counts;
            let lost = (corrections - read_first) + (corrections - read_at_end);
            let torn = counts.unstable + counts.both_values + (corrections - counts.other_field_unchanged);
            count(&format!("corrections do not hold ({})", counts.kind), lost + torn);
        }
        let counts = [late.on_time, late.at_once, late.after_restart];
        count("aggregates are wrong", counts.iter().map(|counts| counts.wrong).sum());
        count("sums are not rounded once", counts.iter().map(|counts| counts.rounded).sum());
        violations
    }
}

impl Crashes {
    fn sum(&self, count: fn(&Cycle) -> u64) -> u64 {
        self.cycles.iter().map(count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_violation_is_reported() {
        let counts = CorrectionCounts {
            kind: "raised".to_owned(),
            corrections: 40,
            read_first: 40,
            read_at_end: 40,
            ..CorrectionCounts::default()
        };
        let create_proof = || Proof {
            crashes: Crashes { cycles: vec![Cycle::default()], ..Crashes::default() },
            retries: Retries { readings: 10, count_after_retry: 10.0, count_after_restart: 10.0, returned: 10 },
            corrections: vec![CorrectionCounts { other_field_unchanged: 40, ..counts.clone() }],
            late: Late::default(),
        };
        assert_eq!(create_proof().violations(), Vec::<String>::new());
        for (change, expected) in [
            (|proof: &mut Proof| proof.crashes.cycles[0].lost = 1, "1 acked readings are lost"),
            (|proof: &mut Proof| proof.crashes.cycles[0].resent_lost = 1, "1 acked readings are lost"),
            (|proof: &mut Proof| proof.crashes.lost_at_end = 2, "2 acked readings are lost"),
            (|proof: &mut Proof| proof.crashes.cycles[0].wrong_values = 1, "other values"),
            (|proof: &mut Proof| proof.crashes.duplicates_at_end = 1, "duplicates"),
            (|proof: &mut Proof| proof.retries.count_after_retry = 20.0, "wrong after a retry"),
            (|proof: &mut Proof| proof.corrections[0].read_first = 39, "do not hold (raised)"),
            (|proof: &mut Proof| proof.corrections[0].other_field_unchanged = 39, "do not hold (raised)"),
            (|proof: &mut Proof| proof.late.at_once.wrong = 3, "3 aggregates are wrong"),
            (|proof: &mut Proof| proof.late.after_restart.rounded = 1, "not rounded once"),
        ] as [(fn(&mut Proof), &str); 10]
        {
            let mut proof = create_proof();
            change(&mut proof);
            let violations = proof.violations();
            assert!(violations.len() == 1 && violations[0].contains(expected), "{expected}: {violations:?}");
        }
    }
}
