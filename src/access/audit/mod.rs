//! The audit trail in the data folder, one JSON object per line: `audit.log` has changes of tokens, `changes.log` what
//! was created and deleted, `refusals.log` who was refused, `uses.log` samples of who was let in. Each has its own files,
//! so that what strangers can cause rotates nothing away that administrators did. Everything a client sent is written
//! as a JSON string, so that no client can forge a line.

mod check;
mod escape;
mod os_user;
mod trail;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

pub use self::check::TrailReport;
pub use self::escape::steers;
pub use self::os_user::OsUser;
use self::trail::Trail;
use super::quota::Quota;
use super::scopes::Scopes;

/// Most characters of a client's text in one line.
const TEXT_CHARS: usize = 256;
/// All files, for checks.
const TRAILS: [&str; 4] = ["audit.log", "changes.log", "refusals.log", "uses.log"];

/// The config section `[audit]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditOptions {
    /// Above this size a file is renamed.
    pub file_bytes: u64,
    /// Older files that are kept of each kind.
    pub files: usize,
    /// Most refusals of one reason that are written per second; the others are counted.
    pub refusals_per_second: u32,
    /// How often a token's use is written; zero for never.
    pub uses: Duration,
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self { file_bytes: 16 << 20, files: 3, refusals_per_second: 10, uses: Duration::ZERO }
    }
}

#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    /// A token was created, rotated, bound to certificates or revoked.
    Token {
        /// `created`, `rotated`, `bound` or `revoked`.
        action: &'static str,
        name: &'a str,
        /// What the token may do.
        scopes: &'a Scopes,
        quota: &'a Quota,
        /// Seconds since the epoch.
        expires: Option<i64>,
        #[serde(flatten)]
        by: OsUser,
    },
    /// A request was denied.
    Denied {
        /// See [`Denied::label`](super::Denied::label); also `forbidden`, `origin` and `host`.
        reason: &'static str,
        address: Option<IpAddr>,
        /// The route's pattern, or `tcp`.
        route: &'static str,
        /// The token's name if it is known, else the id in the text that was sent.
        token: Option<&'a str>,
    },
    /// Refusals that were not written one by one.
    Suppressed {
        /// As of the refusals.
        reason: &'static str,
        /// Their number since the last written refusal of this reason.
        denials: u64,
    },
    /// Data was created or deleted, or a client that may do so failed.
    Change {
        /// The token's name.
        by: &'a str,
        address: Option<IpAddr>,
        /// The statement as parsed, not as sent.
        statement: String,
        database: &'a str,
        /// `done`, or the error.
        outcome: String,
    },
    /// A token let a client in.
    Used {
        token: &'a str,
        address: Option<IpAddr>,
        /// The route's pattern.
        route: &'static str,
        /// Requests with this token since the last line about it.
        requests: u64,
    },
}

#[derive(Debug)]
pub struct Audit {
    tokens: Trail,
    changes: Trail,
    refusals: Trail,
    uses: Trail,
    options: AuditOptions,
    /// By the reason of a refusal, of which there is a fixed number.
    refused: Mutex<HashMap<&'static str, Refused>>,
}

/// Refusals of one reason.
#[derive(Debug)]
struct Refused {
    since: Instant,
    told: u32,
    suppressed: u64,
}

impl Audit {
    /// The files are created by the first events.
    #[must_use]
    pub fn new(data_dir: &Path, options: AuditOptions) -> Self {
        let [tokens, changes, refusals, uses] = TRAILS.map(|name| data_dir.join(name));
        Self {
            tokens: Trail::new(tokens, &options, true),
            changes: Trail::new(changes, &options, false),
            refusals: Trail::new(refusals, &options, false),
            uses: Trail::new(uses, &options, false),
            options,
            refused: Mutex::default(),
        }
    }

    /// Writes an event to the file of its kind; a failure is logged.
    pub fn note(&self, event: &Event<'_>) {
        let trail = match event {
            Event::Token { .. } => &self.tokens,
            Event::Change { .. } => &self.changes,
            Event::Denied { .. } | Event::Suppressed { .. } => &self.refusals,
            Event::Used { .. } => &self.uses,
        };
        self.append(trail, event);
    }

