//! Encodes pages and sensors as BSON: whole documents, and updates of stored ones.

use std::borrow::Cow;
use std::ops::Range;

use super::copies::SENSOR_KIND;
use super::writer::BsonWriter;
use super::{meta, page_id};
use crate::bucket::exact::SumRest;
use crate::bucket::store::BucketId;
use crate::bucket::summary::Figures;
use crate::bucket::{Page, Reading, Readings, SensorDocument};
use crate::names::key;
use crate::reading::time::MILLI_NS;
use crate::reading::{Sensor, Stamp, Value};

/// Schema version of every document.
pub const SCHEMA_VERSION: u64 = 1;
/// The schema version of parts of days, the newest of any document. In version 1, no part was plain or wide, and packed
/// readings and columns were in the field `readings`. Version 1 is read; every write makes version 2 of it.
pub const DAY_VERSION: u64 = 2;

/// Estimated bytes of a page document without its readings: two sensor keys, the marks and the summaries.
const HEADER_BYTES: usize = 1024;

/// Encodes a whole page document with its next rev.
#[must_use]
pub fn page_document(id: &BucketId, page: &Page) -> Vec<u8> {
    let mut w = BsonWriter::document(HEADER_BYTES + page.readings.bytes());
    w.text("_id", &page_id(&id.sensor.key, id.hour, page.number));
    w.count("schemaVersion", SCHEMA_VERSION);
    w.text("sensor", &id.sensor.key);
    identity(&mut w, &id.sensor);
    w.date("start", id.hour.start_ms());
    w.date("end", id.hour.next().start_ms());
    w.count("page", u64::from(page.number));
    marks(&mut w, page);
    w.begin_array("readings");
    readings(&mut w, &page.readings, 0..page.readings.len());
    w.end();
    summaries(&mut w, &page.readings);
    order(&mut w, page);
    w.finish()
}

/// Encodes the update `{ $set: marks, summary, order; $push: readings }` for the readings from index `start`.
///
/// The update does not set the page's identity, so the validator refuses it as an upsert. A page that was deleted
/// meanwhile is not recreated as an incomplete document.
#[must_use]
pub fn append_update(page: &Page, start: usize) -> Vec<u8> {
    let mut w = BsonWriter::document(HEADER_BYTES);
    begin_set(&mut w, page);
    w.end();
    if start < page.readings.len() {
        w.begin("$push");
        w.begin("readings");
        w.begin_array("$each");
        readings(&mut w, &page.readings, start..page.readings.len());
        w.end();
        w.end();
        w.end();
    }
    w.finish()
}

/// Encodes the update that sets everything but the page's identity.
#[must_use]
pub fn replace_update(page: &Page) -> Vec<u8> {
    let mut w = BsonWriter::document(HEADER_BYTES + page.readings.bytes());
    begin_set(&mut w, page);
    w.begin_array("readings");
    readings(&mut w, &page.readings, 0..page.readings.len());
    w.end();
    w.end();
    w.finish()
}

/// Encodes a whole sensor document with its next rev, and the kind of the sensor.
#[must_use]
pub fn sensor_document(document: &SensorDocument, kind: Option<&str>) -> Vec<u8> {
    let mut w = BsonWriter::document(HEADER_BYTES);
    w.text("_id", &document.sensor.key);
    w.count("schemaVersion", SCHEMA_VERSION);
    identity(&mut w, &document.sensor);
    sensor_state(&mut w, document);
    meta::put(&mut w, &document.meta);
    if let Some(kind) = kind {
        w.text(SENSOR_KIND, kind);
    }
    w.finish()
}

/// Encodes the update that sets everything but the sensor's identity.
#[must_use]
pub fn sensor_update(document: &SensorDocument, kind: Option<&str>) -> Vec<u8> {
    let mut w = BsonWriter::document(HEADER_BYTES);
    w.begin("$set");
    sensor_state(&mut w, document);
    let mut left_out = meta::put(&mut w, &document.meta);
    match kind {
        Some(kind) => w.text(SENSOR_KIND, kind),
        None => left_out.push(SENSOR_KIND),
    }
    w.end();
    if document.outlier.is_none() {
        left_out.push("outlier");
    }
    if document.lifetime.is_none() {
        left_out.push("lifetime");
    }
    if !left_out.is_empty() {
        w.begin("$unset");
        left_out.iter().for_each(|name| w.count(name, 1));
        w.end();
    }
    w.finish()
}

pub(super) fn identity(w: &mut BsonWriter, sensor: &Sensor) {
    w.text("measurement", &sensor.measurement);
    w.begin("tags");
    for (name, value) in &sensor.tags {
        w.text(&key(name), value);
    }
    w.end();
}

fn begin_set(w: &mut BsonWriter, page: &Page) {
    w.begin("$set");
    marks(w, page);
    summaries(w, &page.readings);
    order(w, page);
}

