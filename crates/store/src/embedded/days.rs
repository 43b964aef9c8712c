//! Parts of days in the file: encoding, reads, scans and writes.
//!
//! ```text
//! part  := version:u8 (1; a plain part 2)  kind:u8 (0 readings | 1 chunk | 2 expired | 3 plain)  content
//! content of readings := length:varint head  sum:u32 (CRC-32 of the key and the bytes before it, little-endian)  sealed
//!         of expired  := length:varint head  sum:u32  times
//!         of a plain part := rev:varint floor:varint  sensor  sealed
//!         of a chunk  := rev:varint floor:varint oldest:varint  sensor  length:varint stamps  sealed
//! head  := rev:varint floor:varint  sensor names  hours, see `store::figures`
//! times := (count:varint first:i64 last:i64)…      per hour: number of readings, times of the first and last one in ns
//! sensor, names: as in `page_form`       sealed: see `store::sealed`           stamps: see `bucket::stamps`
//! ```
//!
//! The summaries precede the readings and have a checksum of their own, so that they can be read alone. A chunk and a
//! plain part, which has few readings, have no summaries.

mod raw;
mod removal;
mod scan;

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use redb::ReadableDatabase;

pub(super) use self::raw::{add_outdated, raw_day};

use self::scan::{next_day, scan};

use super::file::FileFailure;
use super::keys::Keys;
use super::page_form::{PageError, put_names, put_part_lengths, take_part_lengths};
use super::remove::remove_all;
use super::tables::{CHUNKS, DAYS, DocumentRows, Listing, MONTHS, Put, Tables, checksum, unseal, write_each};
use super::{EmbeddedStore, SMALL_WRITE_BYTES, months};
use crate::bucket::columns::{ColumnsDamage, PackedBytes};
use crate::bucket::day::{by_hour, is_plain};
use crate::bucket::expired::{ExpiredDay, ExpiredHour};
use crate::bucket::store::{DayStore, Extent, Order, Projection, ScanResult, ScannedPage, WriteOutcome};
use crate::bucket::{
    DayId, DayPart, DayWrite, MonthId, MonthWrite, Readings, Result, StorageError, StoredDay, StoredMonth, Summary,
};
use crate::document::day_id;
use crate::figures::{HourColumns, PackedFigures, Room, Span};
use crate::reading::varint::{put_bytes, put_texts, put_varint};
use crate::reading::{Day, Hour, Month, Stamp};
use crate::sealed::{self, SealedError};

/// The first byte of a part: the version of the encoding. Version 1 had no plain parts.
const VERSION: u8 = 1;
const PLAIN_VERSION: u8 = 2;
/// The second byte of a part with readings and summaries.
const READINGS: u8 = 0;
/// The second byte of a chunk.
const CHUNK: u8 = 1;
/// The second byte of a part whose readings have expired.
const EXPIRED: u8 = 2;
/// The second byte of a part with few readings, without summaries.
const PLAIN: u8 = 3;
/// Bytes of the checksum behind a head.
const CHECKSUM_BYTES: usize = 4;

/// A write or removal of a part.
struct DayPut {
    put: Put,
    /// The key of the day's month.
    month: Vec<u8>,
    is_removal: bool,
    is_chunk: bool,
}

/// An hour's summaries by field.
type HourSummaries = Vec<(Arc<str>, Summary)>;

/// A part before its readings are unpacked.
struct DayHead<'a> {
    kind: u8,
    rev: u64,
    floor: Stamp,
    oldest: Stamp,
    /// Lengths of the measurement, tag names and tag values in the sensor's key.
    part_lengths: Vec<u64>,
    names: Vec<&'a str>,
    /// Summaries by hour. `None` for a chunk and a plain part.
    summaries: Option<PackedFigures<'a>>,
    /// Stamps of a chunk. Empty for other parts.
    stamps: &'a [u8],
    /// Packed readings, or the times of expired ones.
    readings: &'a [u8],
}

