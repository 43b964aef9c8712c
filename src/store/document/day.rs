//! A part of a day as a document: hourly and daily summaries that people and aggregations read, and the readings, packed or in
//! columns. A chunk has no summaries, and is always packed.

use std::borrow::Cow;
use std::sync::Arc;

use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};

use super::columns::{columns_document, readings_of};
use super::decode::{self, Trouble, check_version, date, field_value, get, named, rest_of, whole};
use super::elements::items;
use super::encode::{SCHEMA_VERSION, identity, rest, signed, write_figures};
use super::{BsonWriter, chunks_of, day_id};
use crate::bucket::columns::Cell;
use crate::bucket::day::{by_hour, within};
use crate::bucket::expired::{ExpiredDay, ExpiredHour};
use crate::bucket::raw::{DayDocument, StoredOtherwise};
use crate::bucket::store::{PageSummaries, Projection, ScannedPage};
use crate::bucket::summary::{Figures, Number};
use crate::bucket::{DayId, DayPart, DayWrite, Readings, SealForm, StorageError, StoredDay, Summary};
use crate::reading::time::MILLI_NS;
use crate::reading::{Day, Hour, Value};
use crate::store::names::{from_key, key};
use crate::store::sealed;

/// The field that says what a part holds, which only parts of days have.
const KIND: &str = "kind";
/// Estimated bytes of a day without its readings.
const HEAD_BYTES: usize = 8 * 1024;
/// Characters of a differing value that are shown.
const SHOWN_MAX: usize = 400;
/// The longest text in the summaries of fields without numbers, in bytes.
const TEXT_BYTES: usize = 256;
/// Most fields for which an hour makes room at once.
const FIELDS_FORESEEN: usize = 4;
/// The arrays of a field.
const ARRAYS: [&str; 7] = ["min", "max", "first", "last", "sum", "count", "rest"];
/// The figures of an hour's summary, in arrays.
const FIGURES: [&str; 5] = ["min", "max", "sum", "first", "last"];

/// A whole document, with the rev it has once written.
#[must_use]
pub fn day_document(write: &DayWrite<'_>, form: SealForm) -> Vec<u8> {
    let (DayId { sensor, day, part }, hours) = (write.id, write.id.hours());
    let columns = columns(write, form);
    let mut w = BsonWriter::document(bytes_about(write, columns.as_deref()));
    w.text("_id", &day_id(&sensor.key, *day, *part));
    w.count("schemaVersion", SCHEMA_VERSION);
    w.text("sensor", &sensor.key);
    identity(&mut w, sensor);
    // A query for a range looks at all parts that begin in its days.
    w.date("start", hours.start.start_ms());
    w.date("end", hours.end.start_ms());
    match part {
        DayPart::Whole => {}
        DayPart::Hour(hour) => w.count("hour", u64::from(*hour)),
        DayPart::Chunk { stamp, hour } => {
            w.text("chunkOf", &chunks_of(&sensor.key, *day));
            w.long("chunk", signed(*stamp));
            w.count("hour", u64::from(*hour));
        }
    }
    content(&mut w, write, columns.as_deref());
    w.finish()
}

/// The update that sets everything but the part's identity.
#[must_use]
pub fn day_update(write: &DayWrite<'_>, form: SealForm) -> Vec<u8> {
    let columns = columns(write, form);
    let mut w = BsonWriter::document(bytes_about(write, columns.as_deref()));
    w.begin("$set");
    content(&mut w, write, columns.as_deref());
    w.end();
    w.finish()
}

/// The readings as columns, if that is their form.
fn columns(write: &DayWrite<'_>, form: SealForm) -> Option<Vec<u8>> {
    let has_form = form == SealForm::Columns && write.expired.is_none() && !write.id.part.is_chunk();
    write.readings.filter(|_| has_form).and_then(columns_document)
}

/// What a part holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Packed readings and their summaries.
    Packed,
    /// Readings as columns and their summaries.
    Columns,
    /// Packed readings with stamps, without summaries.
    Chunk,
    /// Summaries of readings that have expired.
    Expired,
}

