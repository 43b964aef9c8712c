//! What is acked and not in the store yet, as queries ask for it.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use super::changes::Changes;
use super::merge::{Bucket, Caps, MergeOptions};
use super::packed::{Packed, Unpacked};
use super::readings::Readings;
use crate::reading::stamp::SETTLED;
use crate::reading::{Family, Hour, Sensor, Stamp, Value};

/// Nobody can tell: acked readings that this is about are in the log, and not in memory yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("acked readings that the answer must have are still being read back from the log, and were so for query.wait")]
pub struct Behind;

/// An hour's unflushed readings of one sensor, packed as the memtable has them: a sixth of what they take as values.
#[derive(Debug, Clone)]
pub struct UnflushedHour {
    /// Which hour.
    pub hour: Hour,
    packed: Vec<Arc<Packed>>,
    names: Arc<[Arc<str>]>,
}

impl UnflushedHour {
    /// Of readings in log order, one part behind the other, whose cells name fields of `names`; `None` without any.
    #[must_use]
    pub fn new(hour: Hour, packed: impl IntoIterator<Item = Arc<Packed>>, names: &Arc<[Arc<str>]>) -> Option<Self> {
        let packed: Vec<Arc<Packed>> = packed.into_iter().filter(|packed| !packed.is_empty()).collect();
        (!packed.is_empty()).then(|| Self { hour, packed, names: names.clone() })
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.packed.iter().map(|packed| packed.memory()).sum::<usize>() + size_of::<Self>()
    }

    /// How many readings were written: of some of one time the later one counts.
    #[must_use]
    pub fn written(&self) -> usize {
        self.packed.iter().map(|packed| packed.len()).sum()
    }

    /// Bytes of memory that [`UnflushedHour::readings`] takes, at most.
    #[must_use]
    pub fn unpacked_memory(&self) -> usize {
        let reading = size_of::<i64>() + size_of::<Stamp>() + self.names.len() * size_of::<Option<Value>>();
        self.written() * reading + self.memory()
    }

    /// The readings, merged among themselves, with their stamps.
    #[must_use]
    pub fn readings(&self) -> Readings {
        let mut unpacked = Unpacked::default();
        unpacked.unpack_in_time_order(self.packed.iter().map(|packed| &**packed));
        let uncapped = Caps { max_readings: usize::MAX, max_bytes: usize::MAX, hard_bytes: usize::MAX };
        let mut bucket = Bucket::default();
        let options = MergeOptions { caps: &uncapped, floor: SETTLED, restamps: false, log: "" };
        bucket.apply(unpacked.rows(&self.names), &options);
        bucket.pages().first().map(|page| page.readings.clone()).unwrap_or_default()
    }
}

/// A sensor and its fields with the family of their values.
#[derive(Debug, Clone)]
pub struct Met {
    /// Whose.
    pub sensor: Arc<Sensor>,
    /// In the order they were first seen.
    pub fields: Vec<(Arc<str>, Family)>,
    /// Whether its document is known to be stored: these are all its fields then, unless others write to the store.
    pub is_stored: bool,
}

/// What was met and deleted by a moment, as numbers that grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetVersion {
    /// Sensors and fields met.
    pub met: u64,
    /// Deletions, other instances' included: what was read from the store before may not be there any more.
    pub deletions: u64,
}

/// Who knows what is acked and not in the store yet. To be asked before the store is: what is
/// flushed in between is then seen twice, which changes nothing, and never missed.
#[async_trait]
pub trait UnflushedReadings: Send + Sync + std::fmt::Debug {
    /// Each of these sensors' unflushed readings in a range of hours, hour by hour: merged with what the store has they
    /// are what is acked.
    ///
    /// # Errors
    /// When acked readings may be missing from it.
    async fn unflushed(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
    ) -> Result<Vec<Vec<UnflushedHour>>, Behind>;

    /// The sensors of a database that a list may lack which the store gave after `since`: those that have
    /// unflushed readings, and those whose documents came to the store later.
    fn met(&self, database: &str, since: MetVersion) -> Vec<Met>;

    /// A sensor, if it has unflushed readings or its document is known to be stored.
    fn met_one(&self, database: &str, sensor: &str) -> Option<Met>;

    /// The names of the databases that have unflushed readings.
    fn databases(&self) -> Vec<String>;

    /// What was met and deleted by now.
    ///
    /// # Errors
    /// When there may be sensors of the database, or without one databases, that were not met yet.
    fn met_version(&self, database: Option<&str>) -> Result<MetVersion, Behind>;

    /// What this instance has changed in the store. A change is noted before its readings stop being
    /// unflushed; those of a write whose outcome is not known stay unflushed until it is.
    fn changes(&self) -> &Changes;
}
