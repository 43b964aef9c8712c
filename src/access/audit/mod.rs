//! The audit trail in the data folder, one JSON object per line. `admin.log` has changes of tokens and all changes by
//! administrators of the service. `audit.log` has all other changes, and denied requests. Each log has its own files,
//! so that other callers cannot rotate away the records of administrators. Texts of clients are written as JSON
//! strings, so that a client cannot forge a line.

mod check;
mod escape;
mod os_user;
mod trail;

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Serialize, Serializer};

pub use self::check::TrailReport;
pub use self::escape::is_control_or_invisible;
pub use self::os_user::OsUser;
use self::trail::Trail;
use super::caller::Caller;
use super::effects::Effect;
use super::quota::Quota;
use super::scopes::Scopes;

/// Maximum characters of a client's text in one line.
const TEXT_CHARS_MAX: usize = 256;
/// Maximum number of refusals of one reason that are written per minute. The others are counted.
const REFUSALS_PER_MINUTE: u32 = 20;
const MINUTE: Duration = Duration::from_secs(60);
/// The file names of all trails.
const TRAILS: [&str; 2] = ["admin.log", "audit.log"];

/// A record of the audit trail.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    /// A token was created, rotated, bound to certificates or revoked.
    Token {
        /// `created`, `rotated`, `bound` or `revoked`.
        action: &'static str,
        name: &'a str,
        scopes: &'a Scopes,
        quota: &'a Quota,
        /// Seconds since the epoch.
        expires: Option<i64>,
        /// The user who ran the command.
        #[serde(flatten)]
        user: OsUser,
        /// The token of the request over HTTP.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        address: Option<IpAddr>,
    },
    /// A request was denied.
    Denied {
        /// See [`Denied::label`](super::Denied::label); also `forbidden`, `origin` and `host`.
        reason: &'static str,
        address: Option<IpAddr>,
        /// The route's pattern, or `tcp`.
        route: &'static str,
        /// The token's name if it is known, or else the id in the sent text.
        token: Option<&'a str>,
    },
    /// Refusals that were not written one by one.
    Suppressed {
        /// The reason of the refusals.
        reason: &'static str,
        /// The number of refusals since the last written one.
        denials: u64,
    },
    /// Data was created or deleted, or an attempt of a permitted client has failed.
    Change {
        #[serde(rename = "by", serialize_with = "serialize_token_name")]
        caller: &'a Caller,
        address: Option<IpAddr>,
        /// The statement as parsed, not as sent.
        statement: String,
        database: &'a str,
        /// `done`, or the error.
        outcome: String,
    },
}

fn serialize_token_name<S: Serializer>(caller: &Caller, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(caller.name())
}

/// The two logs of the audit trail.
#[derive(Debug)]
pub struct Audit {
    admin: Trail,
    others: Trail,
    /// Refusals by reason. The number of reasons is fixed.
    refused: Mutex<HashMap<&'static str, RefusalCounts>>,
}

/// The refusals of one reason in the present minute.
#[derive(Debug)]
struct RefusalCounts {
    since: Instant,
    written: u32,
    suppressed: u64,
}

impl Audit {
    /// Returns the audit trail of a data folder. Each log, with its older files, takes about `max_bytes`. The first
    /// event creates the file.
    #[must_use]
    pub fn new(data_dir: &Path, max_bytes: u64) -> Self {
        let [admin, others] = TRAILS.map(|name| data_dir.join(name));
        Self {
            admin: Trail::new(admin, max_bytes, true),
            others: Trail::new(others, max_bytes, false),
            refused: Mutex::default(),
        }
    }

    /// Writes an event. Logs a failure.
    pub fn note(&self, event: &Event<'_>) {
        let trail = match event {
            Event::Token { .. } => &self.admin,
            Event::Change { caller: caller @ Caller::Holder(_), .. }
                if caller.allows(Effect::AdministerService, None) =>
            {
                &self.admin
            }
            _ => &self.others,
        };
        if let Err(error) = trail.append(event) {
            tracing::error!(%error, ?event, "writing the audit trail failed");
        }
    }

