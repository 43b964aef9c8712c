//! BSON back to pages and sensors. Nothing in a document is trusted: what does not fit is an
//! [`StorageError::Unreadable`] that names the document.

use std::sync::Arc;

use bson::raw::{RawArray, RawBsonRef, RawDocument};

use super::encode::SCHEMA_VERSION;
use super::writer::DECIMAL_HIGH;
use crate::bucket::page::StoredPage;
use crate::bucket::store::{Outlier, ScannedPage};
use crate::bucket::summary::{Figures, Fold};
use crate::bucket::{Reading, Readings, SensorDocument, StorageError, Summary};
use crate::reading::time::MILLI_NS;
use crate::reading::{Family, Hour, Sensor, Value};
use crate::store::names::from_key;

/// Why a document could not be read, before its id is known.
pub(super) type Trouble = String;

/// A page with its readings; summaries are made anew from them.
///
/// # Errors
/// [`StorageError::Unreadable`] for another schema version or a damaged document.
pub fn decode_page(document: &RawDocument) -> Result<StoredPage, StorageError> {
    named(document, page)
}

/// Whether a page is of the sensor and the hour that its `_id` was asked for by: a write of hourglass fits no other.
///
/// # Errors
/// [`StorageError::Unreadable`] where somebody changed it.
pub fn check_owner(document: &RawDocument, sensor: &str, hour: Hour) -> Result<(), StorageError> {
    named(document, |document| {
        let (found, start) = (get(document, "sensor")?.as_str().unwrap_or_default(), date(document, "start")?);
        if found != sensor || start != hour.start_ms() {
            return Err(format!("its sensor is {found:?} and its start {start} ms, which is not what its _id says"));
        }
        Ok(())
    })
}

/// A page as a query reads it: its stored summary, and its readings if they were asked for.
///
/// # Errors
/// As [`decode_page`].
pub fn decode_scanned(document: &RawDocument, with_readings: bool) -> Result<ScannedPage, StorageError> {
    named(document, |document| {
        check_version(document)?;
        Ok(ScannedPage {
            hour: Hour::of_ms(date(document, "start")?),
            number: u32::try_from(whole(document, "page")?).map_err(|e| e.to_string())?,
            summary: summaries(get(document, "summary")?.as_document().ok_or("summary is no document")?)?,
            readings: if with_readings { Some(readings(array(document, "readings")?)?) } else { None },
        })
    })
}

/// What names a page and tells whether it changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageHeader {
    /// The sensor's key.
    pub sensor: String,
    /// Of which hour.
    pub hour: Hour,
    /// 0 in `buckets`, 1 and up in `overflow`.
    pub number: u32,
    /// Grows by one with every write.
    pub rev: u64,
    /// On page 0: the bucket has, or is about to have, further pages.
    pub has_overflow: bool,
}

/// A page's header, of a document that may lack the rest.
///
/// # Errors
/// As [`decode_page`].
pub fn decode_header(document: &RawDocument) -> Result<PageHeader, StorageError> {
    named(document, |document| {
        check_version(document)?;
        Ok(PageHeader {
            sensor: get(document, "sensor")?.as_str().ok_or("sensor is no string")?.to_owned(),
            hour: Hour::of_ms(date(document, "start")?),
            number: u32::try_from(whole(document, "page")?).map_err(|e| e.to_string())?,
            rev: whole(document, "rev")?,
            has_overflow: boolean(document, "hasOverflow")?,
        })
    })
}

/// The rev of a page or of a sensor's document of the version known here; another one is never written over.
///
/// # Errors
/// As [`decode_page`].
pub fn document_rev(document: &RawDocument) -> Result<u64, StorageError> {
    named(document, |document| {
        check_version(document)?;
        whole(document, "rev")
    })
}

/// A sensor's document.
///
/// # Errors
/// As [`decode_page`].
pub fn decode_sensor(document: &RawDocument) -> Result<SensorDocument, StorageError> {
    named(document, sensor)
}

pub(super) fn named<T>(
    document: &RawDocument,
    read: impl Fn(&RawDocument) -> Result<T, Trouble>,
) -> Result<T, StorageError> {
    read(document).map_err(|detail| {
        let id = document.get_str("_id").unwrap_or("without an _id").to_owned();
        StorageError::Unreadable { id, detail }
    })
}

pub(super) fn get<'a>(document: &'a RawDocument, name: &str) -> Result<RawBsonRef<'a>, Trouble> {
    document.get(name).map_err(|e| e.to_string())?.ok_or_else(|| format!("the field {name} is missing"))
}

pub(super) fn date(document: &RawDocument, name: &str) -> Result<i64, Trouble> {
    let date = get(document, name)?.as_datetime().ok_or_else(|| format!("{name} is no date"))?;
    Ok(date.timestamp_millis())
}

pub(super) fn boolean(document: &RawDocument, name: &str) -> Result<bool, Trouble> {
    get(document, name)?.as_bool().ok_or_else(|| format!("{name} is no boolean"))
}

