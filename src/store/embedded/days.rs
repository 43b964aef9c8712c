//! Parts of days in the file: their forms, reading, scanning and writing.
//!
//! ```text
//! part   := 1:u8 rev:varint floor:varint  sensor names  hours  length:varint sealed
//!         | 2:u8 rev:varint floor:varint oldest:varint  sensor  length:varint stamps  length:varint sealed      a chunk
//! sensor, names: as in `form`            sealed: see `store::sealed`           stamps: see `bucket::stamps`
//! hours  := count:varint hour…           hour := number:u8 (0 to 23) summaries, as in `form`
//! ```
//!
//! The summaries come before the readings, and are read without them. A chunk has none.

use std::ops::Range;
use std::sync::Arc;

use redb::{Database, ReadOnlyTable, ReadableDatabase};

use super::file::FileFailure;
use super::form::{NoPage, put_names, put_parts, put_summaries, sensor, summary};
use super::keys::Keys;
use super::tables::{CHUNKS, DAYS, Put, Tables, unseal};
use crate::bucket::columns::{ColumnsDamage, PackedBytes};
use crate::bucket::day::{by_hour, within};
use crate::bucket::raw::{Cursor, DayDocument, RawDay, StoredOtherwise};
use crate::bucket::store::{DaysScanned, Extent, Order, Projection, ScannedPage};
use crate::bucket::summary::Figures;
use crate::bucket::{DayId, DayPart, DayWrite, Readings, StorageError, StoredDay, Summary};
use crate::reading::varint::put_varint;
use crate::reading::{Day, Hour, Stamp};
use crate::store::document::day_id;
use crate::store::sealed::{self, NoSealed};

/// The first byte of a settled part.
const SETTLED: u8 = 1;
/// The first byte of a chunk.
const CHUNK: u8 = 2;

/// A part to be written or removed.
pub(super) struct DayPut {
    put: Put,
    removed: bool,
    is_chunk: bool,
    /// Whether programs that know sealed days, but no parts, would misread it.
    pub(super) is_new_form: bool,
}

type Days = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// An hour's summaries by field.
type HourFigures = Vec<(Arc<str>, Figures)>;
/// The names of a part's fields, and its hours.
type NamesAndHours = (Vec<Arc<str>>, Vec<(Hour, HourFigures)>);

/// A part before its readings are unpacked.
struct DayHead<'a> {
    rev: u64,
    floor: Stamp,
    oldest: Stamp,
    /// The lengths of the parts of the sensor's key.
    parts: Vec<u64>,
    names: Vec<Arc<str>>,
    hours: Vec<(Hour, HourFigures)>,
    /// Of a chunk.
    stamps: Option<&'a [u8]>,
    readings: &'a [u8],
}

pub(super) fn encode(keys: &Keys, write: &DayWrite<'_>) -> DayPut {
    let bytes = write.readings.map_or_else(Vec::new, |readings| bytes(write.id, write.next_rev, readings));
    let DayId { sensor, day, part } = write.id;
    let put = Put::new(keys.day(*day, &sensor.key, *part), write.rev, bytes);
    let (removed, is_new_form) = (write.readings.is_none(), *part != DayPart::Whole);
    DayPut { put, removed, is_chunk: part.is_chunk(), is_new_form }
}

fn bytes(id: &DayId, rev: u64, readings: &Readings) -> Vec<u8> {
    let mut out = vec![if id.part.is_chunk() { CHUNK } else { SETTLED }];
    put_varint(&mut out, rev);
    put_varint(&mut out, readings.stamps().floor());
    if id.part.is_chunk() {
        put_varint(&mut out, readings.stamps().oldest());
        put_parts(&mut out, &id.sensor);
        put_bytes(&mut out, &readings.encode_stamps());
    } else {
        put_parts(&mut out, &id.sensor);
        put_names(&mut out, readings);
        let hours = by_hour(readings.clone());
        put_varint(&mut out, hours.len() as u64);
        for (hour, readings) in &hours {
            out.push(u8::try_from(hour.0 - id.day.hours().start.0).unwrap_or(u8::MAX));
            put_summaries(&mut out, readings);
        }
    }
    put_bytes(&mut out, &sealed::pack(readings));
    out
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
    form(&mut bytes).and_then(|_| Ok(bytes.varint()?)).map_err(|why| unreadable(shown(key), &why))
}

fn form(bytes: &mut PackedBytes<'_>) -> Result<u8, NoPage> {
    match bytes.byte()? {
        form @ (SETTLED | CHUNK) => Ok(form),
        other => Err(NoPage::Form(other)),
    }
}

