//! Decodes pages and sensors from BSON. Documents are not trusted: a malformed one is a [`StorageError::Unreadable`] with
//! its id.

use std::sync::Arc;

use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bson::{Bson, Document};

use super::distribution::{distribution, field_bounds};
use super::encode::SCHEMA_VERSION;
use super::meta;
use super::writer::DECIMAL_HIGH;
use crate::bucket::exact::SumRest;
use crate::bucket::page::{LeftOut, StoredPage};
use crate::bucket::stamps::StampOrder;
use crate::bucket::store::{Outlier, Projection, ScannedPage};
use crate::bucket::summary::Number;
use crate::bucket::{Lifetime, Reading, Readings, Result, SensorDocument, StorageError, Summary};
use crate::names::from_key;
use crate::reading::stamp::SETTLED;
use crate::reading::time::MILLI_NS;
use crate::reading::{Family, Hour, Sensor, Stamp, Value};

type Summaries = Vec<(Arc<str>, Summary)>;

/// The reason that a document is unreadable, without its id.
pub(super) type Detail = String;

/// Decodes a page with its readings. Summaries are recomputed from them.
///
/// # Errors
/// [`StorageError::Unreadable`] for another schema version or a damaged document.
pub fn decode_page(document: &RawDocument) -> Result<StoredPage> {
    decode_current(document, |document| stored_page(document, stamped_readings(document)?, None))
}

/// The fields that [`decode_page_marks`] reads.
pub const PAGE_MARKS: [&str; 9] =
    ["_id", "schemaVersion", "page", "rev", "closed", "hasOverflow", "count", "first", "last"];

/// A computed field with the size of the whole page. No stored page has a field of this name.
pub const PAGE_SIZE: &str = "size";

/// Decodes a page without its readings. The document needs only the fields [`PAGE_MARKS`].
///
/// # Errors
/// As [`decode_page`].
pub fn decode_page_marks(document: &RawDocument) -> Result<StoredPage> {
    decode_current(document, |document| {
        let count = usize::try_from(whole(document, "count")?).map_err(|e| e.to_string())?;
        let bytes = match document.get(PAGE_SIZE).map_err(|e| e.to_string())? {
            Some(_) => usize::try_from(whole(document, PAGE_SIZE)?).map_err(|e| e.to_string())?,
            None => document.as_bytes().len(),
        };
        let span_ms = (date(document, "first")?, date(document, "last")?);
        stored_page(document, Readings::default(), Some(LeftOut { count, bytes, span_ms }))
    })
}

/// Checks that a page belongs to the sensor and hour of the `_id` that it was read by, as hourglass writes it.
///
/// # Errors
/// [`StorageError::Unreadable`] if its sensor or start was changed.
pub fn check_owner(document: &RawDocument, sensor: &str, hour: Hour) -> Result<()> {
    decode_current(document, |document| {
        let found = get(document, "sensor")?.as_str().unwrap_or_default();
        let start = date(document, "start")?;
        if found != sensor || start != hour.start_ms() {
            return Err(format!("sensor {found:?} or start {start} ms contradicts the _id"));
        }
        Ok(())
    })
}

/// Decodes the parts of a page that a query needs.
///
/// # Errors
/// As [`decode_page`].
pub fn decode_scanned(document: &RawDocument, projection: &Projection) -> Result<ScannedPage> {
    decode_current(document, |document| {
        let stored = get(document, "summary")?.as_document().ok_or("summary is not a document")?;
        let mut summary = summaries(stored, projection.distributions)?;
        summary.retain(|(name, _)| projection.has(name));
        Ok(ScannedPage {
            hour: Hour::from_ms(date(document, "start")?),
            number: page_number(document)?,
            summary: summary.into(),
            oldest: order(document)?.oldest,
            readings: if projection.readings { Some(projection.project(stamped_readings(document)?)) } else { None },
            is_expired: false,
        })
    })
}

/// Decodes the rev of a page or sensor document. Fails for an unknown schema version, so that such a document is never
/// overwritten.
///
/// # Errors
/// As [`decode_page`].
pub fn document_rev(document: &RawDocument) -> Result<u64> {
    decode_current(document, |document| whole(document, "rev"))
}

/// Decodes the greatest stamp of a page.
///
/// # Errors
/// As [`decode_page`].
pub fn document_last(document: &RawDocument) -> Result<Stamp> {
    decode_current(document, |document| Ok(order(document)?.last))
}

