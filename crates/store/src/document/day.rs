//! Encodes a day's part as a document: summaries for people and aggregations, and the readings. Few readings are plain, as
//! in a page, with a daily summary. More are packed or in columns, with hourly summaries too. A chunk has no summaries and
//! is always packed.

use std::sync::Arc;

use bson::raw::RawDocument;
use hourglass_model::named;

use super::columns::columns_document;
use super::copies::SENSOR_KIND;
use super::decode::{Detail, get, whole};
use super::encode::{self, DAY_VERSION, identity, rest, signed, write_figures};
use super::{BsonWriter, day_chunks_id, day_id};
use crate::bucket::columns::Cell;
use crate::bucket::day::{by_hour, is_plain};
use crate::bucket::expired::ExpiredDay;
use crate::bucket::summary::Figures;
use crate::bucket::summary::distribution::Distribution;
use crate::bucket::{DayId, DayPart, DayWrite, Readings, SealForm, Summary};
use crate::names::key;
use crate::reading::time::MILLI_NS;
use crate::reading::{Day, Value};
use crate::sealed;

/// The field with the [`DayForm`] of a part.
pub(super) const FORM: &str = "form";
/// The same field in version 1. In every other document, it names the kind of the sensor.
pub(super) const OLD_FORM: &str = "kind";
/// Estimated bytes of a day without its readings.
const HEAD_BYTES: usize = 8 * 1024;
/// Maximum length of a text in the summaries of fields without numbers, in bytes.
const TEXT_BYTES_MAX: usize = 256;
/// Maximum number of fields with readable summaries. Those of more fields would exceed a document.
const READABLE_FIELDS_MAX: usize = 1000;
/// Selects a figure of a summary.
type Figure = fn(&Figures) -> &Value;

/// The figures of hourly summaries, each stored as an array.
const FIGURES: [(&str, Figure); 5] = [
    ("min", |figures| &figures.min),
    ("max", |figures| &figures.max),
    ("sum", |figures| &figures.sum),
    ("first", |figures| &figures.first),
    ("last", |figures| &figures.last),
];

/// Encodes a whole document with its next rev.
#[must_use]
pub fn day_document(write: &DayWrite<'_>, form: SealForm) -> Vec<u8> {
    let DayId { sensor, day, part } = write.id;
    let hours = write.id.hours();
    let columns = columns(write, form);
    let mut w = BsonWriter::document(estimated_bytes(write, columns.as_deref()));
    w.text("_id", &day_id(&sensor.key, *day, *part));
    w.count("schemaVersion", DAY_VERSION);
    w.text("sensor", &sensor.key);
    identity(&mut w, sensor);
    // Queries for a range select all parts that start within its days.
    w.date("start", hours.start.start_ms());
    w.date("end", hours.end.start_ms());
    match part {
        DayPart::Whole => {}
        DayPart::Hour(hour) => w.count("hour", u64::from(*hour)),
        DayPart::Chunk { stamp, hour } => {
            w.text("chunkOf", &day_chunks_id(&sensor.key, *day));
            w.long("chunk", signed(*stamp));
            w.count("hour", u64::from(*hour));
        }
    }
    content(&mut w, write, columns.as_deref());
    w.finish()
}

/// Encodes the update that sets everything but the part's identity, and the kind of its sensor.
#[must_use]
pub fn day_update(write: &DayWrite<'_>, form: SealForm, kind: Option<&str>) -> Vec<u8> {
    let columns = columns(write, form);
    let mut w = BsonWriter::document(estimated_bytes(write, columns.as_deref()));
    w.begin("$set");
    w.count("schemaVersion", DAY_VERSION);
    content(&mut w, write, columns.as_deref());
    if let Some(kind) = kind {
        w.text(SENSOR_KIND, kind);
    }
    w.end();
    w.begin("$unset");
    // In version 1, it was the form.
    if kind.is_none() {
        w.count(SENSOR_KIND, 1);
    }
    DayForm::of_write(write, columns.is_some()).left_out().iter().for_each(|name| w.count(name, 1));
    w.end();
    w.finish()
}

/// Encodes the readings as columns. Returns `None` if the part has another form.
fn columns(write: &DayWrite<'_>, form: SealForm) -> Option<Vec<u8>> {
    if form != SealForm::Columns || DayForm::of_write(write, true) != DayForm::Columns {
        return None;
    }
    write.readings.and_then(columns_document)
}

