//! A part of a day as a document: hourly and daily summaries that people and aggregations read, and the readings, packed or in
//! columns. A chunk has no summaries, and is always packed.

use std::sync::Arc;

use bson::raw::RawDocument;
use hourglass_model::named;

use super::columns::columns_document;
use super::decode::{Detail, get};
use super::encode::{SCHEMA_VERSION, identity, rest, signed, write_figures};
use super::{BsonWriter, chunks_of, day_id};
use crate::bucket::columns::Cell;
use crate::bucket::day::by_hour;
use crate::bucket::expired::ExpiredDay;
use crate::bucket::summary::Figures;
use crate::bucket::{DayId, DayPart, DayWrite, Readings, SealForm, Summary};
use crate::names::key;
use crate::reading::time::MILLI_NS;
use crate::reading::{Day, Value};
use crate::sealed;

/// The field that says what a part holds, which only parts of days have.
pub(super) const KIND: &str = "kind";
/// Estimated bytes of a day without its readings.
const HEAD_BYTES: usize = 8 * 1024;
/// The longest text in the summaries of fields without numbers, in bytes.
const TEXT_BYTES: usize = 256;
/// A figure of a summary.
type Figure = fn(&Figures) -> &Value;

/// The figures of an hour's summary, in arrays.
const FIGURES: [(&str, Figure); 5] = [
    ("min", |figures| &figures.min),
    ("max", |figures| &figures.max),
    ("sum", |figures| &figures.sum),
    ("first", |figures| &figures.first),
    ("last", |figures| &figures.last),
];

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
pub(super) enum Kind {
    /// Packed readings and their summaries.
    Packed,
    /// Readings as columns and their summaries.
    Columns,
    /// Packed readings with stamps, without summaries.
    Chunk,
    /// Summaries of readings that have expired.
    Expired,
}

named!(Kind: Packed "packed", Columns "columns", Chunk "chunk", Expired "expired");

impl Kind {
    fn of_write(write: &DayWrite<'_>, in_columns: bool) -> Self {
        match write.id.part {
            _ if write.expired.is_some() => Self::Expired,
            DayPart::Chunk { .. } => Self::Chunk,
            _ if in_columns => Self::Columns,
            _ => Self::Packed,
        }
    }

    /// Reads the kind of a document of a known version.
    pub(super) fn of_document(document: &RawDocument) -> Result<Self, Detail> {
        let name = get(document, KIND)?.as_str().unwrap_or_default();
        Self::from_name(name).ok_or_else(|| format!("it has the unknown kind {name:?}"))
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
    let (count, first, last) = match write.expired {
        Some(of) => (of.count(), of.hours.first().map(|hour| hour.first), of.hours.last().map(|hour| hour.last)),
        None => (times.len() as u64, times.first().copied(), times.last().copied()),
    };
    let ms = |time: Option<i64>| time.map_or(0, |time| time.div_euclid(MILLI_NS));
    w.count("rev", write.next_rev);
    w.count("count", count);
    w.date("first", ms(first));
    w.date("last", ms(last));
    w.long("floor", signed(readings.stamps().floor()));
    if let Some(expired) = write.expired {
        return expired_content(w, write.id.day, expired);
    }
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
fn expired_content(w: &mut BsonWriter, day: Day, expired: &ExpiredDay) {
    w.begin("day");
    expired.totals().iter().for_each(|(name, summary)| write_figures(w, name, &summary.figures()));
    w.end();
    let start = day.hours().start.0;
    let numbers = expired.hours.iter().map(|one| u64::try_from(one.hour.0 - start).unwrap_or_default());
    w.begin("hours");
    w.array("hour", numbers, BsonWriter::count);
    w.array("count", expired.hours.iter().map(|one| one.count), BsonWriter::count);
    w.array("first", expired.hours.iter().map(|one| one.first), BsonWriter::long);
    w.array("last", expired.hours.iter().map(|one| one.last), BsonWriter::long);
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
    w.optional(name, value.filter(|value| !matches!(value, Value::String(text) if text.len() > TEXT_BYTES)));
}

/// `hours: { hour: [0, 1, …], count: [60, …], fields: { <field>: { count: […], min: […], … }, … }, others: { <field>: { count: […],
/// first: […], last: […] }, … } }`; `others` are fields without numbers, if there are any.
fn by_hours(w: &mut BsonWriter, day: Day, readings: &Readings) {
    let start = day.hours().start.0;
    let hours = by_hour(readings.clone());
    w.begin("hours");
    w.array("hour", hours.iter().map(|(hour, _)| u64::try_from(hour.0 - start).unwrap_or_default()), BsonWriter::count);
    w.array("count", hours.iter().map(|(_, readings)| readings.len() as u64), BsonWriter::count);
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
            w.array("count", ends.iter().map(|(count, _)| *count), BsonWriter::count);
            w.array("first", ends.iter().map(|(_, [first, _])| *first), shown_or_null);
            w.array("last", ends.iter().map(|(_, [_, last])| *last), shown_or_null);
            w.end();
        }
        w.end();
    }
    w.end();
}

/// The figures of one field, an element per hour.
fn of_hours_of_field(w: &mut BsonWriter, name: &str, found: &[Option<Figures>]) {
    w.begin(&key(name));
    w.array("count", found.iter().map(|one| one.as_ref().map_or(0, |one| one.count)), BsonWriter::count);
    for (name, figure) in FIGURES {
        w.array(name, found.iter().map(|one| one.as_ref().map(figure)), BsonWriter::optional);
    }
    let rests = found.iter().map(|one| match one {
        Some(Figures { sum: Value::Float(sum), rest, .. }) => Some((*sum, rest)),
        _ => None,
    });
    w.array("rest", rests, |w, key, of| match of {
        Some((sum, of)) => rest(w, key, sum, of),
        None => w.null(key),
    });
    w.end();
}
