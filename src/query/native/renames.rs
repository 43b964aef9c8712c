//! The effect of changed renames on the sensor names of a database.

use std::collections::HashMap;

use crate::bucket::Renames;
use crate::bucket::settings::owner;
use crate::query::engine::Engine;
use crate::query::engine::memory::CHOOSE;
use crate::query::{Budget, Query, QueryError};
use crate::reading::Sensor;

/// Maximum number of examples.
const EXAMPLES_MAX: usize = 10;

/// The effect of changed renames.
#[derive(Debug, Default)]
pub struct RenameEffect {
    /// Number of stored sensors whose shown name changes.
    pub renamed: u64,
    /// Names before and after, at most `EXAMPLES_MAX`.
    pub examples: Vec<(String, String)>,
    /// Two stored keys that would share a name, and that name.
    pub conflict: Option<[String; 3]>,
}

impl Query {
    /// Returns the stored key of the sensor that a database, or one of its retention policies, shows under a key.
    ///
    /// # Errors
    /// If the store does not answer, or acked readings are still being read back.
    pub async fn stored_key(
        &self,
        budget: &Budget,
        database: &str,
        shown: &str,
    ) -> Result<Option<Box<str>>, QueryError> {
        self.in_turn(budget, database, || async {
            for policy in self.engine.all_databases().await?.iter().filter(|name| owner(name) == database) {
                if let Some(entry) = self.engine.named(policy, shown).await? {
                    return Ok(Some(entry.stored.key.clone()));
                }
            }
            Ok::<_, QueryError>(None)
        })
        .await
    }

    /// Computes the effect of a change in a database and its retention policies.
    ///
    /// # Errors
    /// If the store does not answer, or acked readings are still being read back.
    pub async fn rename_effect(
        &self,
        budget: &Budget,
        database: &str,
        before: &Renames,
        after: &Renames,
    ) -> Result<RenameEffect, QueryError> {
        self.in_turn(budget, database, || async {
            let mut effect = RenameEffect::default();
            for policy in self.engine.all_databases().await?.iter().filter(|name| owner(name) == database) {
                add_effect(&self.engine, budget, policy, before, after, &mut effect).await?;
            }
            Ok::<_, QueryError>(effect)
        })
        .await
    }
}

/// Adds the effect in one stored database.
async fn add_effect(
    engine: &Engine,
    budget: &Budget,
    database: &str,
    before: &Renames,
    after: &Renames,
    effect: &mut RenameEffect,
) -> Result<(), QueryError> {
    let stored = engine.as_stored(budget, database).await?;
    let keys = stored.iter().map(|entry| 2 * entry.sensor.key.len()).sum::<usize>();
    let _held = budget.hold(keys + stored.len() * 4 * size_of::<(Box<str>, &str)>())?;
    let shown = |renames: &Renames, sensor: &Sensor| renames.shown_sensor(sensor).map(|shown| shown.key);
    // Every key by which a sensor can be written: its stored key, and its shown key.
    let mut owners: HashMap<Box<str>, &str> =
        stored.iter().map(|entry| (entry.sensor.key.clone(), &*entry.sensor.key)).collect();
    for batch in stored.chunks(CHOOSE) {
        for entry in batch {
            let key = &*entry.sensor.key;
            let name = shown(after, &entry.sensor);
            let old_name = shown(before, &entry.sensor);
            if name != old_name {
                effect.renamed += 1;
                if effect.examples.len() < EXAMPLES_MAX {
                    let text = |name: Option<Box<str>>| name.unwrap_or_else(|| key.into()).into_string();
                    effect.examples.push((text(old_name), text(name.clone())));
                }
            }
            let Some(name) = name else { continue };
            match owners.get(&name) {
                Some(owner) => effect.conflict = Some([key.to_owned(), (*owner).to_owned(), name.into_string()]),
                None => drop(owners.insert(name, key)),
            }
        }
        budget.pause().await?;
    }
    Ok(())
}
