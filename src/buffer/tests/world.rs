//! The model's world, and the effect of each step.

use std::sync::Arc;

use super::instance::{Folder, Instance, LawFlush, RunningDeletion};
use super::names;
use super::oracle::{DeletedRange, Oracle, Record, SentReading};
use super::store::{Key, SharedStore};
use crate::bucket::deletions::{Covers, RememberedDeletion};
use crate::bucket::packed::UnpackedRows;
use crate::bucket::registry::{MemberRegistry, RegistryEntry};
use crate::bucket::{Bucket, Caps, MergeOptions};
use crate::members::registry_view::Fate;
use crate::reading::Hour;

/// The outcome of one write over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    Answered,
    Unavailable,
    LostUnknown,
    LandedUnknown,
    /// The write takes effect later, or never.
    Delayed,
}

/// All buckets of the model.
pub(crate) const KEYS: [Key; 4] = [(0, 0), (0, 1), (1, 0), (1, 1)];
const FOLDERS_MAX: usize = 6;

pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) store: SharedStore,
    pub(crate) folders: Vec<Folder>,
    pub(crate) running: Vec<Option<Instance>>,
    pub(crate) oracle: Oracle,
    caps: Caps,
    ids: u64,
    delayed: Vec<(Key, Bucket, Vec<usize>)>,
    /// The number of merges of buckets.
    pub(crate) merges: u64,
}

impl World {
    pub(crate) fn new(caps: Caps) -> Self {
        Self {
            now: 1_800_000_000_000,
            store: SharedStore::default(),
            folders: Vec::new(),
            running: (0..3).map(|_| None).collect(),
            oracle: Oracle::default(),
            caps,
            ids: 0,
            delayed: Vec::new(),
            merges: 0,
        }
    }

    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    fn with_registry(&mut self, slot: usize, change: impl FnOnce(&mut Instance, &mut SharedStore, u64)) {
        let before = self.store.registry.clone();
        let Some(instance) = &mut self.running[slot] else { return };
        change(instance, &mut self.store, self.now);
        self.oracle.note_registry(&before, &self.store.registry);
    }

    /// Starts an idle folder, or a new one, and joins the others.
    pub(crate) fn start(&mut self, slot: usize, folder: usize, random: u8, offset: i64) {
        if self.running[slot].is_some() {
            return;
        }
        let idle = |at: &usize| !self.running.iter().flatten().any(|instance| instance.folder == *at);
        let idle: Vec<usize> = (0..self.folders.len()).filter(idle).collect();
        let place = match idle.get(folder % (idle.len() + 1)) {
            Some(place) => *place,
            None if self.folders.len() < FOLDERS_MAX => {
                let log = self.id();
                self.folders.push(Folder::new(log));
                self.folders.len() - 1
            }
            None => return,
        };
        let opening = self.id();
        self.running[slot] = Some(Instance::open(place, &self.folders[place], opening, random, offset));
        self.beat(slot);
        // An instance that believes to be alone stores no stamp for an equal value. So before this one acks, each other
        // instance must have seen it, or know that its own view is too old.
        (0..self.running.len()).for_each(|slot| self.beat(slot));
    }

    pub(crate) fn beat(&mut self, slot: usize) {
        self.with_registry(slot, |instance, store, now| instance.beat(&mut store.registry, now));
    }

    /// Drops the instance's memory. Pending writes may still take effect.
    pub(crate) fn kill(&mut self, slot: usize) {
        self.running[slot] = None;
    }

    pub(crate) fn leave(&mut self, slot: usize) {
        if self.running[slot].as_ref().is_some_and(|instance| instance.is_empty() && instance.is_clock_right()) {
            self.truncate(slot, false);
            self.with_registry(slot, |instance, store, now| instance.leave(&mut store.registry, now));
            self.running[slot] = None;
        }
    }

    /// Copies a folder as it is: a backup, or the start of a clone.
    pub(crate) fn copy(&mut self, folder: usize) {
        if !self.folders.is_empty() && self.folders.len() < FOLDERS_MAX {
            let copy = self.folders[folder % self.folders.len()].clone();
            let id = self.id();
            self.folders.push(Folder { id, ..copy });
        }
    }

