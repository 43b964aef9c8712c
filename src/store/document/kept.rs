//! Documents for whoever checks them: everything they say of themselves, as it stands there. What
//! can be made anew from the readings may be missing or of any kind.

use std::sync::Arc;

use bson::raw::{RawBsonRef, RawDocument};

use super::decode::{
    Names, Trouble, applied, array, boolean, check_version, date, decode_sensor, field_value, get, identity, named,
    order, reading_into, rest_of, whole,
};
use super::page_id;
use crate::bucket::kept::{KeptPage, KeptSensor};
use crate::bucket::stamps::Order;
use crate::bucket::summary::Figures;
use crate::bucket::{Reading, StorageError};
use crate::reading::Hour;
use crate::store::names::from_key;

/// A page that the store finds under this key.
///
/// # Errors
/// [`StorageError::Unreadable`], by its key, for another schema version, or a document that lacks
/// what cannot be made anew.
pub fn decode_kept(document: &RawDocument, key: &str, in_overflow: Option<bool>) -> Result<KeptPage, StorageError> {
    let page = named(document, |document| page(document, key, in_overflow));
    page.map_err(|error| match error {
        StorageError::Unreadable { detail, .. } => StorageError::Unreadable { id: key.to_owned(), detail },
        other => other,
    })
}

/// A sensor's document that the store finds under this key.
#[must_use]
pub fn decode_kept_sensor(document: &RawDocument, key: String) -> KeptSensor {
    KeptSensor { key, document: decode_sensor(document) }
}

fn page(document: &RawDocument, key: &str, in_overflow: Option<bool>) -> Result<KeptPage, Trouble> {
    check_version(document)?;
    let text = |name: &'static str| get(document, name)?.as_str().ok_or_else(|| format!("{name} is no string"));
    let (sensor_key, start_ms) = (text("sensor")?, date(document, "start")?);
    let number = u32::try_from(whole(document, "page")?).map_err(|e| e.to_string())?;
    Ok(KeptPage {
        key: key.to_owned(),
        in_overflow,
        id: text("_id")?.to_owned(),
        own_id: page_id(sensor_key, Hour::of_ms(start_ms), number),
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
        readings: readings(document)?,
        summary: summary(document),
        order: order(document).map(|order| order.map(Order::into_owned)),
        applied: applied(document)?,
    })
}

fn readings(document: &RawDocument) -> Result<Vec<Reading>, Trouble> {
    let (mut names, mut readings) = (Names::default(), Vec::new());
    for element in array(document, "readings")? {
        let element = element.map_err(|e| e.to_string())?;
        let mut reading = Reading { time: 0, fields: Vec::new() };
        reading_into(&mut reading, element.as_document().ok_or("a reading is no document")?, &mut names)?;
        readings.push(reading);
    }
    Ok(readings)
}

/// What is no summary at all says nothing of any field.
fn summary(document: &RawDocument) -> Vec<(Arc<str>, Option<Figures>)> {
    let Ok(Some(RawBsonRef::Document(summary))) = document.get("summary") else { return Vec::new() };
    let fields = summary.into_iter().map_while(Result::ok);
    fields
        .map(|(field, figures)| (Arc::from(from_key(field.as_str())), figures.as_document().and_then(figures_of)))
        .collect()
}

fn figures_of(document: &RawDocument) -> Option<Figures> {
    let part = |name: &str| field_value(document.get(name).ok()??);
    let sum = part("sum")?;
    Some(Figures {
        count: whole(document, "count").ok()?,
        min: part("min")?,
        max: part("max")?,
        rest: rest_of(document, &sum).ok()?,
        sum,
        avg: part("avg")?,
        first: part("first")?,
        last: part("last")?,
    })
}
