//! The memory that values take, for the budgets of requests.

use std::sync::Arc;

use crate::bucket::{Reading, SensorDocument, Summary};
use crate::reading::{Sensor, Value};

/// Sensors looked at between two pauses.
pub(crate) const CHOOSE: usize = 4096;
/// The memory per name in a set gathered from many sensors, not counting its characters.
pub(crate) const NAME_BYTES: usize = 128;

/// The memory of a reading, and about that of its text in an answer.
pub fn memory_of(reading: &Reading) -> usize {
    let cell = |(name, value): &(Arc<str>, Value)| size_of::<(Arc<str>, Value)>() + name.len() + 2 * text_bytes(value);
    size_of::<Reading>() + reading.fields.iter().map(cell).sum::<usize>()
}

/// The memory of a sensor's document.
#[must_use]
pub fn document_bytes(SensorDocument { sensor, fields, recent, lifetime, meta, .. }: &SensorDocument) -> usize {
    let tags = 2 * sensor.key.len() + size_of_val(&*sensor.tags);
    let fields = size_of_val(&**fields) + fields.iter().map(|(name, _)| name.len()).sum::<usize>();
    size_of::<(SensorDocument, Sensor)>()
        + tags
        + fields
        + 2 * meta.memory()
        + recent.iter().map(memory_of).sum::<usize>()
        + lifetime.iter().flat_map(|lifetime| &lifetime.fields).map(summary_bytes).sum::<usize>()
}

fn summary_bytes((name, summary): &(Arc<str>, Summary)) -> usize {
    size_of::<(Arc<str>, Summary)>() + name.len() + summary.memory()
}

/// The memory of a value's text; zero for other values.
pub fn text_bytes(value: &Value) -> usize {
    if let Value::String(text) = value { text.len() } else { 0 }
}