impl Kind {
    const ALL: [(Self, &str); 4] =
        [(Self::Packed, "packed"), (Self::Columns, "columns"), (Self::Chunk, "chunk"), (Self::Expired, "expired")];

    fn of_write(write: &DayWrite<'_>, in_columns: bool) -> Self {
        match write.id.part {
            _ if write.expired.is_some() => Self::Expired,
            DayPart::Chunk { .. } => Self::Chunk,
            _ if in_columns => Self::Columns,
            _ => Self::Packed,
        }
    }

    /// Reads the kind of a document of a known version.
    fn of_document(document: &RawDocument) -> Result<Self, Trouble> {
        check_version(document)?;
        let name = get(document, KIND)?.as_str().unwrap_or_default();
        let known = Self::ALL.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind);
        known.ok_or_else(|| format!("it has the unknown kind {name:?}"))
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }
}

fn bytes_about(write: &DayWrite<'_>, columns: Option<&[u8]>) -> usize {
    HEAD_BYTES + columns.map_or(write.readings.map_or(0, Readings::len) * 4, <[u8]>::len)
}

fn content(w: &mut BsonWriter, write: &DayWrite<'_>, columns: Option<&[u8]>) {
    w.text(KIND, Kind::of_write(write, columns.is_some()).name());
    let none = Readings::default();
    let readings = write.readings.unwrap_or(&none);
    let times = readings.times();
    if let Some(expired) = write.expired {
        return expired_content(w, write, expired, readings.stamps().floor());
    }
    w.count("rev", write.next_rev);
    w.count("count", times.len() as u64);
    w.date("first", times.first().map_or(0, |time| time.div_euclid(MILLI_NS)));
    w.date("last", times.last().map_or(0, |time| time.div_euclid(MILLI_NS)));
    w.long("floor", signed(readings.stamps().floor()));
    if write.id.part.is_chunk() {
        // The validator wants the fields of every part.
        for empty in ["day", "hours"] {
            w.begin(empty);
            w.end();
        }
        w.binary("readings", &[]);
        w.long("oldest", signed(readings.stamps().oldest()));
        w.binary("stamps", &readings.encode_stamps());
        w.binary("packed", &sealed::pack(readings));
        return;
    }
    w.begin("day");
    readings.summaries().for_each(|(name, summary)| write_figures(w, name, &summary.figures()));
    for (name, cells) in others(readings) {
        let (count, [first, last]) = ends(cells);
        w.begin(&key(name));
        w.count("count", count);
        shown_or_null(w, "first", first);
        shown_or_null(w, "last", last);
        w.end();
    }
    w.end();
    by_hours(w, write.id.day, readings);
    match columns {
        Some(columns) => w.raw("readings", columns),
        None => w.binary("readings", &sealed::pack(readings)),
    }
}

/// What is left of readings that have expired.
fn expired_content(w: &mut BsonWriter, write: &DayWrite<'_>, expired: &ExpiredDay, floor: u64) {
    let ms = |time: Option<i64>| time.map_or(0, |time| time.div_euclid(MILLI_NS));
    w.count("rev", write.next_rev);
    w.count("count", expired.count());
    w.date("first", ms(expired.hours.first().map(|hour| hour.first)));
    w.date("last", ms(expired.hours.last().map(|hour| hour.last)));
    w.long("floor", signed(floor));
    w.begin("day");
    expired.totals().iter().for_each(|(name, summary)| write_figures(w, name, &summary.figures()));
    w.end();
    let start = write.id.day.hours().start.0;
    let numbers = expired.hours.iter().map(|one| u64::try_from(one.hour.0 - start).unwrap_or_default());
    w.begin("hours");
    array(w, "hour", numbers, BsonWriter::count);
    array(w, "count", expired.hours.iter().map(|one| one.count), BsonWriter::count);
    array(w, "first", expired.hours.iter().map(|one| one.first), BsonWriter::long);
    array(w, "last", expired.hours.iter().map(|one| one.last), BsonWriter::long);
    w.begin("fields");
    for name in expired.names() {
        let of_hours: Vec<Option<Figures>> =
            expired.hours.iter().map(|hour| hour.summary(&name).map(Summary::figures)).collect();
        of_hours_of_field(w, &name, &of_hours);
    }
    w.end();
    w.end();
    w.binary("readings", &[]);
}