    /// Truncates the WAL.
    pub(crate) fn truncate(&mut self, slot: usize, with_segments: bool) {
        let Some(instance) = &self.running[slot] else { return };
        let folder = &mut self.folders[instance.folder];
        let before = instance.first_held().unwrap_or(u64::MAX);
        let through = folder.records.range(..before).next_back().map_or(0, |(stamp, _)| *stamp);
        folder.truncated = folder.truncated.max(through);
        if with_segments {
            // The newest segment stays.
            let newest = folder.records.last_key_value().map_or(0, |(stamp, _)| stamp - 1);
            folder.cut_off = folder.truncated.min(newest);
        }
    }

    /// Logs and acks a request.
    pub(crate) fn write(&mut self, slot: usize, rows: Vec<SentReading>) {
        self.log(slot, rows, None);
    }

    pub(crate) fn delete(&mut self, slot: usize, deleted: DeletedRange) {
        self.log(slot, Vec::new(), Some(deleted));
    }

    fn log(&mut self, slot: usize, rows: Vec<SentReading>, deletion: Option<DeletedRange>) {
        let Some(instance) = self.running[slot].as_mut().filter(|instance| instance.is_clock_right()) else { return };
        let above = if deletion.is_some() { instance.registry_view.greatest_stamp() } else { 0 };
        let stamp = instance.stamp(self.now, above);
        let record = self.oracle.log(stamp, instance.opening, rows, deletion);
        instance.dispatch(&record);
        self.folders[instance.folder].records.insert(stamp, record);
    }

    /// Takes a bucket's readings for a flush. `how`: 0 merges onto the cached bucket, 1 onto an empty one, 2 reads it
    /// first.
    pub(crate) fn start_flush(&mut self, slot: usize, key: Key, how: u8) {
        let Some(instance) = &mut self.running[slot] else { return };
        if !instance.deletions.is_empty() || instance.flushes.contains_key(&key) {
            return;
        }
        let Some(rows) = instance.memtable.remove(&key) else { return };
        let cached = if how == 0 { instance.cache.remove(&key) } else { None };
        let is_from_cache = cached.is_some();
        let flush = LawFlush {
            rows: Arc::new(rows),
            bucket: cached.unwrap_or_default(),
            round: Vec::new(),
            is_stale: how == 2,
            is_from_cache,
            set_aside: Vec::new(),
            passed_over: Vec::new(),
            below: Vec::new(),
        };
        instance.flushes.insert(key, flush);
        if how != 2 {
            self.merge(slot, key);
        }
    }

    /// Merges a flush's readings as the real code does.
    fn merge(&mut self, slot: usize, key: Key) {
        let Some(instance) = &mut self.running[slot] else { return };
        let view = instance.registry_view.view();
        let fates = instance.fates(key);
        let Some(flush) = instance.flushes.get_mut(&key) else { return };
        for (range, before) in &fates.covers {
            flush.bucket.delete(range, *before);
        }
        let restamps = view.restamps;
        let options = MergeOptions { caps: &self.caps, floor: view.floor, restamps };
        let mut unpacked = UnpackedRows::default();
        unpacked.unpack_in_time_order([&*flush.rows]);
        let mut kept = Vec::new();
        let mut places = Vec::new();
        flush.passed_over.clear();
        flush.below.clear();
        for row in unpacked.rows(&names().fields) {
            match fates.fate(row.time, row.stamp) {
                Fate::Deleted => {}
                Fate::Stored => flush.passed_over.push(row.stamp),
                Fate::Merged => {
                    flush.below.extend(Some(row.stamp).filter(|stamp| *stamp <= view.floor));
                    kept.push(row);
                    places.push((row.stamp, row.time));
                }
            }
        }
        let applied = flush.bucket.apply(kept.iter().copied(), &options);
        let all = applied.new + applied.duplicate + applied.overwritten + applied.set_aside;
        assert_eq!(all, kept.len() as u64, "each reading is counted once");
        flush.set_aside = flush.bucket.set_aside().iter().map(|place| places[*place]).collect();
        flush.is_stale = flush.is_from_cache && !flush.set_aside.is_empty();
        flush.round.clear();
        self.merges += 1;
    }