/// Encodes a write with its key.
fn encode(keys: &Keys, write: &DayWrite<'_>) -> DayPut {
    let DayId { sensor, day, part } = write.id;
    let key = keys.day(*day, &sensor.key, *part);
    let bytes = match (write.readings, write.expired) {
        (Some(readings), Some(expired)) => {
            encode_expired(&key, write.id, write.next_rev, readings.stamps().floor(), expired)
        }
        (Some(readings), None) => encode_readings(&key, write.id, write.next_rev, readings, is_plain(readings)),
        (None, _) => Vec::new(),
    };
    let put = Put::new(key, write.rev, bytes);
    let month = keys.month(Month::from_day(*day), &sensor.key);
    DayPut { put, month, is_removal: write.readings.is_none(), is_chunk: part.is_chunk() }
}

/// Encodes a part whose readings have expired.
fn encode_expired(key: &[u8], id: &DayId, rev: u64, floor: Stamp, expired: &ExpiredDay) -> Vec<u8> {
    let names = expired.names();
    let mut head = encode_head(id, rev, floor);
    put_texts(&mut head, names.iter().map(|name| &**name));
    let mut hours = HourColumns::new(id.day, names.len());
    let mut times = Vec::new();
    for hour in &expired.hours {
        let number = |name: &Arc<str>| names.binary_search(name).unwrap_or_default();
        hours.push(hour.hour, hour.summaries.iter().map(|(name, summary)| (number(name), summary)));
        put_varint(&mut times, hour.count);
        times.extend(hour.first.to_le_bytes());
        times.extend(hour.last.to_le_bytes());
    }
    hours.put(&mut head);
    join_parts(key, EXPIRED, &head, &times)
}

/// Encodes a part with readings. Version 1 wrote no plain parts.
fn encode_readings(key: &[u8], id: &DayId, rev: u64, readings: &Readings, is_plain: bool) -> Vec<u8> {
    if id.part.is_chunk() {
        let mut out = vec![VERSION, CHUNK];
        put_varint(&mut out, rev);
        put_varint(&mut out, readings.stamps().floor());
        put_varint(&mut out, readings.stamps().oldest());
        put_part_lengths(&mut out, &id.sensor);
        put_bytes(&mut out, &readings.encode_stamps());
        out.extend_from_slice(&sealed::pack(readings));
        return out;
    }
    let mut head = encode_head(id, rev, readings.stamps().floor());
    if is_plain {
        return [&[PLAIN_VERSION, PLAIN], &*head, &*sealed::pack(readings)].concat();
    }
    put_names(&mut head, readings);
    let mut hours = HourColumns::new(id.day, readings.columns().len());
    for (hour, readings) in &by_hour(readings.clone()) {
        hours.push(*hour, readings.numbered_summaries());
    }
    hours.put(&mut head);
    join_parts(key, READINGS, &head, &sealed::pack(readings))
}

/// Encodes the beginning of the head of a part with summaries.
fn encode_head(id: &DayId, rev: u64, floor: Stamp) -> Vec<u8> {
    let mut head = Vec::new();
    put_varint(&mut head, rev);
    put_varint(&mut head, floor);
    put_part_lengths(&mut head, &id.sensor);
    head
}

/// Joins a head, its checksum and the rest of a part.
fn join_parts(key: &[u8], kind: u8, head: &[u8], rest: &[u8]) -> Vec<u8> {
    let mut out = vec![VERSION, kind];
    put_bytes(&mut out, head);
    let sum = checksum(key, &out);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(rest);
    out
}

/// Writes or removes a part, and removes the totals of its month. Returns false, without a change, if the stored rev is
/// not the expected one.
fn write(tables: &mut Tables<'_>, day: &DayPut) -> Result<bool, FileFailure> {
    if !day.put.matches(&tables.days, rev)? {
        return Ok(false);
    }
    remove_all(&mut tables.months, std::slice::from_ref(&day.month))?;
    if day.is_removal {
        tables.days.remove(&*day.put.key)?;
    } else {
        day.put.put(&mut tables.days)?;
    }
    if day.is_chunk && day.is_removal {
        tables.chunks.remove(&*day.put.key)?;
    } else if day.is_chunk {
        tables.chunks.insert(&*day.put.key, ())?;
    }
    Ok(true)
}

