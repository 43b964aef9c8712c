//! Metadata updates, from the request to the WAL record. A patch is applied to the present metadata before it is
//! logged, so that the record is final.

mod unique;
mod update;

pub use self::unique::{MetaTurns, UniqueSensors};
pub use self::update::MetaUpdate;

use self::unique::UniqueChange;

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::Instant;

use super::Ingest;
use crate::access::{Caller, Effect};
use crate::bucket::{Meta, Renames};
use crate::buffer::record::meta::MetaChange;
use crate::catalog::{Database, memory_of_meta};
use crate::config::AckLevel;
use crate::faults;
use crate::ingest::admission::submit::LoggedMeta;
use crate::ingest::admission::write_policy::pin_violation;
use crate::ingest::error::IngestError;
use crate::kinds::{KindAction, KindFault};
use crate::reading::{Reason, Sensor, Stamp};

/// Maximum number of metadata keys per sensor.
const NAMES_MAX: usize = 64;
/// Maximum number of levels of metadata, as in `site.room.rack`.
const LEVELS_MAX: usize = 3;
/// Maximum number of removed keys per sensor that are remembered.
const REMOVED_MAX: usize = 256;
/// Maximum number of rows in a batch.
const BATCH_ROWS_MAX: usize = 500;
/// Bytes of memory at which a batch ends.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Interval at which a change that waits for memory looks again.
const ROOM_INTERVAL: Duration = Duration::from_millis(50);

/// A requested update of one sensor's metadata.
#[derive(Debug, Clone)]
pub struct MetaRequest {
    pub sensor: Sensor,
    pub update: MetaUpdate,
}

/// The number of a row, with its request or the reason to reject the row.
pub type MetaRow = (usize, Result<MetaRequest, MetaRefusal>);

/// The parameters of one request that updates metadata.
#[derive(Debug, Clone, Copy)]
pub struct MetaArrival<'a> {
    pub database: &'a str,
    /// The time of receipt, in nanoseconds since the epoch.
    pub received: i64,
    pub caller: &'a Caller,
    /// The ack level. `None` stands for `ingest.ack`.
    pub ack: Option<AckLevel>,
    /// True for a dry run, which changes nothing.
    pub is_dry: bool,
}

/// The outcome, or in a dry run the expected outcome, of one update.
#[derive(Debug, Clone, PartialEq)]
pub struct MetaOutcome {
    /// True if the sensor was not known before.
    pub is_new: bool,
    pub is_changed: bool,
    /// The metadata after the update.
    pub values: Map<String, Value>,
    /// The violation of the sensor's kind, if the kind warns instead of rejecting.
    pub unlike: Option<KindFault>,
}

/// The reason for which the metadata of one sensor is not changed. Most refusals are final, so a retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetaRefusal {
    #[error("{0}")]
    Unreadable(String),
    #[error("the metadata of {sensor} exceeds the limit of {limit} bytes: {bytes} bytes")]
    TooLarge { sensor: String, bytes: usize, limit: usize },
    #[error("the metadata of {sensor} exceeds the limit of {NAMES_MAX} names: {names} names")]
    TooManyNames { sensor: String, names: usize },
    #[error(
        "more than {REMOVED_MAX} names were removed from the metadata of {sensor} recently, and other instances may not \
         know of it yet: retry later"
    )]
    TooManyRemoved { sensor: String },
    #[error("a name in the metadata of {sensor} is empty or has more than {limit} bytes (limits.name_bytes)")]
    Name { sensor: String, limit: usize },
    #[error("the metadata {name:?} of {sensor} exceeds the limit of {LEVELS_MAX} levels: {levels} levels")]
    TooDeep { sensor: String, name: String, levels: usize },
    #[error("no room for the new sensor {sensor}: {limit} is reached")]
    NoRoom { sensor: String, limit: String },
    #[error("the metadata of {sensor} violates the kind {}: {}", fault.kind, fault.fault)]
    Unlike { sensor: String, fault: KindFault },
    #[error("{caller} may not change the metadata of {sensor}: its stored or its shown name has another tag {tag:?}")]
    Pinned { sensor: String, caller: String, tag: String },
    #[error("the metadata of {sensor} does not match the condition of the request: read it again")]
    Changed { sensor: String },
}

