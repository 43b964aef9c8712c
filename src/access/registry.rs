//! The tokens in memory. They are refreshed in the background, so that authenticating a request needs no I/O.

mod reauthenticate;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

use super::caller::{Caller, Denied, Holder};
use super::change::{ChangedToken, RejectedChange, TokenChange};
use super::file::TokenFile;
use super::quota::Usage;
use super::secret::{PresentedToken, Secret};
use super::token::{Token, TokenStore, TokenStoreError};
use crate::clock::now_seconds;
use crate::telemetry::TokenTerms;

/// The interval at which a token file is checked for changes.
const FILE_INTERVAL: Duration = Duration::from_millis(500);
/// The interval at which tokens in MongoDB are read, after which a change takes effect.
const STORE_INTERVAL: Duration = Duration::from_secs(2);

/// The interval at which the cache's time is renewed, in seconds.
const MARK_SECONDS: i64 = 60;

/// The minimum interval at which the last use of a token is stored and those of other instances are read, in seconds.
const USES_SECONDS: i64 = 60;
/// The interval at which unstored uses are checked.
const USES_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of tokens whose uses are stored at once.
const BATCH_USES_MAX: usize = 1000;

/// The requests that need a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Always,
    /// No request until a token exists, then all of them. A revoked token counts too.
    OnceThereIsAToken,
}

/// All tokens, with the store from which they are loaded.
#[derive(Debug)]
pub struct TokenRegistry {
    known: RwLock<Arc<KnownTokens>>,
    mode: Mode,
    store: Arc<dyn TokenStore>,
    /// The file of tokens, if the store is one. It is checked for changes before it is read.
    file: Option<TokenFile>,
    /// A copy of the tokens in MongoDB, for a start while MongoDB is unavailable.
    cache: Option<TokenFile>,
    /// The number of seconds for which known tokens stay valid while they cannot be read.
    max_age: i64,
    /// The maximum number of seconds for which a token is valid after its creation (`auth.max_lifetime`).
    max_lifetime: Option<i64>,
    /// The time of the last read, in seconds since the epoch.
    read: AtomicI64,
    /// The time at which the cache was last marked as current, in seconds since the epoch.
    marked: AtomicI64,
}

/// A snapshot of all tokens, with indexes.
#[derive(Debug, Default)]
struct KnownTokens {
    /// True once tokens were loaded from the store or from the cache.
    is_loaded: bool,
    /// True once a token has existed, or the tokens were unreadable, so that there may be one. From then on, every
    /// request needs a token.
    is_guarded: bool,
    tokens: Vec<Token>,
    by_id: HashMap<String, KnownSecret>,
    by_name: HashMap<String, Arc<Holder>>,
    by_certificate: HashMap<String, Arc<Holder>>,
}

#[derive(Debug)]
struct KnownSecret {
    secret: Secret,
    holder: Arc<Holder>,
}

impl KnownTokens {
    /// Returns the token that is bound to one of the identities of a client's certificate.
    fn by_identities(&self, identities: &[Box<str>]) -> Option<&Arc<Holder>> {
        identities.iter().find_map(|identity| self.by_certificate.get(&**identity))
    }
}

/// A token with the time of its last use.
#[derive(Debug, Clone)]
pub struct ListedToken {
    pub token: Token,
    /// In seconds since the epoch. `None` if the token was never used.
    pub last_use: Option<i64>,
}

impl TokenRegistry {
    /// Returns a registry of tokens in a file.
    #[must_use]
    pub fn from_file(file: TokenFile, mode: Mode) -> Self {
        Self { file: Some(file.clone()), ..Self::new(Arc::new(file), mode) }
    }

    fn new(store: Arc<dyn TokenStore>, mode: Mode) -> Self {
        Self {
            known: RwLock::default(),
            mode,
            store,
            file: None,
            cache: None,
            max_age: i64::MAX,
            max_lifetime: None,
            read: AtomicI64::default(),
            marked: AtomicI64::default(),
        }
    }

