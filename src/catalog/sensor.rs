//! A known sensor: its id, its fields, and the state of its stored document.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::charge::{Account, CatalogBytes, Charge};
use super::fields::{FieldSets, SensorFields};
use crate::bucket::{CatalogSensor, Meta, SensorDocument};
use crate::clock::now_seconds;
use crate::kinds::{KIND, Kind, Kinds};
use crate::reading::stamp::SETTLED;
use crate::reading::{Family, Sensor};

/// State that all sensors of the catalog share.
#[derive(Debug)]
pub struct CatalogState {
    /// Incremented whenever a sensor or field becomes known.
    pub(crate) version: AtomicU64,
    shapes: FieldSets,
    pub(crate) claimed: ClaimCounts,
    pub(crate) bytes: CatalogBytes,
    kinds: Kinds,
}

impl CatalogState {
    pub(crate) fn new(max_bytes: usize, kinds: Kinds) -> Self {
        Self {
            version: AtomicU64::new(0),
            shapes: FieldSets::default(),
            claimed: ClaimCounts::default(),
            bytes: CatalogBytes::new(max_bytes),
            kinds,
        }
    }

    /// Marks earlier lists of sensors and fields as outdated.
    pub(crate) fn note_news(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }
}

/// The number of requests that claim each field that is not firm, by sensor id and in the order of the fields.
///
/// A field is firm once it is in a WAL record or in the stored document: it cannot be withdrawn any more. Firm fields
/// come before the others.
#[derive(Debug, Default)]
pub struct ClaimCounts(Mutex<HashMap<u32, Vec<usize>>>);

impl ClaimCounts {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<u32, Vec<usize>>> {
        self.0.lock()
    }

    /// Drops the counts of the fields that became firm: those with the indexes `before..firm`.
    pub fn settle(&self, sensor: u32, before: usize, firm: usize) {
        let mut claimed = self.lock();
        if let Some(counts) = claimed.get_mut(&sensor) {
            counts.drain(..firm.saturating_sub(before).min(counts.len()));
            if counts.is_empty() {
                claimed.remove(&sensor);
            }
        }
    }
}

/// Estimates the bytes of a known sensor and its map entries. Its fields are charged separately, once for all sensors
/// that share them.
pub(crate) fn memory(sensor: &Sensor) -> usize {
    /// Average overhead of an allocation, in bytes.
    const PER_BLOCK: usize = 16;
    let tags: usize = sensor
        .tags
        .iter()
        .map(|(key, value)| size_of::<(Box<str>, Box<str>)>() + key.len() + value.len() + 2 * PER_BLOCK)
        .sum();
    let texts = 2 * sensor.key.len() + sensor.measurement.len() + tags + 5 * PER_BLOCK;
    size_of::<KnownSensor>() + size_of::<Sensor>() + texts + memory_of_spelling("")
}

/// Estimates the bytes of another spelling of a sensor's key: the text and its entry in a map that is half full.
pub(crate) fn memory_of_spelling(spelling: &str) -> usize {
    2 * size_of::<(Box<str>, Arc<KnownSensor>)>() + spelling.len()
}

/// Converts seconds since the epoch to 32 bits, which last until 2106.
fn seconds(seconds: i64) -> u32 {
    u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
}

/// Returns the stored form of a kind: its index plus 1, or 0 for none. There are fewer than 255 kinds.
fn kind_number(index: Option<usize>) -> u8 {
    index.map_or(0, |index| u8::try_from(index + 1).unwrap_or(0))
}

/// The numbers that identify a sensor within this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SensorIds {
    /// Unique within this process.
    pub(crate) id: u32,
    /// The index in [`Spellings`](super::spellings::Spellings).
    pub(crate) slot: u32,
    /// The shard that owns the sensor's buckets.
    pub(crate) shard: usize,
}

