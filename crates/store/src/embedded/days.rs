//! Parts of days in the file: their forms, reading, scanning and writing.
//!
//! ```text
//! part  := version:u8 (1)  kind:u8 (0 readings | 1 chunk | 2 expired)  content
//! content of readings := length:varint head  sum:u32 (CRC-32 of the key and all before it, little-endian)  sealed
//!         of expired  := length:varint head  sum:u32  times
//!         of a chunk  := rev:varint floor:varint oldest:varint  sensor  length:varint stamps  sealed
//! head  := rev:varint floor:varint  sensor names  hours, see `store::figures`
//! times := (count:varint first:i64 last:i64)…      of each hour its readings, and nanoseconds of its first and last one
//! sensor, names: as in `form`            sealed: see `store::sealed`           stamps: see `bucket::stamps`
//! ```
//!
//! The summaries come before the readings, and are read, and checked, without them. A chunk has none.

mod scan;

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use redb::ReadableDatabase;

use self::scan::{next, scan};

use super::file::FileFailure;
use super::keys::Keys;
use super::page_form::{NoPage, put_names, put_parts, sensor, take_parts};
use super::remove::remove_all;
use super::tables::{CHUNKS, DAYS, DocumentRows, MONTHS, Put, Tables, checksum, unseal, write_each};
use super::{EmbeddedStore, SCAN_LEAST, SCAN_SENSORS, SMALL_BYTES, months};
use crate::bucket::columns::{ColumnsDamage, PackedBytes};
use crate::bucket::day::by_hour;
use crate::bucket::expired::{ExpiredDay, ExpiredHour};
use crate::bucket::raw::{Cursor, DayDocument, RawDay, Mismatch};
use crate::bucket::store::{DayStore, Extent, Order, Projection, Scanned, ScannedPage, Written};
use crate::bucket::{
    DayId, DayPart, DayWrite, MonthId, MonthWrite, Readings, Result, StorageError, StoredDay, StoredMonth, Summary,
};
use crate::document::day_id;
use crate::figures::{HourColumns, PackedFigures, Room, Span};
use crate::reading::varint::{put_bytes, put_texts, put_varint};
use crate::reading::{Day, Hour, Month, Stamp};
use crate::sealed::{self, SealedError};

/// The first byte of a part: the version of its form.
const VERSION: u8 = 1;
/// The second byte of a part with readings and summaries.
const READINGS: u8 = 0;
/// The second byte of a chunk.
const CHUNK: u8 = 1;
/// The second byte of a part whose readings have expired.
const EXPIRED: u8 = 2;
/// Bytes of the checksum behind a head.
const SUM: usize = 4;

/// A part to be written or removed.
struct DayPut {
    put: Put,
    /// The key of the day's month.
    month: Vec<u8>,
    removed: bool,
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
    /// The lengths of the parts of the sensor's key.
    parts: Vec<u64>,
    names: Vec<&'a str>,
    /// Summaries by hour, except of a chunk.
    summaries: Option<PackedFigures<'a>>,
    /// Stamps of a chunk; otherwise empty.
    stamps: &'a [u8],
    /// Packed readings; of expired ones, their times.
    readings: &'a [u8],
}

fn encode(keys: &Keys, write: &DayWrite<'_>) -> DayPut {
    let DayId { sensor, day, part } = write.id;
    let key = keys.day(*day, &sensor.key, *part);
    let bytes = match (write.readings, write.expired) {
        (Some(readings), Some(expired)) => {
            expired_bytes(&key, write.id, write.next_rev, readings.stamps().floor(), expired)
        }
        (Some(readings), None) => bytes(&key, write.id, write.next_rev, readings),
        (None, _) => Vec::new(),
    };
    let put = Put::new(key, write.rev, bytes);
    let month = keys.month(Month::of(*day), &sensor.key);
    DayPut { put, month, removed: write.readings.is_none(), is_chunk: part.is_chunk() }
}

fn expired_bytes(key: &[u8], id: &DayId, rev: u64, floor: Stamp, expired: &ExpiredDay) -> Vec<u8> {
    let names = expired.names();
    let mut head = head(id, rev, floor);
    put_texts(&mut head, names.iter().map(|name| &**name));
    let mut hours = HourColumns::new(id.day, names.len());
    let mut times = Vec::new();
    for one in &expired.hours {
        let place = |name: &Arc<str>| names.binary_search(name).unwrap_or_default();
        hours.push(one.hour, one.summaries.iter().map(|(name, summary)| (place(name), summary)));
        put_varint(&mut times, one.count);
        times.extend(one.first.to_le_bytes());
        times.extend(one.last.to_le_bytes());
    }
    hours.put(&mut head);
    with_sum(key, EXPIRED, &head, &times)
}