/// The change of one stored sensor, with the indexes of the requests that it comes from.
struct SensorChange {
    requests: Vec<usize>,
    change: MetaChange,
}

/// The changes of a batch, at most one per sensor, in order. All changes of a record have the same stamp, so a second
/// change of a sensor could not win over the first.
#[derive(Default)]
struct BatchChanges {
    changes: Vec<SensorChange>,
    by_key: HashMap<Box<str>, usize>,
}

impl BatchChanges {
    fn add(&mut self, request: usize, change: MetaChange) {
        match self.by_key.get(&change.sensor.key).and_then(|index| self.changes.get_mut(*index)) {
            Some(earlier) => {
                earlier.requests.push(request);
                earlier.change.follow(change);
            }
            None => {
                self.by_key.insert(change.sensor.key.clone(), self.changes.len());
                self.changes.push(SensorChange { requests: vec![request], change });
            }
        }
    }
}

/// The state of one request that updates metadata, across its batches.
struct MetaImport<'a> {
    /// The database, with its retention policy.
    database: &'a str,
    renames: Option<&'a Renames>,
    /// In a dry run, the metadata that sensors would have after the earlier batches, by key.
    dry_run_metadata: HashMap<Box<str>, Meta>,
    /// The number of accepted updates so far.
    updates: Stamp,
    /// The records to wait for.
    logged: Vec<LoggedMeta>,
    unique: &'a mut UniqueSensors,
}

/// Some rows of a request.
#[derive(Default)]
struct MetaBatch {
    row_numbers: Vec<usize>,
    requests: Vec<MetaRequest>,
}

impl MetaBatch {
    /// Reads the next rows. Passes rejected rows to `on_result`. Returns `None` if no rows are left.
    fn read(
        rows: &mut impl Iterator<Item = MetaRow>,
        on_result: &mut impl FnMut(usize, Result<MetaOutcome, MetaRefusal>),
    ) -> Option<Self> {
        let mut batch = Self::default();
        let mut seen = 0;
        let mut bytes = 0;
        while seen < BATCH_ROWS_MAX && bytes < BATCH_BYTES_MAX {
            let Some((number, row)) = rows.next() else { break };
            seen += 1;
            match row {
                Ok(request) => {
                    bytes += request.update.memory();
                    batch.row_numbers.push(number);
                    batch.requests.push(request);
                }
                Err(refusal) => on_result(number, Err(refusal)),
            }
        }
        (seen > 0).then_some(batch)
    }
}

impl Ingest {
    /// Returns the maximum bytes of the JSON text of one sensor's metadata, including its key, spaces and escapes.
    #[must_use]
    pub fn meta_text_max(&self) -> usize {
        4 * self.options.limits.meta_bytes + (4 << 10)
    }