    /// Writes a refusal, unless too many were written for this reason in the present minute.
    pub fn note_denied(&self, event: &Event<'_>, now: Instant) {
        let reason = match event {
            Event::Denied { reason, .. } => reason,
            _ => "failed",
        };
        let suppressed = {
            let mut refused = self.refused.lock();
            let refused = refused.entry(reason).or_insert(RefusalCounts { since: now, written: 0, suppressed: 0 });
            if now.saturating_duration_since(refused.since) >= MINUTE {
                refused.since = now;
                refused.written = 0;
            }
            if refused.written >= REFUSALS_PER_MINUTE {
                refused.suppressed += 1;
                return;
            }
            refused.written += 1;
            std::mem::take(&mut refused.suppressed)
        };
        if suppressed > 0 {
            self.note(&Event::Suppressed { reason, denials: suppressed });
        }
        self.note(event);
    }

    /// Checks the hash chains of both logs in a data folder. A missing log has no report.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn check(data_dir: &Path) -> io::Result<Vec<(&'static str, TrailReport)>> {
        let mut reports = Vec::new();
        for name in TRAILS {
            reports.extend(check::check(&data_dir.join(name))?.map(|report| (name, report)));
        }
        Ok(reports)
    }

    /// Returns the existing files: `admin.log` first, and of each log the oldest file first.
    #[must_use]
    pub fn files(data_dir: &Path) -> Vec<PathBuf> {
        TRAILS.iter().flat_map(|name| trail::files(&data_dir.join(name))).collect()
    }
}