fn bytes(key: &[u8], id: &DayId, rev: u64, readings: &Readings) -> Vec<u8> {
    if id.part.is_chunk() {
        let mut out = vec![VERSION, CHUNK];
        put_varint(&mut out, rev);
        put_varint(&mut out, readings.stamps().floor());
        put_varint(&mut out, readings.stamps().oldest());
        put_parts(&mut out, &id.sensor);
        put_bytes(&mut out, &readings.encode_stamps());
        out.extend_from_slice(&sealed::pack(readings));
        return out;
    }
    let mut head = head(id, rev, readings.stamps().floor());
    put_names(&mut head, readings);
    let mut hours = HourColumns::new(id.day, readings.columns().len());
    by_hour(readings.clone()).iter().for_each(|(hour, readings)| hours.push(*hour, readings.numbered_summaries()));
    hours.put(&mut head);
    with_sum(key, READINGS, &head, &sealed::pack(readings))
}

/// What the head of a part with summaries begins with.
fn head(id: &DayId, rev: u64, floor: Stamp) -> Vec<u8> {
    let mut head = Vec::new();
    put_varint(&mut head, rev);
    put_varint(&mut head, floor);
    put_parts(&mut head, &id.sensor);
    head
}

/// A part whose head has a checksum of its own.
fn with_sum(key: &[u8], kind: u8, head: &[u8], rest: &[u8]) -> Vec<u8> {
    let mut out = vec![VERSION, kind];
    put_bytes(&mut out, head);
    let sum = checksum(key, &out);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(rest);
    out
}

/// Writes a part, unless it has another rev than expected.
fn write(tables: &mut Tables<'_>, day: &DayPut) -> Result<bool, FileFailure> {
    if !day.put.fits(&tables.days, rev)? {
        return Ok(false);
    }
    remove_all(&mut tables.months, std::slice::from_ref(&day.month))?;
    if day.removed {
        tables.days.remove(&*day.put.key)?;
    } else {
        day.put.put(&mut tables.days)?;
    }
    match (day.is_chunk, day.removed) {
        (true, true) => _ = tables.chunks.remove(&*day.put.key)?,
        (true, false) => _ = tables.chunks.insert(&*day.put.key, ())?,
        (false, _) => {}
    }
    Ok(true)
}

/// The id of the part under a key, for errors.
fn shown(key: &[u8]) -> String {
    let of = |(sensor, day, part): (String, Day, DayPart)| day_id(&sensor, day, part);
    Keys::any_day_of(key).map_or_else(|| key.escape_ascii().to_string(), of)
}

pub(super) fn rev(key: &[u8], value: &[u8]) -> Result<u64> {
    let bytes = unseal(key, value, || shown(key))?;
    let mut bytes = PackedBytes::new(bytes);
    let mut rev = || {
        if kind(&mut bytes)? != CHUNK {
            bytes.varint()?;
        }
        Ok(bytes.varint()?)
    };
    rev().map_err(|why: NoPage| unreadable(shown(key), &why))
}

fn kind(bytes: &mut PackedBytes<'_>) -> Result<u8, NoPage> {
    match bytes.byte()? {
        VERSION => {}
        other => return Err(NoPage::Version(other)),
    }
    match bytes.byte()? {
        kind @ (READINGS | CHUNK | EXPIRED) => Ok(kind),
        other => Err(NoPage::Kind(other)),
    }
}