pub(super) fn whole(document: &RawDocument, name: &str) -> Result<u64, Trouble> {
    let value = match get(document, name)? {
        RawBsonRef::Int32(v) => i64::from(v),
        RawBsonRef::Int64(v) => v,
        other => return Err(format!("{name} is a {:?}, not a whole number", other.element_type())),
    };
    u64::try_from(value).map_err(|_| format!("{name} is negative"))
}

pub(super) fn array<'a>(document: &'a RawDocument, name: &str) -> Result<&'a RawArray, Trouble> {
    get(document, name)?.as_array().ok_or_else(|| format!("{name} is no array"))
}

pub(super) fn check_version(document: &RawDocument) -> Result<(), Trouble> {
    match whole(document, "schemaVersion")? {
        SCHEMA_VERSION => Ok(()),
        other => Err(format!("schema version {other} is not known to this program, which knows {SCHEMA_VERSION}")),
    }
}

fn page(document: &RawDocument) -> Result<StoredPage, Trouble> {
    check_version(document)?;
    Ok(StoredPage {
        number: u32::try_from(whole(document, "page")?).map_err(|e| e.to_string())?,
        rev: whole(document, "rev")?,
        closed: boolean(document, "closed")?,
        has_overflow: boolean(document, "hasOverflow")?,
        readings: readings(array(document, "readings")?)?,
        applied: applied(document)?,
    })
}

pub(super) fn applied(document: &RawDocument) -> Result<Vec<(Arc<str>, u64)>, Trouble> {
    let mut applied = Vec::new();
    for element in get(document, "applied")?.as_document().ok_or("applied is no document")? {
        let (instance, sequence) = element.map_err(|e| e.to_string())?;
        let sequence = sequence.as_i64().and_then(|s| u64::try_from(s).ok()).ok_or("applied holds no sequence")?;
        applied.push((Arc::from(from_key(instance.as_str())), sequence));
    }
    Ok(applied)
}

/// The names met so far, so that a page's readings share them. Fields come in the same order in
/// nearly every reading, so the place of the last find is tried first.
#[derive(Default)]
pub(super) struct Names(Vec<(String, Arc<str>)>);

impl Names {
    fn get(&mut self, key: &str, hint: usize) -> Arc<str> {
        let found = self.0.get(hint).filter(|(k, _)| k == key).or_else(|| self.0.iter().find(|(k, _)| k == key));
        if let Some((_, name)) = found {
            return name.clone();
        }
        let name: Arc<str> = Arc::from(from_key(key));
        self.0.push((key.to_owned(), name.clone()));
        name
    }
}

fn readings(array: &RawArray) -> Result<Readings, Trouble> {
    let mut names = Names::default();
    let mut set = Readings::default();
    let mut last = None;
    let mut one = Reading { time: 0, fields: Vec::new() };
    for element in array {
        let element = element.map_err(|e| e.to_string())?;
        reading_into(&mut one, element.as_document().ok_or("a reading is no document")?, &mut names)?;
        if last.is_some_and(|last| last >= one.time) {
            return Err(format!("the reading at {} ns is out of order or there twice", one.time));
        }
        last = Some(one.time);
        set.push(one.time, one.fields.iter().map(|(name, value)| (name, value)));
    }
    set.settle(true);
    Ok(set)
}

pub(super) fn reading_into(reading: &mut Reading, document: &RawDocument, names: &mut Names) -> Result<(), Trouble> {
    reading.fields.clear();
    let (mut millis, mut rest) = (None, 0);
    for element in document {
        let (key, value) = element.map_err(|e| e.to_string())?;
        match (key.as_str(), value) {
            ("ts", RawBsonRef::DateTime(at)) => millis = Some(at.timestamp_millis()),
            ("ns", RawBsonRef::Int32(ns)) => rest = i64::from(ns),
            (key, value) => {
                let hint = reading.fields.len();
                let value = field_value(value).ok_or_else(|| format!("the value of {key} is of no type kept here"))?;
                reading.fields.push((names.get(key, hint), value));
            }
        }
    }
    // In i128, because the first millisecond begins before the range of i64 nanoseconds.
    let time = millis.and_then(|ms| i64::try_from(i128::from(ms) * i128::from(MILLI_NS) + i128::from(rest)).ok());
    reading.time = time.ok_or("a reading has no ts, or one out of range")?;
    Ok(())
}

pub(super) fn field_value(value: RawBsonRef<'_>) -> Option<Value> {
    Some(match value {
        RawBsonRef::Double(v) => Value::Float(v),
        RawBsonRef::Int64(v) => Value::Integer(v),
        RawBsonRef::Int32(v) => Value::Integer(i64::from(v)),
        RawBsonRef::Decimal128(v) => Value::Unsigned(whole_decimal(&v.bytes())?),
        RawBsonRef::Boolean(v) => Value::Boolean(v),
        RawBsonRef::String(v) => Value::String(v.into()),
        _ => return None,
    })
}

fn whole_decimal(bytes: &[u8; 16]) -> Option<u64> {
    let (low, high) = bytes.split_first_chunk::<8>()?;
    (high == DECIMAL_HIGH.to_le_bytes()).then(|| u64::from_le_bytes(*low))
}

