//! A copy of some of the catalog's sensors, for a dry run that must not change the catalog.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::RwLock;

use super::charge::Account;
use super::sensor::{CatalogState, KnownSensor, SensorIds};
use super::{Catalog, Database};
use crate::config::Settings;
use crate::reading::Sensor;

/// A catalog with one database and selected sensors, with the limits of the original.
pub struct CatalogCopy {
    pub catalog: Catalog,
    pub database: Arc<Database>,
    /// The requested sensors that the original catalog does not know.
    pub unknown: Vec<Sensor>,
}

impl Catalog {
    /// Copies a database with those of the sensors that are known.
    pub fn copy(&self, name: &str, sensors: Vec<Sensor>, options: &Settings) -> CatalogCopy {
        let catalog = Self::new(options);
        let original = self.database(name);
        // The limits apply to the original's sensors, not to the copies.
        let account = self.account_of(&self.databases.read(), name);
        let account = catalog.state.bytes.account(Some(&account));
        let database = match &original {
            Some(original) => Arc::new(original.copy(account)),
            None => catalog.new_database(name, true, account),
        };
        let mut unknown = Vec::new();
        for sensor in sensors {
            match original.as_ref().and_then(|original| self.sensor(original, &sensor.key)) {
                Some(known) => {
                    let id = catalog.next_id.fetch_add(1, Ordering::Relaxed);
                    let make = |slot| {
                        known.copy(SensorIds { id, slot, shard: known.shard }, catalog.state.clone(), &database.account)
                    };
                    database.sensors.write().add(sensor.key.clone(), make);
                }
                None => unknown.push(sensor),
            }
        }
        catalog.count.store(self.len(), Ordering::Relaxed);
        catalog.has_others.store(self.has_others.load(Ordering::Relaxed), Ordering::Relaxed);
        CatalogCopy { catalog, database, unknown }
    }
}

impl Database {
    /// Copies the database without its sensors, with the used part of its quota.
    fn copy(self: &Arc<Self>, account: Arc<Account>) -> Self {
        Self {
            name: self.name.clone(),
            number: self.number,
            sensors: RwLock::default(),
            unflushed_sensors: 0.into(),
            deletions: 0.into(),
            additions: 0.into(),
            doubts: 0.into(),
            superseded: false.into(),
            pending_lookups: super::database::PendingLookups::default(),
            meta: super::meta::NewMeta::default(),
            sensor_count: self.sensor_count().into(),
            account,
            is_new: self.is_new,
            usage: self.usage.copy(),
            original: Some(self.clone()),
        }
    }
}

impl KnownSensor {
    fn copy(&self, ids: SensorIds, state: Arc<CatalogState>, account: &Arc<Account>) -> Self {
        let copy = Self::new(Sensor::clone(&self.sensor), ids, state, account);
        *copy.fields.write() = self.fields();
        copy.kind.store(self.kind.load(Ordering::Relaxed), Ordering::Relaxed);
        copy.stamped.store(self.stamped.load(Ordering::Relaxed), Ordering::Relaxed);
        copy
    }
}
