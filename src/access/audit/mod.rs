//! The audit trail in the data folder, one JSON object per line. `admin.log` has changes of tokens and all changes by
//! administrators of the service. `audit.log` has all other changes, and denied requests. Each log has its own files,
//! so that other callers cannot rotate away the records of administrators. Texts of clients are written as JSON
//! strings, so that a client cannot forge a line.

mod check;
mod escape;
mod os_user;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
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

/// Maximum characters of a client's text in an error message.
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
        /// The route's pattern, `tcp` or `mqtt`.
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

impl Event<'_> {
    /// Returns true if the event belongs into the log of administrators of the service.
    fn is_by_service_admin(&self) -> bool {
        match self {
            Self::Token { .. } => true,
            Self::Change { caller: caller @ Caller::Holder(_), .. } => caller.allows(Effect::AdministerService, None),
            _ => false,
        }
    }
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
        let trail = if event.is_by_service_admin() { &self.admin } else { &self.others };
        if let Err(error) = trail.append(event) {
            tracing::error!(%error, ?event, "writing the audit trail failed");
        }
    }

    /// Writes a refusal, unless too many of other callers were written for this reason in the present minute.
    pub fn note_denied(&self, event: &Event<'_>, now: Instant) {
        // The failures of other callers must not hide those of administrators.
        if event.is_by_service_admin() {
            return self.note(event);
        }
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

    /// Checks the hash chains of both logs in a data folder. A missing log has no records.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn check(data_dir: &Path) -> io::Result<Vec<(&'static str, TrailReport)>> {
        let mut reports = Vec::new();
        for name in TRAILS {
            reports.push((name, check::check(&data_dir.join(name))?));
        }
        Ok(reports)
    }

    /// Returns the existing files: `admin.log` first, and of each log the oldest file first.
    #[must_use]
    pub fn files(data_dir: &Path) -> Vec<PathBuf> {
        TRAILS.iter().flat_map(|name| trail::files(&data_dir.join(name))).collect()
    }
}

/// Cuts a client's text for an error message.
#[must_use]
pub fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}
