//! Parts of days in the file: their forms, reading, scanning and writing.
//!
//! ```text
//! part   := 1:u8 rev:varint floor:varint  sensor names  listed  length:varint sealed       from an older program
//!         | 2:u8 rev:varint floor:varint oldest:varint  sensor  length:varint stamps  length:varint sealed      a chunk
//!         | 3:u8 length:varint head  sum:u32 (CRC-32 of the key and all before it, little-endian)  sealed
//!         | 4:u8 rev:varint floor:varint  sensor names  listed  length:varint times      readings have expired
//! head   := rev:varint floor:varint  sensor names  hours, see `store::figures`
//! times  := (count:varint first:i64 last:i64)…     of each hour its readings, and nanoseconds of its first and last one
//! sensor, names: as in `form`            sealed: see `store::sealed`           stamps: see `bucket::stamps`
//! listed := count:varint hour…           hour := number:u8 (0 to 23) summaries, as in `form`
//! ```
//!
//! The summaries come before the readings, and are read, and checked, without them. A chunk has none.

mod scan;

use std::ops::Range;
use std::sync::Arc;

use redb::{Database, ReadOnlyTable, ReadableDatabase};

pub(super) use self::scan::scan;

use self::scan::next;

use super::file::FileFailure;
use super::form::{NoPage, put_names, put_numbered, put_parts, put_text, sensor, summary};
use super::keys::Keys;
use super::months;
use super::tables::{CHUNKS, DAYS, Put, Tables, checksum, unseal};
use crate::bucket::columns::{ColumnsDamage, PackedBytes};
use crate::bucket::day::by_hour;
use crate::bucket::expired::{ExpiredDay, ExpiredHour};
use crate::bucket::raw::{Cursor, DayDocument, RawDay, StoredOtherwise};
use crate::bucket::store::Order;
use crate::bucket::summary::Figures;
use crate::bucket::{DayId, DayPart, DayWrite, Readings, StorageError, StoredDay, Summary};
use crate::reading::varint::put_varint;
use crate::reading::{Day, Hour, Month, Stamp};
use crate::store::document::day_id;
use crate::store::figures::{FieldFigures, NumberSet, PackedFigures, Room, Span, put_fields};
use crate::store::sealed::{self, NoSealed};

/// The first byte of a settled part whose summaries are listed by hour.
const LISTED: u8 = 1;
/// The first byte of a chunk.
const CHUNK: u8 = 2;
/// The first byte of a settled part.
const SETTLED: u8 = 3;
/// The first byte of a part whose readings have expired.
const EXPIRED: u8 = 4;
/// Bytes of the checksum behind a head.
const SUM: usize = 4;

/// A part to be written or removed.
pub(super) struct DayPut {
    put: Put,
    /// The key of the day's month.
    month: Vec<u8>,
    pub(super) removed: bool,
    is_chunk: bool,
    /// Whether programs that know sealed days, but no parts, would misread it.
    pub(super) is_new_form: bool,
    /// Whether programs that know parts would take it for damaged.
    pub(super) is_expired: bool,
}

type Days = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// An hour's summaries by field.
type HourFigures = Vec<(Arc<str>, Figures)>;

/// The hourly summaries of a part.
enum Summaries<'a> {
    Listed(Vec<(Hour, HourFigures)>),
    ByColumn(PackedFigures<'a>),
}

/// A part before its readings are unpacked.
struct DayHead<'a> {
    rev: u64,
    is_expired: bool,
    floor: Stamp,
    oldest: Stamp,
    /// The lengths of the parts of the sensor's key.
    parts: Vec<u64>,
    names: Vec<&'a str>,
    summaries: Summaries<'a>,
    /// Of a chunk.
    stamps: Option<&'a [u8]>,
    readings: &'a [u8],
}

