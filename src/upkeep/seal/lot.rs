//! A lot: days that are sealed together because they fit into memory. The memory of a day is computed before it is read
//! if the store knows the size, or else while it is read, a few parts at a time. Days that do not fit go to the next
//! lot.

use std::sync::Arc;

use super::{Sealing, hours};
use crate::bucket::day::{BYTES_MAX, CELLS_MAX, PartBounds, Unsealable, fold};
use crate::bucket::store::BucketId;
use crate::bucket::{DayId, DayPart, Readings, StorageError, StoredDay, StoredPage};
use crate::reading::{Day, Sensor, Stamp, Value};

/// Maximum number of parts that are read before their memory is counted.
const PARTS_AT_ONCE: usize = 4;
/// Maximum cells in pages of a day that is sealed as one part. It is an upper bound, because not every reading has all
/// fields of its sensor.
const PAGE_CELLS_MAX: usize = 4 * CELLS_MAX;
/// Maximum bytes in pages of a day that is sealed as one part, which is also the limit of [`fold`].
const PAGE_BYTES_MAX: usize = 2 * BYTES_MAX;

/// Days of one lot: those that are sealed whole, and those that are sealed by hour.
#[derive(Default)]
pub(super) struct Lot {
    /// The days that are sealed whole, sorted by place.
    pub work: Vec<Work>,
    /// The days that are sealed by hour, each with its place.
    pub hourly: Vec<(usize, Arc<Sensor>, Day)>,
    /// The number of leading requested days that are in the lot.
    pub days: usize,
}

impl Lot {
    /// Leaves the days from a place in `work` on to the next lot.
    fn leave(&mut self, from: usize) -> Vec<Work> {
        let rest = self.work.split_off(from.min(self.work.len()));
        if let Some(first) = rest.first() {
            self.days = self.days.min(first.place);
            self.hourly.retain(|(place, ..)| *place < self.days);
        }
        rest
    }

    fn memory(&self) -> usize {
        self.work.iter().map(|one| one.memory).sum()
    }
}

/// A sensor's day that is being sealed whole.
pub(super) struct Work {
    /// The index among the requested days.
    pub place: usize,
    pub id: DayId,
    /// The maximum number of fields of its readings.
    pub fields: usize,
    /// True if the part for the whole day was listed.
    pub is_stored: bool,
    /// The rev of the stored part, or of this process's claim.
    pub rev: u64,
    pub held: Option<StoredDay>,
    /// The chunks that were listed.
    pub listed: Vec<DayId>,
    pub chunks: Vec<(DayId, StoredDay)>,
    pub buckets: Vec<(BucketId, Vec<StoredPage>)>,
    /// Bytes of memory of the day, as far as it is or will be read.
    pub memory: usize,
    /// True if its parts are too large, so that not all of them were read.
    pub is_large: bool,
}

impl Work {
    /// Returns a day of which nothing has been read.
    pub fn of(id: DayId) -> Self {
        let (listed, chunks, buckets) = (Vec::new(), Vec::new(), Vec::new());
        let (place, fields, is_stored, rev, held, memory, is_large) = (0, 1, false, 0, None, 0, false);
        Self { place, id, fields, is_stored, rev, held, listed, chunks, buckets, memory, is_large }
    }

    fn sets(&self) -> impl Iterator<Item = &Readings> {
        let pages = self.buckets.iter().flat_map(|(_, pages)| pages).map(|page| &page.readings);
        let parts = self.held.iter().chain(self.chunks.iter().map(|(_, chunk)| chunk));
        parts.map(|part| &part.readings).chain(pages)
    }

    /// Returns true if all listed chunks are settled. Their ids have the stamps, so that nothing has to be read.
    pub fn chunks_are_settled(&self, floor: Stamp) -> bool {
        self.listed.iter().all(|id| !matches!(id.part, DayPart::Chunk { stamp, .. } if stamp > floor))
    }

    /// Drops the pages and chunks to free their memory.
    pub fn without_content(self) -> Self {
        Self { chunks: Vec::new(), buckets: Vec::new(), ..self }
    }