fn summaries(document: &RawDocument) -> Result<Vec<(Arc<str>, Summary)>, Trouble> {
    let mut summaries = Vec::new();
    for element in document {
        let (field, summary) = element.map_err(|e| e.to_string())?;
        let summary = summary.as_document().ok_or("a summary is no document")?;
        let part = |name: &str| -> Result<Value, Trouble> {
            field_value(get(summary, name)?).ok_or_else(|| format!("{name} of a summary is no number"))
        };
        let count = whole(summary, "count")?;
        let [min, max, sum, first, last] = [part("min")?, part("max")?, part("sum")?, part("first")?, part("last")?];
        let summary = summary_of(count, [&min, &max, &sum, &first, &last]);
        summaries.push((Arc::from(from_key(field.as_str())), summary));
    }
    Ok(summaries)
}

/// The summary that says these figures.
#[must_use]
pub fn summary_of_figures(figures: &Figures) -> Summary {
    let Figures { count, min, max, sum, first, last, avg: _ } = figures;
    summary_of(*count, [min, max, sum, first, last])
}

fn summary_of(count: u64, [min, max, sum, first, last]: [&Value; 5]) -> Summary {
    match (as_integer(min), as_integer(max), as_integer(first), as_integer(last)) {
        (Some(min), Some(max), Some(first), Some(last)) => {
            Summary::Integers(Fold { count, min, max, sum: nearest_integer(sum), first, last })
        }
        _ => {
            let [min, max, sum, first, last] = [min, max, sum, first, last].map(as_float);
            Summary::Floats(Fold { count, min, max, sum, first, last })
        }
    }
}

fn as_integer(value: &Value) -> Option<i128> {
    match value {
        Value::Integer(v) => Some(i128::from(*v)),
        Value::Unsigned(v) => Some(i128::from(*v)),
        _ => None,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a sum stored as a double is a whole number within i128")]
fn nearest_integer(value: &Value) -> i128 {
    as_integer(value).unwrap_or_else(|| as_float(value) as i128)
}

#[expect(clippy::cast_precision_loss, reason = "a fold with floats counts in doubles")]
fn as_float(value: &Value) -> f64 {
    match value {
        Value::Float(v) => *v,
        Value::Integer(v) => *v as f64,
        Value::Unsigned(v) => *v as f64,
        Value::Boolean(_) | Value::String(_) => f64::NAN,
    }
}

fn sensor(document: &RawDocument) -> Result<SensorDocument, Trouble> {
    check_version(document)?;
    let mut fields = Vec::new();
    for element in get(document, "fields")?.as_document().ok_or("fields is no document")? {
        let (name, family) = element.map_err(|e| e.to_string())?;
        let family = family.as_str().and_then(Family::from_name).ok_or("a field's family is not known")?;
        fields.push((Arc::from(from_key(name.as_str())), family));
    }
    let mut names = Names::default();
    let mut recent = Vec::new();
    for element in array(document, "recent")? {
        let element = element.map_err(|e| e.to_string())?;
        let mut reading = Reading { time: 0, fields: Vec::new() };
        reading_into(&mut reading, element.as_document().ok_or("a recent reading is no document")?, &mut names)?;
        recent.push(reading);
    }
    let seen = |name: &str| match document.get(name) {
        Ok(Some(RawBsonRef::DateTime(at))) => Some(at.timestamp_millis().saturating_mul(MILLI_NS)),
        _ => None,
    };
    Ok(SensorDocument {
        sensor: identity(document)?,
        rev: whole(document, "rev")?,
        fields,
        first_seen: seen("firstSeen"),
        last_seen: seen("lastSeen"),
        recent,
        outlier: outlier(document)?,
    })
}

/// The sensor that measurement and tags make.
pub(super) fn identity(document: &RawDocument) -> Result<Arc<Sensor>, Trouble> {
    let mut tags = Vec::new();
    for element in get(document, "tags")?.as_document().ok_or("tags is no document")? {
        let (name, value) = element.map_err(|e| e.to_string())?;
        tags.push((from_key(name.as_str()).into_owned(), value.as_str().ok_or("a tag is no string")?.to_owned()));
    }
    let measurement = get(document, "measurement")?.as_str().ok_or("measurement is no string")?;
    let sensor = Sensor::new(measurement, tags).map_err(|tag| format!("the tag {tag} is there twice"))?;
    Ok(Arc::new(sensor))
}

fn outlier(document: &RawDocument) -> Result<Option<Outlier>, Trouble> {
    let Ok(Some(RawBsonRef::Document(outlier))) = document.get("outlier") else { return Ok(None) };
    let clock = |name: &str| date(outlier, name).map(|ms| ms.saturating_mul(MILLI_NS));
    Ok(Some(Outlier {
        since: clock("since")?,
        seen: clock("seen")?,
        last_hour: Hour::of_ms(date(outlier, "lastHour")?),
        pages: u32::try_from(whole(outlier, "pages")?).map_err(|e| e.to_string())?,
    }))
}
