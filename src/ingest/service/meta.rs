//! Changes of metadata: from what a client asks for to a WAL record. A patch is resolved against what the sensor has, so that the
//! record is final.

mod wish;

pub use self::wish::Wish;

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::Ingest;
use crate::access::Caller;
use crate::bucket::{Meta, Renames};
use crate::buffer::record::meta::MetaChange;
use crate::config::AckLevel;
use crate::ingest::admission::submit::LoggedMeta;
use crate::ingest::admission::write_policy::barred;
use crate::ingest::error::IngestError;
use crate::kinds::{KindAction, KindFault};
use crate::reading::{Reason, Sensor, Stamp};

/// Most names of one sensor, and how deep a value may nest.
const NAMES_MAX: usize = 64;
const DEPTH_MAX: usize = 8;
/// Most removed names of one sensor that are remembered.
const REMOVED_MAX: usize = 256;
/// Rows that are looked at together at most, and the memory that makes fewer of them.
const TOGETHER: usize = 500;
const TOGETHER_BYTES: usize = 1 << 20;
/// A sensor, and what is to become of its metadata.
#[derive(Debug, Clone)]
pub struct MetaWish {
    pub sensor: Sensor,
    pub wish: Wish,
}

/// A row of a request by its number: what it wishes, or why it cannot be taken.
pub type MetaRow = (usize, Result<MetaWish, MetaRefusal>);

/// Who asks, and how.
#[derive(Debug, Clone, Copy)]
pub struct MetaArrival<'a> {
    pub database: &'a str,
    /// When it was received, in nanoseconds since the epoch.
    pub received: i64,
    pub by: &'a Caller,
    /// The ack level; `None` for `ingest.ack`.
    pub ack: Option<AckLevel>,
    /// Whether only to tell what would change.
    pub is_dry: bool,
}

/// What became of one wish, or would become of it.
#[derive(Debug, Clone, PartialEq)]
pub struct MetaOutcome {
    /// Whether the sensor was not known before.
    pub is_new: bool,
    pub is_changed: bool,
    /// The metadata afterwards.
    pub values: Map<String, Value>,
    /// How it is not as the kind of the sensor says, where that is a warning.
    pub unlike: Option<KindFault>,
}

/// Why the metadata of one sensor is not changed. Sent again, it would be refused again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetaRefusal {
    #[error("{0}")]
    Unreadable(String),
    #[error("the metadata of {sensor} would take {bytes} bytes, more than {limit}")]
    TooLarge { sensor: String, bytes: usize, limit: usize },
    #[error("the metadata of {sensor} would have {names} names, more than {NAMES_MAX}")]
    TooManyNames { sensor: String, names: usize },
    #[error(
        "{REMOVED_MAX} names of the metadata of {sensor} were removed lately, and other instances may not know of it yet: retry later"
    )]
    TooManyRemoved { sensor: String },
    #[error("a name of the metadata of {sensor} is empty or has more than {limit} bytes (limits.name_bytes)")]
    Name { sensor: String, limit: usize },
    #[error("the metadata of {sensor} nests deeper than {DEPTH_MAX} levels")]
    TooDeep { sensor: String },
    #[error("the sensor {sensor} is new, and {limit} leaves no room for it")]
    NoRoom { sensor: String, limit: String },
    #[error("the metadata of {sensor} is not as the kind {} says: {}", fault.kind, fault.fault)]
    Unlike { sensor: String, fault: KindFault },
    #[error("{by} may not change the metadata of {sensor}: its stored or its shown name has another tag {tag:?}")]
    Pinned { sensor: String, by: String, tag: String },
    #[error("the metadata of {sensor} is not as the condition of the request says: read it again")]
    Changed { sensor: String },
}

/// What is to be logged of one stored sensor, and the wishes that it comes of. One change per sensor: those of a record have the same stamp,
/// by which the later one could not win.
struct Resolved {
    places: Vec<usize>,
    change: MetaChange,
}

/// Changes of some wishes, in order.
#[derive(Default)]
struct ResolvedList {
    all: Vec<Resolved>,
    by_key: HashMap<Box<str>, usize>,
}

impl ResolvedList {
    fn add(&mut self, place: usize, change: MetaChange) {
        match self.by_key.get(&change.sensor.key).and_then(|at| self.all.get_mut(*at)) {
            Some(earlier) => {
                earlier.places.push(place);
                earlier.change.follow(change);
            }
            None => {
                self.by_key.insert(change.sensor.key.clone(), self.all.len());
                self.all.push(Resolved { places: vec![place], change });
            }
        }
    }
}

/// The metadata of stored sensors, by key, as far as they are known.
type Metas = HashMap<Box<str>, Meta>;

/// What the groups of a request's wishes leave to later ones.
#[derive(Default)]
struct Earlier {
    /// What sensors would have, if it is a dry run.
    would_be: Metas,
    wishes: Stamp,
}

