//! What a person sees: how far it is, a table by database, and the first differences in full.

use std::fmt::Arguments;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use super::finding::Difference;
use super::walk::{DatabaseReport, FULL_MAX, Tally};
use crate::log::{Damage, Inspected, Verdict};

const BAR: usize = 30;
/// No eye follows more.
const REDRAWN_AFTER: Duration = Duration::from_millis(100);

/// A bar on the standard error, when that is a terminal.
#[derive(Debug)]
pub struct Progress {
    is_shown: bool,
    all: u64,
    /// Pages of the databases that are done.
    done: u64,
    drawn: Option<Instant>,
}

impl Default for Progress {
    fn default() -> Self {
        Self { is_shown: std::io::stderr().is_terminal(), all: 0, done: 0, drawn: None }
    }
}

impl Progress {
    pub(super) fn begin(&mut self, all: u64) {
        self.all = all;
    }

    pub(super) fn pages(&mut self, database: &str, pages: u64) {
        if !self.is_shown || self.drawn.is_some_and(|drawn| drawn.elapsed() < REDRAWN_AFTER) {
            return;
        }
        self.drawn = Some(Instant::now());
        let (read, all) = (self.done + pages, self.all.max(self.done + pages).max(1));
        let full = usize::try_from(read * BAR as u64 / all).unwrap_or(BAR);
        let percent = read * 100 / all;
        // `\x1b[K` takes away what is left of a longer line.
        let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR - full));
        draw(&format!("\r[{bar}] {percent:3} %  {read} of {all} pages  {database}\x1b[K"));
    }

    pub(super) fn database_done(&mut self, pages: u64) {
        self.done += pages;
    }

    pub(super) fn end(&mut self) {
        if self.drawn.take().is_some() {
            draw("\r\x1b[K");
        }
    }
}

fn draw(text: &str) {
    let mut err = std::io::stderr();
    // Nobody is there to be told that nobody is there.
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// The table, the notes, and what was repaired and what is wrong.
pub(super) fn report(out: &mut dyn Write, reports: &[DatabaseReport], log: Option<&Inspected>, repair: bool) {
    // A report that nobody reads any more is no reason to stop.
    let mut line = |text: Arguments<'_>| drop(writeln!(out, "{text}"));
    let width = reports.iter().map(|report| report.name.chars().count()).max().unwrap_or(0).max("database".len());
    let repaired = |text: String| if repair { format!(" {text:>12}") } else { String::new() };
    let head = repaired("repaired".to_owned());
    line(format_args!(
        "{:width$} {:>12} {:>14} {:>10} {:>8}{head} {:>12}",
        "database", "pages", "readings", "sensors", "notes", "differences"
    ));
    for report in reports {
        let DatabaseReport { name, pages, readings, sensors, .. } = report;
        let notes: u64 = report.notes.values().map(|(count, _)| count).sum();
        let (mended, wrong) = (repaired(report.repaired.count.to_string()), report.differences.count);
        line(format_args!("{name:width$} {pages:>12} {readings:>14} {sensors:>10} {notes:>8}{mended} {wrong:>12}"));
    }
    for report in reports {
        for (note, (count, first)) in &report.notes {
            line(format_args!("note: {}: {count} × {note}; the first: {first}", report.name));
        }
    }
    tally(&mut line, "repaired", reports, |report| &report.repaired);
    tally(&mut line, "difference", reports, |report| &report.differences);
    match log {
        None => line(format_args!("log: there is none")),
        Some(log) => {
            line(format_args!("log: {} records that are not released, {} bytes", log.records, log.bytes));
            for Damage { segment, offset, bytes, verdict, .. } in log.damage.iter().take(FULL_MAX) {
                let what = match verdict {
                    Verdict::Damaged => "damaged bytes",
                    Verdict::InDoubt => "bytes that hold no record and may have been acked",
                    Verdict::Torn => "bytes of a write that was cut short and was not acked,",
                };
                line(format_args!("note: log: {bytes} {what} at {offset} of {segment}"));
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

/// One sentence at the end.
pub(super) fn verdict(out: &mut dyn Write, reports: &[DatabaseReport]) {
    let count = |of: fn(&DatabaseReport) -> &Tally| reports.iter().map(|report| of(report).count).sum::<u64>();
    let (wrong, repaired) = (count(|report| &report.differences), count(|report| &report.repaired));
    let repaired = if repaired > 0 { format!("{repaired} repaired, ") } else { String::new() };
    let verdict = match wrong {
        0 => "no difference".to_owned(),
        1 => "1 difference".to_owned(),
        more => format!("{more} differences"),
    };
    // As above.
    let _ = writeln!(out, "{repaired}{verdict}");
}
