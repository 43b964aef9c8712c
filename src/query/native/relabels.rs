//! What a change of relabels does to the names of a database's sensors.

use std::collections::HashMap;
use std::sync::Arc;

use crate::bucket::Relabels;
use crate::query::engine::Engine;
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

/// The effect of a change from some relabels to others.
///
/// # Errors
/// If the store does not answer, or acked readings are still being read back.
pub async fn effect(
    engine: &Engine,
    budget: &Budget,
    database: &str,
    (before, after): (&Relabels, &Relabels),
) -> Result<RelabelEffect, QueryError> {
    let (stored, _) = engine.as_stored(budget, database).await?;
    let _held = budget.hold(stored.len() * 4 * size_of::<Arc<Sensor>>())?;
    let (mut effect, mut by_name) = (RelabelEffect::default(), HashMap::<Box<str>, Vec<(usize, bool)>>::new());
    let last =
        |relabels: &Relabels, sensor: &Arc<Sensor>| relabels.names_of(sensor).pop().map(|(_, name)| name.key.clone());
    for (chunk, some) in stored.chunks(CHOOSE).enumerate() {
        for (at, entry) in some.iter().enumerate() {
            let (Some(old), Some(new)) = (last(before, &entry.sensor), last(after, &entry.sensor)) else { continue };
            let is_renamed = old != new;
            if is_renamed {
                effect.renamed += 1;
                if effect.examples.len() < EXAMPLES {
                    effect.examples.push((old.to_string(), new.to_string()));
                }
            }
            by_name.entry(new).or_default().push((chunk * CHOOSE + at, is_renamed));
        }
        budget.pause().await?;
    }
    for (name, places) in by_name.iter().filter(|(_, places)| places.len() > 1) {
        let renamed = places.iter().filter(|(_, is_renamed)| *is_renamed).count();
        if renamed == 0 {
            continue;
        }
        effect.united += renamed as u64;
        let mut families: HashMap<&str, Family> = HashMap::new();
        for (field, family) in places.iter().flat_map(|(place, _)| stored[*place].fields.iter()) {
            let known = *families.entry(&**field).or_insert(*family);
            if known != *family && effect.conflict.is_none() {
                effect.conflict = Some(format!(
                    "the field {field:?} of {name} would be {} at one of its sensors and {} at another: one field has values of one family",
                    known.name(),
                    family.name()
                ));
            }
        }
    }
    Ok(effect)
}