    /// Returns a registry of tokens in MongoDB, with a copy in a file. All requests are denied if the tokens could not
    /// be read for `max_age`.
    #[must_use]
    pub fn from_store(store: Arc<dyn TokenStore>, cache: TokenFile, mode: Mode, max_age: Duration) -> Self {
        let max_age = i64::try_from(max_age.as_secs()).unwrap_or(i64::MAX);
        Self { cache: Some(cache), max_age, ..Self::new(store, mode) }
    }

    /// Limits the validity of all tokens to `max_lifetime` seconds after their creation.
    #[must_use]
    pub fn limit_lifetime(self, max_lifetime: Option<i64>) -> Self {
        Self { max_lifetime, ..self }
    }

    /// Loads the tokens. If the store fails and there is a cache, loads the last known ones.
    ///
    /// # Errors
    /// If neither the store nor a cache has tokens.
    pub async fn load(&self) -> Result<(), TokenStoreError> {
        let Err(error) = self.refresh().await else { return Ok(()) };
        let Some(cache) = &self.cache else { return Err(error) };
        let Some(tokens) = cache.read()? else { return Err(error) };
        tracing::warn!(%error, tokens = tokens.len(), "reading the tokens failed; the last known tokens apply");
        self.read.store(cache.read_at().unwrap_or_default(), Ordering::Relaxed);
        self.replace_tokens(tokens);
        Ok(())
    }

    /// Refreshes the tokens and stores their last uses, until it is aborted.
    pub async fn watch(self: Arc<Self>) {
        tokio::join!(self.keep_current(), self.keep_uses());
    }

