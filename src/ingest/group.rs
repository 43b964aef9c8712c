//! A group: the readings of many requests for one database, sorted by page and merged bucket by
//! bucket. It decides what is to be written, read or given up; [`super::shard`] does the waiting.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::IngestError;
use super::catalog::{Fields, KnownSensor};
use super::door::Batch;
use crate::bucket::hot::{HotBuckets, HotKey};
use crate::bucket::page::StoredPage;
use crate::bucket::store::{BucketId, PageWrite, Written};
use crate::bucket::{Applied, Bucket, Caps, Origin, StorageError};
use crate::reading::Hour;

/// How often one bucket is merged anew because other writers were faster, before its readings
/// are given up on (and answered 503).
const CONFLICTS_MAX: u32 = 30;
/// How often one bucket is merged anew because a write's outcome was not learnt. Elections are
/// ridden through; a store that stays away is not waited for.
const UNKNOWN_MAX: u32 = 2;

/// The readings of a group, sorted by bucket.
pub struct Group<'b> {
    batches: &'b [Batch],
    entries: Vec<Entry>,
    sensors: HashMap<u32, Arc<KnownSensor>, rapidhash::fast::RandomState>,
    /// Where each bucket's entries stand.
    buckets: Vec<Range<usize>>,
    failures: Vec<Option<IngestError>>,
}

/// One reading's place: sorting these sorts the readings by page, and within one timestamp by the
/// order they were accepted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    sensor: u32,
    time: i64,
    batch: u32,
    row: u32,
}

/// One bucket of a group.
pub struct Run {
    /// Whose bucket.
    pub known: Arc<KnownSensor>,
    /// Which bucket.
    pub id: BucketId,
    /// The bucket, taken out of the hot ones for as long as it is worked on.
    pub bucket: Bucket,
    /// What became of the run's readings.
    pub applied: Applied,
    /// How many pages the bucket had before.
    pub pages_before: usize,
    /// Whether the bucket was hot: known from before, not read now.
    pub from_hot: bool,
    /// Why it is in this state.
    pub state: State,
    fields: Arc<Fields>,
    entries: Range<usize>,
    conflicts: u32,
    unknowns: u32,
}

/// How far a run has come.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// Writes may be pending; without any, the store has everything.
    Merged,
    /// It is to be confirmed that the store still holds what the hot bucket says.
    Doubted,
    /// The store holds something else: read, merge, write again.
    Stale,
    /// Given up; the bucket in memory says nothing of the store.
    Failed(StorageError),
}

impl Run {
    /// The bucket's key among the hot ones.
    pub fn key(&self) -> HotKey {
        (self.known.id, self.id.hour)
    }

    /// Whether its readings changed the bucket.
    pub fn changed(&self) -> bool {
        self.applied.new + self.applied.overwritten > 0
    }

    /// Takes the outcome of a write of these pages.
    pub fn settle(&mut self, pages: &[usize], outcome: Written) {
        match (outcome, &self.state) {
            // A failure stands: what else went through is read back before it is used again.
            (_, State::Failed(_)) => {}
            (Written::Yes, _) => self.bucket.mark_written(pages),
            (Written::Conflict, _) => {
                self.conflicts += 1;
                let contended = || StorageError::Contended { detail: self.id.sensor.key.to_string() };
                self.state = match self.conflicts {
                    CONFLICTS_MAX.. => State::Failed(contended()),
                    _ => State::Stale,
                };
            }
            (Written::Failed(error @ StorageError::Unknown { .. }), _) => {
                self.unknowns += 1;
                self.state = if self.unknowns > UNKNOWN_MAX { State::Failed(error) } else { State::Stale };
            }
            (Written::Failed(error), _) => self.state = State::Failed(error),
        }
    }
}

/// What a merge needs to know beside the readings.
#[derive(Clone, Copy)]
pub struct Merge<'a> {
    /// When a page is full.
    pub caps: &'a Caps,
    /// Whose merge it is.
    pub origin: Origin<'a>,
    /// Whether other processes may write to the store.
    pub shared: bool,
}

