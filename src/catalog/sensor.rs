//! A sensor as this process knows it: its id, its fields, and what the store has of it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::charge::{CatalogBytes, Charge};
use super::fields::{FieldSets, SensorFields};
use crate::bucket::{CatalogSensor, Meta, SensorDocument};
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

    /// The shared copy of equal fields.
    fn shared(&self, fields: SensorFields) -> Arc<SensorFields> {
        self.shapes.shared(fields, &self.bytes)
    }

    /// Notes that lists of sensors and fields made before may lack something.
    pub(crate) fn note_news(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }
}

/// By sensor id: how many requests claim each field that is not firm, in the order of the fields. A field is firm once it
/// is in a WAL record or in the stored document, so that it cannot be withdrawn; firm fields come first.
#[derive(Debug, Default)]
pub struct ClaimCounts(Mutex<HashMap<u32, Vec<usize>>>);

impl ClaimCounts {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<u32, Vec<usize>>> {
        self.0.lock()
    }

    /// Drops the counts of fields that became firm: those from index `before` up to `firm`.
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

/// The memory of a known sensor, with its entries in the maps. Its fields are charged apart, once for all sensors that
/// share them.
pub(crate) fn memory(sensor: &Sensor) -> usize {
    /// What the allocator adds to a block, on average.
    const PER_BLOCK: usize = 16;
    let tags: usize = sensor
        .tags
        .iter()
        .map(|(key, value)| size_of::<(Box<str>, Box<str>)>() + key.len() + value.len() + 2 * PER_BLOCK)
        .sum();
    let texts = 2 * sensor.key.len() + sensor.measurement.len() + tags + 5 * PER_BLOCK;
    size_of::<KnownSensor>() + size_of::<Sensor>() + texts + memory_of_spelling("")
}

/// The memory of another spelling of a sensor's key: an entry of a map that is half full, and the text.
pub(crate) fn memory_of_spelling(spelling: &str) -> usize {
    2 * size_of::<(Box<str>, Arc<KnownSensor>)>() + spelling.len()
}

/// Seconds in 32 bits, which last until 2106.
fn seconds(seconds: i64) -> u32 {
    u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
}

/// The number under which a sensor has a kind; there are fewer of them than this holds.
fn number(place: Option<usize>) -> u8 {
    place.map_or(0, |place| u8::try_from(place + 1).unwrap_or(0))
}

/// A sensor, and what this process knows of its stored document.
#[derive(Debug)]
pub struct KnownSensor {
    /// Unique within this process.
    pub id: u32,
    pub sensor: Arc<Sensor>,
    /// The shard that owns its buckets.
    pub shard: usize,
    /// Its index in [`Spellings`](super::spellings::Spellings).
    pub(crate) place: u32,
    /// The `place` of the sensor that followed this one in the last request that has it.
    pub(crate) behind: AtomicU32,
    pub(crate) fields: RwLock<Arc<SensorFields>>,
    /// The rev of its document that this process wrote last; 0 if it wrote none.
    pub written_rev: AtomicU64,
    /// Whether it has unflushed readings.
    pub(crate) waiting: AtomicBool,
    /// The catalog's version when its document was last found to be stored; 0 if it is not known to be.
    pub(crate) adopted: AtomicU64,
    /// The sensor was deleted: holders of this `Arc` must get the current one from the catalog.
    pub(crate) superseded: AtomicBool,
    /// Whether its document was found to have metadata, or is going to get some.
    has_meta: AtomicBool,
    /// Changes of its metadata that are logged, and not in the stored document yet.
    pub(crate) unstored_meta: AtomicU32,
    /// When it last sent a reading, or its latest reading's time if its document was found since: seconds since the epoch; 0 if it is
    /// not known to have any.
    heard: AtomicU32,
    /// The timestamp last given to an undated reading.
    pub(crate) stamped: AtomicI64,
    pub(crate) spellings: AtomicU8,
    /// The place of its kind, and 1; 0 if it has none.
    pub(crate) kind: AtomicU8,
    /// What the sensor and its spellings take of the catalog's memory.
    pub(crate) charge: Charge,
    /// Shared with the catalog.
    pub(crate) state: Arc<CatalogState>,
}

impl KnownSensor {
    pub(crate) fn new(sensor: Sensor, (id, place, shard): (u32, u32, usize), state: Arc<CatalogState>) -> Self {
        let charge = state.bytes.charge(memory(&sensor));
        let kind = AtomicU8::new(number(state.kinds.index_of(&sensor, None)));
        Self {
            id,
            sensor: Arc::new(sensor),
            shard,
            place,
            behind: AtomicU32::new(u32::MAX),
            fields: RwLock::default(),
            written_rev: AtomicU64::new(0),
            waiting: AtomicBool::new(false),
            adopted: AtomicU64::new(0),
            superseded: AtomicBool::new(false),
            has_meta: AtomicBool::new(false),
            unstored_meta: AtomicU32::new(0),
            heard: AtomicU32::new(0),
            stamped: AtomicI64::new(i64::MIN),
            spellings: AtomicU8::new(0),
            kind,
            charge,
            state,
        }
    }

