//! What a change of relabels does to the names of a database's sensors.

use std::collections::HashMap;
use std::sync::Arc;

use crate::bucket::Relabels;
use crate::bucket::settings::owner;
use crate::query::engine::Engine;
use crate::query::engine::directory::DirectoryEntry;
use crate::query::engine::memory::CHOOSE;
use crate::query::{Budget, QueryError};
use crate::reading::{Family, Sensor};

/// Names that are given as examples.
const EXAMPLES: usize = 10;

/// What a change of relabels does, counted by the names that sensors have from its time on.
#[derive(Debug, Default)]
pub struct RelabelEffect {
    /// Stored sensors that get another name.
    pub renamed: u64,
    /// Of these, sensors that get a name which another stored sensor has, too.
    pub united: u64,
    /// Some of the names, before and after.
    pub examples: Vec<(String, String)>,
    /// A field that would be of two families under one name.
    pub conflict: Option<String>,
}

/// Stored sensors that have a name in common at some time.
#[derive(Debug, Default)]
struct Sharing {
    /// Their places, and whether they have not had the name before.
    places: Vec<(usize, bool)>,
    /// How many have the name in the end, and how many of these had another one.
    last: (u64, u64),
}

/// The effect of a change from some relabels to others, in a database and its retention policies.
///
/// # Errors
/// If the store does not answer, or acked readings are still being read back.
pub async fn effect(
    engine: &Engine,
    budget: &Budget,
    database: &str,
    change: (&Relabels, &Relabels),
) -> Result<RelabelEffect, QueryError> {
    let mut effect = RelabelEffect::default();
    for stored in engine.all_databases().await?.iter().filter(|name| owner(name) == database) {
        add_effect(engine, budget, stored, change, &mut effect).await?;
    }
    Ok(effect)
}

/// Adds the effect in one stored database.
async fn add_effect(
    engine: &Engine,
    budget: &Budget,
    database: &str,
    (before, after): (&Relabels, &Relabels),
    effect: &mut RelabelEffect,
) -> Result<(), QueryError> {
    let (stored, _) = engine.as_stored(budget, database).await?;
    let _held = budget.hold(stored.len() * 8 * size_of::<Arc<Sensor>>())?;
    let mut by_name: HashMap<Box<str>, Sharing> = HashMap::new();
    for (chunk, some) in stored.chunks(CHOOSE).enumerate() {
        for (at, entry) in some.iter().enumerate() {
            let (old, new) = (keys_of(before, &entry.sensor), keys_of(after, &entry.sensor));
            let (Some(last_old), Some(last_new)) = (old.last(), new.last()) else { continue };
            let is_renamed = last_old != last_new;
            if is_renamed {
                effect.renamed += 1;
                if effect.examples.len() < EXAMPLES {
                    effect.examples.push((last_old.to_string(), last_new.to_string()));
                }
            }
            for (nth, name) in new.iter().enumerate() {
                let of = by_name.entry(name.clone()).or_default();
                if !new[..nth].contains(name) {
                    of.places.push((chunk * CHOOSE + at, !old.contains(name)));
                }
                if nth + 1 == new.len() {
                    of.last = (of.last.0 + 1, of.last.1 + u64::from(is_renamed));
                }
            }
        }
        budget.pause().await?;
    }
    for (name, Sharing { places, last }) in &by_name {
        if last.0 > 1 {
            effect.united += last.1;
        }
        if effect.conflict.is_none() && places.len() > 1 && places.iter().any(|(_, is_new)| *is_new) {
            effect.conflict = conflict(name, places, &stored, before);
        }
    }
    Ok(())
}

/// The names that a stored sensor has, in the order of time.
fn keys_of(relabels: &Relabels, sensor: &Arc<Sensor>) -> Vec<Box<str>> {
    relabels.names_of(sensor).into_iter().map(|(_, name)| name.key.clone()).collect()
}

/// A field that sensors which come to have a name in common have with different families. At different times, too: what is read under
/// a name has one family. Those that had a name in common before are as they were.
fn conflict(name: &str, places: &[(usize, bool)], stored: &[DirectoryEntry], before: &Relabels) -> Option<String> {
    let mut families: HashMap<&str, Family> = HashMap::new();
    let mut fields = places.iter().flat_map(|(place, _)| stored[*place].fields.iter());
    if fields.all(|(field, family)| *families.entry(&**field).or_insert(*family) == *family) {
        return None;
    }
    for (nth, (place, is_new)) in places.iter().enumerate() {
        for (other, _) in places[..nth].iter().filter(|(_, is_other_new)| *is_new || *is_other_new) {
            let (one, other) = (&stored[*other], &stored[*place]);
            let differs = |(field, family): &(Arc<str>, Family)| {
                let known = one.fields.iter().find(|(known, _)| known == field).map(|(_, known)| *known);
                known.filter(|known| known != family).map(|known| (field.clone(), known, *family))
            };
            let Some((field, known, family)) = other.fields.iter().find_map(differs) else { continue };
            let (had, has) = (keys_of(before, &one.sensor), keys_of(before, &other.sensor));
            if !had.iter().any(|name| has.contains(name)) {
                return Some(format!(
                    "the field {field:?} of {name} would be {} at one of its sensors and {} at another: one field has values of one family",
                    known.name(),
                    family.name()
                ));
            }
        }
    }
    None
}