    /// Updates metadata, and passes the outcome of each row to `on_result`. `is_allowed` decides from the present
    /// metadata of a sensor if it may be changed. A later row for the same sensor sees the outcome of an earlier one.
    ///
    /// # Errors
    /// If the present metadata cannot be read, or a change is not durable or not known to be durable. The request may
    /// be sent again without harm.
    pub async fn change_meta(
        &self,
        arrival: MetaArrival<'_>,
        rows: impl Iterator<Item = MetaRow>,
        is_allowed: impl Fn(&Meta) -> bool,
        mut on_result: impl FnMut(usize, Result<MetaOutcome, MetaRefusal>),
    ) -> Result<(), IngestError> {
        self.member.check()?;
        let database = self.resolve(arrival.database, None).await?;
        let waited = self.options.ingest.ack_timeout;
        let turns = self.meta_turns.for_database(&database);
        let turn = tokio::time::timeout(waited, turns.lock()).await;
        let mut turn = turn.map_err(|_| IngestError::Timeout { waited, key: "ingest.ack_timeout" })?;
        if self.store.raw().has_other_writers() {
            // The store knows the values of other instances, too.
            *turn = None;
        }
        let settings = self.retention.settings.now();
        let mut import = MetaImport {
            database: &database,
            renames: settings.renames(&database),
            dry_run_metadata: HashMap::new(),
            updates: 0,
            logged: Vec::new(),
            unique: &mut turn,
        };
        // Work in batches, so that a large import never has to fit into memory.
        let mut rows = rows.fuse();
        while let Some(batch) = MetaBatch::read(&mut rows, &mut on_result) {
            let outcomes = self.apply_meta_batch(&mut import, arrival, &batch.requests, &is_allowed).await?;
            for (number, outcome) in batch.row_numbers.into_iter().zip(outcomes) {
                on_result(number, outcome);
            }
            tokio::task::consume_budget().await;
        }
        let MetaImport { logged, .. } = import;
        drop(turn);
        for logged in logged {
            self.submitter.wait_until_meta_stored(logged).await?;
        }
        Ok(())
    }

    /// Applies a batch to the present metadata and logs the changes. Returns one outcome per request.
    async fn apply_meta_batch(
        &self,
        import: &mut MetaImport<'_>,
        arrival: MetaArrival<'_>,
        requests: &[MetaRequest],
        is_allowed: &impl Fn(&Meta) -> bool,
    ) -> Result<Vec<Result<MetaOutcome, MetaRefusal>>, IngestError> {
        let written: Vec<Sensor> = requests.iter().map(|request| request.sensor.clone()).collect();
        let stored_sensors = match import.renames {
            Some(renames) => self.stored_names(import.database, written, renames).await?,
            None => written,
        };
        let keys: Vec<&str> = stored_sensors.iter().map(|sensor| &*sensor.key).collect();
        let mut metas = self.sensor_metas(import.database, &keys).await?;
        let dry_run = keys.iter().filter_map(|key| import.dry_run_metadata.get_key_value(*key));
        metas.extend(dry_run.map(|(key, meta)| (key.clone(), meta.clone())));
        let mut outcomes = Vec::with_capacity(requests.len());
        let mut changes = BatchChanges::default();
        // Another instance may have logged an older change that is not stored yet. It would win if this instance logged
        // nothing, so log updates without effect too.
        let is_shared = self.store.raw().has_other_writers();
        for (index, (request, stored)) in requests.iter().zip(&stored_sensors).enumerate() {
            let present = metas.get(&stored.key);
            let is_new = present.is_none();
            let present = present.cloned().unwrap_or_default();
            if !is_allowed(&present) {
                outcomes.push(Err(MetaRefusal::Changed { sensor: request.sensor.key.to_string() }));
                continue;
            }
            let before = meta_values(&present);
            let after = request.update.apply_to(&before);
            let checked = match pin_violation(arrival.caller, import.renames, stored) {
                Some(reason) => Err(pin_refusal(&request.sensor, arrival.caller, reason)),
                None => self.check_meta(request, &present, &before, &after),
            };
            let checked =
                checked.and_then(|()| self.check_kind(arrival.caller, import.database, stored, &before, &after));
            let mut unlike = match checked {
                Ok(unlike) => unlike,
                Err(refusal) => {
                    outcomes.push(Err(refusal));
                    continue;
                }
            };
            let unique = UniqueChange {
                sensor: stored,
                change: request.update.change(stored, &before, &after, is_shared),
                before: self.options.kinds.unique_values(stored, &before),
                after: self.options.kinds.unique_values(stored, &after),
                metas: &metas,
            };
            // Without room for the sensor, the change is refused below.
            let has_room = !is_new || self.limit_for_sensor(import.database, arrival.caller, stored).is_none();
            if has_room && !unique.is_empty() {
                match self.check_unique(import, arrival, &unique).await? {
                    Some((fault, KindAction::Reject)) => {
                        outcomes.push(Err(MetaRefusal::Unlike { sensor: stored.key.to_string(), fault }));
                        continue;
                    }
                    Some((fault, KindAction::Warn)) => unlike = unlike.or(Some(fault)),
                    None => {}
                }
            }
            // Give the updates increasing stamps above every stored one, so that a later row wins over an earlier row
            // for the same sensor.
            let stamp = Stamp::MAX - (1 << 32) + import.updates;
            import.updates += 1;
            let is_changed = after != before;
            if is_changed || is_shared && !request.update.is_empty_patch() {
                let change = unique.change;
                metas.entry(change.sensor.key.clone()).or_default().merge(&change.to_meta(stamp));
                changes.add(index, change);
            }
            outcomes.push(Ok(MetaOutcome { is_new, is_changed, values: after, unlike }));
        }
        let changes = changes.changes;
        faults::point("before_meta_record");
        if arrival.is_dry {
            let changed = changes.iter().filter_map(|of_sensor| metas.remove_entry(&of_sensor.change.sensor.key));
            import.dry_run_metadata.extend(changed);
        } else if !changes.is_empty() {
            let logged = self.log_meta(import.database, arrival, changes, &mut outcomes).await?;
            import.logged.extend(logged);
        }
        Ok(outcomes)
    }