impl<'b> Group<'b> {
    /// Sorts the readings of `batches`.
    pub fn new(batches: &'b [Batch]) -> Self {
        let mut entries = Vec::with_capacity(batches.iter().map(Batch::len).sum());
        let mut sensors: HashMap<u32, Arc<KnownSensor>, rapidhash::fast::RandomState> = HashMap::default();
        for (batch, number) in batches.iter().zip(0..) {
            sensors.extend(batch.sensors.iter().map(|known| (known.id, known.clone())));
            for ((known, time), row) in batch.readings().zip(0..) {
                entries.push(Entry { sensor: known.id, time, batch: number, row });
            }
        }
        entries.sort_unstable();
        let same_bucket = |a: &Entry, b: &Entry| a.sensor == b.sensor && Hour::of(a.time) == Hour::of(b.time);
        let mut start = 0;
        let range = |chunk: &[Entry]| {
            let range = start..start + chunk.len();
            start = range.end;
            range
        };
        let buckets = entries.chunk_by(same_bucket).map(range).collect();
        Self { batches, entries, sensors, buckets, failures: vec![None; batches.len()] }
    }

    /// How many readings.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many buckets.
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Takes some of the group's buckets out of `hot` and merges their readings in. A bucket not
    /// there is assumed to be new: if it is not, its first insert says so.
    ///
    /// Where others write to the store too, a duplicate of what a hot bucket holds may undo a
    /// correction of theirs: such runs come out [`State::Doubted`].
    pub fn merge(&self, buckets: Range<usize>, hot: &mut HotBuckets, merge: Merge<'_>) -> Vec<Run> {
        let run = |range: &Range<usize>| {
            let first = self.entries[range.start];
            let known = self.sensors.get(&first.sensor)?.clone();
            let id = BucketId { sensor: known.sensor.clone(), hour: Hour::of(first.time) };
            let known_bucket = hot.take((first.sensor, id.hour));
            let from_hot = known_bucket.is_some();
            let bucket = known_bucket.unwrap_or_default();
            let mut run = Run {
                fields: known.fields(),
                pages_before: bucket.pages().len(),
                applied: Applied::default(),
                entries: range.clone(),
                state: State::Merged,
                known,
                id,
                bucket,
                from_hot,
                conflicts: 0,
                unknowns: 0,
            };
            self.apply(&mut run, merge);
            if merge.shared && from_hot && run.applied.duplicate > 0 {
                run.state = State::Doubted;
            }
            Some(run)
        };
        self.buckets[buckets].iter().filter_map(run).collect()
    }

    /// Merges a run's readings into its bucket as the store has it. One that may have writes under
    /// way whose outcome was never learnt is written in any case: what they expect is then gone.
    pub fn reload(&self, run: &mut Run, pages: Vec<StoredPage>, doubtful: &HashSet<HotKey>, merge: Merge<'_>) {
        run.bucket = Bucket::from_stored(pages);
        run.pages_before = run.bucket.pages().len();
        run.from_hot = false;
        run.state = State::Merged;
        self.apply(run, merge);
        if doubtful.contains(&run.key()) {
            run.bucket.touch();
        }
    }

    fn apply(&self, run: &mut Run, merge: Merge<'_>) {
        let names = &run.fields.names;
        let entries = self.entries[run.entries.clone()].iter();
        let rows = entries.map(|entry| self.batches[entry.batch as usize].row(entry.row as usize, names));
        run.applied = run.bucket.apply(rows, merge.caps, &merge.origin);
    }

    /// Notes that the requests with readings in a run are not wholly stored. Of several reasons
    /// one that waiting mends is told, since then all of it is to be sent again.
    pub fn fail(&mut self, run: &Run, error: &StorageError) {
        self.fail_entries(run.entries.clone(), error);
    }

    fn fail_entries(&mut self, entries: Range<usize>, error: &StorageError) {
        for entry in &self.entries[entries] {
            let failure = &mut self.failures[entry.batch as usize];
            if matches!(failure, None | Some(IngestError::Storage(StorageError::Refused { .. }))) {
                *failure = Some(IngestError::Storage(error.clone()));
            }
        }
    }

    /// Notes that no bucket from this one on was stored.
    pub fn fail_from(&mut self, bucket: usize, error: &StorageError) {
        for range in self.buckets.split_off(bucket) {
            self.fail_entries(range, error);
        }
    }

    /// Per batch, why it is not wholly in the store, if it is not.
    pub fn into_failures(self) -> Vec<Option<IngestError>> {
        self.failures
    }
}

/// The writes of merged runs that may go to the store now, each with the number of its run.
pub fn writes(runs: &[Run]) -> (Vec<usize>, Vec<PageWrite<'_>>) {
    let merged = runs.iter().enumerate().filter(|(_, run)| run.state == State::Merged);
    merged
        .flat_map(|(number, run)| {
            let write = move |group| (number, PageWrite { id: &run.id, bucket: &run.bucket, group });
            run.bucket.next_writes().into_iter().map(write)
        })
        .unzip()
}
