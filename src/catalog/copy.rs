//! A copy of what the catalog knows of some sensors, for a dry run: whatever is done to it, the catalog stays as it is.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::RwLock;

use super::sensor::{CatalogState, KnownSensor};
use super::{Catalog, Database};
use crate::config::Settings;
use crate::reading::Sensor;

/// A catalog with one database and no other sensors than those named, under the limits of the real one.
pub struct CatalogCopy {
    pub catalog: Catalog,
    pub database: Arc<Database>,
    /// Those that the real catalog does not know.
    pub unknown: Vec<Sensor>,
}

impl Catalog {
    /// Copies those of the sensors that are known.
    pub fn copy(&self, name: &str, sensors: Vec<Sensor>, options: &Settings) -> CatalogCopy {
        let catalog = Self::new(options);
        let original = self.database(name);
        let database = match &original {
            Some(original) => Arc::new(original.copy()),
            None => catalog.new_database(name, true),
        };
        let mut unknown = Vec::new();
        for sensor in sensors {
            match original.as_ref().and_then(|original| self.sensor(original, &sensor.key)) {
                Some(known) => {
                    let id = catalog.next_id.fetch_add(1, Ordering::Relaxed);
                    let mut copies = database.sensors.write();
                    copies.add(sensor.key.clone(), |place| known.copy((id, place), catalog.state.clone()));
                }
                None => unknown.push(sensor),
            }
        }
        // The limits apply to what all sensors take, not to the copies.
        catalog.count.store(self.len(), Ordering::Relaxed);
        catalog.state.bytes.note_used(self.state.bytes.used());
        CatalogCopy { catalog, database, unknown }
    }
}

impl Database {
    /// The database without its sensors, with a copy of what is used of its quota.
    fn copy(self: &Arc<Self>) -> Self {
        Self {
            name: self.name.clone(),
            number: self.number,
            sensors: RwLock::default(),
            waiting: 0.into(),
            deletions: 0.into(),
            additions: 0.into(),
            doubts: 0.into(),
            superseded: false.into(),
            pending_lookups: super::database::PendingLookups::default(),
            meta: super::meta::NewMeta::default(),
            known: self.known().into(),
            is_new: self.is_new,
            usage: self.usage.copy(),
            original: Some(self.clone()),
        }
    }
}

impl KnownSensor {
    fn copy(&self, (id, place): (u32, u32), state: Arc<CatalogState>) -> Self {
        let copy = Self::new(Sensor::clone(&self.sensor), (id, place, self.shard), state);
        *copy.fields.write() = self.fields();
        copy.kind.store(self.kind.load(Ordering::Relaxed), Ordering::Relaxed);
        copy.stamped.store(self.stamped.load(Ordering::Relaxed), Ordering::Relaxed);
        copy
    }
}
