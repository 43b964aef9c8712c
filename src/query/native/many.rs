//! Readings of many sensors in parts: sensor by sensor in key order.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Selection;
use super::readings::{Order, first, read, remaining_range, room};
use crate::bucket::Reading;
use crate::bucket::meta::META_PREFIX;
use crate::kinds::{Kinds, units_of};
use crate::query::engine::directory::DirectoryEntry;
use crate::query::engine::memory::CHOOSE;
use crate::query::selector::Selector;
use crate::query::{Budget, HeldBytes, Query, QueryError};
use crate::reading::Sensor;

/// A selection of readings of many sensors.
#[derive(Debug, Clone)]
pub struct ManySelection {
    pub selector: Selector,
    /// Database, range and fields. Its sensor is ignored.
    pub per_sensor: Selection,
    /// The order of the readings of each sensor.
    pub order: Order,
    /// The start of this part: the key of a sensor, and the time of its next reading.
    pub start: Option<(String, i64)>,
}

/// Bytes of memory per name in a list, without its characters. It is large, because every tag has a tree of its values.
pub(super) const WORD_BYTES: usize = 400;

/// The readings of one sensor in an answer.
#[derive(Debug)]
pub struct SensorReadings {
    pub sensor: Arc<Sensor>,
    pub readings: Vec<Reading>,
}

/// A part of the answer.
#[derive(Debug)]
pub struct ManyReadings {
    /// The sensors with readings in this part.
    pub series: Vec<SensorReadings>,
    /// The start of the next part, if there is one.
    pub next: Option<(String, i64)>,
    /// The memory of the part.
    pub held: HeldBytes,
}

impl Query {
    /// Returns the first `limit` readings of a selection of many sensors.
    ///
    /// # Errors
    /// If the answer would be incomplete.
    pub async fn many_readings(
        &self,
        budget: &Budget,
        selection: &ManySelection,
        limit: usize,
    ) -> Result<ManyReadings, QueryError> {
        let engine = &self.engine;
        let read = || async {
            let mut chosen = engine.choose(budget, &selection.per_sensor.database, &selection.selector).await?;
            let entries = &mut chosen.entries;
            engine.check_sensors(entries.len())?;
            if let Some((key, _)) = &selection.start {
                entries.retain(|entry| *entry.sensor.key >= **key);
            }
            let mut part = ManyReadings { series: Vec::new(), next: None, held: budget.hold(0)? };
            let mut left = limit;
            for entry in entries {
                let key = entry.sensor.key.to_string();
                let mut one = Selection { sensor: entry.stored.key.to_string(), ..selection.per_sensor.clone() };
                if let Some((_, time)) = selection.start.as_ref().filter(|(start, _)| *start == key) {
                    one.range = remaining_range(selection.order, &one.range, *time);
                }
                if left == 0 || part.held.bytes() >= room(engine) {
                    part.next = Some((key, first(selection.order, &one.range)));
                    break;
                }
                let found = read(engine, budget, &one, selection.order, left, room(engine) - part.held.bytes()).await?;
                left -= found.readings.len();
                part.held.add(found.held);
                if !found.readings.is_empty() {
                    part.series.push(SensorReadings { sensor: entry.sensor.clone(), readings: found.readings });
                }
                if let Some(time) = found.next {
                    part.next = Some((key, time));
                    break;
                }
            }
            Ok::<_, QueryError>(part)
        };
        let part = self.in_turn(budget, &selection.per_sensor.database, read).await?;
        self.count(part.series.iter().map(|series| series.readings.len()).sum());
        Ok(part)
    }
}

/// The tags to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagWords<'a> {
    /// All tags.
    Own,
    /// All tags, and metadata keys as `meta.NAME`.
    WithMetadata,
    /// The tag with this key, or metadata if the key has the prefix `meta.`.
    One(&'a str),
}