/// A sensor with the state of its stored document, as far as this process knows it.
#[derive(Debug)]
pub struct KnownSensor {
    /// Unique within this process.
    pub id: u32,
    pub sensor: Arc<Sensor>,
    /// The shard that owns its buckets.
    pub shard: usize,
    /// Its index in [`Spellings`](super::spellings::Spellings).
    pub(crate) slot: u32,
    /// The `slot` of the sensor that followed this one in its last request.
    pub(crate) successor: AtomicU32,
    pub(crate) fields: RwLock<Arc<SensorFields>>,
    /// The `rev` of the document that this process wrote last; 0 if it wrote none.
    pub written_rev: AtomicU64,
    /// True while the sensor has unflushed readings.
    pub(crate) has_unflushed: AtomicBool,
    /// The catalog's version when the document was last found in the store; 0 if it is not known to be stored.
    pub(crate) adopted: AtomicU64,
    /// Set when the sensor is deleted. Holders of this `Arc` must then get the current sensor from the catalog.
    pub(crate) superseded: AtomicBool,
    /// True if the document has metadata, or a logged change adds some.
    has_meta: AtomicBool,
    /// The number of logged metadata changes that are not in the stored document yet.
    pub(crate) unstored_meta: AtomicU32,
    /// The time of the last reading, in seconds since the epoch; 0 if none is known. Readings of this process count
    /// when they are received, stored ones by their timestamp.
    last_seen: AtomicU32,
    /// The timestamp that the last undated reading got.
    pub(crate) stamped: AtomicI64,
    /// The number of other spellings.
    pub(crate) spellings: AtomicU8,
    /// The kind, as [`kind_number`] returns it.
    pub(crate) kind: AtomicU8,
    /// The memory of the sensor and its spellings.
    pub(crate) charge: Charge,
    /// Shared with the catalog.
    pub(crate) state: Arc<CatalogState>,
}

impl KnownSensor {
    pub(crate) fn new(sensor: Sensor, ids: SensorIds, state: Arc<CatalogState>, account: &Arc<Account>) -> Self {
        let charge = account.charge(memory(&sensor));
        let kind = AtomicU8::new(kind_number(state.kinds.index_of(&sensor, None)));
        Self {
            id: ids.id,
            sensor: Arc::new(sensor),
            shard: ids.shard,
            slot: ids.slot,
            successor: AtomicU32::new(u32::MAX),
            fields: RwLock::default(),
            written_rev: AtomicU64::new(0),
            has_unflushed: AtomicBool::new(false),
            adopted: AtomicU64::new(0),
            superseded: AtomicBool::new(false),
            has_meta: AtomicBool::new(false),
            unstored_meta: AtomicU32::new(0),
            last_seen: AtomicU32::new(0),
            stamped: AtomicI64::new(i64::MIN),
            spellings: AtomicU8::new(0),
            kind,
            charge,
            state,
        }
    }

    /// Returns the shared copy of a set of fields.
    fn share(&self, fields: SensorFields) -> Arc<SensorFields> {
        self.state.shapes.share(fields, &self.charge)
    }

    pub(crate) fn catalog_sensor(&self) -> CatalogSensor {
        let fields = self.fields();
        let firm = fields.firm().map(|(name, family)| (name.clone(), *family)).collect();
        CatalogSensor {
            sensor: self.sensor.clone(),
            fields: firm,
            is_stored: fields.is_stored,
            meta: None,
            has_more_meta: self.has_meta.load(Ordering::Relaxed),
        }
    }

    /// Remembers that `other` followed this sensor in a request.
    pub fn note_successor(&self, other: &Self) {
        // Load before store: the value rarely changes, and requests of several clients may do this at once.
        if self.successor.load(Ordering::Relaxed) != other.slot {
            self.successor.store(other.slot, Ordering::Relaxed);
        }
    }

    /// Notes a reading received at `received`, in nanoseconds since the epoch.
    pub fn note_reading(&self, received: i64) {
        let now = seconds(received.div_euclid(1_000_000_000));
        // Load before store: the value changes once a second, and other threads read this cache line.
        if self.last_seen.load(Ordering::Relaxed) < now {
            self.last_seen.store(now, Ordering::Relaxed);
        }
    }

    /// Notes that the sensor has metadata, stored or logged.
    pub fn note_meta(&self) {
        self.has_meta.store(true, Ordering::Relaxed);
    }

    /// Updates the kind if a metadata change sets it or replaces all metadata.
    pub fn note_kind(&self, change: &Meta) {
        if change.replaced_before() > SETTLED || change.entries().any(|(name, _)| name == KIND) {
            self.set_kind(change);
        }
    }

    /// Updates the kind from the stored metadata, which includes `changes` changes still counted as unstored. Does
    /// nothing if there are further unstored changes, because they are newer.
    pub fn set_stored_kind(&self, meta: &Meta, changes: usize) {
        if usize::try_from(self.unstored_meta.load(Ordering::Acquire)).is_ok_and(|unstored| unstored <= changes) {
            self.set_kind(meta);
        }
    }

    /// Sets the kind from the sensor's metadata.
    fn set_kind(&self, meta: &Meta) {
        let kinds = &self.state.kinds;
        if !kinds.is_empty() {
            let named = meta.get(KIND).map(|json| &**json);
            self.kind.store(kind_number(kinds.index_of(&self.sensor, named)), Ordering::Relaxed);
        }
    }

    pub fn kind(&self) -> Option<&Arc<Kind>> {
        match self.kind.load(Ordering::Relaxed) {
            0 => None,
            number => self.state.kinds.get(usize::from(number) - 1),
        }
    }