pub(super) fn encode(keys: &Keys, write: &DayWrite<'_>) -> DayPut {
    let DayId { sensor, day, part } = write.id;
    let key = keys.day(*day, &sensor.key, *part);
    let bytes = match (write.readings, write.expired) {
        (Some(readings), Some(expired)) => expired_bytes(write.id, write.next_rev, readings.stamps().floor(), expired),
        (Some(readings), None) => bytes(&key, write.id, write.next_rev, readings),
        (None, _) => Vec::new(),
    };
    let put = Put::new(key, write.rev, bytes);
    let (removed, is_new_form) = (write.readings.is_none(), *part != DayPart::Whole);
    let month = keys.month(Month::of(*day), &sensor.key);
    DayPut { put, month, removed, is_chunk: part.is_chunk(), is_new_form, is_expired: write.expired.is_some() }
}

fn expired_bytes(id: &DayId, rev: u64, floor: Stamp, expired: &ExpiredDay) -> Vec<u8> {
    let (mut out, names, start) = (vec![EXPIRED], expired.names(), id.day.hours().start.0);
    put_varint(&mut out, rev);
    put_varint(&mut out, floor);
    put_parts(&mut out, &id.sensor);
    put_varint(&mut out, names.len() as u64);
    names.iter().for_each(|name| put_text(&mut out, name));
    put_varint(&mut out, expired.hours.len() as u64);
    let mut times = Vec::new();
    for one in &expired.hours {
        out.push(u8::try_from(one.hour.0 - start).unwrap_or(u8::MAX));
        let number = |name: &Arc<str>| names.binary_search(name).unwrap_or_default();
        let numbered = one.summaries.iter().map(|(name, summary)| (number(name), summary));
        put_numbered(&mut out, one.summaries.len(), numbered);
        put_varint(&mut times, one.count);
        times.extend(one.first.to_le_bytes());
        times.extend(one.last.to_le_bytes());
    }
    put_bytes(&mut out, &times);
    out
}

fn bytes(key: &[u8], id: &DayId, rev: u64, readings: &Readings) -> Vec<u8> {
    let mut head = Vec::new();
    put_varint(&mut head, rev);
    put_varint(&mut head, readings.stamps().floor());
    if id.part.is_chunk() {
        put_varint(&mut head, readings.stamps().oldest());
        put_parts(&mut head, &id.sensor);
        put_bytes(&mut head, &readings.encode_stamps());
        put_bytes(&mut head, &sealed::pack(readings));
        head.insert(0, CHUNK);
        return head;
    }
    put_parts(&mut head, &id.sensor);
    put_names(&mut head, readings);
    put_hours(&mut head, id.day, readings);
    let mut out = vec![SETTLED];
    put_bytes(&mut out, &head);
    let sum = checksum(key, &out);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(&sealed::pack(readings));
    out
}

