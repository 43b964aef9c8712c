//! A group: the readings of many requests for one database, sorted by page and merged bucket by
//! bucket. It decides what is to be written, read or given up; [`super::shard`] does the waiting.

use std::collections::HashMap;
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
const ATTEMPTS_MAX: u32 = 30;

/// Readings sorted by bucket, and a run of them per bucket.
pub struct Group<'b> {
    batches: &'b [Batch],
    entries: Vec<Entry>,
    /// One per bucket, in order of sensor and hour.
    pub runs: Vec<Run>,
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
    /// The bucket, taken out of the hot ones for as long as the group lasts.
    pub bucket: Bucket,
    /// What became of the run's readings.
    pub applied: Applied,
    /// How many pages the bucket had before.
    pub pages_before: usize,
    /// Whether the bucket was hot: known from before, not read now.
    from_hot: bool,
    fields: Arc<Fields>,
    entries: Range<usize>,
    attempts: u32,
    state: State,
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    /// Writes may be pending.
    Merged,
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

    /// Why it failed, if it did.
    pub fn failure(&self) -> Option<&StorageError> {
        match &self.state {
            State::Failed(error) => Some(error),
            State::Merged | State::Stale => None,
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
    /// Sorts the readings of `batches` and takes their buckets out of `hot`. A bucket not there
    /// is assumed to be new: if it is not, its first insert says so.
    pub fn new(batches: &'b [Batch], hot: &mut HotBuckets) -> Self {
        let mut entries = Vec::with_capacity(batches.iter().map(Batch::len).sum());
        let mut sensors: HashMap<u32, &Arc<KnownSensor>, rapidhash::fast::RandomState> = HashMap::default();
        for (batch, number) in batches.iter().zip(0..) {
            sensors.extend(batch.sensors.iter().map(|known| (known.id, known)));
            for ((known, time), row) in batch.readings().zip(0..) {
                entries.push(Entry { sensor: known.id, time, batch: number, row });
            }
        }
        entries.sort_unstable();
        let mut runs: Vec<Run> = Vec::new();
        let same_bucket = |a: &Entry, b: &Entry| a.sensor == b.sensor && Hour::of(a.time) == Hour::of(b.time);
        let mut start = 0;
        for chunk in entries.chunk_by(same_bucket) {
            let (Some(first), range) = (chunk.first(), start..start + chunk.len()) else { continue };
            start = range.end;
            let Some(known) = sensors.get(&first.sensor) else { continue };
            let id = BucketId { sensor: known.sensor.clone(), hour: Hour::of(first.time) };
            let known_bucket = hot.take((first.sensor, id.hour));
            let from_hot = known_bucket.is_some();
            let bucket = known_bucket.unwrap_or_default();
            runs.push(Run {
                known: Arc::clone(known),
                pages_before: bucket.pages().len(),
                fields: known.fields(),
                from_hot,
                id,
                bucket,
                applied: Applied::default(),
                entries: range,
                attempts: 0,
                state: State::Merged,
            });
        }
        Self { batches, entries, runs }
    }

    /// How many readings.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Merges every run's readings into its bucket.
    ///
    /// Where others write to the store too, a duplicate of what a hot bucket holds may undo a
    /// correction of theirs: such buckets are read anew before their readings are called stored.
    pub fn merge(&mut self, merge: Merge<'_>) {
        for run in &mut self.runs {
            merge_run(run, self.batches, &self.entries, merge);
            if merge.shared && run.from_hot && run.applied.duplicate > 0 {
                run.state = State::Stale;
            }
        }
    }

    /// Gives up on every run of sensors that `failed` names.
    pub fn fail_sensors(&mut self, failed: &HashMap<u32, StorageError>) {
        for run in &mut self.runs {
            if let Some(error) = failed.get(&run.known.id) {
                run.state = State::Failed(error.clone());
            }
        }
    }

    /// The writes that may go to the store now, each with the number of its run.
    pub fn writes(&self) -> (Vec<usize>, Vec<PageWrite<'_>>) {
        let merged = self.runs.iter().enumerate().filter(|(_, run)| run.state == State::Merged);
        merged
            .flat_map(|(number, run)| {
                let write = move |group| (number, PageWrite { id: &run.id, bucket: &run.bucket, group });
                run.bucket.next_writes().into_iter().map(write)
            })
            .unzip()
    }

    /// Takes the outcomes of writes, in the order they were given.
    pub fn settle(&mut self, written: Vec<(usize, Vec<usize>, Written)>) {
        for (number, pages, outcome) in written {
            let run = &mut self.runs[number];
            match (outcome, &run.state) {
                // A failure stands: what else went through is read back before it is used again.
                (_, State::Failed(_)) => {}
                (Written::Yes, _) => run.bucket.mark_written(&pages),
                (Written::Conflict, _) if run.attempts >= ATTEMPTS_MAX => {
                    let detail = format!("{} was changed by others {ATTEMPTS_MAX} times in a row", run.id.sensor.key);
                    run.state = State::Failed(StorageError::Unavailable { detail });
                }
                (Written::Conflict, _) => run.state = State::Stale,
                (Written::Failed(error), _) => run.state = State::Failed(error),
            }
        }
    }

    /// The runs whose buckets must be read from the store.
    pub fn stale(&self) -> (Vec<usize>, Vec<BucketId>) {
        let stale = self.runs.iter().enumerate().filter(|(_, run)| run.state == State::Stale);
        stale.map(|(number, run)| (number, run.id.clone())).unzip()
    }

    /// Merges the readings of stale runs into their buckets as the store has them.
    pub fn reload(&mut self, stale: &[usize], read: Result<Vec<Vec<StoredPage>>, StorageError>, merge: Merge<'_>) {
        match read {
            Ok(buckets) => {
                for (number, pages) in stale.iter().zip(buckets) {
                    let run = &mut self.runs[*number];
                    run.bucket = Bucket::from_stored(pages);
                    run.pages_before = run.bucket.pages().len();
                    run.attempts += 1;
                    run.state = State::Merged;
                    merge_run(run, self.batches, &self.entries, merge);
                }
            }
            Err(error) => {
                for number in stale {
                    self.runs[*number].state = State::Failed(error.clone());
                }
            }
        }
    }

    /// Per batch, why it is not wholly in the store, if it is not.
    pub fn failures(&self) -> Vec<Option<IngestError>> {
        let mut failures = vec![None; self.batches.len()];
        for run in &self.runs {
            let Some(error) = run.failure() else { continue };
            for entry in &self.entries[run.entries.clone()] {
                failures[entry.batch as usize].get_or_insert_with(|| IngestError::Storage(error.clone()));
            }
        }
        failures
    }
}

fn merge_run(run: &mut Run, batches: &[Batch], entries: &[Entry], merge: Merge<'_>) {
    let entries = &entries[run.entries.clone()];
    let rows = entries.iter().map(|entry| batches[entry.batch as usize].row(entry.row as usize, &run.fields.names));
    run.applied = run.bucket.apply(rows, merge.caps, &merge.origin);
}