/// The form of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DayForm {
    /// Readings as in a page, and their daily summary.
    Plain,
    /// Packed readings of many fields, and the daily summaries of some of them.
    Wide,
    /// Packed readings and their summaries.
    Packed,
    /// Readings as columns and their summaries.
    Columns,
    /// Packed readings with stamps, without summaries.
    Chunk,
    /// Summaries of readings that have expired.
    Expired,
}

named!(DayForm: Plain "plain", Wide "wide", Packed "packed", Columns "columns", Chunk "chunk", Expired "expired");

impl DayForm {
    fn of_write(write: &DayWrite<'_>, in_columns: bool) -> Self {
        match write.id.part {
            _ if write.expired.is_some() => Self::Expired,
            DayPart::Chunk { .. } => Self::Chunk,
            _ if write.readings.is_none_or(is_plain) => Self::Plain,
            _ if write.readings.is_some_and(|readings| readings.columns().len() > READABLE_FIELDS_MAX) => Self::Wide,
            _ if in_columns => Self::Columns,
            _ => Self::Packed,
        }
    }

    /// The fields that documents of other forms have.
    fn left_out(self) -> &'static [&'static str] {
        match self {
            Self::Plain | Self::Wide => &["hours", "sealed", "columns"],
            Self::Packed => &["readings", "columns"],
            Self::Columns => &["readings", "sealed"],
            Self::Expired => &["readings", "sealed", "columns"],
            Self::Chunk => &["day", "hours", "readings"],
        }
    }

    /// Reads the form of a document of a known version.
    pub(super) fn of_document(document: &RawDocument) -> Result<Self, Detail> {
        let is_old = whole(document, "schemaVersion")? != DAY_VERSION;
        let name = get(document, if is_old { OLD_FORM } else { FORM })?.as_str().unwrap_or_default();
        Self::from_name(name).ok_or_else(|| format!("unknown form {name:?}"))
    }
}

fn estimated_bytes(write: &DayWrite<'_>, columns: Option<&[u8]>) -> usize {
    HEAD_BYTES + columns.map_or(write.readings.map_or(0, Readings::len) * 4, <[u8]>::len)
}

fn content(w: &mut BsonWriter, write: &DayWrite<'_>, columns: Option<&[u8]>) {
    let form = DayForm::of_write(write, columns.is_some());
    w.text(FORM, form.name());
    let none = Readings::default();
    let readings = write.readings.unwrap_or(&none);
    let times = readings.times();
    let mut count = times.len() as u64;
    let mut first = times.first().copied();
    let mut last = times.last().copied();
    if let Some(expired) = write.expired {
        count = expired.count();
        first = expired.hours.first().map(|hour| hour.first);
        last = expired.hours.last().map(|hour| hour.last);
    }
    let ms = |time: Option<i64>| time.map_or(0, |time| time.div_euclid(MILLI_NS));
    w.count("rev", write.next_rev);
    w.count("count", count);
    w.date("first", ms(first));
    w.date("last", ms(last));
    w.long("floor", signed(readings.stamps().floor()));
    if let Some(expired) = write.expired {
        return expired_content(w, write.id.day, expired);
    }
    if form == DayForm::Chunk {
        w.long("oldest", signed(readings.stamps().oldest()));
        w.binary("stamps", &readings.encode_stamps());
        w.binary("packed", &sealed::pack(readings));
        return;
    }
    w.begin("day");
    let of_numbers = readings.summaries().take(READABLE_FIELDS_MAX);
    of_numbers.for_each(|(name, summary)| write_figures(w, name, &summary.figures()));
    for (name, cells) in non_numeric_columns(readings).take(READABLE_FIELDS_MAX) {
        let ends = Ends::from_cells(cells);
        w.begin(&key(name));
        w.count("count", ends.count);
        short_value(w, "first", ends.first);
        short_value(w, "last", ends.last);
        w.end();
    }
    w.end();
    if form == DayForm::Plain {
        w.begin_array("readings");
        encode::readings(w, readings, 0..readings.len());
        w.end();
        return;
    }
    if form == DayForm::Wide {
        w.binary("readings", &sealed::pack(readings));
        return;
    }
    hourly_summaries(w, write.id.day, readings);
    match columns {
        Some(columns) => w.raw("columns", columns),
        None => w.binary("sealed", &sealed::pack(readings)),
    }
}

/// Writes the summaries that are left of expired readings.
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
        let figures: Vec<Option<Figures>> =
            expired.hours.iter().map(|hour| hour.summary(&name).map(Summary::figures)).collect();
        field_figures(w, &name, &figures);
    }
    w.end();
    w.end();
}