impl Ingest {
    /// Bytes of the text of one sensor's metadata at most: with spaces, escapes and its key.
    #[must_use]
    pub fn meta_text_max(&self) -> usize {
        4 * self.options.limits.meta_bytes + (4 << 10)
    }

    /// Changes metadata, and tells the outcome of each row, in groups of about [`TOGETHER_BYTES`], so that rows need not be in memory
    /// all at once. `may` says of what a sensor has whether it may be changed. Of two wishes for one sensor the later one sees what the
    /// earlier one did.
    ///
    /// # Errors
    /// When what a sensor has cannot be read, or a change is not durable, or not known to be. Sending all again is harmless.
    pub async fn change_meta(
        &self,
        arrival: MetaArrival<'_>,
        mut rows: impl Iterator<Item = MetaRow>,
        may: impl Fn(&Meta) -> bool,
        mut tell: impl FnMut(usize, Result<MetaOutcome, MetaRefusal>),
    ) -> Result<(), IngestError> {
        self.member.check()?;
        let name = self.resolve(arrival.database, None).await?;
        let waited = self.options.ingest.ack_timeout;
        let turn = tokio::time::timeout(waited, self.meta_turn.lock()).await;
        let turn = turn.map_err(|_| IngestError::Timeout { waited, key: "ingest.ack_timeout" })?;
        let (mut logged, mut earlier) = (Vec::new(), Earlier::default());
        let settings = self.retention.settings.now();
        let renames = settings.renames(&name);
        let mut is_over = false;
        while !is_over {
            let (mut numbers, mut wishes, mut seen, mut bytes) = (Vec::new(), Vec::new(), 0, 0);
            while seen < TOGETHER && bytes < TOGETHER_BYTES && !is_over {
                seen += 1;
                match rows.next() {
                    Some((number, Ok(wish))) => {
                        bytes += wish.wish.memory();
                        numbers.push(number);
                        wishes.push(wish);
                    }
                    Some((number, Err(refused))) => tell(number, Err(refused)),
                    None => is_over = true,
                }
            }
            let of = (&*name, renames, &mut earlier);
            let outcomes = self.change_some(of, arrival, &wishes, &may, &mut logged).await?;
            numbers.into_iter().zip(outcomes).for_each(|(number, outcome)| tell(number, outcome));
            tokio::task::consume_budget().await;
        }
        drop(turn);
        for logged in logged {
            self.submitter.meta_stored(logged).await?;
        }
        Ok(())
    }

    async fn change_some(
        &self,
        (name, renames, earlier): (&str, Option<&Renames>, &mut Earlier),
        arrival: MetaArrival<'_>,
        wishes: &[MetaWish],
        may: &impl Fn(&Meta) -> bool,
        logged: &mut Vec<LoggedMeta>,
    ) -> Result<Vec<Result<MetaOutcome, MetaRefusal>>, IngestError> {
        let written: Vec<Sensor> = wishes.iter().map(|wish| wish.sensor.clone()).collect();
        let stored = match renames {
            Some(renames) => self.stored_names(name, written, renames).await?,
            None => written,
        };
        let keys: Vec<&str> = stored.iter().map(|sensor| &*sensor.key).collect();
        let mut metas = self.sensor_metas(name, &keys).await?;
        metas.extend(
            keys.iter()
                .filter_map(|key| earlier.would_be.get_key_value(*key))
                .map(|(key, meta)| (key.clone(), meta.clone())),
        );
        let (mut outcomes, mut resolved) = (Vec::with_capacity(wishes.len()), ResolvedList::default());
        // Another instance may have logged and not stored an older change, which would win over no record at all.
        let is_shared = self.store.raw().has_other_writers();
        for (place, (wish, stored)) in wishes.iter().zip(&stored).enumerate() {
            let held = metas.get(&stored.key);
            let is_new = held.is_none();
            let held = held.cloned().unwrap_or_default();
            if !may(&held) {
                outcomes.push(Err(MetaRefusal::Changed { sensor: wish.sensor.key.to_string() }));
                continue;
            }
            let before = values_of(&held);
            let after = wish.wish.applied_to(&before);
            let checked = match barred(arrival.by, renames, stored) {
                Some(reason) => Err(pinned(&wish.sensor, arrival.by, reason)),
                None => self.check_meta(wish, &held, &after),
            };
            let judged = checked.and_then(|()| self.judged((name, arrival.by), stored, &before, &after));
            let unlike = match judged {
                Ok(unlike) => unlike,
                Err(refused) => {
                    outcomes.push(Err(refused));
                    continue;
                }
            };
            // Later than all that is stored, and in order: the next wish may be for one of these sensors, too.
            let stamp = Stamp::MAX - (1 << 32) + earlier.wishes;
            earlier.wishes += 1;
            let is_changed = after != before;
            if is_changed || is_shared && !wish.wish.is_nothing() {
                let change = wish.wish.change(stored, &before, &after, is_shared);
                metas.entry(change.sensor.key.clone()).or_default().merge(&change.at(stamp));
                resolved.add(place, change);
            }
            outcomes.push(Ok(MetaOutcome { is_new, is_changed, values: after, unlike }));
        }
        let resolved = resolved.all;
        if arrival.is_dry {
            let changed = resolved.iter().filter_map(|of| metas.remove_entry(&of.change.sensor.key));
            earlier.would_be.extend(changed);
        } else if !resolved.is_empty() {
            logged.extend(self.log_meta(name, arrival, resolved, &mut outcomes).await?);
        }
        Ok(outcomes)
    }