fn put_hours(out: &mut Vec<u8>, day: Day, readings: &Readings) {
    let (start, mut set) = (day.hours().start.0, NumberSet::default());
    let mut fields = vec![FieldFigures::default(); readings.columns().len()];
    for (hour, readings) in by_hour(readings.clone()) {
        let number = u8::try_from(hour.0 - start).unwrap_or(u8::MAX);
        set.insert(number);
        readings.numbered_summaries().for_each(|(field, summary)| fields[field].push(number, summary.figures()));
    }
    put_fields(out, Span::Hours, set, &fields);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Writes a part, unless it has another rev than expected.
pub(super) fn write(tables: &mut Tables<'_>, day: &DayPut) -> Result<bool, FileFailure> {
    if !day.put.fits(&tables.days, rev)? {
        return Ok(false);
    }
    months::remove(tables, &day.month)?;
    match (day.removed, day.is_chunk) {
        (true, is_chunk) => {
            tables.days.remove(&*day.put.key)?;
            if is_chunk {
                tables.chunks.remove(&*day.put.key)?;
            }
        }
        (false, is_chunk) => {
            day.put.put(&mut tables.days)?;
            if is_chunk {
                tables.chunks.insert(&*day.put.key, ())?;
            }
        }
    }
    Ok(true)
}

/// The id of the part under a key, for errors.
fn shown(key: &[u8]) -> String {
    let of = |(sensor, day, part): (String, Day, DayPart)| day_id(&sensor, day, part);
    Keys::any_day_of(key).map_or_else(|| key.escape_ascii().to_string(), of)
}

pub(super) fn rev(key: &[u8], value: &[u8]) -> Result<u64, StorageError> {
    let bytes = unseal(key, value, || shown(key))?;
    let mut bytes = PackedBytes::new(bytes);
    let mut rev = || {
        if form(&mut bytes)? == SETTLED {
            bytes.varint()?;
        }
        Ok(bytes.varint()?)
    };
    rev().map_err(|why: NoPage| unreadable(shown(key), &why))
}

fn form(bytes: &mut PackedBytes<'_>) -> Result<u8, NoPage> {
    match bytes.byte()? {
        form @ (LISTED | CHUNK | SETTLED | EXPIRED) => Ok(form),
        other => Err(NoPage::Form(other)),
    }
}

fn unreadable(id: String, why: &(dyn std::error::Error + 'static)) -> StorageError {
    let detail = why.to_string();
    let is_newer = matches!(why.downcast_ref(), Some(NoPage::Form(form)) if *form > EXPIRED)
        || why.downcast_ref::<NoSealed>().is_some_and(NoSealed::is_newer);
    if is_newer { StorageError::Newer { id, detail } } else { StorageError::Unreadable { id, detail } }
}

fn length(bytes: &mut PackedBytes<'_>) -> Result<usize, NoPage> {
    Ok(usize::try_from(bytes.varint()?).unwrap_or(usize::MAX))
}

impl<'a> DayHead<'a> {
    /// Reads all but the readings, which are what is left.
    fn read(key: &[u8], bytes: &'a [u8], day: Day) -> Result<Self, NoPage> {
        let mut rest = PackedBytes::new(bytes);
        if form(&mut rest)? == SETTLED {
            let length = length(&mut rest)?;
            let head = PackedBytes::new(rest.take(length)?);
            let (before, sum) = (&bytes[..bytes.len() - rest.left()], rest.take(SUM)?);
            if sum != checksum(key, before).to_le_bytes() {
                return Err(NoPage::Sum);
            }
            return Self::settled(head, rest.rest());
        }
        Self::older(bytes, day)
    }

    fn settled(mut head: PackedBytes<'a>, readings: &'a [u8]) -> Result<Self, NoPage> {
        let (rev, floor) = (head.varint()?, head.varint()?);
        let (parts, names) = (take_parts(&mut head)?, take_names(&mut head)?);
        let summaries = Summaries::ByColumn(PackedFigures::at_end(Span::Hours, head)?);
        Ok(Self { rev, is_expired: false, floor, oldest: floor, parts, names, summaries, stamps: None, readings })
    }

    /// Reads a chunk, or a part with listed summaries.
    fn older(bytes: &'a [u8], day: Day) -> Result<Self, NoPage> {
        let mut bytes = PackedBytes::new(bytes);
        let form = form(&mut bytes)?;
        let (rev, floor) = (bytes.varint()?, bytes.varint()?);
        let oldest = if form == CHUNK { bytes.varint()? } else { floor };
        let parts = take_parts(&mut bytes)?;
        let (mut names, mut hours, mut stamps) = (Vec::new(), Vec::new(), None);
        if form == CHUNK {
            let length = length(&mut bytes)?;
            stamps = Some(bytes.take(length)?);
        } else {
            names = take_names(&mut bytes)?;
            hours = take_listed(&mut bytes, day, &names)?;
        }
        let length = length(&mut bytes)?;
        let readings = bytes.take(length)?;
        bytes.end()?;
        let (is_expired, summaries) = (form == EXPIRED, Summaries::Listed(hours));
        Ok(Self { rev, is_expired, floor, oldest, parts, names, summaries, stamps, readings })
    }

    /// The summaries of all fields by hour.
    fn hours(&self, day: Day) -> Result<Vec<(Hour, HourFigures)>, NoPage> {
        let hours = match &self.summaries {
            Summaries::Listed(hours) => return Ok(hours.clone()),
            Summaries::ByColumn(hours) => hours,
        };
        let start = day.hours().start.0;
        let mut all: Vec<(Hour, HourFigures)> =
            hours.set.numbers().map(|number| (Hour(start + i64::from(number)), Vec::new())).collect();
        hours.each(self.names.len(), (|_| true, false), &mut Room::default(), |field, number, summary| {
            let of = all.iter_mut().find(|(hour, _)| hour.0 - start == i64::from(number));
            of.into_iter().for_each(|(_, of)| of.push((Arc::from(self.names[field]), summary.figures())));
        })?;
        Ok(all)
    }

    fn day(&self) -> Result<StoredDay, Box<dyn std::error::Error>> {
        let expired = if self.is_expired { Some(self.expired()?) } else { None };
        Ok(StoredDay { rev: self.rev, readings: self.unpack()?, expired })
    }

    fn expired(&self) -> Result<ExpiredDay, Box<dyn std::error::Error>> {
        let (mut times, mut hours) = (PackedBytes::new(self.readings), Vec::new());
        let Summaries::Listed(listed) = &self.summaries else { return Ok(ExpiredDay { hours }) };
        for (hour, figures) in listed {
            let count = times.varint()?;
            let mut time = || Ok::<_, ColumnsDamage>(i64::from_le_bytes(times.take(8)?.try_into().unwrap_or_default()));
            let (first, last) = (time()?, time()?);
            let of = |(name, figures): &(Arc<str>, Figures)| Some((name.clone(), Summary::of_figures(figures)?));
            let summaries = figures.iter().filter_map(of).collect();
            hours.push(ExpiredHour { hour: *hour, count, first, last, summaries });
        }
        times.end()?;
        Ok(ExpiredDay { hours })
    }

    /// The readings; none if they have expired.
    fn unpack(&self) -> Result<Readings, Box<dyn std::error::Error>> {
        if self.is_expired {
            let mut none = Readings::default();
            none.raise_floor(self.floor);
            return Ok(none);
        }
        let mut readings = sealed::unpack_readings(self.readings, self.floor)?;
        if let Some(stamps) = self.stamps {
            readings.decode_stamps(self.floor, stamps)?;
        }
        Ok(readings)
    }
}

/// The lengths of the parts of a sensor's key.
fn take_parts(bytes: &mut PackedBytes<'_>) -> Result<Vec<u64>, NoPage> {
    let tags = bytes.varint()?;
    // A huge number of tags does no harm: each takes two bytes.
    let mut parts = Vec::with_capacity(usize::try_from(tags).unwrap_or(usize::MAX).min(bytes.left()) * 2 + 1);
    parts.push(bytes.varint()?);
    for _ in 0..tags {
        parts.extend([bytes.varint()?, bytes.varint()?]);
    }
    Ok(parts)
}

fn take_names<'a>(bytes: &mut PackedBytes<'a>) -> Result<Vec<&'a str>, NoPage> {
    let count = bytes.varint()?;
    // Each name takes a byte.
    let mut names = Vec::with_capacity(usize::try_from(count).unwrap_or(usize::MAX).min(bytes.left()));
    for _ in 0..count {
        names.push(bytes.text()?);
    }
    Ok(names)
}