/// The fields without a number, for people to read: queries take them from the readings.
fn others(readings: &Readings) -> impl Iterator<Item = (&Arc<str>, &[Cell])> {
    let is_other = |value: &Value| matches!(value, Value::Boolean(_) | Value::String(_));
    let has_others =
        move |cells: &[Cell]| cells.iter().flatten().next().is_some() && cells.iter().flatten().all(is_other);
    readings.columns().filter(move |(_, cells)| has_others(cells))
}

/// How many cells have a value, and the first and the last of these.
fn ends(cells: &[Cell]) -> (u64, [Option<&Value>; 2]) {
    let values = || cells.iter().flatten();
    (values().count() as u64, [values().next(), values().next_back()])
}

/// A value of a field without numbers; null for none, and for a text that would make the document large.
fn shown_or_null(w: &mut BsonWriter, name: &str, value: Option<&Value>) {
    match value.filter(|value| !matches!(value, Value::String(text) if text.len() > TEXT_BYTES)) {
        Some(value) => w.value(name, value),
        None => w.null(name),
    }
}

/// `hours: { hour: [0, 1, …], count: [60, …], fields: { <field>: { count: […], min: […], … }, … }, others: { <field>: { count: […],
/// first: […], last: […] }, … } }`; `others` are fields without numbers, if there are any.
fn by_hours(w: &mut BsonWriter, day: Day, readings: &Readings) {
    let start = day.hours().start.0;
    let hours = by_hour(readings.clone());
    w.begin("hours");
    array(
        w,
        "hour",
        hours.iter().map(|(hour, _)| u64::try_from(hour.0 - start).unwrap_or_default()),
        BsonWriter::count,
    );
    array(w, "count", hours.iter().map(|(_, readings)| readings.len() as u64), BsonWriter::count);
    w.begin("fields");
    let figures: Vec<Vec<(usize, Figures)>> = hours
        .iter()
        .map(|(_, readings)| readings.numbered_summaries().map(|(at, summary)| (at, summary.figures())).collect())
        .collect();
    for (number, (name, _)) in readings.columns().enumerate() {
        let of_hour =
            |hour: &Vec<(usize, Figures)>| hour.iter().find(|(at, _)| *at == number).map(|(_, found)| found.clone());
        let found: Vec<Option<Figures>> = figures.iter().map(of_hour).collect();
        if found.iter().all(Option::is_none) {
            continue;
        }
        of_hours_of_field(w, name, &found);
    }
    w.end();
    if others(readings).next().is_some() {
        w.begin("others");
        for (name, _) in others(readings) {
            let ends: Vec<(u64, [Option<&Value>; 2])> =
                hours.iter().map(|(_, readings)| ends(readings.cells(name).unwrap_or_default())).collect();
            w.begin(&key(name));
            array(w, "count", ends.iter().map(|(count, _)| *count), BsonWriter::count);
            array(w, "first", ends.iter().map(|(_, [first, _])| *first), shown_or_null);
            array(w, "last", ends.iter().map(|(_, [_, last])| *last), shown_or_null);
            w.end();
        }
        w.end();
    }
    w.end();
}

/// The figures of one field, an element per hour.
fn of_hours_of_field(w: &mut BsonWriter, name: &str, found: &[Option<Figures>]) {
    w.begin(&key(name));
    array(w, "count", found.iter().map(|one| one.as_ref().map_or(0, |one| one.count)), BsonWriter::count);
    for figure in FIGURES {
        array(w, figure, found.iter().map(|one| one.as_ref().map(|one| of_figures(one, figure))), |w, key, value| {
            match value {
                Some(value) => w.value(key, value),
                None => w.null(key),
            }
        });
    }
    let rests = found.iter().map(|one| match one {
        Some(Figures { sum: Value::Float(sum), rest, .. }) => Some((*sum, rest)),
        _ => None,
    });
    array(w, "rest", rests, |w, key, of| match of {
        Some((sum, of)) => rest(w, key, sum, of),
        None => w.null(key),
    });
    w.end();
}