/// Decodes a sensor's document.
///
/// # Errors
/// As [`decode_page`].
pub fn decode_sensor(document: &RawDocument) -> Result<SensorDocument> {
    decode_current(document, |document| {
        let mut fields = Vec::new();
        for element in get(document, "fields")?.as_document().ok_or("fields is not a document")? {
            let (name, family) = element.map_err(|e| e.to_string())?;
            let family = family.as_str().and_then(Family::from_name).ok_or("a field has an unknown family")?;
            fields.push((Arc::from(from_key(name.as_str())), family));
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
            recent: reading_list(array(document, "recent")?)?,
            outlier: outlier(document)?,
            lifetime: lifetime(document).map(Box::new),
            meta: meta::read(document),
        })
    })
}

/// Decodes a document of this program's schema version. The error contains the document's id.
pub(super) fn decode_current<T>(document: &RawDocument, read: impl Fn(&RawDocument) -> Result<T, Detail>) -> Result<T> {
    decode_versions(document, SCHEMA_VERSION, read)
}

/// Decodes a document of a schema version from 1 to `latest`.
pub(super) fn decode_versions<T>(
    document: &RawDocument,
    latest: u64,
    read: impl Fn(&RawDocument) -> Result<T, Detail>,
) -> Result<T> {
    let checked = |document: &RawDocument| match whole(document, "schemaVersion")? {
        version if (1..=latest).contains(&version) => read(document),
        other => Err(other_version(other, latest)),
    };
    decode_as(document, latest, checked)
}

/// Checks that a document has a schema version from 1 to `latest`.
///
/// # Errors
/// [`StorageError::Newer`] for a later version, [`StorageError::Unreadable`] for no version.
pub fn check_version(document: &RawDocument, latest: u64) -> Result<()> {
    decode_versions(document, latest, |_| Ok(()))
}

/// Decodes a document of any schema version. If that fails, the error is [`StorageError::Newer`] for a later version and
/// [`StorageError::Unreadable`] otherwise.
pub(super) fn decode_any<T>(document: &RawDocument, read: impl Fn(&RawDocument) -> Result<T, Detail>) -> Result<T> {
    decode_as(document, SCHEMA_VERSION, read)
}

fn decode_as<T>(document: &RawDocument, latest: u64, read: impl Fn(&RawDocument) -> Result<T, Detail>) -> Result<T> {
    read(document).map_err(|detail| {
        let id = document.get_str("_id").unwrap_or("without an _id").to_owned();
        let is_newer = whole(document, "schemaVersion").is_ok_and(|version| version > latest);
        if is_newer { StorageError::Newer { id, detail } } else { StorageError::Unreadable { id, detail } }
    })
}

pub(super) fn get<'a>(document: &'a RawDocument, name: &str) -> Result<RawBsonRef<'a>, Detail> {
    document.get(name).map_err(|e| e.to_string())?.ok_or_else(|| format!("the field {name} is missing"))
}

pub(super) fn date(document: &RawDocument, name: &str) -> Result<i64, Detail> {
    let date = get(document, name)?.as_datetime().ok_or_else(|| format!("{name} is not a date"))?;
    Ok(date.timestamp_millis())
}

pub(super) fn boolean(document: &RawDocument, name: &str) -> Result<bool, Detail> {
    get(document, name)?.as_bool().ok_or_else(|| format!("{name} is not a boolean"))
}

/// Returns a field with a non-negative integer.
pub(super) fn whole(document: &RawDocument, name: &str) -> Result<u64, Detail> {
    let value = match get(document, name)? {
        RawBsonRef::Int32(v) => i64::from(v),
        RawBsonRef::Int64(v) => v,
        other => return Err(format!("{name} is a {:?}, not a whole number", other.element_type())),
    };
    u64::try_from(value).map_err(|_| format!("{name} is negative"))
}

pub(super) fn text<'a>(document: &'a RawDocument, name: &str) -> Result<&'a str, Detail> {
    get(document, name)?.as_str().ok_or_else(|| format!("{name} is not a string"))
}

pub(super) fn array<'a>(document: &'a RawDocument, name: &str) -> Result<&'a RawArray, Detail> {
    get(document, name)?.as_array().ok_or_else(|| format!("{name} is not an array"))
}

