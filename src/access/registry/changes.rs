//! Changes of tokens by the running service, which count at once.

use super::TokenRegistry;
use crate::access::{Quota, Scopes, Secret, Token, TokenStoreError};

/// A token to make.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub name: String,
    pub scopes: Scopes,
    /// How many seconds it is valid; `None` for no end.
    pub expires_in: Option<i64>,
}

/// Why a token was not made or revoked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotMade {
    #[error("a token named {name:?} exists already: choose another name")]
    Taken { name: String },
    #[error("there is no token named {name:?} that is not revoked")]
    Unknown { name: String },
    #[error("the token {name:?} was changed by somebody else meanwhile: list the tokens and try again")]
    Changed { name: String },
    #[error("no token may live longer than {seconds} s (auth.max_lifetime): give expires_in, at most that")]
    TooLong { seconds: i64 },
    #[error("asking for random bytes: {error}")]
    Random { error: String },
    #[error(transparent)]
    Store(TokenStoreError),
}

impl TokenRegistry {
    /// All tokens that are known, revoked ones included, each with its last use in seconds since the epoch.
    #[must_use]
    pub fn list(&self) -> Vec<(Token, Option<i64>)> {
        let known = self.known();
        let used = |token: &Token| known.by_name.get(&token.name).and_then(|holder| holder.uses.last());
        known.tokens.iter().map(|token| (token.clone(), used(token))).collect()
    }

    /// Stores a new token, which counts at once, and returns its text. A revoked token of that name is replaced.
    ///
    /// # Errors
    /// When the name is taken, the token would live too long, or it cannot be stored.
    pub async fn create(&self, new: NewToken, now: i64) -> Result<(Token, String), NotMade> {
        let NewToken { name, scopes, expires_in } = new;
        if let Some(most) = self.max_lifetime.filter(|most| expires_in.is_none_or(|seconds| seconds > *most)) {
            return Err(NotMade::TooLong { seconds: most });
        }
        let tokens = self.store.tokens().await.map_err(NotMade::Store)?;
        let before = tokens.iter().find(|token| token.name == name);
        if before.is_some_and(|token| token.revoked.is_none()) {
            return Err(NotMade::Taken { name });
        }
        let replaces = before.map(|before| before.rev);
        let (secret, text) = Secret::generate().map_err(|error| NotMade::Random { error: error.to_string() })?;
        let token = Token {
            name,
            secrets: vec![secret],
            scopes,
            certificates: Vec::new(),
            quota: Quota::default(),
            created: now,
            expires: expires_in.map(|seconds| now.saturating_add(seconds)),
            revoked: None,
            rev: replaces.map_or(1, |rev| rev + 1),
        };
        self.replace(&token, replaces).await?;
        Ok((token, text))
    }

    /// Revokes a token, at once.
    ///
    /// # Errors
    /// When there is no such token, or the change cannot be stored.
    pub async fn revoke(&self, name: &str, now: i64) -> Result<Token, NotMade> {
        let tokens = self.store.tokens().await.map_err(NotMade::Store)?;
        let found = tokens.into_iter().find(|token| token.name == *name && token.revoked.is_none());
        let token = found.ok_or_else(|| NotMade::Unknown { name: name.to_owned() })?;
        let replaces = Some(token.rev);
        let token = token.revoked_at(now);
        self.replace(&token, replaces).await?;
        Ok(token)
    }

    async fn replace(&self, token: &Token, replaces: Option<i64>) -> Result<(), NotMade> {
        if !self.store.put(token, replaces).await.map_err(NotMade::Store)? {
            return Err(NotMade::Changed { name: token.name.clone() });
        }
        // It is stored: what follows is only that this process knows it at once.
        if let Err(error) = self.refresh().await {
            tracing::warn!(%error, "a token was changed, but not read back yet");
        }
        Ok(())
    }
}