fn of_figures<'a>(figures: &'a Figures, name: &str) -> &'a Value {
    match name {
        "min" => &figures.min,
        "max" => &figures.max,
        "sum" => &figures.sum,
        "first" => &figures.first,
        _ => &figures.last,
    }
}

fn array<T>(w: &mut BsonWriter, name: &str, items: impl Iterator<Item = T>, put: impl Fn(&mut BsonWriter, &str, T)) {
    w.begin_array(name);
    items.enumerate().for_each(|(index, item)| put(w, &index.to_string(), item));
    w.end();
}

/// A day with its readings.
///
/// # Errors
/// [`StorageError::Unreadable`] for another schema version or a damaged document.
pub fn decode_day(document: &RawDocument) -> Result<StoredDay, StorageError> {
    named(document, stored_day)
}

/// A day with what its document says otherwise than a write of its readings would.
///
/// # Errors
/// As [`decode_day`].
pub fn decode_raw_day(document: &RawDocument) -> Result<DayDocument, StorageError> {
    named(document, |document| {
        let part = part(document)?;
        let day = stored_day(document)?;
        let start = Day::of(Hour::of_ms(date(document, "start")?));
        let id = DayId { sensor: decode::identity(document)?, day: start, part };
        let expired = day.expired.as_ref();
        let write = DayWrite { id: &id, rev: day.rev, next_rev: day.rev, readings: Some(&day.readings), expired };
        let form = if Kind::of_document(document)? == Kind::Columns { SealForm::Columns } else { SealForm::Packed };
        let expected = RawDocumentBuf::from_bytes(day_document(&write, form)).map_err(|e| e.to_string())?;
        let mut differs = Vec::new();
        for element in &expected {
            let (name, expected) = element.map_err(|e| e.to_string())?;
            // The readings were decoded; whichever bytes they came from are right.
            let found = document.get(name).map_err(|e| e.to_string())?;
            if !["readings", "packed"].contains(&name.as_str()) && found != Some(expected) {
                let shown = |value: Option<RawBsonRef<'_>>| shown(value.map(|value| format!("{value:?}")));
                differs.push(StoredOtherwise {
                    part: name.to_string(),
                    expected: shown(Some(expected)),
                    found: shown(found),
                });
            }
        }
        Ok(DayDocument { id, day, differs })
    })
}

fn shown(value: Option<String>) -> String {
    let value = value.unwrap_or_else(|| "nothing".to_owned());
    value.chars().take(SHOWN_MAX).collect()
}

/// Which part of its day a document is.
///
/// # Errors
/// [`StorageError::Unreadable`] for another schema version or a damaged document.
pub fn decode_part(document: &RawDocument) -> Result<DayPart, StorageError> {
    named(document, part)
}

fn part(document: &RawDocument) -> Result<DayPart, Trouble> {
    Ok(match (Kind::of_document(document)?, document.get("hour").map_err(|e| e.to_string())?) {
        (Kind::Chunk, _) => DayPart::Chunk { stamp: whole(document, "chunk")?, hour: hour_of(document)? },
        (_, Some(_)) => DayPart::Hour(hour_of(document)?),
        (_, None) => DayPart::Whole,
    })
}

fn hour_of(document: &RawDocument) -> Result<u8, Trouble> {
    let hour = whole(document, "hour")?;
    u8::try_from(hour).ok().filter(|hour| *hour < 24).ok_or_else(|| format!("it has hour {hour}"))
}

fn stored_day(document: &RawDocument) -> Result<StoredDay, Trouble> {
    let kind = Kind::of_document(document)?;
    let rev = whole(document, "rev")?;
    if kind != Kind::Expired {
        return Ok(StoredDay { rev, readings: readings(document, kind)?, expired: None });
    }
    let mut readings = Readings::default();
    readings.raise_floor(whole(document, "floor")?);
    Ok(StoredDay { rev, readings, expired: Some(expired_day(document)?) })
}

