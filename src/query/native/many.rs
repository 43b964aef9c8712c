//! Readings of many sensors, sensor after sensor in key order and each in the order asked for, part by part.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Selection;
use super::readings::{Order, read, room};
use crate::bucket::Reading;
use crate::query::choice::Choice;
use crate::query::engine::Engine;
use crate::query::engine::choose::CHOOSE;
use crate::query::{Budget, Held, QueryError};
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

/// What a name takes in a list, its letters aside: a tag has a tree of its values.
const WORD_BYTES: usize = 400;

/// A part of the answer.
#[derive(Debug)]
pub struct ManyReadings {
    /// Sensors that have readings in this part.
    pub series: Vec<(Arc<Sensor>, Vec<Reading>)>,
    /// Where the next part begins, if there is one.
    pub next: Option<(String, i64)>,
    /// What the part takes.
    pub held: Held,
}

/// The first `limit` readings of a selection of many sensors.
///
/// # Errors
/// When the answer cannot be complete.
pub async fn many_readings(
    engine: &Engine,
    budget: &Budget,
    selection: &ManySelection,
    limit: usize,
) -> Result<ManyReadings, QueryError> {
    engine.span(&selection.of_each.range)?;
    let mut chosen = engine.choose(budget, &selection.of_each.database, &selection.choice).await?;
    let entries = &mut chosen.entries;
    engine.check_sensors(entries.len())?;
    if let Some((key, _)) = &selection.from {
        entries.retain(|entry| *entry.sensor.key >= **key);
    }
    let mut part = ManyReadings { series: Vec::new(), next: None, held: budget.hold(0)? };
    let mut left = limit;
    for entry in entries {
        let key = entry.sensor.key.to_string();
        let mut one = Selection { sensor: key.clone(), ..selection.of_each.clone() };
        if let Some((_, time)) = selection.from.as_ref().filter(|(from, _)| *from == key) {
            one.range = selection.order.rest(&one.range, *time);
        }
        if left == 0 || part.held.bytes() >= room(engine) {
            part.next = Some((key, selection.order.first(&one.range)));
            break;
        }
        let found = read(engine, budget, &one, selection.order, (left, room(engine) - part.held.bytes())).await?;
        left -= found.readings.len();
        part.held.add(found.held);
        if !found.readings.is_empty() {
            part.series.push((entry.sensor.clone(), found.readings));
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
pub async fn vocabulary(
    engine: &Engine,
    budget: &Budget,
    database: &str,
    choice: &Choice,
) -> Result<Vocabulary, QueryError> {
    let chosen = engine.choose(budget, database, choice).await?;
    let mut words = Vocabulary { held: Some(budget.hold(0)?), ..Vocabulary::default() };
    for some in chosen.entries.chunks(CHOOSE) {
        let mut bytes = 0;
        let mut word = |name: &str| {
            bytes += name.len() + WORD_BYTES;
            name.to_owned()
        };
        for entry in some {
            match words.measurements.get_mut(&*entry.sensor.measurement) {
                Some(count) => *count += 1,
                None => drop(words.measurements.insert(word(&entry.sensor.measurement), 1)),
            }
            for (key, value) in &entry.sensor.tags {
                if !words.tags.contains_key(&**key) {
                    words.tags.insert(word(key), BTreeMap::new());
                }
                let Some(values) = words.tags.get_mut(&**key) else { continue };
                match values.get_mut(&**value) {
                    Some(count) => *count += 1,
                    None => drop(values.insert(word(value), 1)),
                }
            }
            for (field, family) in entry.fields.iter() {
                match words.fields.get_mut(&**field) {
                    Some((_, count)) => *count += 1,
                    None => drop(words.fields.insert(word(field), (family.name(), 1))),
                }
            }
        }
        words.held.as_mut().map_or(Ok(()), |held| held.grow(bytes))?;
        budget.pause().await?;
    }
    Ok(words)
}

/// Names in use, each with the number of sensors that have it.
#[derive(Debug, Default)]
pub struct Vocabulary {
    /// By measurement.
    pub measurements: BTreeMap<String, usize>,
    /// By tag key and value.
    pub tags: BTreeMap<String, BTreeMap<String, usize>>,
    /// By field: the family of its values, and how many sensors.
    pub fields: BTreeMap<String, (&'static str, usize)>,
    /// What they take.
    pub held: Option<Held>,
}
