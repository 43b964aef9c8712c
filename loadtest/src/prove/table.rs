//! Renders the results as Markdown tables.

use std::fmt::Write;

use super::corrections::Corrected;
use super::crash::Cycle;
use super::results::{Proof, Results};
use crate::stats::{median, three_digits as figure, to_f64};

/// The findings, then the systems.
pub fn markdown(results: &Results) -> String {
    let mut text =
        "| | kills -9 | acked before | acked and lost | acked how long before | there twice | back after s, median |\n"
            .to_owned();
    text += "|---|---|---|---|---|---|---|\n";
    results.proofs.iter().for_each(|proof| text += &crashes(proof));
    text += "\n| | readings | counted after a retry | and after a restart and one more |\n|---|---|---|---|\n";
    for Proof { peer, retries, .. } in &results.proofs {
        let (retry, restart) = (retries.counted_after_retry, retries.counted_after_restart);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {peer} | {} | {retry} | {restart} |", retries.readings);
    }
    text += "\n| | raised at once | lowered at once | raised after a restart | lowered after a restart | other field as it was |\n";
    text += "|---|---|---|---|---|---|\n";
    for Proof { peer, corrections, .. } in &results.proofs {
        let cells: Vec<String> = corrections.iter().map(corrected).collect();
        let kept: u64 = corrections.iter().map(|of| of.other_field_kept).sum();
        let all: u64 = corrections.iter().map(|of| of.corrections).sum();
        let _ = writeln!(text, "| {peer} | {} | {kept} of {all} |", cells.join(" | "));
    }
    text += "\n| | aggregates | wrong before late data | wrong at once after it | right after s | wrong after a restart | right but for the last bits |\n";
    text += "|---|---|---|---|---|---|---|\n";
    for Proof { peer, late, .. } in &results.proofs {
        let after =
            late.right_after_s.map_or_else(|| "never".to_owned(), |s| if s > 0.0 { figure(s) } else { "0".to_owned() });
        let (on_time, at_once, restart) = (late.on_time.wrong, late.at_once.wrong, late.after_restart);
        let all = restart.aggregates;
        let (wrong, rounded) = (restart.wrong, restart.rounded);
        let _ = writeln!(text, "| {peer} | {all} | {on_time} | {at_once} | {after} | {wrong} | {rounded} |");
    }
    text += "\n| | version | how it is used, and what it says of itself |\n|---|---|---|\n";
    for Proof { peer, version, by_design, .. } in &results.proofs {
        let _ = writeln!(text, "| {peer} | {version} | {} |", by_design.join("; "));
    }
    text
}

fn crashes(Proof { peer, crashes, .. }: &Proof) -> String {
    let sum = |of: fn(&Cycle) -> u64| crashes.cycles.iter().map(of).sum::<u64>();
    let before = crashes.cycles.iter().map(|cycle| cycle.lost_acked_ms_before).max().unwrap_or(0);
    let before = if before == 0 {
        "–".to_owned()
    } else {
        format!("up to {} ms", figure(to_f64(usize::try_from(before).unwrap_or(0))))
    };
    let back =
        median(crashes.cycles.iter().map(|cycle| to_f64(usize::try_from(cycle.back_after_ms).unwrap_or(0)) / 1000.0));
    format!(
        "| {peer} | {} | {} | {} | {before} | {} | {} |\n",
        crashes.cycles.len(),
        sum(|cycle| cycle.acked),
        sum(|cycle| cycle.lost),
        crashes.twice_at_last,
        figure(back)
    )
}

/// The number of corrections read, first and last if they differ, and what is wrong with them.
fn corrected(of: &Corrected) -> String {
    let mut text = format!("{} of {}", of.read_at_last, of.corrections);
    if of.read_first != of.read_at_last {
        let _ = write!(text, ", at first {}", of.read_first);
    }
    for (count, what) in [(of.unstable, "not stable"), (of.both_returned, "both returned")] {
        if count > 0 {
            let _ = write!(text, ", {count} {what}");
        }
    }
    text
}
