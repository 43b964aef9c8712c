//! Keys with which clients retry requests with undated readings (`Idempotency-Key`). A retry gets the times of the
//! first try, so its readings are the same. The times are on disk before the first try is logged, so a retry finds them
//! even after a crash.

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
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
const RECORD_BYTES_MAX: u64 = 220;
/// Minimum bytes of a segment.
const SEGMENT_BYTES_MIN: u64 = 16 << 10;

/// A request's key as its sender gave it.
#[derive(Debug, Clone, Copy)]
pub struct RequestKey<'a> {
    pub key: &'a str,
    /// The hash of the whole decompressed body.
    pub body_hash: u64,
}

/// The hash of the sender's token, the database and the key.
pub type KeyHash = [u8; 16];

/// A remembered key, as stored on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredKey {
    pub hash: KeyHash,
    /// The hash of the sender's token, or of the database of a sender without one.
    #[serde(default)]
    pub owner: u32,
    pub body_hash: u64,
    /// The first time of the undated readings, in nanoseconds since the epoch.
    pub base: i64,
    /// The time at which the key was remembered, in nanoseconds since the epoch.
    #[serde(rename = "since")]
    pub remembered_ns: i64,
}

/// Maximum number of remembered keys of writes.
pub const REQUEST_KEYS_MAX: usize = 10_000;

/// The folder and the limits of remembered keys.
#[derive(Debug, Clone)]
pub struct KeyOptions {
    pub folder: PathBuf,
    /// `ingest.idempotency_window`.
    pub window: Duration,
    /// Maximum number of remembered keys.
    pub count_max: usize,
}

/// The remembered keys in memory.
#[derive(Debug, Default)]
struct KeyIndex {
    by_hash: HashMap<KeyHash, StoredKey>,
    /// The hash and `remembered_ns` of each key by owner, oldest first. A key that was remembered twice is listed twice.
    order: HashMap<u32, VecDeque<(KeyHash, i64)>>,
    /// The `remembered_ns` of each owner's oldest key, with the owner.
    by_age: BTreeSet<(i64, u32)>,
    /// The number of each owner's keys, with the owner.
    by_count: BTreeSet<(usize, u32)>,
    /// The number of keys in `order`.
    count: usize,
    /// Keys of requests that are being written.
    in_flight: HashSet<KeyHash>,
}

/// A key that waits to be written.
#[derive(Debug)]
struct QueuedKey {
    number: u64,
    key: StoredKey,
}

/// The keys that are not on disk yet.
#[derive(Debug, Default)]
struct WriteQueue {
    /// The number of the newest key that was ever queued.
    last_number: u64,
    keys: Vec<QueuedKey>,
}

#[derive(Debug)]
struct Shared {
    options: KeyOptions,
    index: Mutex<KeyIndex>,
    queue: Mutex<WriteQueue>,
    /// The number of the newest key on disk. Locked during writes.
    saved: tokio::sync::Mutex<u64>,
    file: Mutex<SideFile<StoredKey>>,
}

/// The remembered keys of all requests.
#[derive(Debug, Clone)]
pub struct RequestKeys(Arc<Shared>);

/// A key whose request is being written. A retry is refused until this is dropped.
#[derive(Debug)]
pub struct KeyInFlight {
    keys: RequestKeys,
    hash: KeyHash,
    owner: u32,
    body_hash: u64,
    /// The first time of the undated readings, if there was an earlier try.
    pub base: Option<i64>,
}

impl Drop for KeyInFlight {
    fn drop(&mut self) {
        self.keys.0.index.lock().in_flight.remove(&self.hash);
    }
}

impl KeyIndex {
    fn add(&mut self, key: StoredKey) {
        self.update_owner(key.owner, |keys| keys.push_back((key.hash, key.remembered_ns)));
        self.count += 1;
        self.by_hash.insert(key.hash, key);
    }

    /// Changes the keys of an owner.
    fn update_owner<T>(&mut self, owner: u32, change: impl FnOnce(&mut VecDeque<(KeyHash, i64)>) -> T) -> T {
        let keys = self.order.entry(owner).or_default();
        if let Some((_, oldest)) = keys.front() {
            self.by_age.remove(&(*oldest, owner));
            self.by_count.remove(&(keys.len(), owner));
        }
        let changed = change(keys);
        match keys.front() {
            Some((_, oldest)) => {
                self.by_age.insert((*oldest, owner));
                self.by_count.insert((keys.len(), owner));
            }
            None => drop(self.order.remove(&owner)),
        }
        changed
    }

    /// Forgets keys from before `start_ns`. Above `count_max`, forgets the oldest key of the owner with the most keys, so
    /// that no owner displaces the keys of others.
    fn prune(&mut self, start_ns: i64, count_max: usize) {
        while let Some(&(_, owner)) = self.by_age.first().filter(|(oldest_ns, _)| *oldest_ns < start_ns) {
            self.forget_oldest(owner);
        }
        while let Some(&(_, owner)) = self.by_count.last().filter(|_| self.count > count_max) {
            self.forget_oldest(owner);
        }
    }

    fn forget_oldest(&mut self, owner: u32) {
        let oldest = self.update_owner(owner, VecDeque::pop_front);
        let Some((hash, remembered_ns)) = oldest else { return };
        self.count -= 1;
        if self.by_hash.get(&hash).is_some_and(|key| key.remembered_ns == remembered_ns) {
            self.by_hash.remove(&hash);
        }
    }
}

