//! Readings of many sensors, sensor after sensor in key order and each in the order asked for, part by part.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Selection;
use super::readings::{Order, bytes_of, read};
use crate::bucket::Reading;
use crate::query::QueryError;
use crate::query::choice::Choice;
use crate::query::engine::Engine;
use crate::reading::Sensor;

/// Which readings.
#[derive(Debug, Clone)]
pub struct ManySelection {
    /// Of which sensors.
    pub choice: Choice,
    /// Range and fields; its sensor does not count.
    pub of_each: Selection,
    /// Which of each sensor's readings come first.
    pub order: Order,
    /// Where the part before ended: a sensor's key, and the time of its next reading.
    pub from: Option<(String, i64)>,
}

/// A part of the answer.
#[derive(Debug, Clone, Default)]
pub struct ManyReadings {
    /// Sensors that have readings in this part.
    pub series: Vec<(Arc<Sensor>, Vec<Reading>)>,
    /// Where the next part begins, if there is one.
    pub next: Option<(String, i64)>,
}

/// The first `limit` readings of a selection of many sensors.
///
/// # Errors
/// When the answer cannot be complete.
pub async fn many_readings(
    engine: &Engine,
    selection: &ManySelection,
    limit: usize,
) -> Result<ManyReadings, QueryError> {
    engine.span(&selection.of_each.range)?;
    let mut entries = engine.choose(&selection.of_each.database, &selection.choice).await?;
    engine.check_sensors(entries.len())?;
    if let Some((key, _)) = &selection.from {
        entries.retain(|entry| *entry.sensor.key >= **key);
    }
    let mut part = ManyReadings::default();
    let (mut left, mut bytes) = (limit, 0);
    for entry in entries {
        let key = entry.sensor.key.to_string();
        let mut one = Selection { sensor: key.clone(), ..selection.of_each.clone() };
        if let Some((_, time)) = selection.from.as_ref().filter(|(from, _)| *from == key) {
            one.range = selection.order.rest(&one.range, *time);
        }
        if left == 0 || bytes > engine.options.answer_bytes {
            part.next = Some((key, selection.order.first(&one.range)));
            break;
        }
        let found = read(engine, &one, selection.order, left).await?;
        left -= found.readings.len();
        bytes += found.readings.iter().map(bytes_of).sum::<usize>();
        if !found.readings.is_empty() {
            part.series.push((entry.sensor, found.readings));
        }
        if let Some(time) = found.next {
            part.next = Some((key, time));
            break;
        }
    }
    Ok(part)
}

/// What the sensors chosen have: their measurements, tags with their values, and fields.
///
/// # Errors
/// When the store does not answer.
pub async fn vocabulary(engine: &Engine, database: &str, choice: &Choice) -> Result<Vocabulary, QueryError> {
    let entries = engine.choose(database, choice).await?;
    let mut words = Vocabulary::default();
    for entry in &entries {
        *words.measurements.entry(entry.sensor.measurement.to_string()).or_default() += 1;
        for (key, value) in &entry.sensor.tags {
            *words.tags.entry(key.to_string()).or_default().entry(value.to_string()).or_default() += 1;
        }
        for (field, family) in &entry.fields {
            let known = words.fields.entry(field.to_string()).or_insert((family.name(), 0));
            known.1 += 1;
        }
    }
    Ok(words)
}

/// Names in use, each with the number of sensors that have it.
#[derive(Debug, Clone, Default)]
pub struct Vocabulary {
    /// By measurement.
    pub measurements: BTreeMap<String, usize>,
    /// By tag key and value.
    pub tags: BTreeMap<String, BTreeMap<String, usize>>,
    /// By field: the family of its values, and how many sensors.
    pub fields: BTreeMap<String, (&'static str, usize)>,
}