    /// Returns true if the sensor has readings, but none since `start_s`, in seconds since the epoch.
    pub fn is_silent(&self, start_s: i64) -> bool {
        let last_seen = self.last_seen.load(Ordering::Relaxed);
        last_seen > 0 && i64::from(last_seen) < start_s && !self.is_superseded()
    }

    /// Releases the memory of other spellings, which the caller has removed.
    pub(crate) fn forget_spellings(&self, spellings: &[Box<str>]) {
        self.spellings.store(0, Ordering::Relaxed);
        self.charge.shrink(spellings.iter().map(|spelling| memory_of_spelling(spelling)).sum());
    }

    pub fn fields(&self) -> Arc<SensorFields> {
        self.fields.read().clone()
    }

    /// Adds a field of a WAL record, if it is missing, and makes it firm. Returns `None` if there are already `max`
    /// other fields.
    pub fn add_field(&self, name: &str, family: Family, max: usize) -> Option<Arc<SensorFields>> {
        // A replay adds the fields of every record, and nearly all of them are there.
        let known = self.fields();
        if known.find(name, usize::MAX).is_some_and(|index| index < known.firm) {
            return Some(known);
        }
        let mut fields = self.fields.write();
        let mut grown = fields.with(name, family, max)?;
        let firm = grown.find(name, usize::MAX).map_or(0, |index| index + 1).max(fields.firm);
        self.state.claimed.settle(self.id, fields.firm, firm);
        grown.firm = firm;
        *fields = self.share(grown);
        self.state.note_news();
        Some(fields.clone())
    }

    /// Merges the stored document's fields into the known ones. The families of the document take precedence.
    pub fn adopt(&self, document: &SensorDocument) {
        let mut fields = self.fields.write();
        let mut grown = SensorFields::clone(&fields);
        let mut firm = grown.firm;
        for (name, family) in &document.fields {
            match grown.find(name, usize::MAX) {
                Some(index) => {
                    grown.families[index] = *family;
                    firm = firm.max(index + 1);
                }
                None => {
                    grown.names.push(name.clone());
                    grown.families.push(*family);
                    firm = grown.names.len();
                }
            }
        }
        if !document.meta.is_without_values() {
            self.note_meta();
            self.set_stored_kind(&document.meta, 0);
        }
        if let Some(last_seen) = document.last_seen {
            self.note_reading(last_seen);
        }
        self.state.claimed.settle(self.id, fields.firm, firm);
        grown.firm = firm;
        grown.is_stored = true;
        self.adopted.store(self.state.version.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        let is_in_document = |name: &Arc<str>| document.fields.iter().any(|(n, _)| n == name);
        grown.saved = grown.names.iter().take_while(|name| is_in_document(name)).count();
        *fields = self.share(grown);
    }

    /// Notes that the document may no longer be stored.
    pub fn unsave(&self) {
        let mut fields = self.fields.write();
        *fields = self.share(SensorFields { is_stored: false, saved: 0, ..SensorFields::clone(&fields) });
        self.written_rev.store(0, Ordering::Relaxed);
        self.adopted.store(0, Ordering::Relaxed);
    }

    /// Returns true if the stored document may lack something that this instance has acked: `recent` is the time within
    /// which documents are written, in seconds.
    pub fn is_outdated(&self, recent: i64) -> bool {
        self.has_unflushed.load(Ordering::Relaxed)
            || self.fields().is_unsaved()
            || self.unstored_meta.load(Ordering::Relaxed) > 0
            || i64::from(self.last_seen.load(Ordering::Relaxed)) > now_seconds() - recent
    }

    /// Returns true if the sensor has unflushed readings or its document is known to be stored.
    pub fn is_listed(&self) -> bool {
        self.has_unflushed.load(Ordering::Relaxed) || self.fields().is_stored
    }

    /// Marks earlier sensor lists as outdated, unless the store lists the sensor.
    pub(crate) fn note_unflushed(&self) {
        if self.adopted.load(Ordering::Relaxed) == 0 {
            self.state.note_news();
        }
    }

    /// Returns true if the sensor was deleted after the caller got it from the catalog.
    pub fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Acquire)
    }

    /// Returns a timestamp for an undated reading: `received`, or 1 ns after the last such timestamp if that is not
    /// earlier. If the clock was set back by a second or more, returns `received`.
    pub fn stamp(&self, received: i64) -> i64 {
        let next = |last: i64| match last.saturating_sub(received) {
            0..1_000_000_000 => last + 1,
            _ => received,
        };
        let last = self.stamped.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        last.map_or(received, next)
    }
}

