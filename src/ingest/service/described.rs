//! Whose metadata a name is about: in a database with relabels, that of all stored sensors that it shows. What is said under any
//! of their names is said of each of them, so that they say the same under every name, in pages, and after a relabel is taken back.

use std::collections::HashMap;
use std::sync::Arc;

use super::Ingest;
use super::meta::MetaRefusal;
use crate::access::{Caller, Pin};
use crate::bucket::{Meta, Relabels};
use crate::ingest::error::IngestError;
use crate::reading::Sensor;

/// The metadata of stored sensors, by key, as far as they are known.
pub type Metas = HashMap<Box<str>, Meta>;

/// A name, and the stored sensors whose metadata it shows.
#[derive(Debug)]
pub struct Described {
    pub name: Arc<Sensor>,
    pub stored: Vec<Arc<Sensor>>,
}

impl Described {
    /// Those that there may be.
    pub fn of(sensor: &Sensor, relabels: Option<&Relabels>) -> Self {
        let name = Arc::new(sensor.clone());
        let (name, stored) = match relabels {
            Some(relabels) => relabels.described_by(&name),
            None => (name.clone(), vec![name]),
        };
        Self { name, stored }
    }

    /// Leaves those that there are; if there is none, the sensor that was asked for, as it was written. Returns whether there is one.
    pub fn leave_known(&mut self, asked: &Sensor, metas: &Metas) -> bool {
        self.stored.retain(|stored| metas.contains_key(&stored.key));
        let is_known = !self.stored.is_empty();
        if !is_known {
            self.stored.push(Arc::new(asked.clone()));
        }
        is_known
    }

    /// What is said of all of them.
    pub fn meta(&self, metas: &Metas) -> Meta {
        let mut known = self.stored.iter().filter_map(|stored| metas.get(&stored.key));
        let mut meta = known.next().cloned().unwrap_or_default();
        known.for_each(|other| meta.unite(other));
        meta
    }

    /// Why a caller may not change it: one of them is shown under a name, too, that the caller may not write.
    pub fn barred(&self, relabels: Option<&Relabels>, by: &Caller) -> Option<MetaRefusal> {
        let has_other = |pin: &&Pin| {
            let names = self.stored.iter().filter_map(|stored| Some(relabels?.names_of(stored)));
            names.flatten().any(|(_, name)| !pin.matches(&name))
        };
        let pin = by.pins().iter().find(has_other)?;
        let (sensor, by) = (self.name.key.to_string(), by.name().to_owned());
        Some(MetaRefusal::Pinned { sensor, by, tag: pin.key.clone() })
    }
}

impl Ingest {
    /// What is said of a sensor, by any of its names.
    ///
    /// # Errors
    /// If the store does not answer, or acked changes are still being replayed.
    pub async fn sensor_meta(&self, database: &str, sensor: &Sensor) -> Result<Meta, IngestError> {
        let settings = self.retention.settings.now();
        let about = Described::of(sensor, settings.relabels(database));
        Ok(about.meta(&self.metas_of(database, std::slice::from_ref(&about)).await?))
    }

    /// What is said of all stored sensors that some names show, as far as they are known.
    pub(super) async fn metas_of(&self, database: &str, about: &[Described]) -> Result<Metas, IngestError> {
        let mut keys: Vec<&str> = about.iter().flat_map(|of| &of.stored).map(|stored| &*stored.key).collect();
        keys.sort_unstable();
        keys.dedup();
        self.sensor_metas(database, &keys).await
    }
}
