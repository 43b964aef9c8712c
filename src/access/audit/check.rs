//! Checks the chain of a trail: a record that was changed, removed, added or moved shows, and so do missing files and a
//! missing end. Whoever may write to the folder can make the whole chain anew; against that, keep the last hash that a
//! check printed on another machine.

use std::fs::File;
use std::io;
use std::path::Path;

use super::trail::{Head, Link, chained, files, head_of, lines, parse, read_head};

/// Most faults that are told one by one.
const FAULTS_TOLD: usize = 20;

/// What a check found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TrailReport {
    /// Chained records.
    pub records: u64,
    /// The last record's hash.
    pub last: Option<String>,
    /// What is wrong, the first ones in words.
    pub faults: Vec<String>,
    /// The number of faults.
    pub faulty: usize,
}

impl TrailReport {
    fn note(&mut self, fault: String) {
        self.faulty += 1;
        if self.faults.len() < FAULTS_TOLD {
            self.faults.push(fault);
        }
    }
}

/// Checks all files of a trail; `None` if there is no file and no head.
///
/// # Errors
/// A file cannot be read.
pub fn check(path: &Path) -> io::Result<Option<TrailReport>> {
    let head = match File::open(head_of(path)) {
        Ok(mut file) => {
            // Nobody appends or rotates meanwhile.
            file.lock_shared()?;
            let head = read_head(&mut file)?;
            return report(path, head.as_ref()).map(Some);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if files(path).is_empty() { Ok(None) } else { report(path, head).map(Some) }
}

fn report(path: &Path, head: Option<&Head>) -> io::Result<TrailReport> {
    let mut report = TrailReport::default();
    let mut before: Option<Link> = None;
    for file in files(path) {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for (index, line) in lines(&file)?.enumerate() {
            let (line, at) = (line?, format!("{name}, line {}", index + 1));
            match parse(&line) {
                Some((link, body)) => {
                    judge(&mut report, head, before.as_ref(), &link, &body, &at);
                    report.records += 1;
                    before = Some(link);
                }
                // The end of a file that ends with a line feed.
                None if line.is_empty() => {}
                None => report.note(format!("{at}: not a record: it was cut by a crash, or changed")),
            }
        }
    }
    report.last = before.as_ref().map(|link| link.chain.clone());
    match (head, before) {
        (None, Some(_)) => report.note("the file with the last number (.head) is missing or damaged".to_owned()),
        (Some(head), last) if last.as_ref().map_or(0, |link| link.number) < head.last => {
            let (last, head) = (last.map_or(0, |link| link.number), head.last);
            report.note(format!("the records {} to {head} are missing at the end", last + 1));
        }
        _ => {}
    }
    Ok(report)
}

fn judge(report: &mut TrailReport, head: Option<&Head>, before: Option<&Link>, link: &Link, body: &str, at: &str) {
    let number = link.number;
    let expected = match before {
        Some(before) => before.number + 1,
        None => head.map_or(number, |head| head.first),
    };
    if number > expected {
        report.note(format!("{at}: the records {expected} to {} are missing before it", number - 1));
    } else if number < expected {
        report.note(format!("{at}: record {number} stands where {expected} belongs"));
    } else if before.is_some() || number == 1 {
        let known = before.map_or("", |before| &before.chain);
        if chained(known, body) != link.chain {
            report.note(format!("{at}: record {number}, or the one before it, was changed"));
        }
    }
}