    /// Stores the last uses of tokens, and reads those of other instances. Requests only note the time in memory.
    async fn keep_uses(&self) {
        let mut last_read = i64::MIN;
        let mut has_failed = false;
        loop {
            let now = now_seconds();
            let mut result = Ok(());
            if now.saturating_sub(last_read) >= USES_SECONDS {
                last_read = now;
                result = self.read_uses().await;
            }
            if result.is_ok() {
                result = self.store_uses(now).await;
            }
            match result {
                Ok(()) => has_failed = false,
                Err(error) if !has_failed => {
                    tracing::warn!(%error, "cannot store the last uses of tokens");
                    has_failed = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(USES_INTERVAL).await;
        }
    }

    async fn read_uses(&self) -> Result<(), TokenStoreError> {
        let uses = self.store.uses().await?;
        let known = self.known_tokens();
        for (name, holder) in &known.by_name {
            if let Some(last) = uses.get(name) {
                holder.last_use.merge_stored(*last);
            }
        }
        Ok(())
    }

    async fn store_uses(&self, now: i64) -> Result<(), TokenStoreError> {
        let known = self.known_tokens();
        let due = known
            .by_name
            .iter()
            .filter_map(|(name, holder)| Some((name.clone(), holder.last_use.due_last_use(now, USES_SECONDS)?)));
        let due: Vec<(String, i64)> = due.take(BATCH_USES_MAX).collect();
        if due.is_empty() {
            return Ok(());
        }
        let stored = self.store.note_uses(&due).await;
        for (name, last) in &due {
            // Note a failed write without a time, so that the next try is not earlier than after a successful one.
            let last = if stored.is_ok() { *last } else { 0 };
            known.by_name[name].last_use.note_stored(last, now);
        }
        stored
    }

    /// Reads the tokens again when their file has changed, or at an interval.
    async fn keep_current(&self) {
        // Start with `None`, so that a change since the first load is noticed.
        let mut seen = None;
        let mut has_failed = false;
        loop {
            tokio::time::sleep(if self.file.is_some() { FILE_INTERVAL } else { STORE_INTERVAL }).await;
            let now = self.file.as_ref().map(TokenFile::file_version);
            if now.is_some() && now == seen {
                continue;
            }
            match self.refresh().await {
                Ok(()) => {
                    if has_failed {
                        tracing::info!(tokens = self.len(), "the tokens can be read again");
                    }
                    seen = now;
                    has_failed = false;
                }
                Err(error) if !has_failed => {
                    self.guard_unreadable(&error);
                    if self.known_tokens().is_loaded {
                        tracing::warn!(%error, "reading the tokens failed; the last known tokens apply");
                    }
                    has_failed = true;
                }
                Err(_) => {}
            }
        }
    }

    /// Reads all tokens from the store, for a backup.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn stored(&self) -> Result<Vec<Token>, TokenStoreError> {
        self.store.tokens().await
    }

    async fn refresh(&self) -> Result<(), TokenStoreError> {
        let tokens = self.store.tokens().await?;
        self.note_read(now_seconds());
        if self.known_tokens().is_loaded && self.known_tokens().tokens == tokens {
            return Ok(());
        }
        if let Some(Err(error)) = self.cache.as_ref().map(|cache| cache.write(&tokens)) {
            tracing::warn!(%error, "writing the token cache failed; a start while the store is unavailable would have old tokens");
        }
        self.replace_tokens(tokens);
        Ok(())
    }

    /// Notes the time of a successful read, also in the cache for the next start.
    fn note_read(&self, now: i64) {
        self.read.store(now, Ordering::Relaxed);
        let marked = self.marked.load(Ordering::Relaxed);
        if let Some(cache) = self.cache.as_ref().filter(|_| now.saturating_sub(marked) >= MARK_SECONDS) {
            self.marked.store(now, Ordering::Relaxed);
            cache.mark_read();
        }
    }

    /// Denies every request if the tokens are unreadable and none is known, because the unreadable ones may be the
    /// first.
    fn guard_unreadable(&self, error: &TokenStoreError) {
        let before = self.known_tokens();
        if matches!(error, TokenStoreError::Unreadable { .. }) && !before.is_guarded {
            let known = KnownTokens { is_guarded: true, ..KnownTokens::default() };
            *self.known.write() = Arc::new(known);
        }
    }

    /// Replaces the tokens. Keeps last uses, and the usage of each quota that did not change.
    fn replace_tokens(&self, tokens: Vec<Token>) {
        let before = self.known_tokens();
        let is_guarded = before.is_guarded || !tokens.is_empty();
        let mut known = KnownTokens { is_loaded: true, is_guarded, ..KnownTokens::default() };
        for token in &tokens {
            let earlier = before.by_name.get(&token.name);
            let usage = match earlier {
                Some(holder) if holder.token.quota == token.quota => holder.usage.clone(),
                _ => Arc::new(Usage::new("token", &token.name, token.quota)),
            };
            let last_use = earlier.map(|holder| holder.last_use.clone()).unwrap_or_default();
            let token = Token { expires: token.ends(self.max_lifetime), ..token.clone() };
            let holder = Arc::new(Holder { token: token.clone(), usage, last_use });
            for secret in &token.secrets {
                let known_secret = KnownSecret { secret: secret.clone(), holder: holder.clone() };
                known.by_id.insert(secret.id.clone(), known_secret);
            }
            for certificate in &token.certificates {
                // A revoked token must not hide a new one with the same certificate.
                let known = known.by_certificate.entry(certificate.clone()).or_insert_with(|| holder.clone());
                if known.token.revoked.is_some() {
                    *known = holder.clone();
                }
            }
            known.by_name.insert(token.name.clone(), holder);
        }
        known.tokens = tokens;
        *self.known.write() = Arc::new(known);
    }

    fn known_tokens(&self) -> Arc<KnownTokens> {
        self.known.read().clone()
    }

    /// Returns all known tokens, including revoked ones.
    #[must_use]
    pub fn list(&self) -> Vec<ListedToken> {
        let known = self.known_tokens();
        let last_use = |token: &Token| known.by_name.get(&token.name)?.last_use.last();
        known.tokens.iter().map(|token| ListedToken { token: token.clone(), last_use: last_use(token) }).collect()
    }

    /// Makes a change, which takes effect at once.
    ///
    /// # Errors
    /// As [`TokenChange::apply`].
    pub async fn change(&self, change: TokenChange, now: i64) -> Result<ChangedToken, RejectedChange> {
        let changed = change.apply(&*self.store, self.max_lifetime, now).await?;
        // The change is stored. Apply it at once; a failure only delays it until the next refresh.
        if let Err(error) = self.refresh().await {
            tracing::warn!(%error, "a token was changed, but cannot be read back yet");
        }
        Ok(changed)
    }

    /// Returns the number of tokens, including revoked ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known_tokens().tokens.len()
    }