/// Returns the id of the part under a key, for errors.
fn part_id(key: &[u8]) -> String {
    match Keys::parse_any_day(key) {
        Some((sensor, day, part)) => day_id(&sensor, day, part),
        None => key.escape_ascii().to_string(),
    }
}

/// Returns the rev of a stored part.
pub(super) fn rev(key: &[u8], value: &[u8]) -> Result<u64> {
    let mut bytes = PackedBytes::new(unseal(key, value, || part_id(key))?);
    take_rev(&mut bytes).map_err(|error| unreadable(part_id(key), &error))
}

fn take_rev(bytes: &mut PackedBytes<'_>) -> Result<u64, PageError> {
    if has_head(take_kind(bytes)?) {
        // The length of the head.
        bytes.varint()?;
    }
    Ok(bytes.varint()?)
}

/// Returns true if a part has summaries, in a head with a checksum of its own.
fn has_head(kind: u8) -> bool {
    matches!(kind, READINGS | EXPIRED)
}

/// Reads the version and the kind of a part.
fn take_kind(bytes: &mut PackedBytes<'_>) -> Result<u8, PageError> {
    match (bytes.byte()?, bytes.byte()?) {
        (VERSION, kind @ (READINGS | CHUNK | EXPIRED)) | (PLAIN_VERSION, kind @ PLAIN) => Ok(kind),
        (VERSION | PLAIN_VERSION, other) => Err(PageError::Kind(other)),
        (other, _) => Err(PageError::Version(other)),
    }
}

