//! The output for people: a progress bar, a table of the databases, and the first differences in full.

use std::fmt::Arguments;
use std::io::Write;

use super::finding::Difference;
use super::walk::{DatabaseReport, FULL_MAX, Tally};
use crate::wal::{Damage, Inspected, Verdict};

/// Prints the table, the notes, the repairs, the differences and the state of the WAL.
pub(super) fn report(out: &mut dyn Write, reports: &[DatabaseReport], log: Option<&Inspected>, repair: bool) {
    // The check goes on if stdout is closed.
    let mut line = |text: Arguments<'_>| drop(writeln!(out, "{text}"));
    let width = reports.iter().map(|report| report.name.chars().count()).max().unwrap_or(0).max("database".len());
    let repaired = |text: String| if repair { format!(" {text:>12}") } else { String::new() };
    let head = repaired("repaired".to_owned());
    line(format_args!(
        "{:width$} {:>12} {:>10} {:>14} {:>10} {:>8}{head} {:>12}",
        "database", "pages", "days", "readings", "sensors", "notes", "differences"
    ));
    for report in reports {
        let DatabaseReport { name, pages, days, readings, sensors, .. } = report;
        let notes: u64 = report.notes.values().map(|(count, _)| count).sum();
        let (mended, wrong) = (repaired(report.repaired.count.to_string()), report.differences.count);
        line(format_args!(
            "{name:width$} {pages:>12} {days:>10} {readings:>14} {sensors:>10} {notes:>8}{mended} {wrong:>12}"
        ));
    }
    for report in reports {
        for (note, (count, first)) in &report.notes {
            line(format_args!("note: {}: {count} × {note}; the first: {first}", report.name));
        }
    }
    tally(&mut line, "repaired", reports, |report| &report.repaired);
    tally(&mut line, "difference", reports, |report| &report.differences);
    match log {
        None => line(format_args!("WAL: none")),
        Some(log) => {
            line(format_args!("WAL: {} records that may not be in the store yet, {} bytes", log.records, log.bytes));
            for Damage { segment, offset, bytes, verdict, .. } in log.damage.iter().take(FULL_MAX) {
                let what = match verdict {
                    Verdict::Damaged => "damaged bytes",
                    Verdict::InDoubt => "unreadable bytes that may have been acked",
                    Verdict::Torn => "bytes of an interrupted write, which was not acked,",
                };
                line(format_args!("note: WAL: {bytes} {what} at offset {offset} of {segment}"));
            }
        }
    }
}

fn tally(
    line: &mut impl FnMut(Arguments<'_>),
    word: &str,
    reports: &[DatabaseReport],
    of: impl Fn(&DatabaseReport) -> &Tally,
) {
    let told = reports.iter().flat_map(|report| of(report).first.iter().map(move |one| (&report.name, one)));
    let mut left: u64 = reports.iter().map(|report| of(report).count).sum();
    for (database, Difference { document, what, expected, found }) in told.take(FULL_MAX) {
        left -= 1;
        line(format_args!("{word}: {what}: {database}: {document}"));
        line(format_args!("    expected {expected}"));
        line(format_args!("    found    {found}"));
    }
    if left > 0 {
        line(format_args!("{word}: {left} more"));
    }
}

/// Prints the last line: how much was repaired and how much is wrong.
pub(super) fn verdict(out: &mut dyn Write, reports: &[DatabaseReport]) {
    let count = |of: fn(&DatabaseReport) -> &Tally| reports.iter().map(|report| of(report).count).sum::<u64>();
    let (wrong, repaired) = (count(|report| &report.differences), count(|report| &report.repaired));
    let repaired = if repaired > 0 { format!("{repaired} repaired, ") } else { String::new() };
    let verdict = match wrong {
        0 => "no difference".to_owned(),
        1 => "1 difference".to_owned(),
        more => format!("{more} differences"),
    };
    // As in `report`.
    let _ = writeln!(out, "{repaired}{verdict}");
}