fn unreadable(id: String, why: &(dyn std::error::Error + 'static)) -> StorageError {
    let detail = why.to_string();
    let is_newer = matches!(why.downcast_ref(), Some(NoPage::Form(form)) if *form > CHUNK)
        || why.downcast_ref::<NoSealed>().is_some_and(NoSealed::is_newer);
    if is_newer { StorageError::Newer { id, detail } } else { StorageError::Unreadable { id, detail } }
}

fn length(bytes: &mut PackedBytes<'_>) -> Result<usize, NoPage> {
    Ok(usize::try_from(bytes.varint()?).unwrap_or(usize::MAX))
}

impl<'a> DayHead<'a> {
    fn read(bytes: &'a [u8], day: Day) -> Result<Self, NoPage> {
        let mut bytes = PackedBytes::new(bytes);
        let form = form(&mut bytes)?;
        let (rev, floor) = (bytes.varint()?, bytes.varint()?);
        let oldest = if form == CHUNK { bytes.varint()? } else { floor };
        let tags = bytes.varint()?;
        let mut parts = vec![bytes.varint()?];
        for _ in 0..tags {
            parts.extend([bytes.varint()?, bytes.varint()?]);
        }
        let (mut names, mut hours, mut stamps) = (Vec::new(), Vec::new(), None);
        if form == CHUNK {
            let length = length(&mut bytes)?;
            stamps = Some(bytes.take(length)?);
        } else {
            (names, hours) = take_hours(&mut bytes, day)?;
        }
        let length = length(&mut bytes)?;
        let readings = bytes.take(length)?;
        bytes.end()?;
        Ok(Self { rev, floor, oldest, parts, names, hours, stamps, readings })
    }

    fn unpack(&self) -> Result<Readings, Box<dyn std::error::Error>> {
        let mut readings = sealed::unpack_readings(self.readings, self.floor)?;
        if let Some(stamps) = self.stamps {
            readings.decode_stamps(self.floor, stamps)?;
        }
        Ok(readings)
    }
}

fn take_hours(bytes: &mut PackedBytes<'_>, day: Day) -> Result<NamesAndHours, NoPage> {
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
            summaries.push(summary(bytes, true, &names)?);
        }
        hours.push((Hour(day.hours().start.0 + i64::from(number)), summaries));
    }
    Ok((names, hours))
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
        .and_then(|bytes| document(bytes, &sensor, day, part).map_err(|why| unreadable(shown.clone(), &*why)));
    RawDay { from, key: shown, document }
}

fn document(stored: &[u8], key: &str, day: Day, part: DayPart) -> Result<DayDocument, Box<dyn std::error::Error>> {
    let head = DayHead::read(stored, day)?;
    let readings = head.unpack()?;
    let id = DayId { sensor: Arc::new(sensor(key, &head.parts)?), day, part };
    let mut differs = Vec::new();
    let mut part = |part: &str, expected: String, found: String| {
        if expected != found {
            differs.push(StoredOtherwise { part: part.to_owned(), expected, found });
        }
    };
    part("sensor", key.to_owned(), id.sensor.key.to_string());
    let expected = bytes(&id, head.rev, &readings);
    let written = DayHead::read(&expected, day)?;
    part("oldest", written.oldest.to_string(), head.oldest.to_string());
    part("names", format!("{:?}", written.names), format!("{:?}", head.names));
    let hours = |head: &DayHead<'_>| head.hours.iter().map(|(hour, _)| hour.0).collect::<Vec<_>>();
    part("hours", format!("{:?}", hours(&written)), format!("{:?}", hours(&head)));
    for ((_, expected), (hour, found)) in written.hours.iter().zip(&head.hours) {
        part(&format!("hours of {}", hour.start_ms()), format!("{expected:?}"), format!("{found:?}"));
    }
    Ok(DayDocument { day: StoredDay { rev: head.rev, readings }, id, differs })
}

