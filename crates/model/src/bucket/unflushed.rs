//! The interface through which queries read the memtable, which holds acked readings that are not stored yet.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::hour_versions::HourVersions;
use super::merge::{Bucket, Caps, MergeOptions};
use super::meta::Meta;
use super::packed::{PackedRows, UnpackedRows};
use super::readings::Readings;
use crate::reading::stamp::SETTLED;
use crate::reading::varint::{put_texts, put_varint, take_text, take_varint, unzigzag, zigzag};
use crate::reading::{Family, Hour, Sensor, Stamp, Value};

/// The error of a read from an incomplete memtable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnflushedError {
    /// Acked readings that the query needs are still in the WAL only.
    #[error("acked readings that the answer needs are still being replayed from the WAL; retry later")]
    Replaying,
    /// Other instances, which may have such readings, do not answer.
    #[error("instances that may have acked readings do not answer: {0}; retry later")]
    Missing(String),
}

/// An hour's unflushed readings of one sensor, packed as in the memtable: about a sixth of their size as values.
#[derive(Debug, Clone)]
pub struct UnflushedHour {
    /// The hour that the readings lie in.
    pub hour: Hour,
    /// There are no readings at other times of the hour, or they are left out.
    times: Range<i64>,
    packed: Vec<Arc<PackedRows>>,
    names: Arc<[Arc<str>]>,
}

impl UnflushedHour {
    /// An hour from packed readings in WAL order, whose cells index `names`; `None` if there are no readings.
    #[must_use]
    pub fn new(hour: Hour, packed: impl IntoIterator<Item = Arc<PackedRows>>, names: &Arc<[Arc<str>]>) -> Option<Self> {
        let packed: Vec<Arc<PackedRows>> = packed.into_iter().filter(|packed| !packed.is_empty()).collect();
        let times = hour.start_ns()..hour.end_ns();
        (!packed.is_empty()).then(|| Self { hour, times, packed, names: names.clone() })
    }

    /// A copy of the readings with these times; `None` if there are none.
    #[must_use]
    pub fn within(&self, times: &Range<i64>) -> Option<Self> {
        let times = self.times.start.max(times.start)..self.times.end.min(times.end);
        if times == self.times {
            return Some(self.clone());
        }
        let mut wanted = PackedRows::default();
        self.packed.iter().for_each(|packed| wanted.append_within(packed, &times));
        let names = self.names.clone();
        (!wanted.is_empty()).then(|| Self { hour: self.hour, times, packed: vec![Arc::new(wanted)], names })
    }

    /// Bytes of memory in packed form.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.packed.iter().map(|packed| packed.memory()).sum::<usize>() + size_of::<Self>()
    }

    /// The number of rows; several may share a time.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.packed.iter().map(|packed| packed.len()).sum()
    }

    /// Upper bound of the memory that [`UnflushedHour::readings`] takes, in bytes.
    #[must_use]
    pub fn unpacked_memory(&self) -> usize {
        let reading = size_of::<i64>() + size_of::<Stamp>() + self.names.len() * size_of::<Option<Value>>();
        self.row_count() * reading + self.memory()
    }

    /// Appends the hour to a message for another instance.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, zigzag(self.hour.0));
        put_texts(out, self.names.iter().map(|name| &**name));
        put_varint(out, self.packed.len() as u64);
        self.packed.iter().for_each(|packed| packed.encode(out));
    }

    /// Reads what [`UnflushedHour::encode`] wrote; `None` if it is malformed.
    #[must_use]
    pub fn decode(bytes: &[u8], position: &mut usize) -> Option<Self> {
        let hour = Hour(unzigzag(take_varint(bytes, position)?));
        let names = (0..take_varint(bytes, position)?).map(|_| Some(Arc::from(take_text(bytes, position)?)));
        let names: Arc<[Arc<str>]> = names.collect::<Option<Vec<_>>>()?.into();
        let packed = (0..take_varint(bytes, position)?).map(|_| PackedRows::decode(bytes, position).map(Arc::new));
        Self::new(hour, packed.collect::<Option<Vec<_>>>()?, &names)
    }

    /// Adds another instance's readings of the hour.
    pub fn join(&mut self, other: &Self) {
        let mut names = self.names.to_vec();
        let mut place = |name: &Arc<str>| {
            let known = names.iter().position(|known| known == name);
            let place = known.unwrap_or_else(|| {
                names.push(name.clone());
                names.len() - 1
            });
            u16::try_from(place).unwrap_or(u16::MAX)
        };
        let places: Vec<u16> = other.names.iter().map(&mut place).collect();
        self.packed.extend(other.packed.iter().map(|packed| Arc::new(packed.renumbered(&places))));
        self.names = names.into();
    }

    /// The readings with their stamps, merged by stamp.
    #[must_use]
    pub fn readings(&self) -> Readings {
        let mut unpacked = UnpackedRows::default();
        unpacked.unpack_in_time_order(self.packed.iter().map(|packed| &**packed));
        let uncapped = Caps { max_readings: usize::MAX, max_bytes: usize::MAX, hard_bytes: usize::MAX };
        let mut bucket = Bucket::default();
        let options = MergeOptions { caps: &uncapped, floor: SETTLED, restamps: false };
        bucket.apply(unpacked.rows(&self.names), &options);
        bucket.pages().first().map(|page| page.readings.clone()).unwrap_or_default()
    }
}