fn take_listed(bytes: &mut PackedBytes<'_>, day: Day, names: &[&str]) -> Result<Vec<(Hour, HourFigures)>, NoPage> {
    let names: Vec<Arc<str>> = names.iter().map(|name| Arc::from(*name)).collect();
    let mut hours = Vec::new();
    for _ in 0..bytes.varint()? {
        let number = bytes.byte()?;
        if hours.len() >= 24 || number >= 24 {
            return Err(ColumnsDamage::Unknown { what: "an hour", found: number.into() }.into());
        }
        let mut summaries = Vec::new();
        for _ in 0..bytes.varint()? {
            summaries.push(summary(bytes, true, &names)?);
        }
        hours.push((Hour(day.hours().start.0 + i64::from(number)), summaries));
    }
    Ok(hours)
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
    let head = DayHead::read(stored_key, stored, day)?;
    let stored_day = head.day()?;
    let id = DayId { sensor: Arc::new(sensor(key, &head.parts)?), day, part };
    let mut differs = Vec::new();
    let mut part = |part: &str, expected: String, found: String| {
        if expected != found {
            differs.push(StoredOtherwise { part: part.to_owned(), expected, found });
        }
    };
    part("sensor", key.to_owned(), id.sensor.key.to_string());
    let expected = match &stored_day.expired {
        Some(expired) => expired_bytes(&id, head.rev, head.floor, expired),
        None => bytes(stored_key, &id, head.rev, &stored_day.readings),
    };
    let written = DayHead::read(stored_key, &expected, day)?;
    let (expected, found) = (written.hours(day)?, head.hours(day)?);
    part("oldest", written.oldest.to_string(), head.oldest.to_string());
    part("names", format!("{:?}", written.names), format!("{:?}", head.names));
    let hours = |of: &[(Hour, HourFigures)]| format!("{:?}", of.iter().map(|(hour, _)| hour.0).collect::<Vec<_>>());
    part("hours", hours(&expected), hours(&found));
    for ((_, expected), (hour, found)) in expected.iter().zip(&found) {
        part(&format!("hours of {}", hour.start_ms()), format!("{expected:?}"), format!("{found:?}"));
    }
    Ok(DayDocument { day: stored_day, id, differs })
}

