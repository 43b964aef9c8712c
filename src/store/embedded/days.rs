//! Sealed days in the file: their form, reading, scanning and writing.
//!
//! ```text
//! day    := 1:u8 rev:varint floor:varint  sensor  names  hours  length:varint sealed
//! sensor, names: as in `form`            sealed: see `store::sealed`
//! hours  := count:varint hour…           hour := number:u8 (0 to 23) summaries, as in `form`
//! ```
//!
//! The summaries come before the readings, and are read without them.

use std::ops::Range;
use std::sync::Arc;

use redb::{Database, ReadOnlyTable, ReadableDatabase};

use super::file::FileFailure;
use super::form::{NoPage, put_names, put_parts, put_summaries, sensor, summary};
use super::keys::Keys;
use super::tables::{DAYS, Put, Tables, unseal};
use crate::bucket::columns::{ColumnsDamage, PackedBytes};
use crate::bucket::day::{by_hour, within};
use crate::bucket::raw::{Cursor, DayDocument, RawDay, StoredOtherwise};
use crate::bucket::store::{DaysScanned, Extent, Order, Projection, ScannedPage};
use crate::bucket::summary::Figures;
use crate::bucket::{DayId, DayWrite, Readings, StorageError, StoredDay, Summary};
use crate::reading::varint::put_varint;
use crate::reading::{Day, Hour, Stamp};
use crate::store::document::day_id;
use crate::store::sealed;

/// The first byte of a day.
const FORM: u8 = 1;

/// A day to be written or removed.
pub(super) struct DayPut {
    put: Put,
    removed: bool,
}

type Days = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// An hour's summaries by field.
type HourFigures = Vec<(Arc<str>, Figures)>;

/// The part of a day before its readings.
struct DayHead<'a> {
    rev: u64,
    floor: Stamp,
    /// The lengths of the parts of the sensor's key.
    parts: Vec<u64>,
    names: Vec<Arc<str>>,
    hours: Vec<(Hour, HourFigures)>,
    readings: &'a [u8],
}

pub(super) fn encode(keys: &Keys, write: &DayWrite<'_>) -> DayPut {
    let bytes = write.readings.map_or_else(Vec::new, |readings| bytes(write.id, write.next_rev, readings));
    let put = Put::new(keys.day(write.id.day, &write.id.sensor.key), write.rev, bytes);
    DayPut { put, removed: write.readings.is_none() }
}

fn bytes(id: &DayId, rev: u64, readings: &Readings) -> Vec<u8> {
    let mut out = vec![FORM];
    put_varint(&mut out, rev);
    put_varint(&mut out, readings.stamps().floor());
    put_parts(&mut out, &id.sensor);
    put_names(&mut out, readings);
    let hours = by_hour(readings.clone());
    put_varint(&mut out, hours.len() as u64);
    for (hour, readings) in &hours {
        out.push(u8::try_from(hour.0 - id.day.hours().start.0).unwrap_or(u8::MAX));
        put_summaries(&mut out, readings);
    }
    let packed = sealed::pack(readings);
    put_varint(&mut out, packed.len() as u64);
    out.extend_from_slice(&packed);
    out
}

/// Writes a day, unless it has another rev than expected.
pub(super) fn write(tables: &mut Tables<'_>, day: &DayPut) -> Result<bool, FileFailure> {
    if !day.put.fits(&tables.days, rev)? {
        return Ok(false);
    }
    if day.removed {
        tables.days.remove(&*day.put.key)?;
    } else {
        day.put.put(&mut tables.days)?;
    }
    Ok(true)
}

fn rev(key: &[u8], value: &[u8]) -> Result<u64, StorageError> {
    let id =
        || Keys::any_day_of(key).map_or_else(|| key.escape_ascii().to_string(), |(sensor, day)| day_id(&sensor, day));
    let bytes = unseal(key, value, id)?;
    let mut bytes = PackedBytes::new(bytes);
    form(&mut bytes).and_then(|()| Ok(bytes.varint()?)).map_err(|why| unreadable(id(), &why))
}

fn form(bytes: &mut PackedBytes<'_>) -> Result<(), NoPage> {
    match bytes.byte()? {
        FORM => Ok(()),
        other => Err(NoPage::Form(other)),
    }
}

fn unreadable(id: String, why: &dyn std::fmt::Display) -> StorageError {
    StorageError::Unreadable { id, detail: why.to_string() }
}