/// Returns the listed tags of a sensor with their values.
fn list_tags<'a>(
    entry: &'a DirectoryEntry,
    wanted: TagWords<'a>,
) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> {
    let (one, own) = match wanted {
        TagWords::One(key) => (entry.tag(key).map(|value| (Cow::Borrowed(key), value)), &[][..]),
        TagWords::Own | TagWords::WithMetadata => (None, &*entry.sensor.tags),
    };
    let own = own.iter().map(|(key, value)| (Cow::from(&**key), Cow::from(&**value)));
    let meta = entry.meta.iter().filter(move |_| wanted == TagWords::WithMetadata).flat_map(|meta| meta.values());
    let meta = meta.filter_map(|(name, _)| {
        let key = format!("{META_PREFIX}{name}");
        // A tag with the same name takes precedence.
        let value = entry.tag(&key).filter(|_| entry.sensor.tag(&key).is_none())?;
        Some((Cow::Owned(key), value))
    });
    one.into_iter().chain(own).chain(meta)
}

impl Query {
    /// Lists the measurements, tags with their values, and fields of the selected sensors.
    ///
    /// # Errors
    /// If the store does not answer, or the names exceed the budget.
    pub async fn vocabulary(
        &self,
        budget: &Budget,
        database: &str,
        selector: &Selector,
        tags: TagWords<'_>,
    ) -> Result<Vocabulary, QueryError> {
        self.in_turn(budget, database, || async {
            let chosen = self.engine.choose(budget, database, selector).await?;
            let mut words = Vocabulary::default();
            let mut held = budget.hold(0)?;
            for batch in chosen.entries.chunks(CHOOSE) {
                held.grow(words.add(batch, tags, &self.engine.sensor_kinds))?;
                budget.pause().await?;
            }
            words.held = Some(held);
            Ok::<_, QueryError>(words)
        })
        .await
    }
}

/// Names in use, each with its number of sensors.
#[derive(Debug, Default)]
pub struct Vocabulary {
    /// The number of sensors by measurement.
    pub measurements: BTreeMap<String, usize>,
    /// The number of sensors by tag key, or `meta.NAME`, and value.
    pub tags: BTreeMap<String, BTreeMap<String, usize>>,
    /// The family of the values and the number of sensors, by field.
    pub fields: BTreeMap<String, (&'static str, usize)>,
    /// The unit by field; `None` if sensors have different ones.
    pub units: BTreeMap<String, Option<String>>,
    /// The memory of the names.
    pub held: Option<HeldBytes>,
}

impl Vocabulary {
    /// Adds the names of these sensors. Returns the bytes of memory of new names.
    fn add(&mut self, entries: &[DirectoryEntry], tags: TagWords<'_>, kinds: &Kinds) -> usize {
        let mut bytes = 0;
        let mut word = |name: &str| {
            bytes += name.len() + WORD_BYTES;
            name.to_owned()
        };
        for entry in entries {
            match self.measurements.get_mut(&*entry.sensor.measurement) {
                Some(count) => *count += 1,
                None => drop(self.measurements.insert(word(&entry.sensor.measurement), 1)),
            }
            for (key, value) in list_tags(entry, tags) {
                if !self.tags.contains_key(&*key) {
                    self.tags.insert(word(&key), BTreeMap::new());
                }
                let Some(values) = self.tags.get_mut(&*key) else { continue };
                match values.get_mut(&*value) {
                    Some(count) => *count += 1,
                    None => drop(values.insert(word(&value), 1)),
                }
            }
            for (field, family) in entry.fields.iter() {
                match self.fields.get_mut(&**field) {
                    Some((_, count)) => *count += 1,
                    None => drop(self.fields.insert(word(field), (family.name(), 1))),
                }
            }
            let no_meta = crate::bucket::Meta::default();
            let meta = entry.meta.as_deref().unwrap_or(&no_meta);
            let fields = entry.fields.iter().map(|(name, family)| (&**name, *family));
            for (field, unit) in units_of(kinds.kind_of(&entry.stored, meta).map(|kind| &**kind), meta, fields) {
                match self.units.get_mut(&field) {
                    Some(known) if known.as_ref() == Some(&unit) => {}
                    Some(known) => *known = None,
                    None => drop(self.units.insert(word(&field), Some(word(&unit)))),
                }
            }
        }
        bytes
    }
}
