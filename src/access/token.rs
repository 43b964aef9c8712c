//! A token as it is stored, and the trait of token stores.

use std::collections::HashMap;

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
    /// The clients' certificates that count as this token, as [`Token::certificate`] writes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<String>,
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

    /// When it ends, if no token may live longer than so many seconds.
    #[must_use]
    pub fn ends(&self, max_lifetime: Option<i64>) -> Option<i64> {
        let at_most = max_lifetime.map(|seconds| self.created.saturating_add(seconds));
        self.expires.into_iter().chain(at_most).min()
    }

    /// Whether a text may be a token's name. Names are written into logs and headers.
    #[must_use]
    pub fn is_name(name: &str) -> bool {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@' | b':');
        (1..=64).contains(&name.len()) && name.bytes().all(fits)
    }

    /// What names a certificate, in the form in which it is stored and compared: `sha256:` and 64 hexadecimal digits
    /// (colons between them are dropped), or `dns:` and one of its DNS names, which is no wildcard. `None` for anything
    /// else.
    #[must_use]
    pub fn certificate(text: &str) -> Option<String> {
        let (kind, value) = text.trim().split_once(':')?;
        let value = value.to_ascii_lowercase();
        match &*kind.to_ascii_lowercase() {
            "sha256" => {
                let digits = value.replace(':', "");
                let fits = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                fits.then(|| format!("sha256:{digits}"))
            }
            "dns" => {
                let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
                let is_name = (1..=253).contains(&value.len()) && value.bytes().all(fits);
                is_name.then(|| format!("dns:{value}"))
            }
            _ => None,
        }
    }
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

    /// When tokens were last used, in seconds since the epoch, by name; tokens that never were are left out.
    async fn uses(&self) -> Result<HashMap<String, i64>, TokenStoreError>;

    /// Stores later uses of tokens. The latest time stays if another instance stored one, too.
    async fn note_uses(&self, uses: &[(String, i64)]) -> Result<(), TokenStoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_named_in_one_form() {
        let (digits, colons) = ("0a".repeat(32), ["0A"; 32].join(":"));
        let stored = format!("sha256:{digits}");
        for (text, expected) in [
            (&*format!("sha256:{digits}"), Some(&*stored)),
            (&*format!("SHA256:{colons}"), Some(&*stored)),
            ("dns:GW-1.example.org", Some("dns:gw-1.example.org")),
            (&*format!("sha256:{}", &digits[1..]), None),
            (&*digits, None),
            ("gw-1.example.org", None),
            ("cn:gw-1", None),
            ("dns:", None),
            ("dns:*.example.org", None),
            ("dns:a b", None),
        ] {
            assert_eq!(Token::certificate(text).as_deref(), expected, "{text}");
        }
    }
}