fn unreadable(id: String, error: &(dyn std::error::Error + 'static)) -> StorageError {
    let detail = error.to_string();
    let is_newer = matches!(error.downcast_ref(), Some(PageError::Version(_)))
        || error.downcast_ref::<SealedError>().is_some_and(SealedError::is_newer);
    if is_newer { StorageError::Newer { id, detail } } else { StorageError::Unreadable { id, detail } }
}

impl<'a> DayHead<'a> {
    /// Reads everything but the readings, which stay packed.
    fn read(key: &[u8], bytes: &'a [u8]) -> Result<Self, PageError> {
        let mut rest = PackedBytes::new(bytes);
        let kind = take_kind(&mut rest)?;
        if !has_head(kind) {
            let rev = rest.varint()?;
            let floor = rest.varint()?;
            let oldest = if kind == CHUNK { rest.varint()? } else { floor };
            let part_lengths = take_part_lengths(&mut rest)?;
            let stamps = if kind == CHUNK { rest.prefixed_bytes()? } else { &[] };
            return Ok(Self {
                kind,
                rev,
                floor,
                oldest,
                part_lengths,
                names: Vec::new(),
                summaries: None,
                stamps,
                readings: rest.unread(),
            });
        }
        let mut head = PackedBytes::new(rest.prefixed_bytes()?);
        let before = &bytes[..bytes.len() - rest.unread_len()];
        if rest.take(CHECKSUM_BYTES)? != checksum(key, before).to_le_bytes() {
            return Err(PageError::Checksum);
        }
        let rev = head.varint()?;
        let floor = head.varint()?;
        let part_lengths = take_part_lengths(&mut head)?;
        let names = head.texts()?;
        let summaries = Some(PackedFigures::at_end(Span::Hours, head)?);
        Ok(Self {
            kind,
            rev,
            floor,
            oldest: floor,
            part_lengths,
            names,
            summaries,
            stamps: &[],
            readings: rest.unread(),
        })
    }

    /// Returns the summaries of all fields by hour.
    fn hours(&self, day: Day) -> Result<Vec<(Hour, HourSummaries)>, PageError> {
        let Some(hours) = &self.summaries else { return Ok(Vec::new()) };
        let start = day.hours().start.0;
        let mut all: Vec<(Hour, HourSummaries)> =
            hours.set.numbers().map(|number| (Hour(start + i64::from(number)), Vec::new())).collect();
        hours.each(
            self.names.len(),
            |_| true,
            &Projection::SUMMARIES,
            &mut Room::default(),
            |field, number, summary| {
                let hour = all.iter_mut().find(|(hour, _)| hour.0 - start == i64::from(number));
                if let Some((_, summaries)) = hour {
                    summaries.push((Arc::from(self.names[field]), summary));
                }
            },
        )?;
        Ok(all)
    }

    fn day(&self, day: Day) -> Result<StoredDay, Box<dyn std::error::Error>> {
        let expired = if self.kind == EXPIRED { Some(self.expired(day)?) } else { None };
        Ok(StoredDay { rev: self.rev, readings: self.unpack()?, expired })
    }

    fn expired(&self, day: Day) -> Result<ExpiredDay, Box<dyn std::error::Error>> {
        let mut times = PackedBytes::new(self.readings);
        let mut hours = Vec::new();
        for (hour, summaries) in self.hours(day)? {
            let count = times.varint()?;
            let mut time = || Ok::<_, ColumnsDamage>(i64::from_le_bytes(times.take(8)?.try_into().unwrap_or_default()));
            let first = time()?;
            let last = time()?;
            hours.push(ExpiredHour { hour, count, first, last, summaries });
        }
        times.end()?;
        Ok(ExpiredDay { hours })
    }

    /// Unpacks the readings. Returns no readings if they have expired.
    fn unpack(&self) -> Result<Readings, Box<dyn std::error::Error>> {
        if self.kind == EXPIRED {
            let mut no_readings = Readings::default();
            no_readings.raise_floor(self.floor);
            return Ok(no_readings);
        }
        let mut readings = sealed::unpack_readings(self.readings, self.floor)?;
        if self.kind == CHUNK {
            readings.decode_stamps(self.floor, self.stamps)?;
        }
        Ok(readings)
    }
}

/// Reads the parts with these ids, in their order. A part that is not stored is `None`.
fn read(keys: &Keys, days: &DocumentRows, ids: &[DayId]) -> Result<Vec<Option<StoredDay>>, FileFailure> {
    let read = |id: &DayId| {
        let key = keys.day(id.day, &id.sensor.key, id.part);
        let Some(value) = days.get(&*key)? else { return Ok(None) };
        let part_id = || day_id(&id.sensor.key, id.day, id.part);
        let head = DayHead::read(&key, unseal(&key, value.value(), part_id)?);
        let head = head.map_err(|error| unreadable(part_id(), &error))?;
        Ok(Some(head.day(id.day).map_err(|error| unreadable(part_id(), &*error))?))
    };
    ids.iter().map(read).collect()
}

#[async_trait]
impl DayStore for EmbeddedStore {
    async fn list_day_parts(
        &self,
        database: &str,
        sensors: &[&str],
        days: Range<Day>,
    ) -> Result<Vec<(usize, Day, DayPart)>> {
        let sensors: Vec<String> = sensors.iter().map(|key| (*key).to_owned()).collect();
        self.read_table(DAYS, database, move |keys, table| {
            let mut found = Vec::new();
            for (index, sensor) in sensors.iter().enumerate() {
                let mut left = days.clone();
                while let Some(day) = next_day(table, keys, sensor, Order::Ascending, &left)? {
                    let start = keys.day(day, sensor, DayPart::Whole);
                    for row in table.range::<&[u8]>(&*start..&*keys.day_end(day, sensor))? {
                        let part = keys.parse_part(row?.0.value(), day, sensor);
                        found.extend(part.map(|part| (index, day, part)));
                    }
                    left.start = day.next();
                }
            }
            Ok(found)
        })
        .await
    }

    async fn read_days(&self, database: &str, ids: &[DayId]) -> Result<Vec<Option<StoredDay>>> {
        let ids = ids.to_vec();
        self.read_table(DAYS, database, move |keys, days| read(keys, days, &ids)).await
    }

    async fn write_days(&self, database: &str, days: &[DayWrite<'_>]) -> Vec<WriteOutcome> {
        let name = database.to_owned();
        let keys = Keys::new(database);
        let puts: Vec<_> = days.iter().map(|day| encode(&keys, day)).collect();
        let bytes = days.iter().map(|day| SMALL_WRITE_BYTES + day.readings.map_or(0, Readings::bytes)).sum();
        // Removals alone must not list the database.
        let listing = if puts.iter().all(|put| put.is_removal) { Listing::Keep } else { Listing::Add };
        self.write(puts.len(), bytes, move |db| write_each(db, &name, listing, &puts, write)).await
    }

    async fn remove_days(&self, database: &str, sensors: &[&str], hours: Range<Hour>, limit: Stamp) -> Result<()> {
        for sensor in sensors {
            let mut next = Some(removal::days_within(&hours).start);
            while let Some(start) = next {
                let name = database.to_owned();
                let sensor = (*sensor).to_owned();
                let left = start.hours().start..hours.end;
                next = self.run_to_end(move |db| removal::remove(db, &name, &sensor, &left, limit)).await?;
            }
        }
        Ok(())
    }

    async fn scan_days(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<ScanResult> {
        let sensor = sensor.to_owned();
        let projection = projection.clone();
        let scanned = self.read_table(DAYS, database, move |keys, days| {
            scan(keys, days, &sensor, &hours, order, &projection, extent)
        });
        Ok(scanned.await?.scanned)
    }

    async fn scan_sensor_days(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>> {
        let projection = projection.clone();
        self.scan_each(DAYS, database, sensors, bytes_max, move |keys, days, sensor, left| {
            let extent = Extent { bytes: left.saturating_add(1), ..Extent::ALL };
            scan(keys, days, sensor, &hours, Order::Ascending, &projection, extent).map(Some)
        })
        .await
    }

    async fn next_chunks(
        &self,
        database: &str,
        start: &(Day, String),
        end: Day,
        max: usize,
    ) -> Result<Vec<(Day, String)>> {
        let name = database.to_owned();
        let (first_day, first_sensor) = start.clone();
        self.read(move |db| {
            let keys = Keys::new(&name);
            let chunks = db.begin_read()?.open_table(CHUNKS)?;
            let mut found: Vec<(Day, String)> = Vec::new();
            let mut start = keys.day_end(first_day, &first_sensor);
            let end = keys.day_start(end);
            while found.len() < max && start < end {
                let Some(row) = chunks.range::<&[u8]>(&*start..&*end)?.next() else { break };
                let Some((sensor, day, _)) = Keys::parse_any_day(row?.0.value()) else { break };
                start = keys.day_end(day, &sensor);
                found.push((day, sensor));
            }
            Ok(found)
        })
        .await
    }

    async fn last_day(&self, database: &str) -> Result<Option<Day>> {
        self.read_table(DAYS, database, |keys, days| {
            // Keys sort by day.
            let all = keys.all();
            let last = days.range::<&[u8]>(&*all.start..&*all.end)?.next_back();
            Ok(last.transpose()?.and_then(|(key, _)| keys.parse_day(key.value())))
        })
        .await
    }

    async fn read_months(
        &self,
        database: &str,
        sensors: &[&str],
        months: Range<Month>,
        projection: &Projection,
    ) -> Result<Vec<(MonthId, StoredMonth)>> {
        let batches = sensors.chunks(self.sensors_per_thread(sensors.len())).map(|batch| {
            let projection = projection.clone();
            let range = months.clone();
            let batch: Vec<Arc<str>> = batch.iter().map(|sensor| Arc::from(*sensor)).collect();
            self.read_table(MONTHS, database, move |keys, rows| months::read(keys, rows, &batch, &range, &projection))
        });
        Ok(futures_util::future::try_join_all(batches).await?.into_iter().flatten().collect())
    }

    async fn write_months(&self, database: &str, months: &[MonthWrite<'_>]) -> Vec<WriteOutcome> {
        let name = database.to_owned();
        let keys = Keys::new(database);
        let puts: Vec<_> = months.iter().map(|month| months::encode(&keys, month)).collect();
        let bytes = puts.iter().map(|put| put.bytes()).sum();
        self.write(puts.len(), bytes, move |db| months::write(db, &name, &puts)).await
    }
}

#[cfg(test)]
mod tests;