/// A sensor as the catalog knows it: its fields with the family of their values.
#[derive(Debug, Clone)]
pub struct CatalogSensor {
    /// The sensor.
    pub sensor: Arc<Sensor>,
    /// Field names with their families, in the order of first appearance.
    pub fields: Vec<(Arc<str>, Family)>,
    /// True if the sensor's document is known to be stored. `fields` is then complete, unless other instances write to
    /// the store.
    pub is_stored: bool,
    /// Metadata that the store may not have yet.
    pub meta: Option<Arc<Meta>>,
    /// True if the sensor's document may have metadata beside `meta`.
    pub has_more_meta: bool,
}

/// A version of the catalog: counters that only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogVersion {
    /// Counts new sensors and fields.
    pub additions: u64,
    /// Counts deletions, including those by other instances. Sensors listed before a deletion may no longer exist.
    pub deletions: u64,
}

/// Access to the memtable and the sensor catalog. A query reads these before it reads the store: readings flushed in
/// between are then seen twice, which is harmless, and never missed.
#[async_trait]
pub trait UnflushedReadings: Send + Sync + std::fmt::Debug {
    /// The unflushed readings of each sensor in a range of hours, hour by hour. Merged with the stored readings, they
    /// are all acked readings.
    ///
    /// # Errors
    /// If the memtable may lack acked readings of these sensors and hours.
    async fn unflushed(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
    ) -> Result<Vec<Vec<UnflushedHour>>, UnflushedError>;

    /// The sensors of a database that a list read from the store after `version` may lack: those with unflushed readings,
    /// and those whose documents were stored later.
    fn catalog_sensors(&self, database: &str, version: CatalogVersion) -> Vec<CatalogSensor>;

    /// A sensor that has unflushed readings, or whose document is known to be stored.
    fn catalog_sensor(&self, database: &str, sensor: &str) -> Option<CatalogSensor>;

    /// The names of databases that have unflushed readings.
    fn databases(&self) -> Vec<String>;

    /// The catalog's current version.
    ///
    /// # Errors
    /// If WAL records that are not replayed yet may contain unknown sensors of the database or,
    /// without a database, unknown databases.
    fn catalog_version(&self, database: Option<&str>) -> Result<CatalogVersion, UnflushedError>;

    /// Learns what other instances have added since the last call: sensors, fields, and changes of the store. A query
    /// begins with it.
    ///
    /// # Errors
    /// If an instance does not answer.
    async fn refresh(&self) -> Result<(), UnflushedError> {
        Ok(())
    }

    /// The instances that did not answer within this time and were left out.
    fn left_out(&self, _within: Duration) -> Vec<String> {
        Vec::new()
    }

    /// The hours that this instance has changed in the store. A change is noted before its readings leave the memtable.
    /// Readings of a write with an unknown outcome stay in the memtable until the outcome is known.
    fn changes(&self) -> &HourVersions;
}