/// Checks the schema version of the registry or of settings, which the driver returns as a [`Document`].
pub(super) fn check_document_version(document: &Document, id: impl Fn() -> String) -> Result<()> {
    let version = match document.get("schemaVersion") {
        Some(Bson::Int32(version)) => i64::from(*version),
        Some(Bson::Int64(version)) => *version,
        _ => 0,
    };
    match u64::try_from(version).unwrap_or_default() {
        SCHEMA_VERSION => Ok(()),
        version if version > SCHEMA_VERSION => {
            Err(StorageError::Newer { id: id(), detail: other_version(version, SCHEMA_VERSION) })
        }
        version => Err(StorageError::Unreadable { id: id(), detail: other_version(version, SCHEMA_VERSION) }),
    }
}

fn other_version(version: u64, latest: u64) -> Detail {
    format!("schema version {version} is unknown; this program knows {latest}")
}

fn page_number(document: &RawDocument) -> Result<u32, Detail> {
    u32::try_from(whole(document, "page")?).map_err(|e| e.to_string())
}

fn stored_page(document: &RawDocument, readings: Readings, left_out: Option<LeftOut>) -> Result<StoredPage, Detail> {
    Ok(StoredPage {
        number: page_number(document)?,
        rev: whole(document, "rev")?,
        closed: boolean(document, "closed")?,
        has_overflow: boolean(document, "hasOverflow")?,
        readings,
        cut: false,
        left_out,
    })
}

/// Decodes the stamps of a page.
pub(super) fn order(document: &RawDocument) -> Result<StampOrder<'_>, Detail> {
    let order = get(document, "order")?.as_document().ok_or("order is not a document")?;
    let stamps = match order.get("stamps").map_err(|e| e.to_string())? {
        None => &[],
        Some(stamps) => stamps.as_binary().ok_or("order.stamps is not binary data")?.bytes,
    };
    let floor = whole(order, "floor")?;
    let oldest = if matches!(order.get("first"), Ok(Some(_))) { whole(order, "first")? } else { floor };
    Ok(StampOrder { floor, oldest, last: whole(order, "last")?, stamps: stamps.into() })
}

/// Decodes the readings with their stamps.
fn stamped_readings(document: &RawDocument) -> Result<Readings, Detail> {
    let mut set = readings(array(document, "readings")?)?;
    let order = order(document)?;
    set.decode_stamps(order.floor, &order.stamps).map_err(|e| e.to_string())?;
    set.set_bounds(&field_bounds(document, "summary"));
    Ok(set)
}

/// Interned field names of a page's readings, each with its BSON key. Nearly all readings have their fields in the same
/// order, so a lookup first tries the field's position.
#[derive(Default)]
struct NameCache(Vec<(String, Arc<str>)>);

