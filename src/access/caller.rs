//! The identity of a request's sender, and what it may do.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::quota::{Exhausted, Rate, Usage};
use super::scopes::Pin;
use super::token::Token;

/// A valid token and its quota usage.
#[derive(Debug)]
pub struct Holder {
    pub token: Token,
    /// Kept when the token changes, unless its quota changes.
    pub usage: Arc<Usage>,
    /// Kept when the token changes.
    pub uses: Arc<Uses>,
}

/// When a token let clients in. Times are seconds since the epoch, zero for never.
#[derive(Debug, Default)]
pub struct Uses {
    last: AtomicI64,
    /// The last use that is stored, and when it was stored.
    stored: AtomicI64,
    stored_at: AtomicI64,
}

impl Uses {
    /// Counts a request.
    pub fn add(&self, now: i64) {
        self.last.fetch_max(now, Ordering::Relaxed);
    }

    /// The last use that is known, of this process or from the store.
    #[must_use]
    pub fn last(&self) -> Option<i64> {
        Some(self.last.load(Ordering::Relaxed)).filter(|last| *last > 0)
    }

    /// A use that the store knows.
    pub fn recall(&self, last: i64) {
        self.last.fetch_max(last, Ordering::Relaxed);
        self.stored.fetch_max(last, Ordering::Relaxed);
    }

    /// The last use, if it is to be stored now: at most once per `interval` seconds.
    #[must_use]
    pub fn unstored(&self, now: i64, interval: i64) -> Option<i64> {
        let is_due = now.saturating_sub(self.stored_at.load(Ordering::Relaxed)) >= interval;
        self.last().filter(|last| is_due && *last > self.stored.load(Ordering::Relaxed))
    }

    /// The use was stored now.
    pub fn note_stored(&self, last: i64, now: i64) {
        self.stored.fetch_max(last, Ordering::Relaxed);
        self.stored_at.store(now, Ordering::Relaxed);
    }
}

/// The sender of a request.
#[derive(Debug, Clone)]
pub enum Caller {
    /// An anonymous sender, where no token is required: everything is allowed.
    Anybody,
    /// A sender with a valid token.
    Holder(Arc<Holder>),
}

/// Why a sender could not be authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// The request has no token.
    Missing,
    /// The text is not in the form of a token.
    Malformed,
    /// No token has this id, or the secret is wrong.
    Unknown,
    Revoked,
    Expired,
    /// The tokens have not been loaded yet.
    Unavailable,
}

impl Denied {
    /// The label in metrics and the reason in the audit log.
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
    #[must_use]
    pub fn may_write(&self, database: &str) -> bool {
        self.token().is_none_or(|token| token.scopes.may_write(database))
    }

    #[must_use]
    pub fn may_read(&self, database: &str) -> bool {
        self.token().is_none_or(|token| token.scopes.may_read(database))
    }

    /// Whether the caller may delete from a database or drop it.
    #[must_use]
    pub fn may_manage(&self, database: &str) -> bool {
        self.token().is_none_or(|token| token.scopes.may_manage(database))
    }

    /// Whether the caller may delete from some database.
    #[must_use]
    pub fn may_manage_some(&self) -> bool {
        self.token().is_none_or(|token| token.scopes.may_manage_some())
    }

    /// Whether the caller may run operations that concern all databases.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.token().is_none_or(|token| token.scopes.is_admin())
    }

    /// Whether the caller may read metrics and the service's status.
    #[must_use]
    pub fn may_observe(&self) -> bool {
        self.token().is_none_or(|token| token.scopes.may_observe())
    }

    /// The tag values that every sensor the caller writes or reads must have.
    #[must_use]
    pub fn pins(&self) -> &[Pin] {
        self.token().map_or(&[], |token| &token.scopes.pins)
    }

    /// The token's name, for display.
    #[must_use]
    pub fn name(&self) -> &str {
        self.token().map_or("anybody", |token| &token.name)
    }

    /// The usage of the quota that is charged for the caller's writes; `None` without a quota.
    #[must_use]
    pub fn allowance(&self) -> Option<&Arc<Usage>> {
        match self {
            Self::Holder(holder) if !holder.usage.quota.is_none() => Some(&holder.usage),
            _ => None,
        }
    }

    /// The same caller with a copy of what it has used of its quota, for a dry run.
    #[must_use]
    pub fn copy(&self) -> Self {
        match self {
            Self::Anybody => Self::Anybody,
            Self::Holder(holder) => Self::Holder(Arc::new(Holder {
                token: holder.token.clone(),
                usage: Arc::new(holder.usage.copy()),
                uses: holder.uses.clone(),
            })),
        }
    }

    /// Checks that the caller may bring one more database into being beside the `existing` ones. Those that it may write to
    /// count, whoever made them and when, so that neither a restart nor another instance gives it more. `default`
    /// applies to tokens without a quota of databases of their own, except those with all rights.
    ///
    /// # Errors
    /// When the limit is reached.
    pub fn admits_database<'n>(
        &self,
        existing: impl Iterator<Item = &'n str>,
        default: Option<u32>,
    ) -> Result<(), Exhausted> {
        let Some(token) = self.token() else { return Ok(()) };
        let default = default.filter(|_| !token.scopes.is_admin());
        let Some(limit) = token.quota.databases.or(default) else { return Ok(()) };
        if existing.filter(|name| token.scopes.may_write(name)).count() < limit as usize {
            return Ok(());
        }
        let owner = format!("token {}", token.name);
        Err(Exhausted { rate: Rate::Databases, owner, limit, used: 1.0, retry_after: Duration::ZERO })
    }

    /// The sender's token; `None` where none is required.
    #[must_use]
    pub fn token(&self) -> Option<&Token> {
        match self {
            Self::Anybody => None,
            Self::Holder(holder) => Some(&holder.token),
        }
    }
}
