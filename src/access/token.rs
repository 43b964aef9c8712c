//! A token as it is stored, and the trait of token stores.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::quota::Quota;
use super::scopes::Scopes;
use super::secret::Secret;

/// A stored token. Times are whole seconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Unique.
    pub name: String,
    /// The current secret, and after a rotation the previous one while both are valid. Empty once revoked.
    pub secrets: Vec<Secret>,
    pub scopes: Scopes,
    #[serde(default)]
    pub quota: Quota,
    pub created: i64,
    /// The end of its validity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<i64>,
    /// When it was revoked. Revoked tokens stay stored, so that revoking the last one does not open the service to
    /// everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<i64>,
    /// Grows with each change: a change names the rev it replaces, so that concurrent changes do not overwrite each
    /// other.
    pub rev: i64,
}

impl Token {
    /// Whether the token is valid at `now`.
    #[must_use]
    pub fn is_live(&self, now: i64) -> bool {
        self.revoked.is_none() && self.expires.is_none_or(|expires| now < expires)
    }

    /// Whether a text may be a token's name. Names are written into logs and headers.
    #[must_use]
    pub fn is_name(name: &str) -> bool {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@' | b':');
        (1..=64).contains(&name.len()) && name.bytes().all(fits)
    }
}

/// A command on tokens.
#[derive(Debug, Clone)]
pub enum TokenChange {
    Create {
        name: String,
        scopes: Scopes,
        quota: Quota,
        /// In seconds.
        expires_in: Option<i64>,
    },
    /// Prints the records of earlier changes, or checks the audit trail.
    Audit {
        verify: bool,
    },
    /// Lists all tokens, one per line.
    List,
    Revoke {
        name: String,
    },
    /// Replaces the secret.
    Rotate {
        name: String,
        /// For how many seconds the old secret stays valid.
        keep: i64,
    },
}

/// Why tokens could not be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenStoreError {
    /// The store is unavailable.
    #[error("the token store is unavailable: {detail}")]
    Away {
        /// The underlying error.
        detail: String,
    },
    /// The stored data is not valid tokens.
    #[error("the tokens in {place} cannot be read: {detail}")]
    Unreadable {
        /// The file or collection.
        place: String,
        detail: String,
    },
}

/// Stores tokens.
#[async_trait]
pub trait TokenStore: Send + Sync + std::fmt::Debug {
    /// All tokens, revoked ones included, in name order.
    async fn tokens(&self) -> Result<Vec<Token>, TokenStoreError>;

    /// Stores a token. `replaces` is the rev of the stored token of this name, `None` for a new token. Returns false,
    /// and changes nothing, if the stored rev differs.
    async fn put(&self, token: &Token, replaces: Option<i64>) -> Result<bool, TokenStoreError>;
}
