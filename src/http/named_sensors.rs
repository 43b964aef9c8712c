//! Sensors' documents of a database with relabels: under the names that they are shown under.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::App;
use super::errors::ApiError;
use super::sensors::ListedSensor;
use crate::bucket::relabel::UnitedPart;
use crate::bucket::store::SensorFilter;
use crate::bucket::{Meta, Relabels, SensorDocument};
use crate::query::Budget;
use crate::query::native::Selection;
use crate::query::native::readings::TimeOrder;
use crate::reading::Sensor;
use crate::reading::time::TIMESTAMP_MIN;

/// Stored sensors whose metadata is looked at together.
const TOGETHER: usize = 256;

/// One batch of names that have readings, with what is known of them together, and the name after which the next batch begins.
///
/// # Errors
/// If the store does not answer, or acked readings are still being read back.
pub async fn listed(
    app: &App,
    budget: &Budget,
    (database, relabels): (&str, &Relabels),
    filter: &SensorFilter,
) -> Result<(Vec<ListedSensor>, Option<String>), ApiError> {
    let names = app.query.names_after(budget, database, filter.after.as_deref(), filter.limit).await?;
    let next = names.last().filter(|_| names.len() == filter.limit).map(|last| last.key.to_string());
    Ok((documents(app, budget, (database, relabels), names).await?, next))
}

/// What is known of these names together, as far as they have readings. Where the document of a sensor that is named otherwise from a time on
/// has none of its latest readings of before, the latest one of these is read.
///
/// # Errors
/// If the store does not answer, or acked readings are still being read back.
pub async fn documents(
    app: &App,
    budget: &Budget,
    (database, relabels): (&str, &Relabels),
    names: Vec<Arc<Sensor>>,
) -> Result<Vec<ListedSensor>, ApiError> {
    let whole = |name: &Arc<Sensor>| {
        vec![UnitedPart { sensor: name.clone(), times: std::iter::once(i64::MIN..i64::MAX).collect() }]
    };
    let parts: Vec<Vec<UnitedPart>> =
        names.iter().map(|name| relabels.parts_of(name).unwrap_or_else(|| whole(name))).collect();
    let mut keys: Vec<&str> = parts.iter().flatten().map(|part| &*part.sensor.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let stored = app.ingest.sensor_documents(database, &keys).await?;
    let of = |part: &UnitedPart| stored.iter().find(|document| document.sensor.key == part.sensor.key).cloned();
    let mut documents = Vec::with_capacity(names.len());
    for (name, parts) in names.into_iter().zip(&parts) {
        let known: Vec<(&UnitedPart, SensorDocument)> =
            parts.iter().filter_map(|part| Some((part, of(part)?))).collect();
        // As in queries: of all stored sensors, whenever they are shown under the name.
        let meta = known.iter().map(|(_, document)| document.meta.clone()).reduce(both).unwrap_or_default();
        let kind = app.settings.kinds.of(known.iter().map(|(part, _)| &*part.sensor), &meta).cloned();
        let mut within = Vec::with_capacity(known.len());
        for (part, document) in known {
            let Some(mut document) = limited(document, part) else { continue };
            if document.recent.is_empty() && part.times.first() != Some(&(i64::MIN..i64::MAX)) {
                read_back(app, budget, (database, part), &mut document).await?;
            }
            within.push(document);
        }
        if let Some(document) = within.into_iter().reduce(united) {
            documents.push(ListedSensor { document: SensorDocument { sensor: name, meta, ..document }, kind });
        }
    }
    Ok(documents)
}

/// A name, and what is said of it.
type NamedMeta = (Arc<Sensor>, Meta);

/// The key of a stored sensor, a name that it is shown under, and all stored sensors of that name.
type DescribedName<'d> = (&'d str, Arc<Sensor>, Vec<Arc<Sensor>>);

