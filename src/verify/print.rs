//! Prints the report of a check: a table of the databases, the notes, and the first differences in full.

use std::fmt::Arguments;
use std::io::Write;

use super::finding::{Difference, NoteCount};
use super::walk::{DatabaseReport, FULL_MAX, Tally};
use crate::wal::{Damage, Verdict, WalContents};

/// Prints the table, the notes, the repairs, the differences and the state of the WAL.
pub(super) fn report(out: &mut dyn Write, reports: &[DatabaseReport], log: Option<&WalContents>, repair: bool) {
    // Ignore a closed stdout, because the check continues without it.
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
        let notes: u64 = report.notes.values().map(|count| count.documents).sum();
        let repairs = repaired(report.repaired.count.to_string());
        let differences = report.differences.count;
        line(format_args!(
            "{name:width$} {pages:>12} {days:>10} {readings:>14} {sensors:>10} {notes:>8}{repairs} {differences:>12}"
        ));
    }
    for report in reports {
        for (note, NoteCount { documents, first }) in &report.notes {
            line(format_args!("note: {}: {documents} × {note}; the first: {first}", report.name));
        }
    }
    print_tally(&mut line, "repaired", reports, |report| &report.repaired);
    print_tally(&mut line, "difference", reports, |report| &report.differences);
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

/// Prints the first differences of a tally in full, and the number of the others.
fn print_tally(
    line: &mut impl FnMut(Arguments<'_>),
    word: &str,
    reports: &[DatabaseReport],
    tally: impl Fn(&DatabaseReport) -> &Tally,
) {
    let first = reports.iter().flat_map(|report| tally(report).first.iter().map(move |one| (&report.name, one)));
    let mut remaining: u64 = reports.iter().map(|report| tally(report).count).sum();
    for (database, Difference { document, kind, expected, found }) in first.take(FULL_MAX) {
        remaining -= 1;
        line(format_args!("{word}: {kind}: {database}: {document}"));
        line(format_args!("    expected {expected}"));
        line(format_args!("    found    {found}"));
    }
    if remaining > 0 {
        line(format_args!("{word}: {remaining} more"));
    }
}

/// Prints the last line: the numbers of repairs and differences.
pub(super) fn verdict(out: &mut dyn Write, reports: &[DatabaseReport]) {
    let count = |tally: fn(&DatabaseReport) -> &Tally| reports.iter().map(|report| tally(report).count).sum::<u64>();
    let wrong = count(|report| &report.differences);
    let repaired = count(|report| &report.repaired);
    let repaired = if repaired > 0 { format!("{repaired} repaired, ") } else { String::new() };
    let verdict = match wrong {
        0 => "no difference".to_owned(),
        1 => "1 difference".to_owned(),
        more => format!("{more} differences"),
    };
    // Ignore a closed stdout, as `report` does.
    let _ = writeln!(out, "{repaired}{verdict}");
}