    /// Returns a description of the limit that a new sensor would exceed, if any.
    fn limit_for_sensor(&self, database: &str, caller: &Caller, new: &Sensor) -> Option<String> {
        let database = self.catalog.database(database);
        self.catalog.limit_for_sensor(database.as_deref(), caller.allowance().map(|usage| &**usage), new)
    }

    /// Checks metadata against the sensor's kind. Returns the violation if the kind only warns.
    fn check_kind(
        &self,
        caller: &Caller,
        database: &str,
        stored: &Sensor,
        before: &Map<String, Value>,
        after: &Map<String, Value>,
    ) -> Result<Option<KindFault>, MetaRefusal> {
        let Some((fault, action)) = self.options.kinds.check_meta(stored, before, after) else { return Ok(None) };
        // A write-only token must not learn stored values.
        let fault = if caller.allows(Effect::Read, Some(database)) { fault } else { fault.without_value() };
        match action {
            KindAction::Reject => Err(MetaRefusal::Unlike { sensor: stored.key.to_string(), fault }),
            KindAction::Warn => Ok(Some(fault)),
        }
    }

    /// Checks the limits on the metadata after an update.
    fn check_meta(
        &self,
        request: &MetaRequest,
        present: &Meta,
        before: &Map<String, Value>,
        after: &Map<String, Value>,
    ) -> Result<(), MetaRefusal> {
        let sensor = || request.sensor.key.to_string();
        let limit = self.options.limits.meta_bytes;
        let name_bytes = self.options.limits.name_bytes;
        // Removed keys are remembered until no older change can arrive. A replacement drops them.
        let removed = match request.update {
            MetaUpdate::Put(_) => 0,
            MetaUpdate::Patch(_) => present.entries().count() - present.values().count(),
        };
        if after.len() > NAMES_MAX {
            return Err(MetaRefusal::TooManyNames { sensor: sensor(), names: after.len() });
        }
        if removed > REMOVED_MAX {
            return Err(MetaRefusal::TooManyRemoved { sensor: sensor() });
        }
        if after.keys().any(|name| name.is_empty() || name.len() > name_bytes) {
            return Err(MetaRefusal::Name { sensor: sensor(), limit: name_bytes });
        }
        // Values from before this limit, or from a backup, can stay.
        for (name, value) in after.iter().filter(|(name, value)| before.get(*name) != Some(*value)) {
            let levels = 1 + depth(value);
            if levels > LEVELS_MAX {
                return Err(MetaRefusal::TooDeep { sensor: sensor(), name: name.clone(), levels });
            }
        }
        let bytes: usize = after.iter().map(|(name, value)| name.len() + value.to_string().len()).sum();
        if bytes > limit {
            return Err(MetaRefusal::TooLarge { sensor: sensor(), bytes, limit });
        }
        Ok(())
    }

