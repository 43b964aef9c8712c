//! The keys by which clients repeat requests with undated readings: a repeated request gets the times of the first, so its
//! readings are the same. The first try's times are on disk before its readings are logged, so whatever became of it, a retry
//! knows them: after a crash, too.

mod journal;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};

use self::journal::Journal;
use super::error::IngestError;

/// A request's key as its sender gave it.
#[derive(Debug, Clone, Copy)]
pub struct RequestKey<'a> {
    pub key: &'a str,
    /// Of the whole body, decompressed.
    pub body_hash: u64,
}

/// The key's hash, with the sender's token and the database.
pub type KeyHash = [u8; 16];

/// What is remembered of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remembered {
    pub hash: KeyHash,
    pub body_hash: u64,
    /// The first of the times that its undated readings have, in nanoseconds since the epoch.
    pub base: i64,
    /// When that was decided, in nanoseconds since the epoch.
    pub since: i64,
}

/// How many keys are remembered, how long, and where.
#[derive(Debug, Clone)]
pub struct KeyOptions {
    pub file: PathBuf,
    /// `ingest.idempotency_window`.
    pub window: Duration,
    /// `ingest.idempotency_keys`.
    pub count_max: usize,
}

#[derive(Debug, Default)]
struct Known {
    by_hash: HashMap<KeyHash, Remembered>,
    /// In the order in which they were remembered; a key that was remembered twice stands here twice.
    order: VecDeque<(KeyHash, i64)>,
    /// Keys of requests that are being written.
    in_flight: HashSet<KeyHash>,
}

#[derive(Debug)]
struct Shared {
    options: KeyOptions,
    known: Mutex<Known>,
    /// Not in the file yet, with their numbers.
    queue: Mutex<(u64, Vec<(u64, Remembered)>)>,
    journal: tokio::sync::Mutex<Journal>,
}

/// All remembered keys.
#[derive(Debug, Clone)]
pub struct RequestKeys(Arc<Shared>);

/// A key while its request is written. Dropping it lets a retry begin.
#[derive(Debug)]
pub struct KeyInFlight {
    keys: RequestKeys,
    hash: KeyHash,
    body_hash: u64,
    /// The times of an earlier try.
    pub base: Option<i64>,
}

impl Drop for KeyInFlight {
    fn drop(&mut self) {
        self.keys.known().in_flight.remove(&self.hash);
    }
}

impl Known {
    fn add(&mut self, remembered: Remembered) {
        self.order.push_back((remembered.hash, remembered.since));
        self.by_hash.insert(remembered.hash, remembered);
    }

    /// Forgets those that are too old or too many, the oldest first.
    fn prune(&mut self, since_min: i64, count_max: usize) {
        while let Some((hash, since)) = self.order.front().copied() {
            if since >= since_min && self.order.len() <= count_max {
                break;
            }
            self.order.pop_front();
            if self.by_hash.get(&hash).is_some_and(|known| known.since == since) {
                self.by_hash.remove(&hash);
            }
        }
    }
}

impl RequestKeys {
    /// With those that the file has.
    pub fn open(options: KeyOptions, now: i64) -> Self {
        let (journal, remembered) = Journal::open(&options.file, options.count_max);
        let mut known = Known::default();
        remembered.into_iter().for_each(|remembered| known.add(remembered));
        let keys = Self(Arc::new(Shared {
            options,
            known: Mutex::new(known),
            queue: Mutex::default(),
            journal: tokio::sync::Mutex::new(journal),
        }));
        drop(keys.prune(now));
        keys
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, (u64, Vec<(u64, Remembered)>)> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prune(&self, now: i64) -> MutexGuard<'_, Known> {
        let window = i64::try_from(self.0.options.window.as_nanos()).unwrap_or(i64::MAX);
        let mut known = self.known();
        known.prune(now.saturating_sub(window), self.0.options.count_max);
        known
    }

    /// Begins a request.
    ///
    /// # Errors
    /// When a request with this key is being written, or the key was used for another body.
    pub fn begin(
        &self,
        key: RequestKey<'_>,
        (token, database): (&str, &str),
        now: i64,
    ) -> Result<KeyInFlight, IngestError> {
        let hash = hash_of(token, database, key.key);
        let mut known = self.prune(now);
        let base = match known.by_hash.get(&hash) {
            Some(of_other) if of_other.body_hash != key.body_hash => return Err(IngestError::KeyOfOtherBody),
            found => found.map(|found| found.base),
        };
        if !known.in_flight.insert(hash) {
            return Err(IngestError::KeyInFlight);
        }
        drop(known);
        Ok(KeyInFlight { keys: self.clone(), hash, body_hash: key.body_hash, base })
    }

    /// Writes everything queued, unless somebody else has by now.
    async fn save(self, number: u64, now: i64) -> io::Result<()> {
        let mut journal = self.0.journal.lock().await;
        if journal.saved >= number {
            return Ok(());
        }
        let (through, queued) = {
            let mut queue = self.queue();
            (queue.0, std::mem::take(&mut queue.1))
        };
        let all: Vec<Remembered> = {
            let known = self.prune(now);
            let in_order = known
                .order
                .iter()
                .filter_map(|(hash, since)| known.by_hash.get(hash).filter(|known| known.since == *since).copied());
            if journal.is_due(queued.len(), self.0.options.count_max) { in_order.collect() } else { Vec::new() }
        };
        let (mut writing, file) = (std::mem::take(&mut *journal), self.0.options.file.clone());
        let more: Vec<Remembered> = queued.iter().map(|(_, remembered)| *remembered).collect();
        let written = tokio::task::spawn_blocking(move || {
            let written = writing.write(&file, &all, &more);
            (writing, written)
        });
        let (back, written) = written.await.map_err(io::Error::other)?;
        *journal = back;
        if let Err(error) = written {
            // The others try again, each for itself.
            self.queue().1.extend(queued.into_iter().filter(|(of, _)| *of != number));
            return Err(error);
        }
        let mut known = self.known();
        queued.into_iter().for_each(|(_, remembered)| known.add(remembered));
        journal.saved = through;
        Ok(())
    }
}

impl KeyInFlight {
    /// Remembers the times of this request. On return they are on disk.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub async fn remember(&self, base: i64, now: i64) -> Result<(), IngestError> {
        let number = {
            let mut queue = self.keys.queue();
            queue.0 += 1;
            let remembered = Remembered { hash: self.hash, body_hash: self.body_hash, base, since: now };
            let number = queue.0;
            queue.1.push((number, remembered));
            number
        };
        // A task of its own: the request may be cancelled, and others wait for the same write.
        let saved = tokio::spawn(self.keys.clone().save(number, now)).await;
        saved.map_err(io::Error::other).and_then(|saved| saved).map_err(|error| {
            let file = self.keys.0.options.file.display();
            tracing::warn!(%file, %error, "the times of a request with a key cannot be written; request refused");
            IngestError::KeyUnwritten { error: error.to_string() }
        })
    }
}

/// No two of (token, database, key) give the same bytes: no token's name has a NUL, nor has a database's.
fn hash_of(token: &str, database: &str, key: &str) -> KeyHash {
    let mut digest = Sha256::new();
    for part in [token, database, key] {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    let mut hash = KeyHash::default();
    hash.copy_from_slice(&digest.finalize()[..16]);
    hash
}