    /// One step of a flush: writes a group, or reads and merges the bucket again, or completes.
    pub(crate) fn flush_bucket(&mut self, slot: usize, key: Key, fate: Network) {
        let Some(instance) = &mut self.running[slot] else { return };
        let covers = instance.covers(key);
        let Some(flush) = instance.flushes.get_mut(&key) else { return };
        if flush.is_stale {
            flush.bucket = Bucket::from_stored(self.store.read(key, &covers));
            flush.is_from_cache = false;
            flush.is_stale = false;
            return self.merge(slot, key);
        }
        if flush.round.is_empty() {
            flush.round = flush.bucket.next_writes();
        }
        let Some(group) = flush.round.pop() else { return self.complete(slot, key) };
        match fate {
            Network::Answered if self.store.write(key, &flush.bucket, &group) => flush.bucket.mark_written(&group),
            Network::Answered | Network::LostUnknown => flush.is_stale = true,
            Network::Unavailable => self.give_back(slot, key),
            Network::LandedUnknown => {
                self.store.write(key, &flush.bucket, &group);
                flush.is_stale = true;
            }
            Network::Delayed => {
                self.delayed.push((key, flush.bucket.clone(), group));
                flush.is_stale = true;
            }
        }
    }

    /// Ends a failed flush. The bucket in memory is dropped, because it may differ from the store.
    fn give_back(&mut self, slot: usize, key: Key) {
        let Some(instance) = &mut self.running[slot] else { return };
        let Some(flush) = instance.flushes.remove(&key) else { return };
        let mut rows = Arc::unwrap_or_clone(flush.rows);
        if let Some(since) = instance.memtable.get(&key) {
            rows.append(since);
        }
        instance.memtable.insert(key, rows);
    }

    fn complete(&mut self, slot: usize, key: Key) {
        let Some(instance) = &mut self.running[slot] else { return };
        let Some(flush) = instance.flushes.remove(&key) else { return };
        let records = &self.folders[instance.folder].records;
        flush.passed_over.iter().for_each(|stamp| self.oracle.check_passed_over(&records[stamp]));
        flush.below.iter().for_each(|stamp| self.oracle.note_below(&records[stamp]));
        for (stamp, time) in &flush.set_aside {
            self.oracle.reported.insert((records[stamp].id, key.0, *time));
        }
        let mut unpacked = UnpackedRows::default();
        unpacked.unpack_in_time_order([&*flush.rows]);
        unpacked.rows(&names().fields).for_each(|row| self.oracle.note_stored(&records[&row.stamp], key.0, row.time));
        instance.release(flush.rows.stamps());
        instance.cache.insert(key, flush.bucket.pack().unpack());
    }

    /// One step of a pending deletion, or of the removal of hidden readings.
    pub(crate) fn carry_on(&mut self, slot: usize, fate: Network) {
        let Some(instance) = &mut self.running[slot] else { return };
        if !instance.removals.is_empty() && (instance.deletions.is_empty() || fate != Network::Answered) {
            return self.remove(slot, fate);
        }
        let Some(deleting) = &mut instance.deleting else { return self.arrive(slot) };
        let record = deleting.record.clone();
        let Some(deleted) = &record.deletion else { return };
        let remembered = Instance::registry_entry(&record, deleted);
        if instance.registry_view.is_stored(record.stamp) || instance.registry_view.is_done(&remembered) {
            self.oracle.check_passed_over(&record);
            instance.release(std::iter::once(record.stamp));
            instance.deleting = None;
        } else {
            instance.removals.extend(instance.deleting.take());
            self.change_deletions(slot, |registry| registry.remember(remembered));
        }
        self.running[slot].iter_mut().for_each(|instance| drop(instance.deletions.pop_front()));
        self.oracle.note_done(&record);
    }

    /// One step of the first removal.
    fn remove(&mut self, slot: usize, fate: Network) {
        let Some(removal) = self.running[slot].as_ref().and_then(|instance| instance.removals.front()) else { return };
        let record = removal.record.clone();
        let Some(deleted) = &record.deletion else { return };
        let Some(key) = removal.left.last().copied() else {
            let done = RememberedDeletion { done: true, ..Instance::registry_entry(&record, deleted) };
            self.change_deletions(slot, |registry| registry.remember(done));
            let Some(instance) = &mut self.running[slot] else { return };
            instance.removals.pop_front();
            return instance.release(std::iter::once(record.stamp));
        };
        let hour = Hour(key.1).start_ns()..Hour(key.1).end_ns();
        if deleted.range.start <= hour.start && deleted.range.end >= hour.end {
            self.store.remove_older(key, record.stamp);
        }
        let covers = self.running[slot].as_ref().map(|instance| instance.covers(key)).unwrap_or_default();
        if self.cut(slot, key, &covers, &record, fate)
            && let Some(removal) = self.first_removal(slot)
        {
            removal.left.pop();
        }
    }

