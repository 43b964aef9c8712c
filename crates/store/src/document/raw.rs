//! Decodes documents for checks, every field as stored. Fields that are derived from the readings may be missing or
//! malformed.

use std::sync::Arc;

use bson::raw::{RawBsonRef, RawDocument};

use super::decode::{
    Detail, array, boolean, date, decode_current, decode_rest, decode_sensor, field_value, identity, order,
    reading_list, text, whole,
};
use super::distribution::distribution;
use super::page_id;
use crate::bucket::raw::{RawPage, RawSensor};
use crate::bucket::stamps::StampOrder;
use crate::bucket::summary::{Figures, Number};
use crate::bucket::{Result, SensorDocument, StorageError};
use crate::names::from_key;
use crate::reading::Hour;

/// Decodes a page that is stored under `key`.
///
/// # Errors
/// [`StorageError::Newer`] for a later schema version, and [`StorageError::Unreadable`] if a field is missing that cannot be
/// computed from the readings. Both have `key` as the id.
pub fn decode_raw_page(document: &RawDocument, key: &str, in_overflow: Option<bool>) -> Result<RawPage> {
    let page = decode_current(document, |document| page(document, key, in_overflow));
    page.map_err(|error| match error {
        StorageError::Unreadable { detail, .. } => StorageError::Unreadable { id: key.to_owned(), detail },
        StorageError::Newer { detail, .. } => StorageError::Newer { id: key.to_owned(), detail },
        other => other,
    })
}

/// Decodes a sensor's document from bytes, as [`super::sensor_document`] makes them.
///
/// # Errors
/// As [`decode_sensor`].
pub fn decode_sensor_bytes(bytes: &[u8]) -> Result<SensorDocument> {
    let unreadable =
        |error: bson::error::Error| StorageError::Unreadable { id: String::new(), detail: error.to_string() };
    decode_sensor(RawDocument::from_bytes(bytes).map_err(unreadable)?)
}

/// Decodes a sensor's document that is stored under `key`.
#[must_use]
pub fn decode_raw_sensor(document: &RawDocument, key: String) -> RawSensor {
    RawSensor { key, document: decode_sensor(document) }
}

fn page(document: &RawDocument, key: &str, in_overflow: Option<bool>) -> Result<RawPage, Detail> {
    let sensor_key = text(document, "sensor")?;
    let start_ms = date(document, "start")?;
    let number = u32::try_from(whole(document, "page")?).map_err(|e| e.to_string())?;
    Ok(RawPage {
        key: key.to_owned(),
        in_overflow,
        id: text(document, "_id")?.to_owned(),
        own_id: page_id(sensor_key, Hour::from_ms(start_ms), number),
        sensor_key: sensor_key.into(),
        sensor: identity(document)?,
        start_ms,
        end_ms: date(document, "end")?,
        number,
        rev: whole(document, "rev")?,
        closed: boolean(document, "closed")?,
        has_overflow: boolean(document, "hasOverflow")?,
        count: whole(document, "count").ok(),
        first_ms: date(document, "first").ok(),
        last_ms: date(document, "last").ok(),
        readings: reading_list(array(document, "readings")?)?,
        summary: summary(document),
        order: order(document).map(StampOrder::into_owned),
    })
}

/// Decodes the summary of a page. A malformed summary counts as one without fields.
fn summary(document: &RawDocument) -> Vec<(Arc<str>, Option<Figures>)> {
    let Ok(Some(RawBsonRef::Document(summary))) = document.get("summary") else { return Vec::new() };
    let fields = summary.into_iter().map_while(Result::ok);
    fields
        .map(|(field, figures)| (Arc::from(from_key(field.as_str())), figures.as_document().and_then(decode_figures)))
        .collect()
}

fn decode_figures(document: &RawDocument) -> Option<Figures> {
    let part = |name: &str| field_value(document.get(name).ok()??);
    let sum = part("sum")?;
    Some(Figures {
        count: whole(document, "count").ok()?,
        min: part("min")?,
        max: part("max")?,
        rest: decode_rest(document.get("rest").ok()?, Number::from_value(&sum)).ok()?,
        sum,
        avg: part("avg")?,
        first: part("first")?,
        last: part("last")?,
        distribution: distribution(document).ok()?.map(Box::new),
    })
}