    pub fn fold(&self, floor: Stamp) -> Result<Readings, Unsealable> {
        if self.is_large { Err(Unsealable::Large) } else { fold(self.sets(), floor, PartBounds::DAY) }
    }

    /// Returns true if the day already exceeds the limits of [`fold`].
    fn is_too_much(&self) -> bool {
        let (mut cells, mut bytes) = (0, 0);
        for set in self.sets() {
            cells += set.cell_count();
            bytes += set.bytes();
        }
        cells > 2 * CELLS_MAX || bytes > 2 * BYTES_MAX
    }

    fn bucket_ids(&self) -> impl Iterator<Item = BucketId> + use<> {
        let sensor = self.id.sensor.clone();
        hours(self.id.day).map(move |hour| BucketId { sensor: sensor.clone(), hour })
    }
}

/// The size of pages, according to their marks.
#[derive(Debug, Clone, Copy, Default)]
struct Weight {
    readings: usize,
    bytes: usize,
}

impl Weight {
    /// Returns true if the pages are too large for one part.
    fn is_large(self, fields: usize) -> bool {
        let cells = self.readings.saturating_mul(fields);
        self.readings > CELLS_MAX || cells > PAGE_CELLS_MAX || self.bytes > PAGE_BYTES_MAX
    }

    /// Returns the maximum bytes of memory. `bytes` includes the texts.
    fn memory(self, fields: usize) -> usize {
        self.bytes + self.readings * (2 * size_of::<i64>() + fields * size_of::<Option<Value>>())
    }
}

/// Returns the number of leading items that fit together: at least one.
fn fitting(memory: impl Iterator<Item = usize>, bytes: usize) -> usize {
    let mut sum = 0_usize;
    let fits = |memory: &usize| {
        sum = sum.saturating_add(*memory);
        sum <= bytes
    };
    memory.take_while(fits).count().max(1)
}

