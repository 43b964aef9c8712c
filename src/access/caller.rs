//! Who a request comes from, as far as that is known, and what it may therefore do.

use std::sync::Arc;

use super::quota::{Allowance, Usage};
use super::scopes::Pin;
use super::token::Token;

/// A token that counts, with what was brought in by it.
#[derive(Debug)]
pub struct Holder {
    /// The token.
    pub token: Token,
    /// What it has used of its quota; it stays when the token changes otherwise.
    pub usage: Arc<Usage>,
}

/// Who asks.
#[derive(Debug, Clone)]
pub enum Caller {
    /// Anybody, where nobody has to say who they are: all is allowed.
    Anybody,
    /// Somebody with a token.
    Holder(Arc<Holder>),
}

/// Why somebody is not who they say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// There was no token.
    Missing,
    /// What was there is no token's text.
    Malformed,
    /// There is no such token, or the secret is another.
    Unknown,
    /// It was revoked.
    Revoked,
    /// Its time is over.
    Expired,
    /// The tokens are not known at present.
    Unavailable,
}

impl Denied {
    /// The metric label, and the audit log's word.
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
    /// Whether they may write to a database.
    #[must_use]
    pub fn may_write(&self, database: &str) -> bool {
        self.token().is_none_or(|token| token.scopes.may_write(database))
    }

    /// Whether they may read a database.
    #[must_use]
    pub fn may_read(&self, database: &str) -> bool {
        self.token().is_none_or(|token| token.scopes.may_read(database))
    }

    /// Whether they may delete from a database, or drop it.
    #[must_use]
    pub fn may_manage(&self, database: &str) -> bool {
        self.token().is_none_or(|token| token.scopes.may_manage(database))
    }

    /// Whether they may do what concerns all databases.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.token().is_none_or(|token| token.scopes.is_admin())
    }

    /// Whether they may see metrics and the service's status.
    #[must_use]
    pub fn may_observe(&self) -> bool {
        self.token().is_none_or(|token| token.scopes.may_observe())
    }

    /// What every sensor that they write or read must have.
    #[must_use]
    pub fn pins(&self) -> &[Pin] {
        self.token().map_or(&[], |token| &token.scopes.pins)
    }

    /// Their token's name, for people.
    #[must_use]
    pub fn name(&self) -> &str {
        self.token().map_or("anybody", |token| &token.name)
    }

    /// Who pays for what they bring in.
    #[must_use]
    pub fn allowance(&self) -> Allowance {
        match self {
            Self::Anybody => Allowance::default(),
            Self::Holder(holder) => Allowance::of(holder.usage.clone()),
        }
    }

    /// What they have used of their quota, where they have one.
    #[must_use]
    pub fn usage(&self) -> Option<&Usage> {
        match self {
            Self::Holder(holder) if !holder.usage.quota().is_none() => Some(&holder.usage),
            _ => None,
        }
    }

    fn token(&self) -> Option<&Token> {
        match self {
            Self::Anybody => None,
            Self::Holder(holder) => Some(&holder.token),
        }
    }
}