impl<'a> DayHead<'a> {
    fn read(bytes: &'a [u8], day: Day) -> Result<Self, NoPage> {
        let mut bytes = PackedBytes::new(bytes);
        form(&mut bytes)?;
        let (rev, floor, tags) = (bytes.varint()?, bytes.varint()?, bytes.varint()?);
        let mut parts = vec![bytes.varint()?];
        for _ in 0..tags {
            parts.extend([bytes.varint()?, bytes.varint()?]);
        }
        let mut names: Vec<Arc<str>> = Vec::new();
        for _ in 0..bytes.varint()? {
            names.push(Arc::from(bytes.text()?));
        }
        let mut hours = Vec::new();
        for _ in 0..bytes.varint()? {
            let number = bytes.byte()?;
            if hours.len() >= 24 || number >= 24 {
                return Err(ColumnsDamage::Unknown { what: "an hour", found: number.into() }.into());
            }
            let mut summaries = Vec::new();
            for _ in 0..bytes.varint()? {
                summaries.push(summary(&mut bytes, true, &names)?);
            }
            hours.push((Hour(day.hours().start.0 + i64::from(number)), summaries));
        }
        let length = usize::try_from(bytes.varint()?).unwrap_or(usize::MAX);
        let readings = bytes.take(length)?;
        bytes.end()?;
        Ok(Self { rev, floor, parts, names, hours, readings })
    }
}

/// A day for a walk, every part as it is stored.
pub(super) fn raw(key: &[u8], value: &[u8]) -> RawDay {
    let from = Cursor(key.to_vec());
    let days = Day::of(Hour::of(i64::MIN))..=Day::of(Hour::of(i64::MAX));
    let Some((sensor, day)) = Keys::any_day_of(key).filter(|(_, day)| days.contains(day)) else {
        let (key, detail) = (key.escape_ascii().to_string(), "its key is not the key of a day".to_owned());
        return RawDay { from, document: Err(StorageError::Unreadable { id: key.clone(), detail }), key };
    };
    let shown = day_id(&sensor, day);
    let document = unseal(key, value, || shown.clone())
        .and_then(|bytes| document(bytes, &sensor, day).map_err(|why| unreadable(shown.clone(), &why)));
    RawDay { from, key: shown, document }
}

fn document(stored: &[u8], key: &str, day: Day) -> Result<DayDocument, Box<dyn std::error::Error>> {
    let head = DayHead::read(stored, day)?;
    let readings = sealed::unpack_readings(head.readings, head.floor)?;
    let id = DayId { sensor: Arc::new(sensor(key, &head.parts)?), day };
    let mut differs = Vec::new();
    let mut part = |part: &str, expected: String, found: String| {
        if expected != found {
            differs.push(StoredOtherwise { part: part.to_owned(), expected, found });
        }
    };
    part("sensor", key.to_owned(), id.sensor.key.to_string());
    let expected = bytes(&id, head.rev, &readings);
    let written = DayHead::read(&expected, day)?;
    part("names", format!("{:?}", written.names), format!("{:?}", head.names));
    let hours = |head: &DayHead<'_>| head.hours.iter().map(|(hour, _)| hour.0).collect::<Vec<_>>();
    part("hours", format!("{:?}", hours(&written)), format!("{:?}", hours(&head)));
    for ((_, expected), (hour, found)) in written.hours.iter().zip(&head.hours) {
        part(&format!("hours of {}", hour.start_ms()), format!("{expected:?}"), format!("{found:?}"));
    }
    Ok(DayDocument { day: StoredDay { rev: head.rev, readings }, id, differs })
}

/// The days that are stored, in the order of `ids`.
pub(super) fn read(database: &Database, name: &str, ids: &[DayId]) -> Result<Vec<Option<StoredDay>>, FileFailure> {
    let keys = Keys::of(name);
    let days = database.begin_read()?.open_table(DAYS)?;
    let read = |id: &DayId| {
        let key = keys.day(id.day, &id.sensor.key);
        let Some(value) = days.get(&*key)? else { return Ok(None) };
        let shown = || day_id(&id.sensor.key, id.day);
        let head = DayHead::read(unseal(&key, value.value(), shown)?, id.day);
        let head = head.map_err(|why| unreadable(shown(), &why))?;
        let readings = sealed::unpack_readings(head.readings, head.floor);
        let readings = readings.map_err(|why| unreadable(shown(), &why))?;
        Ok(Some(StoredDay { rev: head.rev, readings }))
    };
    ids.iter().map(read).collect()
}

