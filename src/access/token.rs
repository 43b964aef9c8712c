//! The stored form of a token, and the trait of token stores.

use std::collections::HashMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::quota::Quota;
use super::scopes::{Scopes, is_glob};
use super::secret::Secret;

/// A stored token. Times are whole seconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The unique name.
    pub name: String,
    /// The current secret, and after a rotation the previous one while both are valid. Empty once revoked.
    pub secrets: Vec<Secret>,
    pub scopes: Scopes,
    /// The client certificates that stand for this token, in the form of [`Token::certificate`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<String>,
    #[serde(default)]
    pub quota: Quota,
    pub created: i64,
    /// The end of its validity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<i64>,
    /// The time of revocation. Revoked tokens stay stored, so that revoking the last one does not open the service to
    /// everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<i64>,
    /// The revision, which grows with each change. A change names the revision that it replaces, so that concurrent
    /// changes cannot overwrite each other.
    pub rev: i64,
}

impl Token {
    /// Returns true if the token is valid at `now`.
    #[must_use]
    pub fn is_live(&self, now: i64) -> bool {
        self.revoked.is_none() && self.expires.is_none_or(|expires| now < expires)
    }

    /// Returns the end of the token's validity under a maximum lifetime in seconds.
    #[must_use]
    pub fn ends(&self, max_lifetime: Option<i64>) -> Option<i64> {
        let latest = max_lifetime.map(|seconds| self.created.saturating_add(seconds));
        self.expires.into_iter().chain(latest).min()
    }

    /// Returns true if a text is a valid token name. Names are written to logs and headers, so few characters are
    /// allowed.
    #[must_use]
    pub fn is_name(name: &str) -> bool {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@' | b':');
        (1..=64).contains(&name.len()) && name.bytes().all(is_allowed)
    }

    /// Returns true if the name, the globs, the certificates and the ids of the secrets of a token are valid. A backup
    /// may have others.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let Scopes { write, read, admin, ingest, .. } = &self.scopes;
        let has_control = |text: &str| text.chars().any(char::is_control);
        Self::is_name(&self.name)
            && [write, read, admin].into_iter().flatten().all(|glob| is_glob(glob))
            && ingest.as_ref().is_none_or(|scope| !has_control(&scope.mapping) && !has_control(&scope.database))
            && self.certificates.iter().all(|text| Self::certificate(text).as_ref() == Some(text))
            && self.secrets.iter().all(|secret| secret.id.bytes().all(|byte| byte.is_ascii_hexdigit()))
    }

    /// Normalizes the identity of a certificate: `sha256:` with 64 hexadecimal digits (colons between them are
    /// dropped), or `dns:` with one of its DNS names without wildcards. Returns `None` for any other text.
    #[must_use]
    pub fn certificate(text: &str) -> Option<String> {
        let (kind, value) = text.trim().split_once(':')?;
        let value = value.to_ascii_lowercase();
        match &*kind.to_ascii_lowercase() {
            "sha256" => {
                let digits = value.replace(':', "");
                let is_hash = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                is_hash.then(|| format!("sha256:{digits}"))
            }
            "dns" => {
                let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
                let is_name = (1..=253).contains(&value.len()) && value.bytes().all(is_allowed);
                is_name.then(|| format!("dns:{value}"))
            }
            _ => None,
        }
    }
}

/// An error of reading or changing tokens.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenStoreError {
    /// The store is unavailable.
    #[error("the token store is unavailable: {detail}")]
    Away {
        /// The underlying error.
        detail: String,
    },
    /// The stored data are not valid tokens.
    #[error("the tokens in {place} cannot be read: {detail}")]
    Unreadable {
        /// The file or collection.
        place: String,
        detail: String,
    },
}

/// A store of tokens.
#[async_trait]
pub trait TokenStore: Send + Sync + std::fmt::Debug {
    /// Reads all tokens, including revoked ones, sorted by name.
    async fn tokens(&self) -> Result<Vec<Token>, TokenStoreError>;

    /// Stores a token if the stored token of this name has the revision `replaces`, or does not exist and `replaces` is
    /// `None`. Returns false otherwise.
    async fn put(&self, token: &Token, replaces: Option<i64>) -> Result<bool, TokenStoreError>;

    /// Reads the last uses of tokens by name, in seconds since the epoch. Tokens that were never used are left out.
    async fn uses(&self) -> Result<HashMap<String, i64>, TokenStoreError>;

    /// Stores the last uses of tokens. A later use that another instance has stored stays.
    async fn note_uses(&self, uses: &[(String, i64)]) -> Result<(), TokenStoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_of_certificates_are_normalized() {
        let digits = "0a".repeat(32);
        let colons = ["0A"; 32].join(":");
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