    /// Adds unknown sensors to the catalog, and logs the changes in as few records as possible.
    async fn log_meta(
        &self,
        name: &str,
        arrival: MetaArrival<'_>,
        sensor_changes: Vec<SensorChange>,
        outcomes: &mut [Result<MetaOutcome, MetaRefusal>],
    ) -> Result<Vec<LoggedMeta>, IngestError> {
        let database = self.database(name, arrival.caller).await?;
        let sensors = sensor_changes.iter().map(|of_sensor| &of_sensor.change.sensor);
        let is_unknown = |sensor: &&Sensor| self.catalog.sensor(&database, &sensor.key).is_none();
        let unknown: Vec<Sensor> = sensors.filter(is_unknown).cloned().collect();
        if !unknown.is_empty() {
            self.lookup.look_up(&database, unknown, &arrival.caller.allowance().cloned()).await;
        }
        let memory = |SensorChange { change, .. }: &SensorChange| {
            memory_of_meta(&change.sensor.key, change.values.len(), change.bytes())
        };
        self.wait_for_meta_room(&database, sensor_changes.iter().map(memory).sum()).await?;
        let mut changes = Vec::new();
        let mut bytes = 0;
        let mut logged = Vec::new();
        let level = arrival.ack.unwrap_or(self.options.ingest.ack);
        for SensorChange { requests, change } in sensor_changes {
            let Some(known) = self.catalog.sensor(&database, &change.sensor.key) else {
                let limit = self
                    .limit_for_sensor(name, arrival.caller, &change.sensor)
                    .unwrap_or_else(|| "a quota of new sensors".to_owned());
                let refusal = MetaRefusal::NoRoom { sensor: change.sensor.key.to_string(), limit };
                for request in requests {
                    outcomes[request] = Err(refusal.clone());
                }
                continue;
            };
            self.metrics.meta_changes.increment(1);
            bytes += change.bytes() + 2 * change.sensor.key.len();
            changes.push((known, change));
            if bytes > self.options.part_bytes() {
                let full = std::mem::take(&mut changes);
                logged.extend(self.submitter.change_meta(&database, arrival.received, full, level).await?);
                bytes = 0;
            }
        }
        if changes.is_empty() {
            self.catalog.forget_unused(database);
            return Ok(logged);
        }
        logged.extend(self.submitter.change_meta(&database, arrival.received, changes, level).await?);
        Ok(logged)
    }

    /// Waits until the catalog has room for metadata that is not stored yet.
    async fn wait_for_meta_room(&self, database: &Database, bytes: usize) -> Result<(), IngestError> {
        let deadline = Instant::now() + self.options.ingest.ack_timeout;
        while let Some(limit) = self.catalog.limit_for_meta(database, bytes) {
            if Instant::now() >= deadline {
                return Err(IngestError::Overloaded { limit, key: "catalog.max_bytes" });
            }
            tokio::time::sleep(ROOM_INTERVAL).await;
        }
        Ok(())
    }
}

/// Returns the refusal for a token that is pinned to other sensors.
fn pin_refusal(sensor: &Sensor, caller: &Caller, reason: Reason) -> MetaRefusal {
    let tag = if let Reason::OtherSensor { tag, .. } = reason { tag } else { String::new() };
    MetaRefusal::Pinned { sensor: sensor.key.to_string(), caller: caller.name().to_owned(), tag }
}

/// Returns the metadata as JSON values.
pub fn meta_values(meta: &Meta) -> Map<String, Value> {
    let value = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
    meta.values().map(|(name, text)| (name.to_owned(), value(text))).collect()
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or_default(),
        Value::Object(values) => 1 + values.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}