/// Implements `Store::days_of`.
pub(super) fn of(
    database: &Database,
    name: &str,
    sensor: &str,
    mut range: Range<Day>,
) -> Result<Vec<Day>, FileFailure> {
    let keys = Keys::of(name);
    let days = database.begin_read()?.open_table(DAYS)?;
    let mut found = Vec::new();
    while let Some(day) = if range.is_empty() { None } else { first(&days, &keys, sensor, &range)? } {
        if days.get(&*keys.day(day, sensor))?.is_some() {
            found.push(day);
        }
        range.start = day.next();
    }
    Ok(found)
}

/// Implements `Store::scan_days`; also returns the bytes of what was found.
pub(super) fn scan(
    database: &Database,
    name: &str,
    sensor: &str,
    hours: &Range<Hour>,
    order: Order,
    projection: &Projection,
    extent: Extent,
) -> Result<(DaysScanned, usize), FileFailure> {
    let keys = Keys::of(name);
    let days = database.begin_read()?.open_table(DAYS)?;
    let (mut found, mut size, mut rest) = (Vec::new(), 0, Day::of_hours(hours));
    while !rest.is_empty() && found.len() < extent.pages && size < extent.bytes {
        let (next, left) = match order {
            Order::Ascending => (first(&days, &keys, sensor, &rest)?, rest.end..rest.end),
            Order::Descending => (last(&days, &keys, sensor, &rest)?, rest.start..rest.start),
        };
        let Some(day) = next else {
            rest = left;
            break;
        };
        let key = keys.day(day, sensor);
        if let Some(value) = days.get(&*key)? {
            let bytes = unseal(&key, value.value(), || day_id(sensor, day))?;
            let (pages, bytes) = scan_day(bytes, sensor, day, hours, projection)?;
            size += bytes;
            match order {
                Order::Ascending => found.extend(pages),
                Order::Descending => found.extend(pages.into_iter().rev()),
            }
        }
        rest = match order {
            Order::Ascending => day.next()..rest.end,
            Order::Descending => rest.start..day,
        };
    }
    Ok((DaysScanned { pages: found, rest }, size))
}

/// The first day in a range that some sensor has, and that this one may have.
fn first(days: &Days, keys: &Keys, sensor: &str, range: &Range<Day>) -> Result<Option<Day>, FileFailure> {
    let start = keys.day(range.start, sensor);
    let row = days.range(&*start..&*keys.day_start(range.end))?.next().transpose()?;
    Ok(row.and_then(|(key, _)| keys.day_of(key.value())))
}

/// The last such day.
fn last(days: &Days, keys: &Keys, sensor: &str, range: &Range<Day>) -> Result<Option<Day>, FileFailure> {
    let end = keys.day(Day(range.end.0 - 1), sensor);
    let row = days.range(&*keys.day_start(range.start)..=&*end)?.next_back().transpose()?;
    Ok(row.and_then(|(key, _)| keys.day_of(key.value())))
}

/// The hours of a day that lie in a range, and the bytes that they count for.
fn scan_day(
    bytes: &[u8],
    sensor: &str,
    day: Day,
    hours: &Range<Hour>,
    projection: &Projection,
) -> Result<(Vec<ScannedPage>, usize), FileFailure> {
    let shown = || day_id(sensor, day);
    let head = DayHead::read(bytes, day).map_err(|why| unreadable(shown(), &why))?;
    let wanted = within(day, hours);
    if projection.readings {
        let readings = sealed::unpack_readings(head.readings, head.floor);
        let readings = readings.map_err(|why| unreadable(shown(), &why))?;
        let pages = projection.pages_of(readings, &wanted);
        let size = bytes.len().max(pages.iter().map(|page| page.bytes(0)).sum());
        return Ok((pages, size));
    }
    let (mut pages, mut size) = (Vec::new(), 0);
    for (hour, figures) in head.hours.into_iter().filter(|(hour, _)| wanted.contains(hour)) {
        let of_figures = |(name, figures): &(Arc<str>, Figures)| Some((name.clone(), Summary::of_figures(figures)?));
        let summary = figures.iter().filter(|(name, _)| projection.has(name)).filter_map(of_figures).collect();
        size += figures.len() * size_of::<Summary>();
        pages.push(ScannedPage { hour, number: 0, summary, oldest: head.floor, readings: None });
    }
    Ok((pages, size))
}
