//! Backfill: enough readings of a sensor's past day become a chunk of the day instead of hour pages. Sealing folds
//! chunks into the day.

use std::collections::HashMap;

use super::task::{BucketFlush, BucketFlushState, FlushContext};
use crate::bucket::day::CELLS_MAX;
use crate::bucket::packed::UnpackedRows;
use crate::bucket::store::WriteOutcome;
use crate::bucket::{
    Bucket, Caps, DayId, DayPart, DayWrite, MergeCounts, MergeOptions, Readings, SealForm, StorageError,
};
use crate::catalog::Database;
use crate::config::{Settings, bound_ns};
use crate::faults;
use crate::reading::stamp::SETTLED;
use crate::reading::{Day, Hour};

/// The number of attempts to write a chunk whose name is taken.
const CONFLICTS_MAX: usize = 30;
/// Maximum number of cells of a chunk, including empty ones. Several chunks are folded together.
const CHUNK_CELLS_MAX: usize = CELLS_MAX / 2;
/// Maximum uncompressed size of a chunk in bytes. Strings may not compress, and a MongoDB document has at most 16 MiB.
const CHUNK_BYTES_MAX: usize = 4 << 20;

/// The number of hours from which on any number of readings become a chunk, because each hour would be a document.
const HOURS_MIN: usize = 2;

/// The rules that decide which readings become chunks.
#[derive(Debug, Clone, Copy)]
pub struct DirectRules {
    /// Minimum age of a past day, in nanoseconds.
    pub after_ns: i64,
    /// Minimum number of readings of a day, if they are all in one hour.
    pub min: usize,
}

impl DirectRules {
    /// Returns `None` if no readings become chunks.
    pub fn new(settings: &Settings) -> Option<Self> {
        let min = settings.seal.direct_min;
        let after_ns = bound_ns(settings.seal.after)?;
        (min > 0).then_some(Self { after_ns, min })
    }
}

/// The buckets of one sensor and day.
#[derive(Default)]
struct DayBuckets {
    /// The number of readings.
    readings: usize,
    indices: Vec<usize>,
}

/// Marks the buckets whose readings become chunks. The readings of the day must be enough, all of them newer than the
/// floor, not covered by a remembered deletion, and in hours whose readings cannot have expired.
pub fn choose(context: &FlushContext, database: &str, runs: &mut [BucketFlush]) {
    let Some(rules) = context.direct.filter(|_| context.settings.now().seal_form(database) != SealForm::Off) else {
        return;
    };
    let Ok(clock) = context.trusted_ns() else { return };
    let floor = context.registry_view.view().floor;
    let is_over = |hour: Hour| Day::from_hour(hour).hours().end.start_ns().saturating_add(rules.after_ns) <= clock;
    let mut days: HashMap<(u32, Day), DayBuckets> = HashMap::new();
    for (index, run) in runs.iter().enumerate() {
        let cells = run.load.rows.len().saturating_mul(run.known.fields().names.len());
        let fits = cells <= CHUNK_CELLS_MAX && run.load.bytes <= CHUNK_BYTES_MAX;
        let merges_all = || !context.may_have_expired(run) && run.fates(context).merges_all();
        if is_over(run.id.hour) && run.load.first > floor && fits && merges_all() {
            let day = days.entry((run.known.id, Day::from_hour(run.id.hour))).or_default();
            day.readings += run.load.rows.len();
            day.indices.push(index);
        }
    }
    let is_enough = |day: &DayBuckets| day.readings >= rules.min || day.indices.len() >= HOURS_MIN;
    let chosen = days.into_values().filter(is_enough);
    for index in chosen.flat_map(|day| day.indices) {
        let run = &mut runs[index];
        // Drop the cached bucket, which will not have all stored readings of the hour.
        run.bucket = Bucket::default();
        run.in_chunk = Some((i64::MAX, i64::MIN));
        run.state = BucketFlushState::Merged;
    }
}

/// A chunk with the indices of the buckets whose readings it has.
struct Chunk {
    id: DayId,
    indices: Vec<usize>,
    readings: Readings,
    /// The `rev` of the stored chunk of this name; 0 if there is none.
    rev: u64,
}

/// Writes the chunks of the chosen buckets. Each bucket is then stored, failed, or stale. Stale buckets become hour
/// pages.
pub async fn write(context: &FlushContext, database: &Database, runs: &mut [BucketFlush]) {
    let mut left = gather(runs);
    for _ in 0..CONFLICTS_MAX {
        if left.is_empty() {
            return;
        }
        let writes: Vec<DayWrite<'_>> = left
            .iter()
            .map(|chunk| DayWrite {
                id: &chunk.id,
                rev: chunk.rev,
                next_rev: if chunk.rev == 0 { chunk.readings.stamps().greatest() } else { chunk.rev + 1 },
                readings: Some(&chunk.readings),
                expired: None,
            })
            .collect();
        let outcomes = context.store.write_days(&database.name, &writes).await;
        faults::point("chunk_written");
        let mut again = Vec::new();
        for (chunk, outcome) in std::mem::take(&mut left).into_iter().zip(outcomes) {
            match outcome {
                WriteOutcome::Applied => {}
                WriteOutcome::Conflict => again.push(chunk),
                WriteOutcome::Failed(error) => fail(runs, &chunk.indices, &error),
            }
        }
        left = merge_stored(context, database, runs, again).await;
    }
    for chunk in left {
        fail(runs, &chunk.indices, &StorageError::Contended(chunk.id.sensor.key.to_string()));
    }
}