    /// Writes a refusal, unless there were too many for this reason in this second.
    pub fn note_denied(&self, event: &Event<'_>, now: Instant) {
        let reason = match event {
            Event::Denied { reason, .. } => reason,
            _ => "failed",
        };
        let suppressed = {
            let mut refused = self.refused.lock();
            let refused = match refused.entry(reason) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(Refused { since: now, told: 0, suppressed: 0 }),
            };
            if now.saturating_duration_since(refused.since) >= Duration::from_secs(1) {
                (refused.since, refused.told) = (now, 0);
            }
            if refused.told >= self.options.refusals_per_second {
                refused.suppressed += 1;
                return;
            }
            refused.told += 1;
            std::mem::take(&mut refused.suppressed)
        };
        if suppressed > 0 {
            self.append(&self.refusals, &Event::Suppressed { reason, denials: suppressed });
        }
        self.append(&self.refusals, event);
    }

    /// How often a token's use is to be written; `None` for never.
    #[must_use]
    pub fn uses(&self) -> Option<Duration> {
        Some(self.options.uses).filter(|interval| !interval.is_zero())
    }

    fn append(&self, trail: &Trail, event: &Event<'_>) {
        if let Err(error) = trail.append(event) {
            tracing::error!(%error, ?event, "writing the audit trail failed");
        }
    }

    /// Checks the chains of all files in a data folder; what is not there has no report.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn check(data_dir: &Path) -> io::Result<Vec<(&'static str, TrailReport)>> {
        let mut reports = Vec::new();
        for name in TRAILS {
            reports.extend(check::check(&data_dir.join(name))?.map(|report| (name, report)));
        }
        Ok(reports)
    }

    /// The files with changes of tokens that exist, oldest first.
    #[must_use]
    pub fn token_files(data_dir: &Path) -> Vec<PathBuf> {
        trail::files(&data_dir.join(TRAILS[0]))
    }
}