impl KnownSensor {
    /// Reserves the `count` timestamps from `start` on for undated readings. If the clock was set back by a second or
    /// more, earlier reservations are ignored, as in [`KnownSensor::stamp`]. Times that are a second old leave later
    /// reservations valid.
    ///
    /// # Errors
    /// The last timestamp already given out, if it is not before `start`.
    pub fn take_times(&self, start: i64, count: i64, now: i64) -> Result<(), i64> {
        let last = start.saturating_add(count - 1);
        let free = |given: i64| match given.saturating_sub(start) {
            0..1_000_000_000 => None,
            1_000_000_000.. if given.saturating_sub(now) < 1_000_000_000 => Some(given.max(last)),
            _ => Some(last),
        };
        self.stamped.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).map(|_| ())
    }

    /// Notes that undated readings of a replayed record have the `count` timestamps from `start` on, so that no other
    /// reading gets them. Later reservations stay valid.
    pub fn note_times(&self, start: i64, count: i64) {
        self.stamped.fetch_max(start.saturating_add(count - 1), Ordering::Relaxed);
    }

    /// Adds a field, if it is missing, and counts one more claim on it. Firm fields and those in `request_claims`,
    /// which the request has claimed before, are not counted. Returns all fields, or `None` if the sensor has `max`
    /// other fields.
    pub(crate) fn claim_field(
        &self,
        name: &str,
        family: Family,
        max: usize,
        request_claims: &HashSet<(u32, usize)>,
    ) -> Option<Arc<SensorFields>> {
        let mut fields = self.fields.write();
        let mut claimed = self.state.claimed.lock();
        match fields.find(name, usize::MAX) {
            Some(index) if index < fields.firm || request_claims.contains(&(self.id, index)) => {}
            Some(index) => {
                if let Some(count) = claimed.get_mut(&self.id).and_then(|counts| counts.get_mut(index - fields.firm)) {
                    *count += 1;
                }
            }
            None => {
                *fields = self.share(fields.with(name, family, max)?);
                claimed.entry(self.id).or_default().push(1);
            }
        }
        Some(fields.clone())
    }

    /// Makes a field firm, together with all fields before it, because their indexes must not change.
    pub(crate) fn settle_field(&self, index: usize) {
        let mut fields = self.fields.write();
        if index >= fields.firm && index < fields.names.len() {
            self.state.claimed.settle(self.id, fields.firm, index + 1);
            *fields = self.share(SensorFields { firm: index + 1, ..SensorFields::clone(&fields) });
            self.state.note_news();
        }
    }

    /// Withdraws a claim on a field. Then removes fields from the end while no request claims them.
    pub(crate) fn release_field(&self, index: usize) {
        let mut fields = self.fields.write();
        let mut claimed = self.state.claimed.lock();
        let Some(position) = index.checked_sub(fields.firm) else { return };
        let Some(counts) = claimed.get_mut(&self.id) else { return };
        if let Some(count) = counts.get_mut(position) {
            *count = count.saturating_sub(1);
        }
        let left = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        let length = fields.firm + left;
        counts.truncate(left);
        if counts.is_empty() {
            claimed.remove(&self.id);
        }
        if length < fields.names.len() {
            let mut fewer = SensorFields::clone(&fields);
            fewer.names.truncate(length);
            fewer.families.truncate(length);
            *fields = self.share(fewer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a keyed write that was retried a second or more later reset the last timestamp to that of the first
    /// try, as if the clock had been set back. Timestamps that were given out in between could be given out again.
    #[test]
    fn replayed_timestamps_do_not_reset_later_ones() {
        let state = Arc::new(CatalogState::new(1 << 20, Kinds::default()));
        let no_tags: [(&str, &str); 0] = [];
        let ids = SensorIds { id: 1, slot: 0, shard: 0 };
        let account = state.bytes.account(None);
        let known = KnownSensor::new(Sensor::new("m", no_tags).expect("a sensor"), ids, state, &account);
        known.take_times(1_000, 3, 1_000).expect("they are free");
        let later = 1_000 + 60_000_000_000;
        assert_eq!((known.stamp(later), known.stamp(later)), (later, later + 1));
        known.note_times(1_000, 3);
        assert_eq!(known.stamp(later), later + 2);
        // After a restart, the sensor does not know about earlier timestamps.
        known.note_times(later + 2, 10);
        assert_eq!(known.stamp(later), later + 12);
        // A message that waited for the log moved the last time back to its own, so given times were given again.
        known.take_times(5_000, 3, later).expect("they are free");
        assert_eq!(known.stamp(later), later + 13);
        // The clock was set back by a minute.
        known.take_times(7_000, 3, 7_000).expect("earlier reservations are ignored");
        assert_eq!(known.take_times(7_002, 1, 7_002), Err(7_002));
    }
}
