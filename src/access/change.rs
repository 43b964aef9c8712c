//! Changes of tokens, by the running service or by a command.

use super::quota::Quota;
use super::scopes::Scopes;
use super::secret::Secret;
use super::token::{Token, TokenStore, TokenStoreError};
use crate::reading::duration::show_duration;

/// A change of one token.
#[derive(Debug, Clone)]
pub enum TokenChange {
    /// Creates a token, or replaces a revoked one of the same name.
    Create(NewToken),
    Revoke {
        name: String,
    },
    /// Replaces the certificates that stand for the token.
    Bind {
        name: String,
        certificates: Vec<String>,
    },
    /// Replaces the secret.
    Rotate {
        name: String,
        /// The number of seconds for which the old secret stays valid.
        keep: i64,
    },
}

/// The description of a new token.
#[derive(Debug, Clone, Default)]
pub struct NewToken {
    pub name: String,
    pub scopes: Scopes,
    /// The identities of certificates, in the form of [`Token::certificate`].
    pub certificates: Vec<String>,
    pub quota: Quota,
    /// The lifetime in seconds. `None` is unlimited.
    pub expires_in: Option<i64>,
}

/// A token after a change.
#[derive(Debug)]
pub struct ChangedToken {
    pub token: Token,
    /// The action as a past participle, for messages and the audit trail.
    pub action: &'static str,
    /// The text with the new secret, which is shown once.
    pub text: Option<String>,
}

/// The reason for which a change was not made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RejectedChange {
    #[error("a token named {name:?} exists already: choose another name, or rotate the token")]
    Taken { name: String },
    #[error("no token named {name:?}, or it is revoked: list the tokens")]
    Unknown { name: String },
    #[error("another process has changed the token {name:?} in the meantime: list the tokens and try again")]
    Changed { name: String },
    #[error("{certificate} is bound to the token {other:?}: free it first with `hourglass token bind {other}`")]
    Bound { certificate: String, other: String },
    #[error(
        "the lifetime of a token is limited to {limit} (auth.max_lifetime): set a shorter one (--expires, expires_in)"
    )]
    TooLong { limit: String },
    #[error("cannot get random bytes from the system: {0}")]
    Random(#[from] getrandom::Error),
    #[error(transparent)]
    Store(#[from] TokenStoreError),
}

impl NewToken {
    /// Returns the token with a new secret, and the text of that secret.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn generate(self, now: i64) -> Result<(Token, String), getrandom::Error> {
        let Self { name, scopes, certificates, quota, expires_in } = self;
        let (secret, text) = Secret::generate()?;
        let token = Token {
            name,
            secrets: vec![secret],
            scopes,
            certificates,
            quota,
            created: now,
            expires: expires_in.map(|seconds| now.saturating_add(seconds)),
            revoked: None,
            rev: 1,
        };
        Ok((token, text))
    }
}

impl TokenChange {
    /// Makes the change at `now`, in seconds since the epoch.
    ///
    /// # Errors
    /// If the change conflicts with the stored tokens, or cannot be stored.
    pub async fn apply(
        self,
        store: &dyn TokenStore,
        max_lifetime: Option<i64>,
        now: i64,
    ) -> Result<ChangedToken, RejectedChange> {
        let tokens = store.tokens().await?;
        let (changed, replaces) = match self {
            Self::Create(new) => create(&tokens, new, max_lifetime, now)?,
            Self::Revoke { name } => {
                let before = find(&tokens, name)?;
                let token = Token { secrets: Vec::new(), revoked: Some(now), rev: before.rev + 1, ..before.clone() };
                (ChangedToken { token, action: "revoked", text: None }, Some(before.rev))
            }
            Self::Bind { name, certificates } => {
                check_unbound(&tokens, &name, &certificates)?;
                let before = find(&tokens, name)?;
                let token = Token { certificates, rev: before.rev + 1, ..before.clone() };
                (ChangedToken { token, action: "bound", text: None }, Some(before.rev))
            }
            Self::Rotate { name, keep } => {
                let before = find(&tokens, name)?;
                (rotate(before.clone(), keep, now)?, Some(before.rev))
            }
        };
        if !store.put(&changed.token, replaces).await? {
            return Err(RejectedChange::Changed { name: changed.token.name });
        }
        Ok(changed)
    }
}

fn find(tokens: &[Token], name: String) -> Result<&Token, RejectedChange> {
    let found = tokens.iter().find(|token| token.name == name && token.revoked.is_none());
    found.ok_or(RejectedChange::Unknown { name })
}

/// Returns the new token, and the `rev` of the revoked one that it replaces.
fn create(
    tokens: &[Token],
    new: NewToken,
    max_lifetime: Option<i64>,
    now: i64,
) -> Result<(ChangedToken, Option<i64>), RejectedChange> {
    if let Some(limit) = max_lifetime.filter(|limit| new.expires_in.is_none_or(|seconds| seconds > *limit)) {
        let limit = show_duration(std::time::Duration::from_secs(limit.unsigned_abs()));
        return Err(RejectedChange::TooLong { limit });
    }
    let before = tokens.iter().find(|token| token.name == new.name);
    if before.is_some_and(|token| token.revoked.is_none()) {
        return Err(RejectedChange::Taken { name: new.name });
    }
    check_unbound(tokens, &new.name, &new.certificates)?;
    let replaces = before.map(|before| before.rev);
    let (token, text) = new.generate(now)?;
    let token = Token { rev: replaces.map_or(1, |rev| rev + 1), ..token };
    Ok((ChangedToken { token, action: "created", text: Some(text) }, replaces))
}

/// Gives the token a new secret. The previous secret stays valid for `keep` seconds.
fn rotate(mut token: Token, keep: i64, now: i64) -> Result<ChangedToken, RejectedChange> {
    let (secret, text) = Secret::generate()?;
    let last = token.secrets.pop().filter(|_| keep > 0);
    let last = last.map(|last| Secret { until: Some(now.saturating_add(keep)), ..last });
    let secrets = last.into_iter().chain([secret]).collect();
    let token = Token { secrets, rev: token.rev + 1, ..token };
    Ok(ChangedToken { token, action: "rotated", text: Some(text) })
}

/// Checks that no other token has one of the certificates. A certificate must stand for a single token, because
/// otherwise its permissions would depend on the order of tokens.
fn check_unbound(tokens: &[Token], name: &str, certificates: &[String]) -> Result<(), RejectedChange> {
    for certificate in certificates {
        let is_other = |token: &&Token| token.name != name && token.revoked.is_none();
        let mut others = tokens.iter().filter(is_other);
        if let Some(other) = others.find(|token| token.certificates.contains(certificate)) {
            return Err(RejectedChange::Bound { certificate: certificate.clone(), other: other.name.clone() });
        }
    }
    Ok(())
}
