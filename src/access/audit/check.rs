//! Checks the hash chain of a trail. It detects records that were changed, removed, added or moved, missing files, and
//! a missing end. Records that a rotation removed are counted: a chained record has the number of the last one. It cannot detect that the whole chain was rewritten. To detect that too, keep the last hash that a
//! check printed on another machine.

use std::fs::File;
use std::io;
use std::path::Path;

use super::trail::{Head, Link, chain_hash, files, head_path, lines, parse, read_head, removed_number};

/// Maximum number of faults that are described.
const FAULTS_MAX: usize = 20;

/// The result of a check.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TrailReport {
    /// The number of chained records.
    pub records: u64,
    /// The number of older records that rotations have removed.
    pub removed: u64,
    /// The hash of the last record.
    pub last: Option<String>,
    /// Descriptions of the first faults.
    pub faults: Vec<String>,
    /// The number of all faults.
    pub faulty: usize,
}

impl TrailReport {
    fn note(&mut self, fault: String) {
        self.faulty += 1;
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        }
    }
}

/// Checks all files of a trail.
///
/// # Errors
/// If a file cannot be read.
pub fn check(path: &Path) -> io::Result<TrailReport> {
    match File::open(head_path(path)) {
        Ok(mut file) => {
            // Keep other processes from appending and rotating.
            file.lock_shared()?;
            let head = read_head(&mut file)?;
            report(path, head.as_ref())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => report(path, None),
        Err(error) => Err(error),
    }
}

fn report(path: &Path, head: Option<&Head>) -> io::Result<TrailReport> {
    let mut report = TrailReport::default();
    let mut before: Option<Link> = None;
    let mut first: Option<u64> = None;
    let mut removed = 0;
    for file in files(path) {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for (index, line) in lines(&file)?.enumerate() {
            let line = line?;
            let location = format!("{name}, line {}", index + 1);
            match parse(&line) {
                Some((link, body)) => {
                    check_record(&mut report, before.as_ref(), &link, &body, &location);
                    report.records += 1;
                    first = first.or(Some(link.number));
                    removed = removed_number(&body).unwrap_or(removed);
                    before = Some(link);
                }
                // The end of a file that ends with a line feed.
                None if line.is_empty() => {}
                None => report.note(format!("{location}: not a record: it was cut by a crash, or changed")),
            }
        }
    }
    report.last = before.as_ref().map(|link| link.chain.clone());
    // The oldest record that is left follows those that the last rotation has removed.
    if let Some(first) = first {
        report.removed = removed.min(first - 1);
        if first > removed + 1 {
            report.note(format!("the records {} to {} are missing at the start", removed + 1, first - 1));
        }
    }
    match (head, before) {
        (None, Some(_)) => report.note("the file with the last number (.head) is missing or damaged".to_owned()),
        (Some(head), last) if last.as_ref().map_or(0, |link| link.number) < head.last => {
            let first_missing = last.map_or(0, |link| link.number) + 1;
            report.note(format!("the records {first_missing} to {} are missing at the end", head.last));
        }
        _ => {}
    }
    Ok(report)
}

/// Checks the number and the hash of a record against the record `before` it.
fn check_record(report: &mut TrailReport, before: Option<&Link>, link: &Link, body: &str, location: &str) {
    let number = link.number;
    let expected = before.map_or(number, |before| before.number + 1);
    if number > expected {
        report.note(format!("{location}: the records {expected} to {} are missing before it", number - 1));
    } else if number < expected {
        report.note(format!("{location}: record {number} is in the place of record {expected}"));
    } else if before.is_some() || number == 1 {
        let known = before.map_or("", |before| &before.chain);
        if chain_hash(known, body) != link.chain {
            report.note(format!("{location}: record {number}, or the one before it, was changed"));
        }
    }
}