fn expired_day(document: &RawDocument) -> Result<ExpiredDay, Trouble> {
    let (day, all) = (Day::of(Hour::of_ms(date(document, "start")?)), Projection::SUMMARIES);
    let pages = summarized_hours(document, Kind::Expired, day, &all)?;
    let by_hour = get(document, "hours")?.as_document().ok_or("hours is not a document")?;
    let counts = list(by_hour, "count", |value| value.as_i32())?;
    let (first, last) =
        (list(by_hour, "first", |value| value.as_i64())?, list(by_hour, "last", |value| value.as_i64())?);
    if [counts.len(), first.len(), last.len()].iter().any(|length| *length != pages.len()) {
        return Err("its hours have other lengths than hours.hour".to_owned());
    }
    let hour = |((page, count), (first, last)): ((ScannedPage, i32), (i64, i64))| {
        let mut summaries = page.summary.into_vec();
        summaries.sort_by(|(one, _), (other, _)| one.cmp(other));
        let count = u64::try_from(count).map_err(|e| e.to_string())?;
        Ok(ExpiredHour { hour: page.hour, count, first, last, summaries })
    };
    let hours =
        pages.into_iter().zip(counts).zip(first.into_iter().zip(last)).map(hour).collect::<Result<_, Trouble>>()?;
    Ok(ExpiredDay { hours })
}

fn readings(document: &RawDocument, kind: Kind) -> Result<Readings, Trouble> {
    let floor = whole(document, "floor")?;
    let binary = |name| -> Result<&[u8], Trouble> {
        Ok(get(document, name)?.as_binary().ok_or_else(|| format!("{name} is not binary data"))?.bytes)
    };
    let unpack = |packed| sealed::unpack_readings(packed, floor).map_err(|e| e.to_string());
    match kind {
        Kind::Columns => {
            let columns = get(document, "readings")?.as_document().ok_or("readings is not a document")?;
            readings_of(columns, floor)
        }
        Kind::Packed | Kind::Expired => unpack(binary("readings")?),
        Kind::Chunk => {
            let mut readings = unpack(binary("packed")?)?;
            readings.decode_stamps(floor, binary("stamps")?).map_err(|e| e.to_string())?;
            Ok(readings)
        }
    }
}

/// The hours of a day that lie in a range.
///
/// # Errors
/// As [`decode_day`].
pub fn decode_day_scanned(
    document: &RawDocument,
    hours: &std::ops::Range<Hour>,
    projection: &Projection,
) -> Result<Vec<ScannedPage>, StorageError> {
    named(document, |document| {
        let kind = Kind::of_document(document)?;
        let day = Day::of(Hour::of_ms(date(document, "start")?));
        let wanted = within(day, hours);
        if projection.readings && kind == Kind::Expired {
            return Ok(Vec::new());
        }
        if projection.readings || kind == Kind::Chunk {
            return Ok(projection.pages_of(readings(document, kind)?, &wanted));
        }
        let mut pages = summarized_hours(document, kind, day, projection)?;
        pages.retain(|page| wanted.contains(&page.hour));
        Ok(pages)
    })
}

/// The hours of a part with their summaries.
fn summarized_hours(
    document: &RawDocument,
    kind: Kind,
    day: Day,
    projection: &Projection,
) -> Result<Vec<ScannedPage>, Trouble> {
    let oldest = whole(document, "floor")?;
    let is_expired = kind == Kind::Expired;
    // Of many wanted fields, a sensor may have few.
    let fields = projection.fields.as_ref().map_or(0, |fields| fields.len().min(FIELDS_FORESEEN));
    let by_hour = get(document, "hours")?.as_document().ok_or("hours is not a document")?;
    let numbers = list(by_hour, "hour", |value| value.as_i32())?;
    let page = |number: &i32| {
        let hour = Hour(day.hours().start.0 + i64::from(*number));
        ScannedPage {
            hour,
            number: 0,
            summary: PageSummaries::with_capacity(fields),
            oldest,
            readings: None,
            is_expired,
        }
    };
    let mut pages: Vec<ScannedPage> = numbers.iter().map(page).collect();
    for element in get(by_hour, "fields")?.as_document().ok_or("hours.fields is not a document")? {
        let (name, figures) = element.map_err(|e| e.to_string())?;
        if let Some(name) = projection.name_of(&from_key(name.as_str())) {
            of_field(&name, figures.as_document().ok_or("a field's hours are not a document")?, &mut pages)?;
        }
    }
    Ok(pages)
}

