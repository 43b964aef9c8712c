//! Stored documents for people.

use bson::raw::RawDocument;

use crate::bucket::store::{PackedReadings, ShownDocument};
use crate::bucket::{Result, StorageError};
use crate::document::{decode_day, relaxed_json};

/// The collections in which a sensor has documents.
pub const SENSORS: &str = "sensors";
pub const BUCKETS: &str = "buckets";
pub const OVERFLOW: &str = "overflow";
pub const DAYS: &str = "days";

/// Renders a document of a collection. Decodes packed readings, if they are not damaged.
///
/// # Errors
/// If the document is not BSON.
pub fn shown(collection: &'static str, document: &RawDocument) -> Result<ShownDocument> {
    let id = || document.get_str("_id").unwrap_or_default().to_owned();
    let json = relaxed_json(document).map_err(|detail| StorageError::Unreadable { id: id(), detail })?;
    let is_binary = ["sealed", "packed"].iter().any(|field| document.get_binary(field).is_ok());
    let day = if is_binary && collection == DAYS { decode_day(document).ok() } else { None };
    let packed = day.map(|day| PackedReadings {
        first: (0..day.readings.len().min(PackedReadings::MAX)).map(|index| day.readings.reading(index)).collect(),
        count: day.readings.len(),
    });
    Ok(ShownDocument { collection, json, packed })
}
