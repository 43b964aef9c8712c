//! The identity and the permissions of a request's sender.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::effects::Effect;
use super::quota::{Exhausted, Rate, Usage};
use super::scopes::Pin;
use super::token::Token;

/// A valid token and its quota usage.
#[derive(Debug)]
pub struct Holder {
    pub token: Token,
    /// The quota usage. A change of the token keeps it, unless the quota changes.
    pub usage: Arc<Usage>,
    /// The last use. A change of the token keeps it.
    pub last_use: Arc<LastUse>,
}

/// The time of a token's last successful authentication. Times are in seconds since the epoch; zero stands for never.
#[derive(Debug, Default)]
pub struct LastUse {
    last: AtomicI64,
    /// The last use that the store knows.
    stored: AtomicI64,
    /// The time of the last write to the store.
    stored_at: AtomicI64,
}

impl LastUse {
    /// Notes a use at `now`.
    pub fn note(&self, now: i64) {
        self.last.fetch_max(now, Ordering::Relaxed);
    }

    /// Returns the last known use, by a request to this instance or from the store.
    #[must_use]
    pub fn last(&self) -> Option<i64> {
        Some(self.last.load(Ordering::Relaxed)).filter(|last| *last > 0)
    }

    /// Merges a use that was read from the store.
    pub fn merge_stored(&self, last: i64) {
        self.last.fetch_max(last, Ordering::Relaxed);
        self.stored.fetch_max(last, Ordering::Relaxed);
    }

    /// Returns the last use if it is due to be stored, which happens at most once per `interval` seconds.
    #[must_use]
    pub fn due_last_use(&self, now: i64, interval: i64) -> Option<i64> {
        let is_due = now.saturating_sub(self.stored_at.load(Ordering::Relaxed)) >= interval;
        self.last().filter(|last| is_due && *last > self.stored.load(Ordering::Relaxed))
    }

    /// Notes that a use was stored at `now`.
    pub fn note_stored(&self, last: i64, now: i64) {
        self.stored.fetch_max(last, Ordering::Relaxed);
        self.stored_at.store(now, Ordering::Relaxed);
    }
}

/// The sender of a request.
#[derive(Debug, Clone)]
pub enum Caller {
    /// An anonymous sender, while no token is required. Everything is allowed.
    Anybody,
    /// A sender with a valid token.
    Holder(Arc<Holder>),
}

/// The reason for which a request is not authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// The request has no token.
    Missing,
    /// The text does not have the form of a token.
    Malformed,
    /// No token has this id, or the secret is wrong.
    Unknown,
    Revoked,
    Expired,
    /// The tokens have not been loaded yet.
    Unavailable,
}

impl Denied {
    /// Returns the label in metrics, which is also the reason in the audit trail.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::Unknown => "unknown",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
            Self::Unavailable => "unavailable",
        }
    }
}

impl Caller {
    /// Returns the tag values that every sensor must have that the caller writes or reads.
    #[must_use]
    pub fn pins(&self) -> &[Pin] {
        self.token().map_or(&[], |token| &token.scopes.pins)
    }

    /// Returns the token's name for display, or `anybody`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.token().map_or("anybody", |token| &token.name)
    }

    /// Returns the usage that is charged for the caller's writes, or `None` without a token.
    #[must_use]
    pub fn allowance(&self) -> Option<&Arc<Usage>> {
        match self {
            Self::Holder(holder) => Some(&holder.usage),
            Self::Anybody => None,
        }
    }

    /// Returns the caller with a copy of its quota usage, for a dry run.
    #[must_use]
    pub fn copy(&self) -> Self {
        match self {
            Self::Anybody => Self::Anybody,
            Self::Holder(holder) => Self::Holder(Arc::new(Holder {
                token: holder.token.clone(),
                usage: Arc::new(holder.usage.copy()),
                last_use: holder.last_use.clone(),
            })),
        }
    }

    /// Checks that the caller may create one more database. All `existing` databases that it may write to count,
    /// whoever created them, so that the limit holds across restarts and instances. `default` applies to tokens without
    /// a quota of databases, except those with all rights.
    ///
    /// # Errors
    /// If the limit is reached.
    pub fn admits_database<'n>(
        &self,
        existing: impl Iterator<Item = &'n str>,
        default: Option<u32>,
    ) -> Result<(), Exhausted> {
        let Some(token) = self.token() else { return Ok(()) };
        let default = default.filter(|_| !self.allows(Effect::AdministerService, None));
        let Some(limit) = token.quota.databases.or(default) else { return Ok(()) };
        if existing.filter(|name| self.allows(Effect::Write, Some(name))).count() < limit as usize {
            return Ok(());
        }
        let owner = format!("token {}", token.name);
        Err(Exhausted { rate: Rate::Databases, owner, limit, used: 1.0, retry_after: Duration::ZERO })
    }

    /// Returns the sender's token, or `None` for an anonymous sender.
    #[must_use]
    pub fn token(&self) -> Option<&Token> {
        match self {
            Self::Anybody => None,
            Self::Holder(holder) => Some(&holder.token),
        }
    }
}