/// Cuts a client's text to the maximum length in a record.
#[must_use]
pub fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::super::caller::Holder;
    use super::super::quota::Usage;
    use super::super::token::Token;
    use super::*;

    /// Returns the holder of a token with this admin scope.
    fn holder(admin: &str) -> Caller {
        let scopes = Scopes { admin: vec![admin.to_owned()], ..Scopes::default() };
        let quota = Quota::default();
        let token = Token {
            name: "a".to_owned(),
            scopes,
            secrets: Vec::new(),
            certificates: Vec::new(),
            quota,
            created: 1,
            expires: None,
            revoked: None,
            rev: 1,
        };
        Caller::Holder(Arc::new(Holder {
            token,
            usage: Arc::new(Usage::new("token", "a", quota)),
            last_use: Arc::default(),
        }))
    }

    fn note(audit: &Audit, database: &str) {
        audit.note(&change(&holder("db_*"), database));
    }

    fn change<'a>(caller: &'a Caller, database: &'a str) -> Event<'a> {
        Event::Change { caller, address: None, statement: cut(database), database, outcome: "done".to_owned() }
    }

    #[test]
    fn other_callers_do_not_rotate_the_log_of_administrators() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::new(folder.path(), 10_000);
        audit.note(&change(&holder("*"), "first"));
        audit.note(&change(&Caller::Anybody, "without a token"));
        (0..1000).for_each(|_| note(&audit, "x"));
        let text = |path: PathBuf| fs::read_to_string(path).unwrap();
        let files: Vec<String> = Audit::files(folder.path()).into_iter().map(text).collect();
        assert!(files.len() == 5 && files[0].contains("first") && files[0].lines().count() == 1, "{files:?}");
    }

    #[test]
    fn texts_of_clients_cannot_forge_lines() {
        let folder = tempfile::tempdir().unwrap();
        let evil = "x\n{\"event\":\"token\",\"action\":\"created\"}\u{1b}[2J\u{2028}\0\u{9b}2J\u{202e}\u{2066}\u{7f}";
        note(&Audit::new(folder.path(), 1 << 20), evil);
        let text = fs::read_to_string(folder.path().join("audit.log")).unwrap();
        assert_eq!(text.lines().count(), 1);
        assert!(!text.trim_end().chars().any(is_control_or_invisible), "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((line["event"].as_str(), line["database"].as_str()), (Some("change"), Some(evil)));
    }

    #[test]
    fn refusals_are_limited_per_reason_and_all_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::new(folder.path(), 1 << 20);
        let start = Instant::now();
        let failing = holder("db_*");
        for number in 0..10_000 {
            let reason = if number % 100 == 0 { "forbidden" } else { "unknown" };
            let denied = Event::Denied { reason, address: None, route: "/write", token: None };
            audit.note_denied(&denied, start + Duration::from_millis(number * 12));
            audit.note_denied(&change(&failing, "x"), start + Duration::from_millis(number * 12));
        }
        let text = fs::read_to_string(folder.path().join("audit.log")).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        // Many wrong tokens must not hide refusals for other reasons.
        for (reason, suppressed) in [("unknown", 4_930), ("forbidden", 30), ("failed", 4_980)] {
            let with_reason = lines.iter().filter(|line| line["reason"] == reason);
            let counted: u64 = with_reason.filter_map(|line| line["denials"].as_u64()).sum();
            assert_eq!(counted, suppressed, "{reason}");
        }
        assert_eq!(lines.len(), 3 * 2 * 20 + 3);
        assert!(!folder.path().join("admin.log").exists());
    }

    /// All processes append under one lock, so numbers are consecutive across rotations.
    #[test]
    fn concurrent_writers_make_one_chain() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                // Each thread opens the files itself, as another process does.
                scope.spawn(|| {
                    let audit = Audit::new(folder.path(), 40_000);
                    (0..100).for_each(|_| note(&audit, "x"));
                });
            }
        });
        let reports = Audit::check(folder.path()).unwrap();
        let [("audit.log", report)] = &*reports else { panic!("{reports:?}") };
        assert_eq!(report.faults, [""; 0]);
        assert!((100..400).contains(&report.records), "{report:?}");
        let files = trail::files(&folder.path().join("audit.log"));
        assert_eq!(files.len(), 4);
        assert!(files.iter().all(|file| fs::metadata(file).unwrap().len() < 10_500));
    }

    fn faults(folder: &Path) -> String {
        let reports = Audit::check(folder).unwrap();
        reports.into_iter().flat_map(|(_, report)| report.faults).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn changes_of_a_file_are_detected() {
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
            (
                "one twice",
                |_, lines| [&lines[..3], &lines[2..]].concat().concat(),
                "record 3 is in the place of record 4",
            ),
            ("one added", |_, lines| lines.concat() + "{\"event\":\"change\"}\n", "not a record"),
            ("one cut", |_, lines| lines.concat().trim_end_matches("\"}\n").to_owned(), "not a record"),
            (
                "no head",
                |file, lines| {
                    fs::remove_file(trail::head_path(file)).unwrap();
                    lines.concat()
                },
                ".head",
            ),
        ];
        for (what, edit, fault) in cases {
            let folder = tempfile::tempdir().unwrap();
            let audit = Audit::new(folder.path(), 1 << 20);
            let file = folder.path().join("audit.log");
            (0..10).for_each(|number| note(&audit, &format!("x{number}")));
            let text = fs::read_to_string(&file).unwrap();
            fs::write(&file, edit(&file, text.split_inclusive('\n').collect())).unwrap();
            let found = faults(folder.path());
            assert!(found.contains(fault) && found.is_empty() == fault.is_empty(), "{what}: {found}");
            if *what == "no head" {
                continue;
            }
            // Later records do not hide the fault.
            note(&audit, "later");
            let later = faults(folder.path());
            assert_eq!(later.is_empty(), fault.is_empty(), "{what}: {later}");
        }
    }

    /// A crash between writing a record and its head leaves a valid chain.
    #[test]
    fn the_chain_continues_after_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::new(folder.path(), 1 << 20);
        let file = folder.path().join("audit.log");
        note(&audit, "one");
        let head = fs::read_to_string(trail::head_path(&file)).unwrap();
        note(&audit, "two");
        fs::write(trail::head_path(&file), head).unwrap();
        note(&audit, "three");
        let reports = Audit::check(folder.path()).unwrap();
        assert_eq!((reports[0].1.records, reports[0].1.faulty), (3, 0), "{reports:?}");
    }
}