/// A client's text, cut to the length that fits into a line.
#[must_use]
pub fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARS).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;

    fn change(database: &str) -> Event<'_> {
        Event::Change { by: "a", address: None, statement: cut(database), database, outcome: "done".to_owned() }
    }

    fn audit(folder: &Path, file_bytes: u64, files: usize) -> Audit {
        Audit::new(folder, AuditOptions { file_bytes, files, ..AuditOptions::default() })
    }

    #[test]
    fn a_line_stays_a_line_whatever_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let evil = "x\n{\"event\":\"token\",\"action\":\"created\"}\u{1b}[2J\u{2028}\0\u{9b}2J\u{202e}\u{2066}\u{7f}";
        audit(folder.path(), 1 << 20, 3).note(&change(evil));
        let text = fs::read_to_string(folder.path().join("changes.log")).unwrap();
        assert_eq!(text.lines().count(), 1);
        assert!(!text.trim_end().chars().any(steers), "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((line["event"].as_str(), line["database"].as_str()), (Some("change"), Some(evil)));
    }

    #[test]
    fn refusals_are_told_some_at_a_time_and_all_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let audit = audit(folder.path(), 1 << 20, 3);
        let start = Instant::now();
        for number in 0..10_000 {
            let reason = if number % 100 == 0 { "forbidden" } else { "unknown" };
            let denied = Event::Denied { reason, address: None, route: "/write", token: None };
            audit.note_denied(&denied, start + Duration::from_millis(number / 5));
            audit.note_denied(&change("x"), start + Duration::from_millis(number / 5));
        }
        let text = fs::read_to_string(folder.path().join("refusals.log")).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        // Whoever sends many wrong tokens does not hide another's attempts.
        for (reason, suppressed) in [("unknown", 4_940), ("forbidden", 40), ("failed", 4_990)] {
            let of: Vec<_> = lines.iter().filter(|line| line["reason"] == reason).collect();
            let told: u64 = of.iter().filter_map(|line| line["denials"].as_u64()).sum();
            assert_eq!(told, suppressed, "{reason}");
        }
        assert_eq!(lines.len(), 3 * 20 + 3);
        assert!(!folder.path().join("changes.log").exists());
    }

    /// All processes append under one lock: numbers follow each other through every rotation.
    #[test]
    fn writers_at_one_time_make_one_chain() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                // Each has files of its own open, as another process has.
                scope.spawn(|| {
                    let audit = audit(folder.path(), 10_000, 3);
                    (0..100).for_each(|_| audit.note(&change("x")));
                });
            }
        });
        let reports = Audit::check(folder.path()).unwrap();
        let [("changes.log", report)] = &*reports else { panic!("{reports:?}") };
        assert_eq!(report.faults, [""; 0]);
        assert!((100..400).contains(&report.records), "{report:?}");
        let files = trail::files(&folder.path().join("changes.log"));
        assert_eq!(files.len(), 4);
        assert!(files.iter().all(|file| fs::metadata(file).unwrap().len() < 10_500));
    }

    fn faults(folder: &Path) -> String {
        let reports = Audit::check(folder).unwrap();
        reports.into_iter().flat_map(|(_, report)| report.faults).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn whatever_is_done_to_a_file_shows() {
        type Edit = fn(&Path, Vec<&str>) -> String;
        let cases: &[(&str, Edit, &str)] = &[
            ("nothing", |_, lines| lines.concat(), ""),
            ("a line gone", |_, lines| [&lines[..4], &lines[5..]].concat().concat(), "records 5 to 5 are missing"),
            ("the first gone", |_, lines| lines[1..].concat(), "records 1 to 1 are missing"),
            ("the end gone", |_, lines| lines[..8].concat(), "records 9 to 10 are missing at the end"),
            ("all gone", |_, _| String::new(), "records 1 to 10 are missing at the end"),
            (
                "one changed",
                |_, lines| lines.concat().replace("x4", "y4"),
                "record 5, or the one before it, was changed",
            ),
            (
                "two swapped",
                |_, mut lines| {
                    lines.swap(2, 3);
                    lines.concat()
                },
                "records 3 to 3 are missing",
            ),
            ("one twice", |_, lines| [&lines[..3], &lines[2..]].concat().concat(), "record 3 stands where 4 belongs"),
            ("one added", |_, lines| lines.concat() + "{\"event\":\"change\"}\n", "not a record"),
            ("one cut", |_, lines| lines.concat().trim_end_matches("\"}\n").to_owned(), "not a record"),
            (
                "no head",
                |file, lines| {
                    fs::remove_file(trail::head_of(file)).unwrap();
                    lines.concat()
                },
                ".head",
            ),
        ];
        for (what, edit, fault) in cases {
            let folder = tempfile::tempdir().unwrap();
            let (audit, file) = (audit(folder.path(), 1 << 20, 3), folder.path().join("changes.log"));
            (0..10).for_each(|number| audit.note(&change(&format!("x{number}"))));
            let text = fs::read_to_string(&file).unwrap();
            fs::write(&file, edit(&file, text.split_inclusive('\n').collect())).unwrap();
            let told = faults(folder.path());
            assert!(told.contains(fault) && told.is_empty() == fault.is_empty(), "{what}: {told}");
            if *what == "no head" {
                continue;
            }
            // What is written later hides nothing.
            audit.note(&change("later"));
            let later = faults(folder.path());
            assert_eq!(later.is_empty(), fault.is_empty(), "{what}: {later}");
        }
    }

    /// The file of a version without a chain, and a process that died between writing a record and its number.
    #[test]
    fn the_chain_goes_on_after_an_upgrade_and_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        let (audit, file) = (audit(folder.path(), 1 << 20, 3), folder.path().join("changes.log"));
        fs::write(&file, "{\"time\":\"2026-01-01T00:00:00Z\",\"event\":\"change\"}\n").unwrap();
        audit.note(&change("one"));
        let head = fs::read_to_string(trail::head_of(&file)).unwrap();
        audit.note(&change("two"));
        fs::write(trail::head_of(&file), head).unwrap();
        audit.note(&change("three"));
        let reports = Audit::check(folder.path()).unwrap();
        assert_eq!((reports[0].1.records, reports[0].1.unchained, reports[0].1.faulty), (3, 1, 0), "{reports:?}");
    }
}