fn unreadable(id: String, why: &(dyn std::error::Error + 'static)) -> StorageError {
    let detail = why.to_string();
    let is_newer = matches!(why.downcast_ref(), Some(NoPage::Version(_)))
        || why.downcast_ref::<SealedError>().is_some_and(SealedError::is_newer);
    if is_newer { StorageError::Newer { id, detail } } else { StorageError::Unreadable { id, detail } }
}

impl<'a> DayHead<'a> {
    /// Reads all but the readings, which are what is left.
    fn read(key: &[u8], bytes: &'a [u8]) -> Result<Self, NoPage> {
        let mut rest = PackedBytes::new(bytes);
        let kind = kind(&mut rest)?;
        if kind == CHUNK {
            let (rev, floor, oldest) = (rest.varint()?, rest.varint()?, rest.varint()?);
            let parts = take_parts(&mut rest)?;
            let stamps = rest.counted()?;
            let readings = rest.rest();
            return Ok(Self { kind, rev, floor, oldest, parts, names: Vec::new(), summaries: None, stamps, readings });
        }
        let mut head = PackedBytes::new(rest.counted()?);
        let before = &bytes[..bytes.len() - rest.left()];
        if rest.take(SUM)? != checksum(key, before).to_le_bytes() {
            return Err(NoPage::Sum);
        }
        let (rev, floor) = (head.varint()?, head.varint()?);
        let (parts, names) = (take_parts(&mut head)?, head.texts()?);
        let summaries = Some(PackedFigures::at_end(Span::Hours, head)?);
        Ok(Self { kind, rev, floor, oldest: floor, parts, names, summaries, stamps: &[], readings: rest.rest() })
    }

    /// The summaries of all fields by hour.
    fn hours(&self, day: Day) -> Result<Vec<(Hour, HourSummaries)>, NoPage> {
        let Some(hours) = &self.summaries else { return Ok(Vec::new()) };
        let start = day.hours().start.0;
        let mut all: Vec<(Hour, HourSummaries)> =
            hours.set.numbers().map(|number| (Hour(start + i64::from(number)), Vec::new())).collect();
        hours.each(self.names.len(), (|_| true, false), &mut Room::default(), |field, number, summary| {
            let of = all.iter_mut().find(|(hour, _)| hour.0 - start == i64::from(number));
            of.into_iter().for_each(|(_, of)| of.push((Arc::from(self.names[field]), summary.clone())));
        })?;
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
            let (first, last) = (time()?, time()?);
            hours.push(ExpiredHour { hour, count, first, last, summaries });
        }
        times.end()?;
        Ok(ExpiredDay { hours })
    }

    /// The readings; none if they have expired.
    fn unpack(&self) -> Result<Readings, Box<dyn std::error::Error>> {
        if self.kind == EXPIRED {
            let mut none = Readings::default();
            none.raise_floor(self.floor);
            return Ok(none);
        }
        let mut readings = sealed::unpack_readings(self.readings, self.floor)?;
        if self.kind == CHUNK {
            readings.decode_stamps(self.floor, self.stamps)?;
        }
        Ok(readings)
    }
}

/// A part for a walk, as it is stored.
pub(super) fn raw(key: &[u8], value: &[u8]) -> RawDay {
    let from = Cursor(key.to_vec());
    let days = Day::of(Hour::of(i64::MIN))..=Day::of(Hour::of(i64::MAX));
    let Some((sensor, day, part)) = Keys::any_day_of(key).filter(|(_, day, _)| days.contains(day)) else {
        let (key, detail) = (key.escape_ascii().to_string(), "its key is not the key of a day".to_owned());
        return RawDay { from, document: Err(StorageError::Unreadable { id: key.clone(), detail }), key };
    };
    let shown = day_id(&sensor, day, part);
    let document = unseal(key, value, || shown.clone())
        .and_then(|bytes| document(key, bytes, &sensor, day, part).map_err(|why| unreadable(shown.clone(), &*why)));
    RawDay { from, key: shown, document }
}

fn document(
    stored_key: &[u8],
    stored: &[u8],
    key: &str,
    day: Day,
    part: DayPart,
) -> Result<DayDocument, Box<dyn std::error::Error>> {
    let head = DayHead::read(stored_key, stored)?;
    let stored_day = head.day(day)?;
    let id = DayId { sensor: Arc::new(sensor(key, &head.parts)?), day, part };
    let mut differs = Vec::new();
    let mut part = |part: &str, expected: String, found: String| {
        if expected != found {
            differs.push(Mismatch { part: part.to_owned(), expected, found });
        }
    };
    part("sensor", key.to_owned(), id.sensor.key.to_string());
    let expected = match &stored_day.expired {
        Some(expired) => expired_bytes(stored_key, &id, head.rev, head.floor, expired),
        None => bytes(stored_key, &id, head.rev, &stored_day.readings),
    };
    let written = DayHead::read(stored_key, &expected)?;
    let (expected, found) = (written.hours(day)?, head.hours(day)?);
    part("oldest", written.oldest.to_string(), head.oldest.to_string());
    part("names", format!("{:?}", written.names), format!("{:?}", head.names));
    let hours = |of: &[(Hour, HourSummaries)]| format!("{:?}", of.iter().map(|(hour, _)| hour.0).collect::<Vec<_>>());
    part("hours", hours(&expected), hours(&found));
    for ((_, expected), (hour, found)) in expected.iter().zip(&found) {
        part(&format!("hours of {}", hour.start_ms()), format!("{expected:?}"), format!("{found:?}"));
    }
    Ok(DayDocument { day: stored_day, id, differs })
}

/// The parts that are stored, in the order of `ids`.
fn read(keys: &Keys, days: &DocumentRows, ids: &[DayId]) -> Result<Vec<Option<StoredDay>>, FileFailure> {
    let read = |id: &DayId| {
        let key = keys.day(id.day, &id.sensor.key, id.part);
        let Some(value) = days.get(&*key)? else { return Ok(None) };
        let shown = || day_id(&id.sensor.key, id.day, id.part);
        let head = DayHead::read(&key, unseal(&key, value.value(), shown)?);
        let head = head.map_err(|why| unreadable(shown(), &why))?;
        Ok(Some(head.day(id.day).map_err(|why| unreadable(shown(), &*why))?))
    };
    ids.iter().map(read).collect()
}