    fn first_removal(&mut self, slot: usize) -> Option<&mut RunningDeletion> {
        self.running[slot].as_mut().and_then(|instance| instance.removals.front_mut())
    }

    /// Removes a deletion's range from one bucket by one write. Returns true if nothing was left to write.
    fn cut(&mut self, slot: usize, key: Key, covers: &Covers, record: &Record, fate: Network) -> bool {
        let Some(deleted) = &record.deletion else { return true };
        let held = self.first_removal(slot).and_then(|removal| removal.bucket.take());
        let mut bucket = held.unwrap_or_else(|| Bucket::from_stored(self.store.read(key, covers)));
        bucket.delete(&deleted.range, record.stamp);
        let Some(group) = bucket.next_writes().pop() else { return true };
        match fate {
            Network::Answered | Network::LandedUnknown => drop(self.store.write(key, &bucket, &group)),
            Network::LostUnknown | Network::Unavailable => {}
            // Read now, written at a later step.
            Network::Delayed => {
                self.first_removal(slot).into_iter().for_each(|removal| removal.bucket = Some(bucket.clone()));
            }
        }
        false
    }

    fn change_deletions(&mut self, slot: usize, change: impl FnOnce(&mut MemberRegistry)) {
        self.with_registry(slot, |instance, store, _| {
            change(&mut store.registry);
            store.registry.rev += 1;
            instance.adopt(&store.registry);
        });
    }

    /// Drops the unflushed readings that the first pending deletion covers, unless a flush is running.
    fn arrive(&mut self, slot: usize) {
        let Some(instance) = self.running[slot].as_mut().filter(|instance| instance.flushes.is_empty()) else { return };
        let Some(record) = instance.deletions.front().cloned() else { return };
        let Some(deleted) = &record.deletion else { return };
        let keys: Vec<Key> = KEYS.into_iter().filter(|(sensor, _)| deleted.sensors.contains(sensor)).collect();
        for key in &keys {
            instance.cache.remove(key);
            let Some(rows) = instance.memtable.get_mut(key) else { continue };
            let dropped = rows.take_out(|time, stamp| deleted.range.contains(&time) && stamp < record.stamp);
            let mut unpacked = UnpackedRows::default();
            unpacked.unpack_in_time_order([&dropped]);
            let records = &self.folders[instance.folder].records;
            unpacked.rows(&names().fields).for_each(|r| self.oracle.note_stored(&records[&r.stamp], key.0, r.time));
            instance.release(dropped.stamps());
        }
        instance.memtable.retain(|_, rows| !rows.is_empty());
        instance.deleting = Some(RunningDeletion { record, left: keys, bucket: None });
    }

    /// Repeats the deletions below the floor. The next beat forgets them.
    pub(crate) fn sweep(&mut self, slot: usize) {
        let registry = self.store.registry.clone();
        let is_awake =
            |log: &&RegistryEntry| self.running.iter().flatten().any(|running| running.opening == log.opening);
        let first = registry.logs.iter().filter(is_awake).map(|log| log.opening).min();
        let Some(instance) = self.running[slot].as_mut().filter(|instance| Some(instance.opening) == first) else {
            return;
        };
        instance.adopt(&registry);
        let passed = registry.passed_deletions();
        for key in KEYS {
            let covers = instance.covers(key);
            let mut bucket = Bucket::from_stored(self.store.read(key, &covers));
            for (range, before) in &covers {
                bucket.delete(range, *before);
            }
            while let Some(group) = bucket.next_writes().pop() {
                assert!(self.store.write(key, &bucket, &group), "nobody writes meanwhile");
                bucket.mark_written(&group);
            }
        }
        instance.swept = passed;
        // Drop all delayed commands, because a deletion is remembered for longer than any command to the store can
        // last. This includes the commands of processes that were silent beyond the horizon.
        self.delayed.clear();
        for slot in 0..self.running.len() {
            let Some(instance) = &self.running[slot] else { continue };
            if registry.log(instance.opening).is_none_or(|log| log.takeover.is_some()) {
                KEYS.into_iter().for_each(|key| self.give_back(slot, key));
            }
        }
    }

    /// Lets a delayed write take effect.
    pub(crate) fn complete_late(&mut self, at: usize) {
        if !self.delayed.is_empty() {
            let (key, bucket, group) = self.delayed.swap_remove(at % self.delayed.len());
            self.store.write(key, &bucket, &group);
        }
    }

    pub(crate) fn lose_delayed(&mut self) {
        self.delayed.clear();
    }
}