fn marks(w: &mut BsonWriter, page: &Page) {
    let times = page.readings.times();
    w.count("rev", page.next_rev());
    w.boolean("closed", page.closed);
    w.count("count", times.len() as u64);
    w.date("first", times.first().map_or(0, |t| t.div_euclid(MILLI_NS)));
    w.date("last", times.last().map_or(0, |t| t.div_euclid(MILLI_NS)));
    w.boolean("hasOverflow", page.has_overflow);
    if let Some(overflow) = page.overflow {
        w.begin("overflow");
        w.count("pages", u64::from(overflow.pages));
        w.count("count", overflow.count);
        w.end();
    }
}

pub(super) fn readings(w: &mut BsonWriter, readings: &Readings, range: Range<usize>) {
    let start = range.start;
    let columns: Vec<(Cow<'_, str>, &[Option<Value>])> =
        readings.columns().map(|(name, cells)| (key(name), cells)).collect();
    for index in range {
        w.begin_element(index - start);
        time(w, readings.times()[index]);
        for (name, cells) in &columns {
            if let Some(Some(value)) = cells.get(index) {
                w.value(name, value);
            }
        }
        w.end();
    }
}

fn time(w: &mut BsonWriter, time: i64) {
    w.date("ts", time.div_euclid(MILLI_NS));
    match time.rem_euclid(MILLI_NS) {
        0 => {}
        rest => w.count("ns", rest.unsigned_abs()),
    }
}

fn summaries(w: &mut BsonWriter, readings: &Readings) {
    w.begin("summary");
    for (name, summary) in readings.summaries() {
        write_figures(w, name, &summary.figures());
    }
    w.end();
}

/// Writes a summary under its field's name.
pub(super) fn write_figures(w: &mut BsonWriter, name: &str, figures: &Figures) {
    w.begin(&key(name));
    w.count("count", figures.count);
    for (name, value) in [
        ("min", &figures.min),
        ("max", &figures.max),
        ("sum", &figures.sum),
        ("avg", &figures.avg),
        ("first", &figures.first),
        ("last", &figures.last),
    ] {
        w.value(name, value);
        if name == "sum"
            && let Value::Float(sum) = value
        {
            self::rest(w, "rest", *sum, &figures.rest);
        }
    }
    if let Some(distribution) = &figures.distribution {
        w.begin("distribution");
        w.array("bounds", distribution.bounds().iter().copied(), BsonWriter::float);
        w.array("counts", distribution.counts().iter().copied(), BsonWriter::count);
        w.end();
    }
    w.end();
}

/// Writes the stamps of a page.
fn order(w: &mut BsonWriter, page: &Page) {
    let stamps = page.readings.stamps();
    w.begin("order");
    w.long("floor", signed(stamps.floor()));
    if stamps.oldest() > stamps.floor() {
        w.long("first", signed(stamps.oldest()));
    }
    w.long("last", signed(stamps.greatest()));
    let kept = page.readings.encode_stamps();
    if !kept.is_empty() {
        w.binary("stamps", &kept);
    }
    w.end();
}

/// Writes the rounding remainder of a Double sum, even if it is 0.
pub(super) fn rest(w: &mut BsonWriter, key: &str, sum: f64, rest: &SumRest) {
    let mut doubles = rest.doubles(sum).peekable();
    let first = doubles.next().unwrap_or(0.0);
    if doubles.peek().is_none() {
        return w.float(key, first);
    }
    w.array(key, std::iter::once(first).chain(doubles), BsonWriter::float);
}

pub(super) fn signed(stamp: Stamp) -> i64 {
    i64::try_from(stamp).unwrap_or(i64::MAX)
}

fn sensor_state(w: &mut BsonWriter, document: &SensorDocument) {
    w.count("rev", document.rev + 1);
    w.begin("fields");
    for (name, family) in &document.fields {
        w.text(&key(name), family.name());
    }
    w.end();
    for (name, time) in [("firstSeen", document.first_seen), ("lastSeen", document.last_seen)] {
        if let Some(time) = time {
            w.date(name, time.div_euclid(MILLI_NS));
        }
    }
    if let Some(latest) = document.recent.last() {
        w.begin("latest");
        one_reading(w, latest);
        w.end();
    }
    w.begin_array("recent");
    for (index, reading) in document.recent.iter().enumerate() {
        w.begin_element(index);
        one_reading(w, reading);
        w.end();
    }
    w.end();
    if let Some(outlier) = &document.outlier {
        w.begin("outlier");
        w.date("since", outlier.since.div_euclid(MILLI_NS));
        w.date("seen", outlier.seen.div_euclid(MILLI_NS));
        w.date("lastHour", outlier.last_hour.start_ms());
        w.count("pages", u64::from(outlier.pages));
        w.end();
    }
    if let Some(lifetime) = &document.lifetime {
        w.begin("lifetime");
        w.date("asOf", lifetime.as_of.div_euclid(MILLI_NS));
        w.date("from", lifetime.hours.start.start_ms());
        w.date("to", lifetime.hours.end.start_ms());
        w.begin("fields");
        for (name, summary) in &lifetime.fields {
            write_figures(w, name, &summary.figures());
        }
        w.end();
        w.end();
    }
}

fn one_reading(w: &mut BsonWriter, reading: &Reading) {
    time(w, reading.time);
    for (name, value) in &reading.fields {
        w.value(&key(name), value);
    }
}