/// The parts that are stored, in the order of `ids`.
pub(super) fn read(database: &Database, name: &str, ids: &[DayId]) -> Result<Vec<Option<StoredDay>>, FileFailure> {
    let keys = Keys::of(name);
    let days = database.begin_read()?.open_table(DAYS)?;
    let read = |id: &DayId| {
        let key = keys.day(id.day, &id.sensor.key, id.part);
        let Some(value) = days.get(&*key)? else { return Ok(None) };
        let shown = || day_id(&id.sensor.key, id.day, id.part);
        let head = DayHead::read(unseal(&key, value.value(), shown)?, id.day);
        let head = head.map_err(|why| unreadable(shown(), &why))?;
        let readings = head.unpack().map_err(|why| unreadable(shown(), &*why))?;
        Ok(Some(StoredDay { rev: head.rev, readings }))
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
    let (mut found, mut size, mut rest) = (Vec::new(), 0, hours.clone());
    while !rest.is_empty() && found.len() < extent.pages && size < extent.bytes {
        let Some(day) = next(&days, &keys, sensor, order, &Day::of_hours(&rest))? else {
            rest = rest.end..rest.end;
            break;
        };
        let (mut pages, mut parts) = (Vec::new(), Vec::new());
        for row in days.range::<&[u8]>(&*keys.day(day, sensor, DayPart::Whole)..&*keys.day_end(day, sensor))? {
            let key = row?.0.value().to_vec();
            let is_wanted = |part: &DayPart| !within_hours(part.hours(day), &rest).is_empty();
            parts.extend(keys.part_of(&key, day, sensor).filter(is_wanted).map(|part| (part, key)));
        }
        let of_day = within(day, &rest);
        // Parts by hour are the last ones that are read, so that the scan may end after each of them.
        parts.sort_by_key(|(part, _)| matches!(part, DayPart::Hour(_)));
        let hourly = parts.split_off(parts.partition_point(|(part, _)| !matches!(part, DayPart::Hour(_))));
        let mut read = |key: &[u8], pages: &mut Vec<ScannedPage>| -> Result<(), FileFailure> {
            let Some(value) = days.get(key)? else { return Ok(()) };
            let bytes = unseal(key, value.value(), || shown(key))?;
            let (of_part, bytes) = scan_part(bytes, key, day, &of_day, projection)?;
            size += bytes;
            pages.extend(of_part);
            Ok(())
        };
        for (_, key) in &parts {
            read(key, &mut pages)?;
        }
        let mut stop = None;
        let ordered: Box<dyn Iterator<Item = &(DayPart, Vec<u8>)>> = match order {
            Order::Ascending => Box::new(hourly.iter()),
            Order::Descending => Box::new(hourly.iter().rev()),
        };
        for (number, (part, key)) in ordered.enumerate() {
            if number > 0 && (found.len() + pages.len() >= extent.pages || extent.bytes <= size_of_pages(&pages)) {
                stop = Some(part.hours(day));
                break;
            }
            read(key, &mut pages)?;
        }
        let left = match (stop, order) {
            (None, Order::Ascending) => day.next().hours().start.min(rest.end)..rest.end,
            (None, Order::Descending) => rest.start..day.hours().start.max(rest.start),
            (Some(hour), Order::Ascending) => hour.start..rest.end,
            (Some(hour), Order::Descending) => rest.start..hour.end,
        };
        pages.retain(|page: &ScannedPage| !left.contains(&page.hour));
        // Stable: the parts of an hour stay in order.
        pages.sort_by_key(|page| page.hour);
        if order == Order::Descending {
            pages.reverse();
        }
        found.extend(pages);
        rest = left;
    }
    Ok((DaysScanned { pages: found, rest }, size))
}

fn size_of_pages(pages: &[ScannedPage]) -> usize {
    pages.iter().map(|page| page.bytes(0)).sum()
}

fn within_hours(part: Range<Hour>, hours: &Range<Hour>) -> Range<Hour> {
    part.start.max(hours.start)..part.end.min(hours.end)
}

/// The next day in a range, in this order, of which the sensor has a part.
fn next(days: &Days, keys: &Keys, sensor: &str, order: Order, range: &Range<Day>) -> Result<Option<Day>, FileFailure> {
    let mut left = range.clone();
    while !left.is_empty() {
        // Each look shows a day that some sensor has. The days between it and the last look have none.
        let row = match order {
            Order::Ascending => {
                let start = keys.day(left.start, sensor, DayPart::Whole);
                days.range::<&[u8]>(&*start..&*keys.day_start(left.end))?.next()
            }
            Order::Descending => {
                let end = keys.day_end(Day(left.end.0 - 1), sensor);
                days.range::<&[u8]>(&*keys.day_start(left.start)..&*end)?.next_back()
            }
        };
        let Some((key, _)) = row.transpose()? else { return Ok(None) };
        let Some(day) = keys.day_of(key.value()) else { return Ok(None) };
        if keys.part_of(key.value(), day, sensor).is_some() {
            return Ok(Some(day));
        }
        left = match order {
            // The row is of a sensor behind this one, so this one has nothing on that day, or of a later day.
            Order::Ascending if day == left.start => day.next()..left.end,
            Order::Ascending => day..left.end,
            Order::Descending if day.next() == left.end => left.start..day,
            Order::Descending => left.start..day.next(),
        };
    }
    Ok(None)
}

/// The hours of a part that lie in a range, and the bytes that they count for.
fn scan_part(
    bytes: &[u8],
    key: &[u8],
    day: Day,
    hours: &Range<Hour>,
    projection: &Projection,
) -> Result<(Vec<ScannedPage>, usize), FileFailure> {
    let head = DayHead::read(bytes, day).map_err(|why| unreadable(shown(key), &why))?;
    let wanted = within(day, hours);
    if projection.readings || head.stamps.is_some() {
        let readings = head.unpack().map_err(|why| unreadable(shown(key), &*why))?;
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