/// The parts that are stored, in the order of `ids`.
pub(super) fn read(database: &Database, name: &str, ids: &[DayId]) -> Result<Vec<Option<StoredDay>>, FileFailure> {
    let keys = Keys::of(name);
    let days = database.begin_read()?.open_table(DAYS)?;
    let read = |id: &DayId| {
        let key = keys.day(id.day, &id.sensor.key, id.part);
        let Some(value) = days.get(&*key)? else { return Ok(None) };
        let shown = || day_id(&id.sensor.key, id.day, id.part);
        let head = DayHead::read(&key, unseal(&key, value.value(), shown)?, id.day);
        let head = head.map_err(|why| unreadable(shown(), &why))?;
        Ok(Some(head.day().map_err(|why| unreadable(shown(), &*why))?))
    };
    ids.iter().map(read).collect()
}

/// Implements `Store::parts_of`.
pub(super) fn parts_of(
    database: &Database,
    name: &str,
    sensors: &[String],
    range: &Range<Day>,
) -> Result<Vec<(usize, Day, DayPart)>, FileFailure> {
    let keys = Keys::of(name);
    let days = database.begin_read()?.open_table(DAYS)?;
    let mut found = Vec::new();
    for (place, sensor) in sensors.iter().enumerate() {
        let mut left = range.clone();
        while let Some(day) = next(&days, &keys, sensor, Order::Ascending, &left)? {
            for row in days.range::<&[u8]>(&*keys.day(day, sensor, DayPart::Whole)..&*keys.day_end(day, sensor))? {
                let part = keys.part_of(row?.0.value(), day, sensor);
                found.extend(part.map(|part| (place, day, part)));
            }
            left.start = day.next();
        }
    }
    Ok(found)
}

/// Implements `Store::last_day`: a key begins with its day.
pub(super) fn last(database: &Database, name: &str) -> Result<Option<Day>, FileFailure> {
    let (keys, days) = (Keys::of(name), database.begin_read()?.open_table(DAYS)?);
    let all = keys.all();
    let last = days.range::<&[u8]>(&*all.start..&*all.end)?.next_back();
    Ok(last.transpose()?.and_then(|(key, _)| keys.day_of(key.value())))
}

/// Implements `Store::next_chunks`.
pub(super) fn next_chunks(
    database: &Database,
    name: &str,
    (day, sensor): &(Day, String),
    until: Day,
    most: usize,
) -> Result<Vec<(Day, String)>, FileFailure> {
    let keys = Keys::of(name);
    let chunks = database.begin_read()?.open_table(CHUNKS)?;
    let mut found: Vec<(Day, String)> = Vec::new();
    let (mut start, end) = (keys.day_end(*day, sensor), keys.day_start(until));
    while found.len() < most && start < end {
        let Some(row) = chunks.range::<&[u8]>(&*start..&*end)?.next() else { break };
        let Some((sensor, day, _)) = Keys::any_day_of(row?.0.value()) else { break };
        start = keys.day_end(day, &sensor);
        found.push((day, sensor));
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
