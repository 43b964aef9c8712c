//! The keys by which clients repeat requests with undated readings: a repeated request gets the times of the first, so its
//! readings are the same. The first try's times are on disk before its readings are logged, so whatever became of it, a retry
//! knows them: after a crash, too.

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::error::IngestError;
use crate::faults;
use crate::side_file::{SideFile, SideFileLimits};

/// Maximum bytes of a record.
const RECORD_BYTES: u64 = 200;
/// Minimum bytes of a segment.
const SEGMENT_BYTES: u64 = 16 << 10;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    pub hash: KeyHash,
    pub body_hash: u64,
    /// The first of the times that its undated readings have, in nanoseconds since the epoch.
    pub base: i64,
    /// When that was decided, in nanoseconds since the epoch.
    pub since: i64,
}

/// Maximum number of remembered keys of writes.
pub const REQUEST_KEYS_MAX: usize = 10_000;

/// How many keys are remembered, how long, and where.
#[derive(Debug, Clone)]
pub struct KeyOptions {
    pub folder: PathBuf,
    /// `ingest.idempotency_window`.
    pub window: Duration,
    /// Maximum number of remembered keys.
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
    /// Not on disk yet, with their numbers.
    queue: Mutex<(u64, Vec<(u64, Remembered)>)>,
    /// The number of the last one that is on disk; held while others are written.
    saved: tokio::sync::Mutex<u64>,
    file: Mutex<SideFile<Remembered>>,
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
        self.keys.0.known.lock().in_flight.remove(&self.hash);
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
    /// Opens the folder of remembered keys.
    pub fn open(options: KeyOptions, now: i64) -> Self {
        // The segments beside the oldest one hold as many keys as are remembered at most.
        let keep_bytes = options.count_max as u64 * RECORD_BYTES;
        let limits = SideFileLimits { segment_bytes: SEGMENT_BYTES.max(keep_bytes / 4), keep_bytes: Some(keep_bytes) };
        let file = SideFile::new(options.folder.clone(), limits);
        let mut known = Known::default();
        let read = file.read(0, |_, _, remembered| {
            known.add(remembered);
            ControlFlow::Continue(())
        });
        if let Err(error) = read {
            let folder = options.folder.display();
            tracing::warn!(%folder, %error, "the keys of earlier requests cannot be read; retries of those count as new");
        }
        let keys = Self(Arc::new(Shared {
            options,
            known: Mutex::new(known),
            queue: Mutex::default(),
            saved: tokio::sync::Mutex::default(),
            file: Mutex::new(file),
        }));
        drop(keys.prune(now));
        keys
    }

    fn prune(&self, now: i64) -> MutexGuard<'_, Known> {
        let window = i64::try_from(self.0.options.window.as_nanos()).unwrap_or(i64::MAX);
        let mut known = self.0.known.lock();
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
        let mut saved = self.0.saved.lock().await;
        if *saved >= number {
            return Ok(());
        }
        let (through, queued) = {
            let mut queue = self.0.queue.lock();
            (queue.0, std::mem::take(&mut queue.1))
        };
        let records: Vec<Remembered> = queued.iter().map(|(_, remembered)| *remembered).collect();
        let keys = self.clone();
        let written = tokio::task::spawn_blocking(move || {
            let mut file = keys.0.file.lock();
            file.append(&records)?;
            faults::point("in_request_keys");
            file.sync()
        });
        let written = written.await.map_err(io::Error::other)?;
        if let Err(error) = written {
            // The others try again, each for itself.
            self.0.queue.lock().1.extend(queued.into_iter().filter(|(of, _)| *of != number));
            return Err(error);
        }
        let mut known = self.prune(now);
        queued.into_iter().for_each(|(_, remembered)| known.add(remembered));
        *saved = through;
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
            let mut queue = self.keys.0.queue.lock();
            queue.0 += 1;
            let remembered = Remembered { hash: self.hash, body_hash: self.body_hash, base, since: now };
            let number = queue.0;
            queue.1.push((number, remembered));
            number
        };
        // A task of its own: the request may be cancelled, and others wait for the same write.
        let saved = tokio::spawn(self.keys.clone().save(number, now)).await;
        saved.map_err(io::Error::other).and_then(|saved| saved).map_err(|error| {
            let folder = self.keys.0.options.folder.display();
            tracing::warn!(%folder, %error, "the times of a request with a key cannot be written; request refused");
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
