//! A token as it is kept, and what keeps tokens.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::quota::Quota;
use super::scopes::Scopes;
use super::secret::Secret;

/// A token. Times are in whole seconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Its name, by which people speak of it; no two have the same.
    pub name: String,
    /// The secret that counts, and the one before while both do. None once it is revoked.
    pub secrets: Vec<Secret>,
    /// What it may do.
    pub scopes: Scopes,
    /// How much of it.
    #[serde(default)]
    pub quota: Quota,
    /// When it was created.
    pub created: i64,
    /// From when on it does not count any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<i64>,
    /// When it was revoked. It is kept, so that a service whose last token goes does not open to everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<i64>,
    /// Grows with each change, so that two people who change it at once do not undo each other's change.
    pub rev: i64,
}

impl Token {
    /// Whether it counts at a time.
    #[must_use]
    pub fn is_live(&self, now: i64) -> bool {
        self.revoked.is_none() && self.expires.is_none_or(|expires| now < expires)
    }

    /// Whether a name can be a token's: it is written into logs and headers.
    #[must_use]
    pub fn is_name(name: &str) -> bool {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@' | b':');
        (1..=64).contains(&name.len()) && name.bytes().all(fits)
    }
}

/// What is to be done with tokens.
#[derive(Debug, Clone)]
pub enum TokenChange {
    /// A new one.
    Create {
        /// Its name.
        name: String,
        /// What it may do.
        scopes: Scopes,
        /// How much of it.
        quota: Quota,
        /// For how many seconds.
        expires_in: Option<i64>,
    },
    /// All of them, a line each.
    List,
    /// It does not count any more.
    Revoke {
        /// Which.
        name: String,
    },
    /// A new secret.
    Rotate {
        /// Which.
        name: String,
        /// For how many seconds the old secret goes on to count.
        keep: i64,
    },
}

/// Why tokens are not known, or not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenStoreError {
    /// Where they are kept does not answer.
    #[error("the tokens cannot be reached: {detail}")]
    Away {
        /// What was seen.
        detail: String,
    },
    /// What is kept there is no token.
    #[error("the tokens in {place} cannot be read: {detail}")]
    Unreadable {
        /// Where.
        place: String,
        /// What is wrong.
        detail: String,
    },
}

/// What keeps tokens.
#[async_trait]
pub trait TokenStore: Send + Sync + std::fmt::Debug {
    /// All tokens, revoked ones included, in name order.
    async fn tokens(&self) -> Result<Vec<Token>, TokenStoreError>;

    /// Keeps a token: in the place of the one of its name that has this rev, or as a new one when none is named. False when
    /// another one is there, and nothing was changed.
    async fn put(&self, token: &Token, replaces: Option<i64>) -> Result<bool, TokenStoreError>;
}