impl Sealing<'_> {
    /// Counts what the pages of each day will take, without reading it. Days that are too large for one part are to be
    /// sealed by hour; of the others the first stay that fit into memory together.
    pub(super) async fn weigh(&self, lot: &mut Lot) -> Result<(), StorageError> {
        let ids: Vec<BucketId> = lot.work.iter().flat_map(Work::bucket_ids).collect();
        if ids.is_empty() {
            return Ok(());
        }
        // Count deleted readings too, because the remaining size of a page is unknown until it is read.
        let mut marks = self.context.store.raw().read_buckets(self.database, &ids, 0).await?.into_iter();
        for mut one in std::mem::take(&mut lot.work) {
            let mut weight = Weight::default();
            for page in marks.by_ref().take(one.bucket_ids().count()).flatten() {
                weight.readings += page.left_out.map_or(page.readings.len(), |out| out.count);
                weight.bytes += page.left_out.map_or(page.readings.bytes(), |out| out.bytes);
            }
            if weight.is_large(one.fields) {
                lot.hourly.push((one.place, one.id.sensor, one.id.day));
            } else {
                one.memory = weight.memory(one.fields);
                lot.work.push(one);
            }
        }
        let most = fitting(lot.work.iter().map(|one| one.memory), self.context.bytes);
        lot.leave(most);
        Ok(())
    }

    /// Reads the parts for whole days that were listed.
    pub(super) async fn read_held(&self, lot: &mut Lot) -> Result<(), StorageError> {
        let stored: Vec<usize> = (0..lot.work.len()).filter(|at| lot.work[*at].is_stored).collect();
        for some in stored.chunks(PARTS_AT_ONCE) {
            if some[0] > 0 && lot.memory() > self.context.bytes {
                lot.leave(some[0]);
                break;
            }
            let ids: Vec<DayId> = some.iter().map(|at| lot.work[*at].id.clone()).collect();
            for (at, held) in some.iter().zip(self.context.store.read_days(self.database, &ids).await?) {
                let one = &mut lot.work[*at];
                one.rev = held.as_ref().map_or(0, |day| day.rev);
                one.memory += held.as_ref().map_or(0, |day| day.readings.memory());
                one.held = held;
            }
        }
        Ok(())
    }

    /// Reads what is to be folded, only now that the days' revs are known or claims made: a deletion that comes later
    /// changes them.
    pub(super) async fn read(&self, lot: &mut Lot) -> Result<(), StorageError> {
        // The chunks first: days that do not fit because of them need no pages.
        for at in 0..lot.work.len() {
            if at > 0 && lot.memory() > self.context.bytes {
                let rest = lot.leave(at);
                self.give_back_all(&rest).await?;
                break;
            }
            self.read_chunks(&mut lot.work[at]).await?;
        }
        let ids: Vec<BucketId> = lot.work.iter().flat_map(Work::bucket_ids).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let mut found =
            ids.iter().cloned().zip(self.context.store.read_buckets(self.database, &ids, usize::MAX).await?);
        for one in &mut lot.work {
            let of_day = found.by_ref().take(one.bucket_ids().count());
            one.buckets = of_day.filter(|(_, pages)| !pages.is_empty()).collect();
        }
        Ok(())
    }

    /// Reads the chunks of a day, until they are too much for one part.
    async fn read_chunks(&self, one: &mut Work) -> Result<(), StorageError> {
        for ids in std::mem::take(&mut one.listed).chunks(PARTS_AT_ONCE) {
            let read = self.read_parts(ids.to_vec()).await?;
            one.memory += read.iter().map(|(_, chunk)| chunk.readings.memory()).sum::<usize>();
            one.chunks.extend(read);
            if one.is_too_much() {
                one.memory -= one.chunks.drain(..).map(|(_, chunk)| chunk.readings.memory()).sum::<usize>();
                one.is_large = true;
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a lot of which no day could be sealed, 64 days were read at once, whatever they had: 65 sensors of two
    /// readings a second took a gigabyte, and again after the kill.
    #[test]
    fn a_lot_has_only_days_that_fit_into_memory_together() {
        let twice_a_second = Weight { readings: 172_800, bytes: 3 << 20 };
        assert!(!twice_a_second.is_large(1), "one field");
        let memory = twice_a_second.memory(1);
        assert!(memory > 172_800 * 24, "{memory}");
        assert_eq!(fitting(std::iter::repeat_n(memory, 64), 64 << 20), (64 << 20) / memory);
        assert_eq!(fitting(std::iter::repeat_n(memory, 64), 1), 1, "at least one always fits");
        // A large day behind small ones.
        let mixed = std::iter::repeat_n(100_000, 20).chain(std::iter::repeat_n(memory, 44));
        assert_eq!(fitting(mixed, 8 << 20), 20);
        assert_eq!(fitting(std::iter::repeat_n(60_000, 64), 64 << 20), 64);
    }

    /// A day of 60 readings a second was read as a whole before anybody saw that it is too large for one part.
    #[test]
    fn a_large_day_is_known_by_its_marks() {
        assert!(Weight { readings: 60 * 86_400, bytes: 100 << 20 }.is_large(1));
        assert!(Weight { readings: 1440, bytes: 40 << 20 }.is_large(1), "texts");
        assert!(Weight { readings: 86_400, bytes: 20 << 20 }.is_large(20), "many fields");
        assert!(!Weight { readings: 86_400, bytes: 6 << 20 }.is_large(3));
    }

    #[test]
    fn days_left_to_the_next_lot_are_none_of_this_one() {
        let sensor = Arc::new(Sensor::from_key("m").expect("a sensor"));
        let work = |place| {
            let id = DayId { sensor: sensor.clone(), day: Day(0), part: crate::bucket::DayPart::Whole };
            Work { place, ..Work::of(id) }
        };
        let hourly = vec![(0, sensor.clone(), Day(0)), (3, sensor.clone(), Day(0))];
        let mut lot = Lot { work: vec![work(1), work(2), work(4)], hourly, days: 5 };
        assert_eq!(lot.leave(1).len(), 2);
        assert_eq!((lot.days, lot.work.len(), lot.hourly.len()), (2, 1, 1));
        assert!(lot.leave(1).is_empty());
        assert_eq!(lot.days, 2);
    }
}
