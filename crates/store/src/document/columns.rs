//! The readings of a day's part as columns, for people who read them in `mongosh`. Each array has one element per reading.
//!
//! ```text
//! { at: [Date, …], ns: [Int32, …] (only if some time is not a whole millisecond),
//!   fields: { <field>: [<value> or null, …], … } }
//! ```
//!
//! Times and values are stored as in pages: `at` is floored to whole milliseconds and `ns` (0..=999999) is the rest.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bson::raw::RawDocument;

use super::BsonWriter;
use super::day_read::{list, optional};
use super::decode::{Detail, get};
use crate::bucket::Readings;
use crate::bucket::columns::Cell;
use crate::names::{from_key, key};
use crate::reading::Stamp;
use crate::reading::time::MILLI_NS;

/// Maximum size of columns in bytes. Half of MongoDB's document limit, because an update must fit into one command.
const BYTES_MAX: usize = 8 << 20;
/// Estimated bytes of an element: its type, its index as text, and a number.
const ELEMENT_BYTES: usize = 16;

/// Encodes the readings as columns. Returns `None` if they exceed [`BYTES_MAX`].
pub(super) fn columns_document(readings: &Readings) -> Option<Vec<u8>> {
    let times = readings.times();
    let capacity = (times.len() + readings.cell_count()) * ELEMENT_BYTES;
    let mut w = BsonWriter::document(capacity.min(BYTES_MAX));
    w.array("at", times.iter(), |w, key, time| w.date(key, time.div_euclid(MILLI_NS)));
    if times.iter().any(|time| time.rem_euclid(MILLI_NS) != 0) {
        w.array("ns", times.iter(), |w, key, time| w.count(key, time.rem_euclid(MILLI_NS).unsigned_abs()));
    }
    w.begin("fields");
    for (name, cells) in readings.columns() {
        w.array(&key(name), cells.iter().map(Option::as_ref), BsonWriter::optional);
        if w.byte_count() > BYTES_MAX {
            return None;
        }
    }
    w.end();
    Some(w.finish())
}

/// Decodes the readings of a columns document. All cells are settled at `floor`.
pub(super) fn decode_columns(columns: &RawDocument, floor: Stamp) -> Result<Readings, Detail> {
    let millis = list(columns, "at", |at| at.as_datetime().map(|at| at.timestamp_millis()))?;
    let rests = match columns.get("ns").map_err(|e| e.to_string())? {
        None => vec![0; millis.len()],
        Some(_) => list(columns, "ns", |ns| ns.as_i32().map(i64::from).filter(|ns| (0..MILLI_NS).contains(ns)))?,
    };
    if rests.len() != millis.len() {
        return Err("readings.ns and readings.at differ in length".to_owned());
    }
    // Compute in i128, because the first millisecond begins before the range of i64 nanoseconds.
    let time = |(ms, ns): (i64, i64)| i64::try_from(i128::from(ms) * i128::from(MILLI_NS) + i128::from(ns)).ok();
    let times: Option<Vec<i64>> = millis.into_iter().zip(rests).map(time).collect();
    let times = times.ok_or("a time in readings.at is out of range")?;
    let fields = get(columns, "fields")?.as_document().ok_or("readings.fields is not a document")?;
    let mut found: Vec<(Arc<str>, Vec<Cell>)> = Vec::new();
    for element in fields {
        let (name, _) = element.map_err(|e| e.to_string())?;
        let cells = list(fields, name.as_str(), optional)?;
        if cells.len() != times.len() {
            return Err(format!("readings.fields.{} and readings.at differ in length", name.as_str()));
        }
        found.push((Arc::from(from_key(name.as_str())), cells));
    }
    let mut readings = Readings::from_columns(times, found).map_err(|e| e.to_string())?;
    readings.raise_floor(floor);
    Ok(readings)
}
