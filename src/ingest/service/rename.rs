//! Renames of tags, fields and measurements. A change is one compare-and-set of the database's settings, which every
//! instance reads within a second. Stored readings and WAL records keep their names.

use std::collections::HashSet;

use super::{Ingest, check_database_name};
use crate::bucket::rename::InvalidRename;
use crate::bucket::{DatabaseSettings, Meta, RenameKind, Renames};
use crate::faults;
use crate::ingest::error::IngestError;
use crate::reading::Sensor;

/// Maximum number of written names that are looked up at once.
const BATCH_NAMES_MAX: usize = 64;

/// The reason for which a rename is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenameRefusal {
    #[error("{0}")]
    Invalid(#[from] InvalidRename),
    #[error("bytes of the new name: {bytes} exceeds the limit of {limit} (limits.name_bytes): choose a shorter one")]
    Long { bytes: usize, limit: usize },
    #[error("{name} would name two stored sensors, {one} and {other}: rename one of them by its key first")]
    Conflict { name: String, one: String, other: String },
    #[error(
        "no such rename of {} {name:?} in database {database:?}: GET /api/v1/renames lists the entries by their stored \
         names",
        kind.name()
    )]
    Unknown { kind: RenameKind, name: String, database: String },
    #[error("{database:?} is a retention policy: rename in its database, which the policies follow")]
    Policy { database: String },
    #[error("concurrent changes of the renames of database {database:?}: retry")]
    Contended { database: String },
}

impl Ingest {
    /// Reads the renames of a database from the store.
    ///
    /// # Errors
    /// If the name is invalid or stands for a retention policy, or the store does not answer.
    pub async fn renames(&self, database: &str) -> Result<Renames, IngestError> {
        check_database_name(database)?;
        if database.contains('/') {
            return Err(RenameRefusal::Policy { database: database.to_owned() }.into());
        }
        Ok(self.settings_now().await?.for_database(database).renames)
    }

    /// Replaces the renames of a database if they still equal `held`. Returns true if they did.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn set_renames(&self, database: &str, held: &Renames, renames: &Renames) -> Result<bool, IngestError> {
        faults::point("before_rename");
        let stamp = self.member.stamp_now();
        let replace = |settings: &mut DatabaseSettings| {
            if settings.renames == *held {
                settings.renames = renames.clone();
                settings.set = stamp;
            }
        };
        let settings = self.retention.change(database, replace).await?;
        faults::point("after_rename");
        Ok(settings.set == stamp)
    }

    /// Returns the stored sensors that written names stand for. If a name may stand for several, returns the one that
    /// exists. Reads the store, because a new sensor must not get a name under which another one is shown.
    ///
    /// # Errors
    /// If the store does not answer, or acked readings of such sensors are still being replayed.
    pub(super) async fn stored_names(
        &self,
        database: &str,
        written: Vec<Sensor>,
        renames: &Renames,
    ) -> Result<Vec<Sensor>, IngestError> {
        let mut stored = Vec::with_capacity(written.len());
        for batch in written.chunks(BATCH_NAMES_MAX) {
            let candidates: Vec<Vec<Sensor>> = batch.iter().map(|name| renames.stored_candidates(name)).collect();
            let ambiguous = candidates.iter().filter(|names| names.len() > 1);
            let keys: Vec<&str> = ambiguous.flatten().map(|name| &*name.key).collect();
            let existing = if keys.is_empty() { HashSet::new() } else { self.existing(database, &keys).await? };
            stored.extend(candidates.into_iter().filter_map(|mut names| {
                // If none exists, take the last: the stored name of a new sensor.
                let index = names.iter().position(|name| existing.contains(&name.key));
                names.truncate(index.map_or(names.len(), |index| index + 1));
                names.pop()
            }));
        }
        Ok(stored)
    }

    /// Returns the metadata of the sensor that is shown under a name.
    ///
    /// # Errors
    /// If the store does not answer, or acked changes are still being replayed.
    pub async fn sensor_meta(&self, database: &str, shown: &Sensor) -> Result<Meta, IngestError> {
        let settings = self.retention.settings.now();
        let names =
            settings.renames(database).map_or_else(|| vec![shown.clone()], |renames| renames.stored_sensors(shown));
        let keys: Vec<&str> = names.iter().map(|name| &*name.key).collect();
        let mut metas = self.sensor_metas(database, &keys).await?;
        Ok(keys.into_iter().find_map(|key| metas.remove(key)).unwrap_or_default())
    }
}