fn of_field(name: &Arc<str>, figures: &RawDocument, pages: &mut [ScannedPage]) -> Result<(), Trouble> {
    let [values @ .., counts, rests] = arrays(figures)?;
    let (counts, rests) = (items(counts, "count", |value| value.as_i32())?, items(rests, "rest", Some)?);
    let mut numbers = Vec::with_capacity(values.len());
    for (array, figure) in values.into_iter().zip(ARRAYS) {
        numbers.push(items(array, figure, number)?);
    }
    let lengths = numbers.iter().map(Vec::len).chain([counts.len(), rests.len()]);
    if lengths.into_iter().any(|length| length != pages.len()) {
        return Err(format!("the hours of {name} have other lengths than hours.hour"));
    }
    for (place, ((page, count), rest)) in pages.iter_mut().zip(counts).zip(rests).enumerate() {
        let [Some(min), Some(max), Some(first), Some(last), Some(sum)] = std::array::from_fn(|of| numbers[of][place])
        else {
            continue;
        };
        let count = u64::try_from(count).map_err(|e| e.to_string())?;
        let summary = Summary::of_numbers(count, [min, max, first, last], sum, &rest_of(Some(rest), sum)?);
        page.summary.push((name.clone(), summary));
    }
    Ok(())
}

/// The arrays of a field, in the order of [`ARRAYS`].
fn arrays(figures: &RawDocument) -> Result<[&RawArray; ARRAYS.len()], Trouble> {
    let mut found = [None; ARRAYS.len()];
    for element in figures {
        let (name, array) = element.map_err(|e| e.to_string())?;
        if let Some(place) = ARRAYS.iter().position(|figure| *figure == name.as_str()) {
            found[place] = array.as_array();
        }
    }
    let all: Option<Vec<&RawArray>> = found.into_iter().collect();
    all.and_then(|all| all.try_into().ok()).ok_or_else(|| {
        let missing = ARRAYS.iter().zip(found).filter(|(_, array)| array.is_none()).map(|(name, _)| *name);
        format!("{} is not an array", missing.collect::<Vec<_>>().join(", "))
    })
}

fn number(value: RawBsonRef<'_>) -> Option<Option<Number>> {
    optional(value).map(|value| value.as_ref().map(Number::of))
}

pub(super) fn optional(value: RawBsonRef<'_>) -> Option<Option<Value>> {
    match value {
        RawBsonRef::Null => Some(None),
        value => field_value(value).map(Some),
    }
}

pub(super) fn list<'d, T>(
    document: &'d RawDocument,
    name: &str,
    item: impl Fn(RawBsonRef<'d>) -> Option<T>,
) -> Result<Vec<T>, Trouble> {
    let array: &'d RawArray = get(document, name)?.as_array().ok_or_else(|| format!("{name} is not an array"))?;
    items(array, name, item)
}

/// The fields of a part's document that a scan without readings needs: its hours, or the readings of a chunk.
#[must_use]
pub fn day_fields(projection: &Projection) -> Vec<Cow<'static, str>> {
    let mut wanted: Vec<Cow<'static, str>> =
        ["_id", "schemaVersion", KIND, "sensor", "start", "floor", "hour", "chunk", "stamps", "packed", "hours.hour"]
            .map(Cow::Borrowed)
            .into();
    match &projection.fields {
        None => wanted.push("hours.fields".into()),
        // Projects `hours.fields` to an empty document; without this it would be missing.
        Some(fields) if fields.is_empty() => wanted.push("hours.fields.0.0".into()),
        Some(fields) => wanted.extend(fields.iter().map(|field| format!("hours.fields.{}", key(field)).into())),
    }
    wanted
}
