//! The tokens in memory, refreshed in the background, so that authenticating a request needs no I/O.

mod again;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

use super::caller::{Caller, Denied, Holder};
use super::change::{ChangedToken, RejectedChange, TokenChange};
use super::file::TokenFile;
use super::quota::Usage;
use super::secret::{Presented, Secret};
use super::token::{Token, TokenStore, TokenStoreError};
use crate::clock::now_seconds;
use crate::telemetry::TokenTerms;

/// How often a token file is checked for changes.
const FILE_INTERVAL: Duration = Duration::from_millis(500);
/// How often tokens in MongoDB are read: a change takes effect within seconds.
const STORE_INTERVAL: Duration = Duration::from_secs(2);

/// How often the cache's time is renewed.
const MARK_SECONDS: i64 = 60;

/// How often a token's last use is stored at most, and other instances' uses are read, in seconds.
const USES_SECONDS: i64 = 60;
/// How often that is looked at.
const USES_INTERVAL: Duration = Duration::from_secs(1);
/// Most tokens whose uses are stored at once; the others follow.
const USES_AT_ONCE: usize = 1000;

/// When a request needs a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Always,
    /// As soon as any token exists, even a revoked one.
    OnceThereIsAToken,
}

/// All tokens, and the store they are loaded from.
#[derive(Debug)]
pub struct TokenRegistry {
    known: RwLock<Arc<KnownTokens>>,
    mode: Mode,
    store: Arc<dyn TokenStore>,
    /// The store's file if it is one: checked for changes before it is read.
    file: Option<TokenFile>,
    /// A copy of MongoDB's tokens, for a start while MongoDB is unavailable.
    cache: Option<TokenFile>,
    /// For how many seconds tokens apply that cannot be read again.
    max_age: i64,
    /// For how many seconds a token is valid at most, from when it was created.
    max_lifetime: Option<i64>,
    /// When the tokens were last read, in seconds since the epoch; with a file always now.
    read: AtomicI64,
    /// When the cache was last marked as read again.
    marked: AtomicI64,
}

#[derive(Debug, Default)]
struct KnownTokens {
    /// Whether tokens were ever loaded, from the store or from the cache.
    learnt: bool,
    /// Whether a token ever existed, or the tokens were unreadable and so may hold one: from then on every request
    /// needs a token.
    guarded: bool,
    tokens: Vec<Token>,
    by_id: HashMap<String, (Secret, Arc<Holder>)>,
    by_name: HashMap<String, Arc<Holder>>,
    by_certificate: HashMap<String, Arc<Holder>>,
}

impl KnownTokens {
    /// The token that one of these names of a client's certificate is bound to.
    fn bound(&self, certified: &[Box<str>]) -> Option<&Arc<Holder>> {
        certified.iter().find_map(|identity| self.by_certificate.get(&**identity))
    }
}