impl RequestKeys {
    /// Opens the folder of remembered keys.
    pub fn open(options: KeyOptions, now: i64) -> Self {
        // The segments without the oldest one have room for the maximum number of keys.
        let keep_bytes = options.count_max as u64 * RECORD_BYTES_MAX;
        let limits =
            SideFileLimits { segment_bytes: SEGMENT_BYTES_MIN.max(keep_bytes / 4), keep_bytes: Some(keep_bytes) };
        let file = SideFile::new(options.folder.clone(), limits);
        let mut index = KeyIndex::default();
        let read = file.read(0, |_, _, key| {
            index.add(key);
            ControlFlow::Continue(())
        });
        if let Err(error) = read {
            let folder = options.folder.display();
            tracing::warn!(%folder, %error, "cannot read the keys of earlier requests; their retries count as new requests");
        }
        let keys = Self(Arc::new(Shared {
            options,
            index: Mutex::new(index),
            queue: Mutex::default(),
            saved: tokio::sync::Mutex::default(),
            file: Mutex::new(file),
        }));
        drop(keys.prune(now));
        keys
    }

    /// Forgets expired keys, and returns the lock on the others.
    fn prune(&self, now: i64) -> MutexGuard<'_, KeyIndex> {
        let window = i64::try_from(self.0.options.window.as_nanos()).unwrap_or(i64::MAX);
        let mut index = self.0.index.lock();
        index.prune(now.saturating_sub(window), self.0.options.count_max);
        index
    }

    /// Begins a request with a key.
    ///
    /// # Errors
    /// If another request with this key is being written, or the key was used for another body.
    pub fn begin(
        &self,
        key: RequestKey<'_>,
        token: Option<&str>,
        database: &str,
        now: i64,
    ) -> Result<KeyInFlight, IngestError> {
        let hash = hash_key([token.unwrap_or_default(), database, key.key]);
        // A token's name is not empty, so that no database has its hash.
        let [a, b, c, d, ..] = hash_key(token.map_or(["", database, ""], |token| [token, "", ""]));
        let owner = u32::from_le_bytes([a, b, c, d]);
        let mut index = self.prune(now);
        let earlier = index.by_hash.get(&hash);
        if earlier.is_some_and(|earlier| earlier.body_hash != key.body_hash) {
            return Err(IngestError::KeyOfOtherBody);
        }
        let base = earlier.map(|earlier| earlier.base);
        if !index.in_flight.insert(hash) {
            return Err(IngestError::KeyInFlight);
        }
        drop(index);
        Ok(KeyInFlight { keys: self.clone(), hash, owner, body_hash: key.body_hash, base })
    }

    /// Writes all queued keys, unless another task has written the one with this number by now.
    async fn save(self, number: u64, now: i64) -> io::Result<()> {
        let mut saved = self.0.saved.lock().await;
        if *saved >= number {
            return Ok(());
        }
        let WriteQueue { last_number, keys: queued } = {
            let mut queue = self.0.queue.lock();
            WriteQueue { last_number: queue.last_number, keys: std::mem::take(&mut queue.keys) }
        };
        let records: Vec<StoredKey> = queued.iter().map(|queued| queued.key).collect();
        let keys = self.clone();
        let written = tokio::task::spawn_blocking(move || {
            let mut file = keys.0.file.lock();
            file.append(&records)?;
            faults::point("in_request_keys");
            file.sync()
        });
        let written = written.await.map_err(io::Error::other)?;
        if let Err(error) = written {
            // Queue the keys of other requests again. Each of these requests retries the write itself.
            self.0.queue.lock().keys.extend(queued.into_iter().filter(|queued| queued.number != number));
            return Err(error);
        }
        let mut index = self.prune(now);
        queued.into_iter().for_each(|queued| index.add(queued.key));
        *saved = last_number;
        Ok(())
    }
}

impl KeyInFlight {
    /// Remembers the first time of the undated readings. On return it is on disk.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub async fn remember(&self, base: i64, now: i64) -> Result<(), IngestError> {
        let number = {
            let mut queue = self.keys.0.queue.lock();
            queue.last_number += 1;
            let number = queue.last_number;
            let key =
                StoredKey { hash: self.hash, owner: self.owner, body_hash: self.body_hash, base, remembered_ns: now };
            queue.keys.push(QueuedKey { number, key });
            number
        };
        // Spawn a task, because this request may be cancelled while others wait for the same write.
        let saved = tokio::spawn(self.keys.clone().save(number, now)).await;
        saved.map_err(io::Error::other).and_then(|saved| saved).map_err(|error| {
            let folder = self.keys.0.options.folder.display();
            tracing::warn!(%folder, %error, "cannot write the times of a request with a key; request refused");
            IngestError::KeyUnwritten { error: error.to_string() }
        })
    }
}

/// Hashes a key. The hashed bytes are unambiguous, because names of tokens and databases have no NUL.
fn hash_key(parts: [&str; 3]) -> KeyHash {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    let mut hash = KeyHash::default();
    hash.copy_from_slice(&digest.finalize()[..16]);
    hash
}