/// What is said under the names that some stored sensors with metadata are shown under. Of the stored sensors of a name only the one of
/// the least key has it, so that a list of all stored sensors has each name once.
///
/// # Errors
/// If the store does not answer, or acked changes are still being read back.
pub async fn metas(
    app: &App,
    (database, relabels): (&str, &Relabels),
    documents: &[SensorDocument],
) -> Result<Vec<NamedMeta>, ApiError> {
    let mut named = Vec::with_capacity(documents.len());
    for some in documents.chunks(TOGETHER) {
        let mut about: Vec<DescribedName<'_>> = Vec::new();
        for document in some {
            let names = relabels.names_of(&document.sensor).into_iter();
            let names: BTreeMap<Box<str>, Arc<Sensor>> = names.map(|(_, name)| (name.key.clone(), name)).collect();
            let of = names.into_values().map(|name| relabels.described_by(&name));
            about.extend(of.map(|(name, stored)| (&*document.sensor.key, name, stored)));
        }
        let mut keys: Vec<&str> = about.iter().flat_map(|(_, _, stored)| stored.iter().map(|of| &*of.key)).collect();
        keys.sort_unstable();
        keys.dedup();
        let metas = app.ingest.sensor_metas(database, &keys).await?;
        for (key, name, stored) in about {
            let said = stored.iter().filter_map(|of| metas.get_key_value(&of.key));
            let said = said.filter(|(_, meta)| !meta.is_without_values());
            if said.clone().map(|(of, _)| &**of).min() == Some(key) {
                let meta = said.map(|(_, meta)| meta.clone()).reduce(both);
                named.extend(meta.map(|meta| (name, meta)));
            }
        }
    }
    Ok(named)
}

fn both(mut one: Meta, other: Meta) -> Meta {
    one.unite(&other);
    one
}

/// What a document says of the times in which its sensor is shown under a name; `None` if it has no readings then.
fn limited(mut document: SensorDocument, part: &UnitedPart) -> Option<SensorDocument> {
    let (first, last) = (part.times.first()?.start, part.times.last()?.end);
    if document.first_seen.is_some_and(|seen| seen >= last) || document.last_seen.is_some_and(|seen| seen < first) {
        return None;
    }
    let is_within = |time: &i64| part.times.iter().any(|times| times.contains(time));
    document.recent.retain(|reading| is_within(&reading.time));
    // A time at which there was no reading is none at which one was seen.
    document.first_seen = document.first_seen.filter(is_within);
    document.last_seen = document.last_seen.filter(is_within).or(document.recent.last().map(|reading| reading.time));
    Some(document)
}

/// Reads the latest reading that is shown under a name in the times of a part: a document has only the latest of all times.
async fn read_back(
    app: &App,
    budget: &Budget,
    (database, part): (&str, &UnitedPart),
    document: &mut SensorDocument,
) -> Result<(), ApiError> {
    for times in part.times.iter().rev() {
        // In these times the sensor's key means the name.
        let range = times.start.max(TIMESTAMP_MIN)..times.end;
        let (database, sensor) = (database.to_owned(), part.sensor.key.to_string());
        let selection = Selection { database, sensor, range, fields: Vec::new() };
        let found = app.query.readings(budget, &selection, TimeOrder::Descending, 1).await?;
        if let Some(reading) = found.readings.into_iter().next() {
            document.last_seen = Some(reading.time);
            document.recent.push(reading);
            break;
        }
    }
    Ok(())
}

/// Two documents as one, beside their metadata; the first one's values count where both have one.
fn united(mut one: SensorDocument, other: SensorDocument) -> SensorDocument {
    let is_unknown = |of: &SensorDocument| of.first_seen.is_none() && of.last_seen.is_some();
    let first = [one.first_seen, other.first_seen].into_iter().flatten().min();
    one.first_seen = first.filter(|_| !is_unknown(&one) && !is_unknown(&other));
    for (name, family) in other.fields {
        if !one.fields.iter().any(|(known, _)| *known == name) {
            one.fields.push((name, family));
        }
    }
    one.last_seen = one.last_seen.max(other.last_seen);
    one.rev = one.rev.max(other.rev);
    one.outlier = one.outlier.or(other.outlier);
    let most = one.recent.len().max(other.recent.len());
    for mut reading in other.recent {
        match one.recent.iter_mut().find(|held| held.time == reading.time) {
            Some(held) => {
                reading.fields.retain(|(name, _)| !held.fields.iter().any(|(known, _)| known == name));
                held.fields.append(&mut reading.fields);
            }
            None => one.recent.push(reading),
        }
    }
    one.recent.sort_by_key(|reading| reading.time);
    one.recent.drain(..one.recent.len().saturating_sub(most));
    one
}