impl TokenRegistry {
    /// Tokens in a file.
    #[must_use]
    pub fn of_file(file: TokenFile, mode: Mode) -> Self {
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

    /// Tokens in MongoDB, with a copy in a file. What was not read for `max_age` lets nobody in.
    #[must_use]
    pub fn of_store(store: Arc<dyn TokenStore>, cache: TokenFile, mode: Mode, max_age: Duration) -> Self {
        let max_age = i64::try_from(max_age.as_secs()).unwrap_or(i64::MAX);
        Self { cache: Some(cache), max_age, ..Self::new(store, mode) }
    }

    /// Ends every token so many seconds after it was created, whatever end it has itself.
    #[must_use]
    pub fn limit_lifetime(self, max_lifetime: Option<i64>) -> Self {
        Self { max_lifetime, ..self }
    }

    /// Loads the tokens; if the store fails and there is a cache, the last known ones.
    ///
    /// # Errors
    /// When neither the store nor a cache has tokens.
    pub async fn load(&self) -> Result<(), TokenStoreError> {
        match self.refresh().await {
            Ok(()) => Ok(()),
            Err(error) => match self.cache.as_ref().map(TokenFile::read).transpose()?.flatten() {
                Some(tokens) => {
                    tracing::warn!(%error, tokens = tokens.len(), "reading the tokens failed; the last known tokens apply");
                    let read = self.cache.as_ref().and_then(TokenFile::read_at).unwrap_or_default();
                    self.read.store(read, Ordering::Relaxed);
                    self.learn(tokens);
                    Ok(())
                }
                None => Err(error),
            },
        }
    }

    /// Refreshes the tokens, and stores when they were used, until it is aborted.
    pub async fn watch(self: Arc<Self>) {
        tokio::join!(self.follow(), self.keep_uses());
    }

    /// Stores when tokens were used, and reads what other instances stored. Requests only note the time in memory.
    async fn keep_uses(&self) {
        let (mut recalled, mut failed) = (i64::MIN, false);
        loop {
            let now = now_seconds();
            let mut kept = Ok(());
            if now.saturating_sub(recalled) >= USES_SECONDS {
                recalled = now;
                kept = self.recall_uses().await;
            }
            if kept.is_ok() {
                kept = self.store_uses(now).await;
            }
            match kept {
                Ok(()) => failed = false,
                Err(error) if !failed => {
                    tracing::warn!(%error, "when tokens were last used cannot be stored");
                    failed = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(USES_INTERVAL).await;
        }
    }

    async fn recall_uses(&self) -> Result<(), TokenStoreError> {
        let uses = self.store.uses().await?;
        let known = self.known();
        for (name, holder) in &known.by_name {
            uses.get(name).iter().for_each(|last| holder.uses.recall(**last));
        }
        Ok(())
    }

    async fn store_uses(&self, now: i64) -> Result<(), TokenStoreError> {
        let known = self.known();
        let due = known
            .by_name
            .iter()
            .filter_map(|(name, holder)| Some((name.clone(), holder.uses.unstored(now, USES_SECONDS)?)));
        let due: Vec<(String, i64)> = due.take(USES_AT_ONCE).collect();
        if due.is_empty() {
            return Ok(());
        }
        let stored = self.store.note_uses(&due).await;
        for (name, last) in &due {
            // After a failure the next try comes as late as after a success.
            let last = if stored.is_ok() { *last } else { 0 };
            known.by_name[name].uses.note_stored(last, now);
        }
        stored
    }

    async fn follow(&self) {
        // `None`, so that a change since the first load is noticed.
        let mut seen = None;
        let mut failed = false;
        loop {
            tokio::time::sleep(if self.file.is_some() { FILE_INTERVAL } else { STORE_INTERVAL }).await;
            let now = self.file.as_ref().map(TokenFile::written);
            if now.is_some() && now == seen {
                continue;
            }
            match self.refresh().await {
                Ok(()) => {
                    if failed {
                        tracing::info!(tokens = self.len(), "the tokens can be read again");
                    }
                    seen = now;
                    failed = false;
                }
                // The last known tokens still apply.
                Err(error) if !failed => {
                    self.doubt(&error);
                    if self.known().learnt {
                        tracing::warn!(%error, "reading the tokens failed; the last known tokens apply");
                    }
                    failed = true;
                }
                Err(_) => {}
            }
        }
    }

    /// All tokens as they are stored now, for a backup.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn stored(&self) -> Result<Vec<Token>, TokenStoreError> {
        self.store.tokens().await
    }

    async fn refresh(&self) -> Result<(), TokenStoreError> {
        let tokens = self.store.tokens().await?;
        self.note_read(now_seconds());
        if self.known().learnt && self.known().tokens == tokens {
            return Ok(());
        }
        if let Some(Err(error)) = self.cache.as_ref().map(|cache| cache.write(&tokens)) {
            tracing::warn!(%error, "writing the token cache failed; a start while the store is unavailable would have old tokens");
        }
        self.learn(tokens);
        Ok(())
    }

    /// The tokens were read now. The cache gets the time, too, for the next start.
    fn note_read(&self, now: i64) {
        self.read.store(now, Ordering::Relaxed);
        let marked = self.marked.load(Ordering::Relaxed);
        if let Some(cache) = self.cache.as_ref().filter(|_| now.saturating_sub(marked) >= MARK_SECONDS) {
            self.marked.store(now, Ordering::Relaxed);
            cache.mark_read();
        }
    }

    /// If the tokens become unreadable while none is known, denies every request until they can be read: the unreadable
    /// ones may be the first.
    fn doubt(&self, error: &TokenStoreError) {
        let before = self.known();
        if matches!(error, TokenStoreError::Unreadable { .. }) && !before.guarded {
            let known = KnownTokens { guarded: true, ..KnownTokens::default() };
            *self.known.write() = Arc::new(known);
        }
    }

    /// Replaces the tokens. The usage of a quota that did not change is kept.
    fn learn(&self, tokens: Vec<Token>) {
        let before = self.known();
        let guarded = before.guarded || !tokens.is_empty();
        let mut known = KnownTokens { learnt: true, guarded, ..KnownTokens::default() };
        for token in &tokens {
            let used = before.by_name.get(&token.name).filter(|holder| holder.token.quota == token.quota);
            let usage = used.map(|holder| holder.usage.clone());
            let usage = usage.unwrap_or_else(|| Arc::new(Usage::new("token", &token.name, token.quota)));
            let uses = before.by_name.get(&token.name).map(|holder| holder.uses.clone()).unwrap_or_default();
            let token = Token { expires: token.ends(self.max_lifetime), ..token.clone() };
            let holder = Arc::new(Holder { token: token.clone(), usage, uses });
            for secret in &token.secrets {
                known.by_id.insert(secret.id.clone(), (secret.clone(), holder.clone()));
            }
            for certificate in &token.certificates {
                // A revoked token does not stand in the way of a new one with the same certificate.
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

    fn known(&self) -> Arc<KnownTokens> {
        self.known.read().clone()
    }

    /// All tokens that are known, revoked ones included, each with its last use in seconds since the epoch.
    #[must_use]
    pub fn list(&self) -> Vec<(Token, Option<i64>)> {
        let known = self.known();
        let used = |token: &Token| known.by_name.get(&token.name).and_then(|holder| holder.uses.last());
        known.tokens.iter().map(|token| (token.clone(), used(token))).collect()
    }

    /// Makes a change, which counts at once.
    ///
    /// # Errors
    /// As [`TokenChange::apply`].
    pub async fn change(&self, change: TokenChange, now: i64) -> Result<ChangedToken, RejectedChange> {
        let changed = change.apply(&*self.store, self.max_lifetime, now).await?;
        // It is stored: what follows is only that this process knows it at once.
        if let Err(error) = self.refresh().await {
            tracing::warn!(%error, "a token was changed, but not read back yet");
        }
        Ok(changed)
    }

    /// The number of tokens, revoked ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known().tokens.len()
    }

    /// Whether no token exists, not even a revoked one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether any token is valid at `now` (seconds since the epoch).
    #[must_use]
    pub fn has_live(&self, now: i64) -> bool {
        self.known().by_name.values().any(|holder| holder.token.is_live(now))
    }

    /// What reminders need to know of the valid tokens, at `now` (seconds since the epoch).
    #[must_use]
    pub fn terms(&self, now: i64) -> TokenTerms {
        let known = self.known();
        let mut terms = TokenTerms::default();
        for holder in known.by_name.values().filter(|holder| holder.token.is_live(now)) {
            let created = holder.token.created;
            let since = |time: i64| now.saturating_sub(time).max(0);
            terms.valid += 1;
            terms.oldest = terms.oldest.max(since(created));
            terms.unused = terms.unused.max(since(holder.uses.last().unwrap_or(created).max(created)));
            if let Some(expires) = holder.token.expires {
                let ends_in = expires.saturating_sub(now);
                terms.ends_in = Some(terms.ends_in.map_or(ends_in, |soonest: i64| soonest.min(ends_in)));
            }
        }
        terms
    }

    /// Whether requests need a token, or may need one as long as no token could be read.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        let known = self.known();
        self.mode == Mode::Always || known.guarded || !known.learnt
    }

    /// Stores the first token. Returns false if a token exists already, or another process stores it at the same time.
    ///
    /// # Errors
    /// When the token could not be stored.
    pub async fn make_first(&self, token: &Token) -> Result<bool, TokenStoreError> {
        if !self.is_empty() || !self.store.put(token, None).await? {
            return Ok(false);
        }
        // The token exists now: whoever asked for it must get its text.
        if let Err(error) = self.refresh().await {
            tracing::warn!(%error, "the first token was stored, but not read back yet");
        }
        Ok(true)
    }

    /// Authenticates a request: by its token, or without one by its client's certificate, which is given as all that a
    /// token may be bound to ([`Token::certificate`]).
    ///
    /// # Errors
    /// When a token is required and there is no valid one.
    pub fn caller(&self, token: Option<&str>, certified: &[Box<str>], now: i64) -> Result<Caller, Denied> {
        let known = self.current(now)?;
        if self.is_open(&known) {
            return Ok(Caller::Anybody);
        }
        let Some(text) = token.filter(|text| !text.is_empty()) else {
            return live(known.bound(certified).ok_or(Denied::Missing)?, now);
        };
        let presented = Presented::parse(text).ok_or(Denied::Malformed)?;
        let (secret, holder) = known.by_id.get(presented.id).ok_or(Denied::Unknown)?;
        if !secret.is(&presented) {
            return Err(Denied::Unknown);
        }
        if secret.until.is_some_and(|until| now >= until) {
            return Err(Denied::Expired);
        }
        live(holder, now)
    }

    /// Whether no token is required.
    fn is_open(&self, known: &KnownTokens) -> bool {
        self.mode == Mode::OnceThereIsAToken && !known.guarded
    }

    /// The tokens, unless they were never read, or not for too long: there may be some, so that this is not "no token exists".
    fn current(&self, now: i64) -> Result<Arc<KnownTokens>, Denied> {
        let known = self.known();
        let is_old = now.saturating_sub(self.read.load(Ordering::Relaxed)) > self.max_age;
        if known.learnt && !is_old { Ok(known) } else { Err(Denied::Unavailable) }
    }
}

fn live(holder: &Arc<Holder>, now: i64) -> Result<Caller, Denied> {
    let holder = checked(holder, now)?;
    holder.uses.add(now);
    Ok(Caller::Holder(holder.clone()))
}

fn checked(holder: &Arc<Holder>, now: i64) -> Result<&Arc<Holder>, Denied> {
    match holder.token {
        Token { revoked: Some(_), .. } => Err(Denied::Revoked),
        Token { expires: Some(expires), .. } if now >= expires => Err(Denied::Expired),
        _ => Ok(holder),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