    pub(crate) fn catalog_sensor(&self) -> CatalogSensor {
        let fields = self.fields();
        let firm = fields.firm().map(|(name, family)| (name.clone(), *family)).collect();
        CatalogSensor {
            sensor: self.sensor.clone(),
            fields: firm,
            is_stored: fields.stored,
            meta: None,
            has_more_meta: self.has_meta.load(Ordering::Relaxed),
        }
    }

    /// Remembers that `other` followed this sensor in a request.
    pub fn is_before(&self, other: &Self) {
        // Load before store: requests of several clients may do this at once, and the value rarely changes.
        if self.behind.load(Ordering::Relaxed) != other.place {
            self.behind.store(other.place, Ordering::Relaxed);
        }
    }

    /// Notes a reading received at `received`, in nanoseconds since the epoch.
    pub fn hear(&self, received: i64) {
        let now = seconds(received.div_euclid(1_000_000_000));
        // Load before store: the value changes once a second, and other threads read this cache line.
        if self.heard.load(Ordering::Relaxed) < now {
            self.heard.store(now, Ordering::Relaxed);
        }
    }

    /// Notes that its document has or gets metadata.
    pub fn note_meta(&self) {
        self.has_meta.store(true, Ordering::Relaxed);
    }

    /// Notes what a change of metadata says of its kind.
    pub fn note_kind(&self, change: &Meta) {
        if change.replaced() > SETTLED || change.entries().any(|(name, _)| name == KIND) {
            self.set_kind(change);
        }
    }

    /// Notes its kind by all of its metadata that is stored, of which this many changes are not known to be yet; not while there are
    /// others, which are newer.
    pub fn set_stored_kind(&self, meta: &Meta, changes: usize) {
        if usize::try_from(self.unstored_meta.load(Ordering::Acquire)).is_ok_and(|unstored| unstored <= changes) {
            self.set_kind(meta);
        }
    }

    /// Notes its kind by all of its metadata.
    fn set_kind(&self, meta: &Meta) {
        let kinds = &self.state.kinds;
        if !kinds.is_empty() {
            let named = meta.get(KIND).map(|json| &**json);
            self.kind.store(number(kinds.index_of(&self.sensor, named)), Ordering::Relaxed);
        }
    }

    /// Its kind.
    pub fn kind(&self) -> Option<&Arc<Kind>> {
        match self.kind.load(Ordering::Relaxed) {
            0 => None,
            number => self.state.kinds.get(usize::from(number) - 1),
        }
    }

    /// Whether it has sent readings, and none since `since`, in seconds since the epoch.
    pub fn is_silent(&self, since: i64) -> bool {
        let heard = self.heard.load(Ordering::Relaxed);
        heard > 0 && i64::from(heard) < since && !self.is_superseded()
    }

    /// Gives back the memory of other spellings, which are forgotten.
    pub(crate) fn forget_spellings(&self, spellings: &[Box<str>]) {
        self.spellings.store(0, Ordering::Relaxed);
        self.charge.shrink(spellings.iter().map(|spelling| memory_of_spelling(spelling)).sum());
    }

    pub fn fields(&self) -> Arc<SensorFields> {
        self.fields.read().clone()
    }

    /// Adds a field from a WAL record, unless it is there, and makes it firm; `None` when there are `max` others.
    pub fn add_field(&self, name: &str, family: Family, max: usize) -> Option<Arc<SensorFields>> {
        let mut fields = self.fields.write();
        let mut grown = fields.with(name, family, max)?;
        let firm = grown.find(name, usize::MAX).map_or(0, |at| at + 1).max(fields.firm);
        self.state.claimed.settle(self.id, fields.firm, firm);
        grown.firm = firm;
        *fields = self.state.shared(grown);
        self.state.note_news();
        Some(fields.clone())
    }

    /// Merges the fields of the stored document into these; the document's families win.
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
        document.last_seen.into_iter().for_each(|last| self.hear(last));
        self.state.claimed.settle(self.id, fields.firm, firm);
        grown.firm = firm;
        grown.stored = true;
        self.adopted.store(self.state.version.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        let in_document = |name: &Arc<str>| document.fields.iter().any(|(n, _)| n == name);
        grown.saved = grown.names.iter().take_while(|name| in_document(name)).count();
        *fields = self.state.shared(grown);
    }