impl NameCache {
    /// Returns the name of a BSON key that is at position `hint` of its reading.
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

pub(super) fn readings(array: &RawArray) -> Result<Readings, Detail> {
    let mut names = NameCache::default();
    let mut set = Readings::default();
    let mut last = None;
    let mut one = Reading { time: 0, fields: Vec::new() };
    for element in array {
        let element = element.map_err(|e| e.to_string())?;
        reading_into(&mut one, element.as_document().ok_or("a reading is not a document")?, &mut names)?;
        if last.is_some_and(|last| last >= one.time) {
            return Err(format!("reading at {} ns is out of order or a duplicate", one.time));
        }
        last = Some(one.time);
        set.push(one.time, SETTLED, one.fields.iter().map(|(name, value)| (name, value)));
    }
    set.settle(true);
    Ok(set)
}

/// Decodes an array of readings in stored order, which need not be time order.
pub(super) fn reading_list(array: &RawArray) -> Result<Vec<Reading>, Detail> {
    let mut names = NameCache::default();
    let mut readings = Vec::new();
    for element in array {
        let element = element.map_err(|e| e.to_string())?;
        let mut reading = Reading { time: 0, fields: Vec::new() };
        reading_into(&mut reading, element.as_document().ok_or("a reading is not a document")?, &mut names)?;
        readings.push(reading);
    }
    Ok(readings)
}

fn reading_into(reading: &mut Reading, document: &RawDocument, names: &mut NameCache) -> Result<(), Detail> {
    reading.fields.clear();
    let mut millis = None;
    let mut rest = 0;
    for element in document {
        let (key, value) = element.map_err(|e| e.to_string())?;
        match (key.as_str(), value) {
            ("ts", RawBsonRef::DateTime(at)) => millis = Some(at.timestamp_millis()),
            ("ns", RawBsonRef::Int32(ns)) => rest = i64::from(ns),
            (key, value) => {
                let hint = reading.fields.len();
                let value = field_value(value).ok_or_else(|| format!("the value of {key} has an unsupported type"))?;
                reading.fields.push((names.get(key, hint), value));
            }
        }
    }
    // Compute in i128, because the first millisecond begins before the range of i64 nanoseconds.
    let time = millis.and_then(|ms| i64::try_from(i128::from(ms) * i128::from(MILLI_NS) + i128::from(rest)).ok());
    reading.time = time.ok_or("a reading has no ts, or its ts is out of range")?;
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

/// Decodes the summaries of a page.
fn summaries(document: &RawDocument, with_distributions: bool) -> Result<Summaries, Detail> {
    let mut summaries = Vec::new();
    for element in document {
        let (field, summary) = element.map_err(|e| e.to_string())?;
        let summary = summary.as_document().ok_or("a summary is not a document")?;
        let part = |name: &str| -> Result<Number, Detail> {
            let value = field_value(get(summary, name)?);
            value.as_ref().map(Number::from_value).ok_or_else(|| format!("{name} of a summary is not a number"))
        };
        let sum = part("sum")?;
        let values = [part("min")?, part("max")?, part("first")?, part("last")?];
        let rest = decode_rest(summary.get("rest").map_err(|e| e.to_string())?, sum)?;
        let distribution = if with_distributions { distribution(summary)? } else { None };
        let summary = Summary::from_numbers(whole(summary, "count")?, values, sum, &rest);
        let summary = summary.with_distribution(distribution);
        summaries.push((Arc::from(from_key(field.as_str())), summary));
    }
    Ok(summaries)
}

/// Decodes the rounding remainder of a sum. A sum of integers has none.
pub(super) fn decode_rest(stored: Option<RawBsonRef<'_>>, sum: Number) -> Result<SumRest, Detail> {
    let Number::Float(sum) = sum else { return Ok(SumRest::default()) };
    let rest = match stored {
        Some(RawBsonRef::Double(0.0)) => Some(SumRest::default()),
        Some(RawBsonRef::Double(one)) => SumRest::from_doubles(sum, std::iter::once(one)),
        Some(RawBsonRef::Array(parts)) => {
            let parts: Option<Vec<f64>> = parts.into_iter().map(|part| part.ok()?.as_f64()).collect();
            parts.and_then(|parts| SumRest::from_doubles(sum, parts.into_iter()))
        }
        _ => None,
    };
    rest.ok_or_else(|| "the rest of a sum is malformed".to_owned())
}

/// Decodes the sensor from its measurement and tags.
pub(super) fn identity(document: &RawDocument) -> Result<Arc<Sensor>, Detail> {
    let mut tags = Vec::new();
    for element in get(document, "tags")?.as_document().ok_or("tags is not a document")? {
        let (name, value) = element.map_err(|e| e.to_string())?;
        tags.push((from_key(name.as_str()).into_owned(), value.as_str().ok_or("a tag is not a string")?.to_owned()));
    }
    let sensor =
        Sensor::new(text(document, "measurement")?, tags).map_err(|tag| format!("the tag {tag} is a duplicate"))?;
    Ok(Arc::new(sensor))
}

fn outlier(document: &RawDocument) -> Result<Option<Outlier>, Detail> {
    let Ok(Some(RawBsonRef::Document(outlier))) = document.get("outlier") else { return Ok(None) };
    let clock = |name: &str| date(outlier, name).map(|ms| ms.saturating_mul(MILLI_NS));
    Ok(Some(Outlier {
        since: clock("since")?,
        seen: clock("seen")?,
        last_hour: Hour::from_ms(date(outlier, "lastHour")?),
        pages: u32::try_from(whole(outlier, "pages")?).map_err(|e| e.to_string())?,
    }))
}

/// Decodes the lifetime summaries. Damaged ones are folded again.
fn lifetime(document: &RawDocument) -> Option<Lifetime> {
    let lifetime = document.get_document("lifetime").ok()?;
    let hour = |name: &str| date(lifetime, name).map(Hour::from_ms).ok();
    Some(Lifetime {
        as_of: date(lifetime, "asOf").ok()?.saturating_mul(MILLI_NS),
        hours: hour("from")?..hour("to")?,
        fields: summaries(lifetime.get_document("fields").ok()?, true).ok()?,
    })
}