    /// How metadata would not be as the sensor's kind says, where that is a warning.
    fn judged(
        &self,
        (name, by): (&str, &Caller),
        stored: &Sensor,
        before: &Map<String, Value>,
        after: &Map<String, Value>,
    ) -> Result<Option<KindFault>, MetaRefusal> {
        let Some((fault, action)) = self.options.kinds.judge_meta(stored, before, after) else { return Ok(None) };
        // Who may only write is not told what there is.
        let fault = if by.may_read(name) { fault } else { fault.without_value() };
        match action {
            KindAction::Reject => Err(MetaRefusal::Unlike { sensor: stored.key.to_string(), fault }),
            KindAction::Warn => Ok(Some(fault)),
        }
    }

    /// Checks the bounds of metadata as it would be after a wish.
    fn check_meta(
        &self,
        MetaWish { sensor, wish }: &MetaWish,
        held: &Meta,
        after: &Map<String, Value>,
    ) -> Result<(), MetaRefusal> {
        let sensor = || sensor.key.to_string();
        let (limit, name_bytes) = (self.options.limits.meta_bytes, self.options.limits.name_bytes);
        // Removed names are remembered until no older change can come; a replacement drops them.
        let removed = match wish {
            Wish::Put(_) => 0,
            Wish::Patch(_) => held.entries().count() - held.values().count(),
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
        if after.values().any(|value| depth(value) > DEPTH_MAX) {
            return Err(MetaRefusal::TooDeep { sensor: sensor() });
        }
        let bytes: usize = after.iter().map(|(name, value)| name.len() + value.to_string().len()).sum();
        if bytes > limit {
            return Err(MetaRefusal::TooLarge { sensor: sensor(), bytes, limit });
        }
        Ok(())
    }

    /// Logs changes, a few per record, once their sensors are known.
    async fn log_meta(
        &self,
        name: &str,
        arrival: MetaArrival<'_>,
        resolved: Vec<Resolved>,
        outcomes: &mut [Result<MetaOutcome, MetaRefusal>],
    ) -> Result<Vec<LoggedMeta>, IngestError> {
        let database = self.database(name, arrival.by).await?;
        let is_unknown = |of: &&Resolved| self.catalog.sensor(&database, &of.change.sensor.key).is_none();
        let unknown: Vec<Sensor> = resolved.iter().filter(is_unknown).map(|of| of.change.sensor.clone()).collect();
        if !unknown.is_empty() {
            self.lookup.look_up(&database, unknown, &arrival.by.allowance().cloned()).await;
        }
        let (mut changes, mut bytes, mut logged) = (Vec::new(), 0, Vec::new());
        let level = arrival.ack.unwrap_or(self.options.ingest.ack);
        for Resolved { places, change } in resolved {
            let Some(known) = self.catalog.sensor(&database, &change.sensor.key) else {
                let limit = self
                    .catalog
                    .limit_for_sensor(&change.sensor)
                    .unwrap_or_else(|| "a quota of new sensors".to_owned());
                let refused = MetaRefusal::NoRoom { sensor: change.sensor.key.to_string(), limit };
                places.into_iter().for_each(|place| outcomes[place] = Err(refused.clone()));
                continue;
            };
            self.metrics.meta_changes.increment(1);
            bytes += change.bytes() + 2 * change.sensor.key.len();
            changes.push((known, change));
            if bytes > self.options.part_bytes() {
                let some = std::mem::take(&mut changes);
                logged.extend(self.submitter.change_meta(&database, (arrival.received, some), level).await?);
                bytes = 0;
            }
        }
        if changes.is_empty() {
            self.catalog.forget_unused(database);
            return Ok(logged);
        }
        logged.extend(self.submitter.change_meta(&database, (arrival.received, changes), level).await?);
        Ok(logged)
    }
}

/// The refusal of a change by a token that is pinned to other sensors.
fn pinned(sensor: &Sensor, by: &Caller, reason: Reason) -> MetaRefusal {
    let tag = if let Reason::OtherSensor { tag, .. } = reason { tag } else { String::new() };
    MetaRefusal::Pinned { sensor: sensor.key.to_string(), by: by.name().to_owned(), tag }
}

/// The values as JSON.
pub fn values_of(meta: &Meta) -> Map<String, Value> {
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