    /// Returns true if no token exists, not even a revoked one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if any token is valid at `now` (seconds since the epoch).
    #[must_use]
    pub fn has_live(&self, now: i64) -> bool {
        self.known_tokens().by_name.values().any(|holder| holder.token.is_live(now))
    }

    /// Returns the ages and ends of valid tokens at `now` (seconds since the epoch), for reminders and metrics.
    #[must_use]
    pub fn terms(&self, now: i64) -> TokenTerms {
        let known = self.known_tokens();
        let mut terms = TokenTerms::default();
        for holder in known.by_name.values().filter(|holder| holder.token.is_live(now)) {
            let created = holder.token.created;
            let since = |time: i64| now.saturating_sub(time).max(0);
            terms.valid += 1;
            terms.oldest = terms.oldest.max(since(created));
            let last_use = holder.last_use.last().unwrap_or(created);
            terms.unused = terms.unused.max(since(last_use.max(created)));
            if let Some(expires) = holder.token.expires {
                let ends_in = expires.saturating_sub(now);
                terms.ends_in = Some(terms.ends_in.map_or(ends_in, |soonest: i64| soonest.min(ends_in)));
            }
        }
        terms
    }

    /// Returns true if requests need a token, or may need one because the tokens have not been read yet.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        let known = self.known_tokens();
        self.mode == Mode::Always || known.is_guarded || !known.is_loaded
    }

    /// Stores the first token. Returns false if a token exists already, or another process stores one at the same time.
    ///
    /// # Errors
    /// If the token could not be stored.
    pub async fn make_first(&self, token: &Token) -> Result<bool, TokenStoreError> {
        if !self.is_empty() || !self.store.put(token, None).await? {
            return Ok(false);
        }
        // The token exists now, so report success even if it cannot be read back: its text is shown only once.
        if let Err(error) = self.refresh().await {
            tracing::warn!(%error, "the first token was stored, but cannot be read back yet");
        }
        Ok(true)
    }

    /// Authenticates a request by its token, or else by the identities of its client's certificate (see
    /// [`Token::certificate`]).
    ///
    /// # Errors
    /// If a token is required and there is no valid one.
    pub fn caller(&self, token: Option<&str>, identities: &[Box<str>], now: i64) -> Result<Caller, Denied> {
        let known = self.current(now)?;
        if self.is_open(&known) {
            return Ok(Caller::Anybody);
        }
        let Some(text) = token.filter(|text| !text.is_empty()) else {
            return admit(known.by_identities(identities).ok_or(Denied::Missing)?, now);
        };
        let presented = PresentedToken::parse(text).ok_or(Denied::Malformed)?;
        let KnownSecret { secret, holder } = known.by_id.get(presented.id).ok_or(Denied::Unknown)?;
        if !secret.matches(&presented) {
            return Err(Denied::Unknown);
        }
        if secret.until.is_some_and(|until| now >= until) {
            return Err(Denied::Expired);
        }
        admit(holder, now)
    }

    /// Returns true if no token is required.
    fn is_open(&self, known: &KnownTokens) -> bool {
        self.mode == Mode::OnceThereIsAToken && !known.is_guarded
    }

    /// Returns the tokens, unless they were never read or not within `max_age`. Then there may be tokens that are
    /// unknown here, so the request is denied.
    fn current(&self, now: i64) -> Result<Arc<KnownTokens>, Denied> {
        let known = self.known_tokens();
        let is_outdated = now.saturating_sub(self.read.load(Ordering::Relaxed)) > self.max_age;
        if known.is_loaded && !is_outdated { Ok(known) } else { Err(Denied::Unavailable) }
    }
}

/// Admits the holder of a valid token, and notes the use.
fn admit(holder: &Arc<Holder>, now: i64) -> Result<Caller, Denied> {
    check_valid(&holder.token, now)?;
    holder.last_use.note(now);
    Ok(Caller::Holder(holder.clone()))
}

fn check_valid(token: &Token, now: i64) -> Result<(), Denied> {
    if token.revoked.is_some() {
        return Err(Denied::Revoked);
    }
    if token.expires.is_some_and(|expires| now >= expires) {
        return Err(Denied::Expired);
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
