//! `unique` metadata is checked before a change is logged. On MongoDB, the store decides between instances. The embedded
//! store has one instance, which knows the metadata of all sensors.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{MetaArrival, MetaImport, meta_values};
use crate::access::Effect;
use crate::bucket::Meta;
use crate::bucket::store::{SensorFilter, UniqueClaim};
use crate::buffer::record::meta::MetaChange;
use crate::ingest::Ingest;
use crate::ingest::error::IngestError;
use crate::kinds::{KindAction, KindFault, UniqueValue, UniqueValues};
use crate::reading::Sensor;

/// Number of sensors per read of the store.
const READ_MAX: usize = 1000;

/// Sensors that have, or once had, a value of `unique` metadata. Only the metadata itself tells if they have it now. `None`
/// until they are needed.
pub type UniqueSensors = Option<HashMap<UniqueValue, Vec<Sensor>>>;

/// The turn of each database to change metadata, by the database's name.
#[derive(Debug, Default)]
pub struct MetaTurns(Mutex<HashMap<String, MetaTurn>>);

type MetaTurn = Arc<tokio::sync::Mutex<UniqueSensors>>;

impl MetaTurns {
    /// Returns the lock of a database.
    pub fn for_database(&self, database: &str) -> MetaTurn {
        let mut turns = self.0.lock();
        // Forget the locks that nobody uses and that have nothing to remember.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1 || turn.try_lock().is_ok_and(|known| known.is_some()));
        turns.entry(database.to_owned()).or_default().clone()
    }
}

/// A change of metadata before it is logged.
pub(super) struct UniqueChange<'a> {
    pub sensor: &'a Sensor,
    pub change: MetaChange,
    pub before: Option<UniqueValues>,
    pub after: Option<UniqueValues>,
    /// The metadata of the sensors of the batch, with the earlier changes of the batch.
    pub metas: &'a HashMap<Box<str>, Meta>,
}

impl UniqueChange<'_> {
    /// Returns true if the change affects no `unique` value.
    pub fn is_empty(&self) -> bool {
        let is_gained = self.after.as_ref().is_some_and(|after| !after.changed(self.before.as_ref()).is_empty());
        let is_lost = self.before.as_ref().is_some_and(|before| !before.changed(self.after.as_ref()).is_empty());
        !is_gained && !is_lost
    }
}

impl Ingest {
    /// Checks a change of `unique` metadata, and reserves its values. Returns the violation and its treatment.
    pub(super) async fn check_unique(
        &self,
        import: &mut MetaImport<'_>,
        arrival: MetaArrival<'_>,
        change: &UniqueChange<'_>,
    ) -> Result<Option<(KindFault, KindAction)>, IngestError> {
        let extras = self.store.raw().clone().mongo_extras();
        if extras.is_none() {
            self.load_unique(import).await?;
        }
        let gained = change.after.as_ref().map(|after| after.changed(change.before.as_ref())).unwrap_or_default();
        let mut owner = self.local_owner(import, change, &gained).await?;
        let rejects = change.after.as_ref().is_some_and(|after| after.kind.action == KindAction::Reject);
        if let Some(extras) = extras
            && !(rejects && owner.is_some())
        {
            let values: Vec<_> = gained.iter().map(|(value, json)| (&*value.path, *json)).collect();
            let claim = UniqueClaim {
                sensor: change.sensor,
                kind: change.after.as_ref().map_or("", |after| &after.kind.name),
                change: &change.change.to_meta(self.member.clock.stamp(0)),
                values: &values,
                is_dry: arrival.is_dry,
            };
            let claimed = extras.claim_unique(import.database, &claim).await?;
            owner = owner.or(claimed.map(|owner| (owner.path, owner.sensor)));
        }
        let after = change.after.as_ref();
        if !(rejects && owner.is_some()) {
            let sensors = import.unique.get_or_insert_default();
            for (value, _) in &gained {
                sensors.entry((*value).clone()).or_default().push(change.sensor.clone());
            }
        }
        let Some((after, (path, sensor))) = after.zip(owner) else { return Ok(None) };
        // A token for some sensors, or for writing only, must not learn of others.
        let is_known = arrival.caller.allows(Effect::Read, Some(arrival.database)) && arrival.caller.pins().is_empty();
        Ok(Some((after.fault(&path, is_known.then_some(&*sensor)), after.kind.action)))
    }

    /// Finds another sensor with one of these values among those that this process knows of. Returns the path and the key.
    async fn local_owner(
        &self,
        import: &mut MetaImport<'_>,
        change: &UniqueChange<'_>,
        gained: &[(&UniqueValue, &serde_json::Value)],
    ) -> Result<Option<(String, String)>, IngestError> {
        let Some(after) = &change.after else { return Ok(None) };
        for (value, _) in gained {
            let known = import.unique.as_mut().and_then(|sensors| sensors.get_mut(*value));
            let Some(known) = known else { continue };
            let keys: Vec<&str> = known.iter().map(|sensor| &*sensor.key).collect();
            let stored = self.sensor_metas(import.database, &keys).await?;
            let has_value = |sensor: &Sensor| {
                let own = change.metas.get(&sensor.key).or_else(|| import.dry_run_metadata.get(&sensor.key));
                let Some(meta) = own.or_else(|| stored.get(&sensor.key)) else { return false };
                let values = self.options.kinds.unique_values(sensor, &meta_values(meta));
                values.is_some_and(|values| values.kind.name == after.kind.name && values.values.contains_key(*value))
            };
            known.retain(|sensor| has_value(sensor) && sensor.key != change.sensor.key);
            if let Some(owner) = known.first() {
                return Ok(Some((value.path.clone(), owner.key.to_string())));
            }
        }
        Ok(None)
    }

    /// Reads the values of all sensors of a database, unless that is done.
    async fn load_unique(&self, import: &mut MetaImport<'_>) -> Result<(), IngestError> {
        let database = import.database;
        if import.unique.is_some() {
            return Ok(());
        }
        self.check_replayed(database, |_| true)?;
        let mut sensors: HashMap<UniqueValue, Vec<Sensor>> = HashMap::new();
        let mut add = |sensor: &Sensor, meta: &Meta| {
            let values = self.options.kinds.unique_values(sensor, &meta_values(meta));
            for value in values.into_iter().flat_map(|values| values.values.into_keys()) {
                sensors.entry(value).or_default().push(sensor.clone());
            }
        };
        // Read the catalog before the store, so that a change that is stored in between is not missed.
        if let Some(known) = self.catalog.database(database) {
            for (key, meta) in known.meta.all() {
                if let Some(sensor) = self.catalog.sensor(&known, &key) {
                    add(&sensor.sensor, &meta);
                }
            }
        }
        let mut filter = SensorFilter { limit: READ_MAX, ..SensorFilter::default() };
        loop {
            let documents = self.store.raw().list_sensors(database, &filter).await?;
            documents.iter().for_each(|document| add(&document.sensor, &document.meta));
            filter.after = documents.last().map(|document| document.sensor.key.to_string());
            if documents.len() < READ_MAX {
                break;
            }
            tokio::task::consume_budget().await;
        }
        *import.unique = Some(sensors);
        Ok(())
    }
}
