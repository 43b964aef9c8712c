//! Pages and sensors to BSON: whole documents, and the updates that bring a stored one up to date.

use std::borrow::Cow;
use std::ops::Range;

use super::page_id;
use super::writer::Writer;
use crate::bucket::exact::Rest;
use crate::bucket::store::BucketId;
use crate::bucket::{Page, Reading, Readings, SensorDocument};
use crate::reading::time::MILLI_NS;
use crate::reading::{Sensor, Stamp, Value};
use crate::store::names::key;

/// The version that every document carries.
pub const SCHEMA_VERSION: u64 = 1;

/// Room for what a page document holds besides its readings: about two keys, marks and summaries.
const HEADER_BYTES: usize = 1024;

/// A whole page document, with the rev that its writing makes.
#[must_use]
pub fn page_document(id: &BucketId, page: &Page) -> Vec<u8> {
    let mut w = Writer::document(HEADER_BYTES + page.readings.bytes());
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
    applied(&mut w, page);
    order(&mut w, page);
    w.finish()
}

/// The update `{ $set: marks, summary, order; $push: readings from `from` on }`.
///
/// It sets nothing that names the page, so that the validator refuses it as an upsert: a page
/// deleted meanwhile is not reborn as a torso.
#[must_use]
pub fn append_update(page: &Page, from: usize) -> Vec<u8> {
    let mut w = Writer::document(HEADER_BYTES);
    begin_set(&mut w, page);
    w.end();
    if from < page.readings.len() {
        w.begin("$push");
        w.begin("readings");
        w.begin_array("$each");
        readings(&mut w, &page.readings, from..page.readings.len());
        w.end();
        w.end();
        w.end();
    }
    w.finish()
}

/// The update that sets everything but the page's identity.
#[must_use]
pub fn replace_update(page: &Page) -> Vec<u8> {
    let mut w = Writer::document(HEADER_BYTES + page.readings.bytes());
    begin_set(&mut w, page);
    w.begin_array("readings");
    readings(&mut w, &page.readings, 0..page.readings.len());
    w.end();
    w.end();
    w.finish()
}

/// A whole sensor document, with the rev that its writing makes.
#[must_use]
pub fn sensor_document(document: &SensorDocument) -> Vec<u8> {
    let mut w = Writer::document(HEADER_BYTES);
    w.text("_id", &document.sensor.key);
    w.count("schemaVersion", SCHEMA_VERSION);
    identity(&mut w, &document.sensor);
    sensor_state(&mut w, document);
    w.finish()
}

/// The update that sets everything but the sensor's identity.
#[must_use]
pub fn sensor_update(document: &SensorDocument) -> Vec<u8> {
    let mut w = Writer::document(HEADER_BYTES);
    w.begin("$set");
    sensor_state(&mut w, document);
    w.end();
    if document.outlier.is_none() {
        w.begin("$unset");
        w.count("outlier", 1);
        w.end();
    }
    w.finish()
}

fn identity(w: &mut Writer, sensor: &Sensor) {
    w.text("measurement", &sensor.measurement);
    w.begin("tags");
    for (name, value) in &sensor.tags {
        w.text(&key(name), value);
    }
    w.end();
}

fn begin_set(w: &mut Writer, page: &Page) {
    w.begin("$set");
    marks(w, page);
    summaries(w, &page.readings);
    order(w, page);
}

fn marks(w: &mut Writer, page: &Page) {
    let times = page.readings.times();
    w.count("rev", page.next_rev());
    w.boolean("closed", page.closed);
    w.count("count", times.len() as u64);
    w.date("first", times.first().map_or(0, |t| t.div_euclid(MILLI_NS)));
    w.date("last", times.last().map_or(0, |t| t.div_euclid(MILLI_NS)));
    w.boolean("hasOverflow", page.has_overflow);
}

fn readings(w: &mut Writer, readings: &Readings, range: Range<usize>) {
    let start = range.start;
    let columns: Vec<(Cow<'_, str>, &[Option<Value>])> =
        readings.columns().map(|(name, cells)| (key(name), cells)).collect();
    for index in range {
        w.begin_element(index - start);
        time(w, readings.times()[index]);
        for (name, cells) in &columns {
            if let Some(value) = &cells[index] {
                w.value(name, value);
            }
        }
        w.end();
    }
}

fn time(w: &mut Writer, time: i64) {
    w.date("ts", time.div_euclid(MILLI_NS));
    match time.rem_euclid(MILLI_NS) {
        0 => {}
        rest => w.count("ns", rest.unsigned_abs()),
    }
}

fn summaries(w: &mut Writer, readings: &Readings) {
    w.begin("summary");
    for (name, summary) in readings.summaries() {
        let figures = summary.figures();
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
                && let (Value::Float(sum), Some(rest)) = (value, &figures.rest)
            {
                self::rest(w, *sum, rest);
            }
        }
        w.end();
    }
    w.end();
}

/// What tells later from earlier. It counts only with the rev that it was written with: a version that does not know it
/// leaves it as it is.
fn order(w: &mut Writer, page: &Page) {
    let stamps = page.readings.stamps();
    w.begin("order");
    w.count("rev", page.next_rev());
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

/// What rounding left of a sum that is a double: 0 where it left nothing, since a sum without it is an older program's.
fn rest(w: &mut Writer, sum: f64, rest: &Rest) {
    let mut doubles = rest.doubles(sum).peekable();
    let first = doubles.next().unwrap_or(0.0);
    if doubles.peek().is_none() {
        return w.float("rest", first);
    }
    w.begin_array("rest");
    for (place, part) in std::iter::once(first).chain(doubles).enumerate() {
        w.float(&place.to_string(), part);
    }
    w.end();
}

/// Of a page that a version without stamps wrote; the field is never left out, since that version asks for it.
fn applied(w: &mut Writer, page: &Page) {
    w.begin("applied");
    for (instance, sequence) in &page.applied {
        w.long(&key(instance), i64::try_from(*sequence).unwrap_or(i64::MAX));
    }
    w.end();
}

fn signed(stamp: Stamp) -> i64 {
    i64::try_from(stamp).unwrap_or(i64::MAX)
}

fn sensor_state(w: &mut Writer, document: &SensorDocument) {
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
}

fn one_reading(w: &mut Writer, reading: &Reading) {
    time(w, reading.time);
    for (name, value) in &reading.fields {
        w.value(&key(name), value);
    }
}
