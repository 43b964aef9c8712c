//! The audit log: deletions, token changes and denied requests, one JSON object per line, in a file of the data
//! directory. Everything a client sent is written as a JSON string, so that no client can forge a line.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

/// Above this size the file is renamed to `audit.log.1`, replacing the previous one.
const FILE_BYTES: u64 = 16 << 20;
/// Most denials written per second; the others are only counted.
const DENIALS_PER_SECOND: u32 = 10;
/// Most characters of a client's text in one line.
const TEXT_CHARS: usize = 256;

#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    /// A token was created, rotated or revoked.
    Token {
        /// `created`, `rotated` or `revoked`.
        action: &'static str,
        name: &'a str,
    },
    /// A request was denied.
    Denied {
        /// See [`Denied::label`](super::Denied::label); also `forbidden` and `origin`.
        reason: &'static str,
        address: Option<IpAddr>,
        /// The route's pattern, or `tcp`.
        route: &'static str,
        /// The token's name if it is known, else the id in the text that was sent.
        token: Option<&'a str>,
    },
    /// Denials that were not written one by one.
    Suppressed {
        /// Their number since the last written denial.
        denials: u64,
    },
    /// Data was created or deleted, or a client tried to.
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
}

#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    denials: Mutex<Denials>,
}

#[derive(Debug)]
struct Denials {
    since: Instant,
    told: u32,
    suppressed: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    #[serde(flatten)]
    event: &'a Event<'a>,
}

impl Audit {
    /// The file is created by the first event.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        let denials = Denials { since: Instant::now(), told: 0, suppressed: 0 };
        Self { path: data_dir.join("audit.log"), denials: Mutex::new(denials) }
    }

    /// Writes an event; a failure is logged.
    pub fn note(&self, event: &Event<'_>) {
        if let Err(error) = self.append(event) {
            tracing::error!(%error, ?event, "writing the audit log failed");
        }
    }

    /// Writes a denial, unless there were too many in this second.
    pub fn note_denied(&self, event: &Event<'_>, now: Instant) {
        let suppressed = {
            let mut denials = self.denials.lock().unwrap_or_else(PoisonError::into_inner);
            if now.saturating_duration_since(denials.since) >= Duration::from_secs(1) {
                denials.since = now;
                denials.told = 0;
            }
            if denials.told >= DENIALS_PER_SECOND {
                denials.suppressed += 1;
                return;
            }
            denials.told += 1;
            std::mem::take(&mut denials.suppressed)
        };
        if suppressed > 0 {
            self.note(&Event::Suppressed { denials: suppressed });
        }
        self.note(event);
    }

    /// Opens the file for each line, since the command line writes to it, too.
    fn append(&self, event: &Event<'_>) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Line { time: jiff::Timestamp::now().to_string(), event })?;
        line.push(b'\n');
        if fs::metadata(&self.path).is_ok_and(|meta| meta.len() > FILE_BYTES) {
            fs::rename(&self.path, self.path.with_extension("log.1"))?;
        }
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        file.write_all(&line)
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
    use super::*;

    #[test]
    fn a_line_stays_a_line_whatever_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::new(folder.path());
        let evil = "x\n{\"event\":\"token\",\"action\":\"created\"}\u{1b}[2J\u{2028}\0";
        audit.note(&Event::Change {
            by: "a",
            address: None,
            statement: cut(evil),
            database: evil,
            outcome: "done".to_owned(),
        });
        let text = fs::read_to_string(folder.path().join("audit.log")).unwrap();
        assert_eq!(text.lines().count(), 1);
        assert!(!text.trim_end().chars().any(char::is_control), "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((line["event"].as_str(), line["database"].as_str()), (Some("change"), Some(evil)));
    }

    #[test]
    fn denials_are_told_some_at_a_time_and_all_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::new(folder.path());
        let start = Instant::now();
        for number in 0..10_000 {
            let denied = Event::Denied { reason: "unknown", address: None, route: "/write", token: None };
            audit.note_denied(&denied, start + Duration::from_millis(number / 5));
        }
        let text = fs::read_to_string(folder.path().join("audit.log")).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let suppressed: u64 = lines.iter().filter_map(|line| line["denials"].as_u64()).sum();
        assert_eq!((lines.len(), suppressed), (21, 4990));
    }
}