/// Returns the columns that have values but no number. Their summaries are for people; queries read the readings instead.
fn non_numeric_columns(readings: &Readings) -> impl Iterator<Item = (&Arc<str>, &[Cell])> {
    let is_number = |value: &Value| !matches!(value, Value::Boolean(_) | Value::String(_));
    readings.columns().filter(move |(_, cells)| {
        let mut values = cells.iter().flatten().peekable();
        values.peek().is_some() && !values.any(is_number)
    })
}

/// The summary of a column without numbers.
struct Ends<'a> {
    /// Number of cells with a value.
    count: u64,
    first: Option<&'a Value>,
    last: Option<&'a Value>,
}

impl<'a> Ends<'a> {
    fn from_cells(cells: &'a [Cell]) -> Self {
        let values = || cells.iter().flatten();
        Self { count: values().count() as u64, first: values().next(), last: values().next_back() }
    }
}

/// Writes a value of a column without numbers. Writes null for none, and for a text above [`TEXT_BYTES_MAX`].
fn short_value(w: &mut BsonWriter, name: &str, value: Option<&Value>) {
    w.optional(name, value.filter(|value| !matches!(value, Value::String(text) if text.len() > TEXT_BYTES_MAX)));
}

/// Writes the hourly summaries. `others` has the fields without numbers, and is left out if there are none.
///
/// ```text
/// hours: { hour: [0, 1, …], count: [60, …],
///          fields: { <field>: { count: […], min: […], … }, … },
///          others: { <field>: { count: […], first: […], last: […] }, … } }
/// ```
fn hourly_summaries(w: &mut BsonWriter, day: Day, readings: &Readings) {
    let start = day.hours().start.0;
    let hours = by_hour(readings.clone());
    w.begin("hours");
    w.array("hour", hours.iter().map(|(hour, _)| u64::try_from(hour.0 - start).unwrap_or_default()), BsonWriter::count);
    w.array("count", hours.iter().map(|(_, readings)| readings.len() as u64), BsonWriter::count);
    w.begin("fields");
    let figures: Vec<Vec<(usize, Figures)>> = hours
        .iter()
        .map(|(_, readings)| readings.numbered_summaries().map(|(column, found)| (column, found.figures())).collect())
        .collect();
    for (number, (name, _)) in readings.columns().enumerate() {
        let in_hour = |hour: &Vec<(usize, Figures)>| {
            hour.iter().find(|(column, _)| *column == number).map(|(_, figures)| figures.clone())
        };
        let found: Vec<Option<Figures>> = figures.iter().map(in_hour).collect();
        if found.iter().any(Option::is_some) {
            field_figures(w, name, &found);
        }
    }
    w.end();
    if non_numeric_columns(readings).next().is_some() {
        w.begin("others");
        for (name, _) in non_numeric_columns(readings) {
            let ends: Vec<Ends<'_>> =
                hours.iter().map(|(_, readings)| Ends::from_cells(readings.cells(name).unwrap_or_default())).collect();
            w.begin(&key(name));
            w.array("count", ends.iter().map(|ends| ends.count), BsonWriter::count);
            w.array("first", ends.iter().map(|ends| ends.first), short_value);
            w.array("last", ends.iter().map(|ends| ends.last), short_value);
            w.end();
        }
        w.end();
    }
    w.end();
}

/// Writes the figures of one field as arrays with an element per hour.
fn field_figures(w: &mut BsonWriter, name: &str, found: &[Option<Figures>]) {
    w.begin(&key(name));
    w.array("count", found.iter().map(|one| one.as_ref().map_or(0, |one| one.count)), BsonWriter::count);
    for (name, figure) in FIGURES {
        w.array(name, found.iter().map(|one| one.as_ref().map(figure)), BsonWriter::optional);
    }
    let rests = found.iter().map(|one| match one {
        Some(Figures { sum: Value::Float(sum), rest, .. }) => Some((*sum, rest)),
        _ => None,
    });
    w.array("rest", rests, |w, key, value| match value {
        Some((sum, remainder)) => rest(w, key, sum, remainder),
        None => w.null(key),
    });
    let distributions = || found.iter().map(|one| one.as_ref().and_then(|one| one.distribution.as_deref()));
    // All hours are summaries of one set of readings, so that they have the same bounds.
    if let Some(bounds) = distributions().flatten().next().map(Distribution::bounds) {
        w.begin("distribution");
        w.array("bounds", bounds.iter().copied(), BsonWriter::float);
        let of_bounds = distributions().map(|one| one.filter(|one| one.bounds() == bounds));
        w.array("counts", of_bounds, |w, key, one| match one {
            Some(one) => w.array(key, one.counts().iter().copied(), BsonWriter::count),
            None => w.null(key),
        });
        w.end();
    }
    w.end();
}