#[async_trait]
impl DayStore for EmbeddedStore {
    async fn list_day_parts(&self, database: &str, sensors: &[&str], days: Range<Day>) -> Result<Vec<(usize, Day, DayPart)>> {
        let sensors: Vec<String> = sensors.iter().map(|key| (*key).to_owned()).collect();
        self.read_table((DAYS, database), move |keys, table| {
            let mut found = Vec::new();
            for (place, sensor) in sensors.iter().enumerate() {
                let mut left = days.clone();
                while let Some(day) = next(table, keys, sensor, Order::Ascending, &left)? {
                    for row in
                        table.range::<&[u8]>(&*keys.day(day, sensor, DayPart::Whole)..&*keys.day_end(day, sensor))?
                    {
                        let part = keys.part_of(row?.0.value(), day, sensor);
                        found.extend(part.map(|part| (place, day, part)));
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
        self.read_table((DAYS, database), move |keys, days| read(keys, days, &ids)).await
    }

    async fn write_days(&self, database: &str, days: &[DayWrite<'_>]) -> Vec<Written> {
        let (name, keys) = (database.to_owned(), Keys::of(database));
        let puts: Vec<_> = days.iter().map(|day| encode(&keys, day)).collect();
        let bytes = days.iter().map(|day| SMALL_BYTES + day.readings.map_or(0, Readings::bytes)).sum();
        self.write((puts.len(), bytes), move |db| {
            write_each(db, (&name, puts.iter().any(|put| !put.removed)), &puts, write)
        })
        .await
    }

    async fn scan_days(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned> {
        let (sensor, wanted) = (sensor.to_owned(), projection.clone());
        let scanned = self
            .read_table((DAYS, database), move |keys, days| scan(keys, days, &sensor, &hours, order, &wanted, extent));
        Ok(scanned.await?.0)
    }

    async fn scan_days_of(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>> {
        let wanted = projection.clone();
        self.scan_each((DAYS, database), sensors, bytes_max, move |keys, days, sensor, left| {
            let extent = Extent { bytes: left.saturating_add(1), ..Extent::ALL };
            let (scanned, bytes) = scan(keys, days, sensor, &hours, Order::Ascending, &wanted, extent)?;
            Ok(Some((scanned.pages, bytes)))
        })
        .await
    }

    async fn next_chunks(
        &self,
        database: &str,
        from: &(Day, String),
        until: Day,
        most: usize,
    ) -> Result<Vec<(Day, String)>> {
        let (name, from) = (database.to_owned(), from.clone());
        self.read(move |db| {
            let keys = Keys::of(&name);
            let chunks = db.begin_read()?.open_table(CHUNKS)?;
            let mut found: Vec<(Day, String)> = Vec::new();
            let (mut start, end) = (keys.day_end(from.0, &from.1), keys.day_start(until));
            while found.len() < most && start < end {
                let Some(row) = chunks.range::<&[u8]>(&*start..&*end)?.next() else { break };
                let Some((sensor, day, _)) = Keys::any_day_of(row?.0.value()) else { break };
                start = keys.day_end(day, &sensor);
                found.push((day, sensor));
            }
            Ok(found)
        })
        .await
    }

    /// A key begins with its day.
    async fn last_day(&self, database: &str) -> Result<Option<Day>> {
        self.read_table((DAYS, database), |keys, days| {
            let all = keys.all();
            let last = days.range::<&[u8]>(&*all.start..&*all.end)?.next_back();
            Ok(last.transpose()?.and_then(|(key, _)| keys.day_of(key.value())))
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
        let lot = sensors.len().div_ceil(self.cores).clamp(SCAN_LEAST, SCAN_SENSORS);
        let lots = sensors.chunks(lot).map(|lot| {
            let (wanted, months) = (projection.clone(), months.clone());
            let lot: Vec<Arc<str>> = lot.iter().map(|sensor| Arc::from(*sensor)).collect();
            self.read_table((MONTHS, database), move |keys, rows| months::read(keys, rows, &lot, &months, &wanted))
        });
        Ok(futures_util::future::try_join_all(lots).await?.into_iter().flatten().collect())
    }

    async fn write_months(&self, database: &str, months: &[MonthWrite<'_>]) -> Vec<Written> {
        let (name, keys) = (database.to_owned(), Keys::of(database));
        let puts: Vec<_> = months.iter().map(|month| months::encode(&keys, month)).collect();
        let bytes = puts.iter().map(|put| put.bytes()).sum();
        self.write((puts.len(), bytes), move |db| months::write(db, &name, &puts)).await
    }
}

#[cfg(test)]
mod tests;