/// Fails the buckets of a chunk. If the store rejects the chunk itself, its readings become hour pages.
fn fail(runs: &mut [BucketFlush], indices: &[usize], error: &StorageError) {
    let is_of_chunk = matches!(error, StorageError::Refused { .. } | StorageError::Failing { .. });
    for index in indices {
        let run = &mut runs[*index];
        if is_of_chunk {
            run.in_chunk = None;
            run.state = BucketFlushState::Stale;
        } else {
            run.state = BucketFlushState::Failed(error.clone());
        }
    }
}

/// Merges the stored chunks of the same names into chunks. An earlier attempt with an unknown outcome wrote them,
/// perhaps without some of the readings.
async fn merge_stored(
    context: &FlushContext,
    database: &Database,
    runs: &mut [BucketFlush],
    chunks: Vec<Chunk>,
) -> Vec<Chunk> {
    if chunks.is_empty() {
        return chunks;
    }
    let ids: Vec<DayId> = chunks.iter().map(|chunk| chunk.id.clone()).collect();
    match context.store.read_days(&database.name, &ids).await {
        Ok(stored) => {
            let with = |(chunk, stored): (Chunk, Option<crate::bucket::StoredDay>)| match stored {
                Some(stored) => {
                    let mut readings = stored.readings.explicit();
                    readings.unite(&chunk.readings);
                    Chunk { readings, rev: stored.rev, ..chunk }
                }
                None => Chunk { rev: 0, ..chunk },
            };
            chunks.into_iter().zip(stored).map(with).collect()
        }
        Err(error) => {
            chunks.iter().for_each(|chunk| fail(runs, &chunk.indices, &error));
            Vec::new()
        }
    }
}

/// Makes chunks of the chosen buckets, by sensor and day.
fn gather(runs: &mut [BucketFlush]) -> Vec<Chunk> {
    let is_chosen = |run: &BucketFlush| run.in_chunk.is_some() && run.state == BucketFlushState::Merged;
    let mut indices: Vec<usize> = (0..runs.len()).filter(|index| is_chosen(&runs[*index])).collect();
    indices.sort_by_key(|index| (runs[*index].known.id, runs[*index].id.hour));
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut room = UnpackedRows::default();
    for index in indices {
        let run = &mut runs[index];
        let (readings, applied) = stamped_readings(run, &mut room);
        let (Some(first), Some(last)) = (readings.times().first(), readings.times().last()) else { continue };
        run.in_chunk = Some((*first, *last));
        run.applied = applied;
        let day = Day::from_hour(run.id.hour);
        let is_same = |chunk: &&mut Chunk| {
            let is_of_day = chunk.id.day == day && chunk.id.sensor.key == run.id.sensor.key;
            let cells = chunk.readings.cells_with(&readings);
            is_of_day && cells <= CHUNK_CELLS_MAX && chunk.readings.bytes() + readings.bytes() <= CHUNK_BYTES_MAX
        };
        match chunks.last_mut().filter(is_same) {
            Some(chunk) => {
                chunk.readings.merge_set(&readings);
                chunk.indices.push(index);
            }
            None => {
                let hour = u8::try_from(run.id.hour.0 - day.hours().start.0).unwrap_or_default();
                let id = DayId { sensor: run.id.sensor.clone(), day, part: DayPart::Chunk { stamp: 0, hour } };
                chunks.push(Chunk { id, indices: vec![index], readings, rev: 0 });
            }
        }
    }
    for chunk in &mut chunks {
        if let DayPart::Chunk { stamp, .. } = &mut chunk.id.part {
            *stamp = chunk.readings.stamps().greatest();
        }
    }
    chunks
}

/// Returns a bucket's readings as a set in which every cell has its stamp.
fn stamped_readings(run: &BucketFlush, room: &mut UnpackedRows) -> (Readings, MergeCounts) {
    const UNCAPPED: Caps = Caps { max_readings: usize::MAX, max_bytes: usize::MAX, hard_bytes: usize::MAX };
    let fields = run.known.fields();
    room.unpack_in_time_order([&*run.load.rows]);
    let mut bucket = Bucket::default();
    let options = MergeOptions { caps: &UNCAPPED, floor: SETTLED, restamps: false };
    let applied = bucket.apply(room.rows(&fields.names), &options);
    if let Some(kind) = run.known.kind().filter(|kind| !kind.buckets.is_empty()) {
        bucket.set_bounds(&kind.buckets);
    }
    let readings = bucket.pages().first().map(|page| page.readings.clone()).unwrap_or_default();
    (readings, applied)
}