    /// Notes that its document may no longer be stored.
    pub fn unsave(&self) {
        let mut fields = self.fields.write();
        *fields = self.state.shared(SensorFields { stored: false, saved: 0, ..SensorFields::clone(&fields) });
        self.written_rev.store(0, Ordering::Relaxed);
        self.adopted.store(0, Ordering::Relaxed);
    }

    /// Returns true if it has unflushed readings or its document is known to be stored.
    pub fn is_listed(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) || self.fields().stored
    }

    /// Notes unflushed readings: lists made before may lack the sensor, unless the store lists it.
    pub(crate) fn note_waits(&self) {
        if self.adopted.load(Ordering::Relaxed) == 0 {
            self.state.note_news();
        }
    }

    /// Whether it was deleted after the caller got it from the catalog.
    pub fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Acquire)
    }

    /// A timestamp for an undated reading: `received`, or 1 ns after the last one given if that is not earlier. If the
    /// clock was set back by a second or more, `received` is used.
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
    /// Takes `count` timestamps from `from` on for undated readings, unless one of them was given before.
    ///
    /// # Errors
    /// The timestamp that was given last, which is not before `from`. After a clock was set back by a second or more, what
    /// was given before does not count, as in [`KnownSensor::stamp`].
    pub fn take_times(&self, from: i64, count: i64) -> Result<(), i64> {
        let last = from.saturating_add(count - 1);
        let free = |given: i64| (!(0..1_000_000_000).contains(&given.saturating_sub(from))).then_some(last);
        self.stamped.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).map(|_| ())
    }

    /// Notes that `count` timestamps from `from` on were given to undated readings before: no other reading gets them. What was given
    /// since stays given.
    pub fn note_times(&self, from: i64, count: i64) {
        self.stamped.fetch_max(from.saturating_add(count - 1), Ordering::Relaxed);
    }

    /// Adds the field if it is missing, and counts one more claim on it, except if it is firm or in `own`, which the
    /// request has claimed before. Returns all fields; `None` if the sensor has `max` others.
    pub(crate) fn claim_field(
        &self,
        name: &str,
        family: Family,
        max: usize,
        own: &HashSet<(u32, usize)>,
    ) -> Option<Arc<SensorFields>> {
        let mut fields = self.fields.write();
        let mut claimed = self.state.claimed.lock();
        match fields.find(name, usize::MAX) {
            Some(at) if at < fields.firm || own.contains(&(self.id, at)) => {}
            Some(at) => {
                if let Some(count) = claimed.get_mut(&self.id).and_then(|counts| counts.get_mut(at - fields.firm)) {
                    *count += 1;
                }
            }
            None => {
                *fields = self.state.shared(fields.with(name, family, max)?);
                claimed.entry(self.id).or_default().push(1);
            }
        }
        Some(fields.clone())
    }

    /// Makes the field firm, and all fields before it, because their indexes must not change.
    pub(crate) fn settle_field(&self, at: usize) {
        let mut fields = self.fields.write();
        if at >= fields.firm && at < fields.names.len() {
            self.state.claimed.settle(self.id, fields.firm, at + 1);
            *fields = self.state.shared(SensorFields { firm: at + 1, ..SensorFields::clone(&fields) });
            self.state.note_news();
        }
    }

    /// Withdraws a claim on the field. Fields at the end that no request claims any more are removed.
    pub(crate) fn release_field(&self, at: usize) {
        let mut fields = self.fields.write();
        let mut claimed = self.state.claimed.lock();
        let Some(place) = at.checked_sub(fields.firm) else { return };
        let Some(counts) = claimed.get_mut(&self.id) else { return };
        if let Some(count) = counts.get_mut(place) {
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
            *fields = self.state.shared(fewer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a retry of a write with a key, a second or more later, took the last given time back to that of its first try, as if
    /// the clock had been set back: times that were given meanwhile could be given once more.
    #[test]
    fn times_that_were_given_before_take_nothing_back() {
        let state = Arc::new(CatalogState::new(1 << 20, Kinds::default()));
        let no_tags: [(&str, &str); 0] = [];
        let known = KnownSensor::new(Sensor::new("m", no_tags).expect("a sensor"), (1, 0, 0), state);
        known.take_times(1_000, 3).expect("they are free");
        let later = 1_000 + 60_000_000_000;
        assert_eq!((known.stamp(later), known.stamp(later)), (later, later + 1));
        known.note_times(1_000, 3);
        assert_eq!(known.stamp(later), later + 2);
        // After a restart nobody knows of them.
        known.note_times(later + 2, 10);
        assert_eq!(known.stamp(later), later + 12);
    }
}
