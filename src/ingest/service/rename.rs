//! Renames: each change is one compare-and-set of the database's settings, which every instance reads again within a
//! second. No reading and no log record changes.

use std::collections::HashSet;

use super::{Ingest, check_database_name};
use crate::bucket::rename::InvalidRename;
use crate::bucket::{DatabaseSettings, Meta, RenameKind, Renames};
use crate::faults;
use crate::ingest::error::IngestError;
use crate::reading::Sensor;

/// Number of written names that are looked up together.
const NAMES_TOGETHER: usize = 64;

/// The reason for which names stay as they are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenameRefusal {
    #[error("{0}")]
    Invalid(#[from] InvalidRename),
    #[error("a name has {bytes} bytes, more than {limit} (limits.name_bytes)")]
    Long { bytes: usize, limit: usize },
    #[error("{name} would name two stored sensors, {one} and {other}: rename one of them by its key first")]
    Conflict { name: String, one: String, other: String },
    #[error(
        "no {} {from:?} of database {database:?} is renamed like that: GET /api/v1/renames lists the entries by their stored \
         names",
        kind.name()
    )]
    Unknown { kind: RenameKind, from: String, database: String },
    #[error("{database:?} is a retention policy: rename in its database, which the policies follow")]
    Policy { database: String },
    #[error("the renames of database {database:?} are being changed by others: retry")]
    Contended { database: String },
}

impl Ingest {
    /// The renames of a database, from the store.
    ///
    /// # Errors
    /// If it is none that can have renames, or the store does not answer.
    pub async fn renames(&self, database: &str) -> Result<Renames, IngestError> {
        check_database_name(database)?;
        if database.contains('/') {
            return Err(RenameRefusal::Policy { database: database.to_owned() }.into());
        }
        Ok(self.settings_now().await?.of(database).renames)
    }

    /// Replaces the renames of a database, unless somebody else has changed them; returns whether it did.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn set_renames(&self, database: &str, held: &Renames, renames: &Renames) -> Result<bool, IngestError> {
        faults::point("before_rename");
        let at = self.member.stamp_now();
        let put = |settings: &mut DatabaseSettings| {
            if settings.renames == *held {
                settings.renames = renames.clone();
                settings.set = at;
            }
        };
        let settings = self.retention.change(database, put).await?;
        faults::point("after_rename");
        Ok(settings.set == at)
    }

    /// The stored sensors that written names mean: of several that a name may mean, the one that exists. Asks the store,
    /// because a new sensor must not get a name that is shown as that of another one.
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
        for some in written.chunks(NAMES_TOGETHER) {
            let names: Vec<Vec<Sensor>> = some.iter().map(|name| renames.written(name)).collect();
            let several = names.iter().filter(|names| names.len() > 1);
            let keys: Vec<&str> = several.flatten().map(|name| &*name.key).collect();
            let known = if keys.is_empty() { HashSet::new() } else { self.existing(database, &keys).await? };
            stored.extend(names.into_iter().filter_map(|mut names| {
                // Without one that exists, the last: the stored name of a new sensor.
                let at = names.iter().position(|name| known.contains(&name.key));
                names.truncate(at.map_or(names.len(), |at| at + 1));
                names.pop()
            }));
        }
        Ok(stored)
    }

    /// The metadata of the sensor that is shown under a name.
    ///
    /// # Errors
    /// If the store does not answer, or acked changes are still being replayed.
    pub async fn sensor_meta(&self, database: &str, shown: &Sensor) -> Result<Meta, IngestError> {
        let settings = self.retention.settings.now();
        let names = settings.renames(database).map_or_else(|| vec![shown.clone()], |renames| renames.stored(shown));
        let keys: Vec<&str> = names.iter().map(|name| &*name.key).collect();
        let mut metas = self.sensor_metas(database, &keys).await?;
        Ok(keys.into_iter().find_map(|key| metas.remove(key)).unwrap_or_default())
    }
}
