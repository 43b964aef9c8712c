//! Notices of an answer: unknown names of the request, with the nearest known names that the caller may read. Also
//! resolves a bare name to a sensor.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crate::access::{Caller, Effect, Pin};
use crate::bucket::settings::{Drift, owner};
use crate::query::engine::Engine;
use crate::query::engine::directory::DirectoryEntry;
use crate::query::engine::memory::CHOOSE;
use crate::query::native::aggregate::fields_with_values;
use crate::query::selector::{Selector, TagFilter, TagTest};
use crate::query::service::ignore_notice_error;
use crate::query::{Budget, Query, QueryError};
use crate::reading::time::{TIMESTAMP_MAX, TIMESTAMP_MIN};
use crate::reading::{Family, Sensor};

/// The tag by which a bare name selects a sensor.
const SENSOR_TAG: &str = "sensor";
/// Maximum number of names in a notice.
const SHOWN_MAX: usize = 5;
/// Maximum number of sensor keys in a notice.
const KEYS_SHOWN_MAX: usize = 10;
/// Maximum number of sensors whose values of another type are searched, because texts have no summaries and must be
/// read.
const DRIFTED_SENSORS_MAX: usize = 200;
/// Maximum number of distinct names that are compared with an unknown name.
const COMPARED_MAX: usize = 10_000;
/// Maximum number of compared characters of a name.
const COMPARED_CHARS_MAX: usize = 64;

/// The names of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestNames<'a> {
    pub database: &'a str,
    pub selector: &'a Selector,
    pub fields: &'a [String],
    /// The tags of the grouping.
    pub group_by: &'a [String],
    /// Start and exclusive end in nanoseconds; `None` for all times.
    pub range: Option<(i64, i64)>,
}

impl<'a> RequestNames<'a> {
    /// Returns the names of a request for sensors, without fields and times.
    #[must_use]
    pub fn for_sensors(database: &'a str, selector: &'a Selector) -> Self {
        Self { database, selector, fields: &[], group_by: &[], range: None }
    }
}

impl Query {
    /// Returns a notice for each name that no sensor readable by the caller has. An error only drops the notices,
    /// because the answer is valid without them.
    pub async fn notices(&self, budget: &Budget, caller: &Caller, names: &RequestNames<'_>) -> Vec<String> {
        let read = || async {
            let requested = requested_names(names);
            let range = names.range.map(|(from, to)| from..to);
            let search =
                NameSearch { engine: &self.engine, budget, caller, database: names.database, names: &requested };
            if let Selector::Sensor(_) = names.selector {
                // Read only the named sensor, because its database may have a million others.
                let chosen = self.engine.choose(budget, names.database, names.selector).await?;
                if let Some(entry) = chosen.entries.first() {
                    let entry = std::slice::from_ref(entry);
                    let mut notices = search.unknown_among(entry, &[]).await?;
                    notices.extend(search.drift_among(range, entry, &[]).await?);
                    return Ok(notices);
                }
            }
            let mut notices = search.unknown_names().await?;
            notices.extend(search.drift(range).await?);
            Ok::<_, QueryError>(notices)
        };
        self.in_turn(budget, names.database, read).await.unwrap_or_else(ignore_notice_error)
    }
}

/// A requested field, with the fields that keep its values of other types.
#[derive(Default)]
struct DriftedField<'a> {
    names: BTreeSet<&'a str>,
    /// At most [`DRIFTED_SENSORS_MAX`] sensors that have such fields.
    sensors: Vec<DirectoryEntry>,
    /// True if more sensors have such fields.
    has_more: bool,
}

impl<'a> DriftedField<'a> {
    fn add(&mut self, name: &'a str, entry: &DirectoryEntry) {
        self.names.insert(name);
        if self.sensors.last().is_some_and(|last| last.sensor.key == entry.sensor.key) {
            return;
        }
        if self.sensors.len() < DRIFTED_SENSORS_MAX {
            self.sensors.push(entry.clone());
        } else {
            self.has_more = true;
        }
    }
}

/// The kind of a requested name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NameKind<'a> {
    Key,
    Measurement,
    Tag,
    /// A value of this tag.
    Value(&'a str),
    GroupKey,
    Field,
    /// A field or a tag.
    Column,
}

/// A name of the request. Names other than measurements and keys are searched in this measurement only.
pub struct RequestedName<'a> {
    pub kind: NameKind<'a>,
    pub name: &'a str,
    pub measurement: Option<&'a str>,
}

fn requested_names<'a>(names: &RequestNames<'a>) -> Vec<RequestedName<'a>> {
    let mut requested = Vec::new();
    let measurement = match names.selector {
        Selector::Sensor(sensor) => {
            requested.push(RequestedName { kind: NameKind::Key, name: &sensor.key, measurement: None });
            None
        }
        Selector::Matching { measurement, tags, .. } => {
            let measurement = measurement.as_deref();
            requested.extend(measurement.map(|name| RequestedName {
                kind: NameKind::Measurement,
                name,
                measurement: None,
            }));
            for TagFilter { key, test, is_negated } in tags {
                requested.push(RequestedName { kind: NameKind::Tag, name: key, measurement });
                match test {
                    TagTest::Is(value) if !is_negated && !value.is_empty() => {
                        requested.push(RequestedName { kind: NameKind::Value(key), name: value, measurement });
                    }
                    TagTest::Is(_) | TagTest::Matches(_) => {}
                }
            }
            measurement
        }
    };
    let of_kind = |kind| move |name: &'a String| RequestedName { kind, name, measurement };
    requested.extend(names.group_by.iter().map(of_kind(NameKind::GroupKey)));
    requested.extend(names.fields.iter().map(of_kind(NameKind::Field)));
    requested
}

impl<'a> RequestedName<'a> {
    fn may_be_field(&self) -> bool {
        matches!(self.kind, NameKind::Field | NameKind::Column)
    }

    /// Calls `test` with the names of this kind that a sensor has, until it returns true.
    fn any_name(&self, entry: &'a DirectoryEntry, mut test: impl FnMut(&'a str) -> bool) -> bool {
        let sensor = &*entry.sensor;
        if self.measurement.is_some_and(|measurement| *sensor.measurement != *measurement) {
            return false;
        }
        match self.kind {
            NameKind::Key => test(&sensor.key),
            NameKind::Measurement => test(&sensor.measurement),
            NameKind::Tag | NameKind::GroupKey => {
                sensor.tags.iter().any(|(key, _)| test(key)) || (entry.tag(self.name).is_some() && test(self.name))
            }
            NameKind::Value(tag) => {
                let is_meta = entry.tag(tag).is_some_and(|value| value == self.name);
                sensor.tags.iter().any(|(key, value)| **key == *tag && test(value)) || (is_meta && test(self.name))
            }
            NameKind::Field => entry.fields.iter().any(|(name, _)| test(name)),
            NameKind::Column => {
                let is_meta = entry.tag(self.name).is_some() && test(self.name);
                is_meta
                    || entry.fields.iter().any(|(name, _)| test(name))
                    || sensor.tags.iter().any(|(key, _)| test(key))
            }
        }
    }

    fn describe(&self) -> String {
        let what = match self.kind {
            NameKind::Key => "sensor",
            NameKind::Measurement => "measurement",
            NameKind::Tag => "tag",
            NameKind::Value(tag) => return format!("unknown value {:?} of tag {tag:?}", self.name),
            NameKind::GroupKey => "tag in group_by",
            NameKind::Field => "field",
            NameKind::Column => "field or tag",
        };
        format!("unknown {what} {:?}", self.name)
    }
}

/// A search of names among the sensors of a database.
pub struct NameSearch<'a> {
    pub engine: &'a Engine,
    pub budget: &'a Budget,
    pub caller: &'a Caller,
    pub database: &'a str,
    pub names: &'a [RequestedName<'a>],
}

impl NameSearch<'_> {
    /// Returns a notice if the database is unknown, else one for each name that no sensor readable by the caller has.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn unknown_names(&self) -> Result<Vec<String>, QueryError> {
        let Self { engine, budget, caller, database, .. } = *self;
        let sensors = engine.directory(budget, database, engine.options.cache_max_age).await?;
        if sensors.is_empty() && !engine.has_database(database).await? {
            let known = engine.all_databases().await?;
            let mut nearest = NearestNames::new(database);
            known
                .iter()
                .filter(|name| caller.allows(Effect::Read, Some(name)) && owner(name) == **name)
                .for_each(|name| nearest.add(name));
            return Ok(vec![nearest.notice(&format!("unknown database {database:?}"))]);
        }
        self.unknown_among(&sensors, caller.pins()).await
    }

    /// Returns a notice for each name that none of these sensors has, among those that the pins of the caller allow.
    async fn unknown_among(&self, sensors: &[DirectoryEntry], pins: &[Pin]) -> Result<Vec<String>, QueryError> {
        let is_theirs = |entry: &&DirectoryEntry| pins.iter().all(|pin| pin.matches(&entry.sensor));
        let mut missing: Vec<&RequestedName<'_>> = self.names.iter().collect();
        for batch in sensors.chunks(CHOOSE) {
            for entry in batch.iter().filter(is_theirs) {
                missing.retain(|requested| !requested.any_name(entry, |name| name == requested.name));
                if missing.is_empty() {
                    return Ok(Vec::new());
                }
            }
            self.budget.pause().await?;
        }
        // If the measurement is unknown, report only that, because no other name can be found.
        let measurement = missing.iter().find(|requested| requested.kind == NameKind::Measurement);
        let missing = measurement.map_or_else(|| missing.clone(), |measurement| vec![*measurement]);
        let without_value = |requested: &&RequestedName<'_>| match requested.kind {
            NameKind::Value(tag) => !missing.iter().any(|other| other.kind == NameKind::Tag && other.name == tag),
            _ => true,
        };
        let unknown = missing.iter().copied().filter(without_value);
        let mut nearest: Vec<_> = unknown.map(|requested| (requested, NearestNames::new(requested.name))).collect();
        for batch in sensors.chunks(CHOOSE / 8) {
            for entry in batch.iter().filter(is_theirs) {
                for (requested, nearest) in &mut nearest {
                    requested.any_name(entry, |name| {
                        nearest.add(name);
                        false
                    });
                }
            }
            self.budget.pause().await?;
        }
        Ok(nearest.into_iter().map(|(requested, nearest)| nearest.notice(&requested.describe())).collect())
    }

    /// Returns a notice for each requested field that also has values of other types in a range of times, if the
    /// database keeps such values.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn drift(&self, range: Option<Range<i64>>) -> Result<Vec<String>, QueryError> {
        let Self { engine, budget, caller, database, names } = *self;
        let is_kept = engine.settings.now().drift(database) == Drift::Keep;
        if !is_kept || !names.iter().any(RequestedName::may_be_field) {
            return Ok(Vec::new());
        }
        let sensors = engine.directory(budget, database, engine.options.cache_max_age).await?;
        self.drift_among(range, &sensors, caller.pins()).await
    }

    async fn drift_among(
        &self,
        range: Option<Range<i64>>,
        sensors: &[DirectoryEntry],
        pins: &[Pin],
    ) -> Result<Vec<String>, QueryError> {
        let mut found: BTreeMap<&str, DriftedField<'_>> = BTreeMap::new();
        let fields: Vec<&RequestedName<'_>> = self.names.iter().filter(|requested| requested.may_be_field()).collect();
        let is_theirs = |entry: &&DirectoryEntry| pins.iter().all(|pin| pin.matches(&entry.sensor));
        for batch in sensors.chunks(CHOOSE / 8) {
            for entry in batch.iter().filter(is_theirs) {
                for (name, _) in entry.fields.iter() {
                    let Some((field, _)) = Family::kept_beside(name) else { continue };
                    let is_requested = |requested: &&&RequestedName<'_>| {
                        requested.name == field
                            && requested.measurement.is_none_or(|name| *entry.sensor.measurement == *name)
                    };
                    if let Some(requested) = fields.iter().find(is_requested) {
                        found.entry(requested.name).or_default().add(name, entry);
                    }
                }
            }
            self.budget.pause().await?;
        }
        let range = range.unwrap_or(TIMESTAMP_MIN..TIMESTAMP_MAX);
        let mut notices = Vec::new();
        for (field, DriftedField { names, sensors, has_more }) in found {
            // A field stays known after its values were deleted, so check that there are values in the range.
            let names = names.into_iter().map(str::to_owned).collect();
            let found =
                fields_with_values(self.engine, self.budget, self.database, range.clone(), names, &sensors).await?;
            let Some(name) = found.first().and_then(|names| names.first()) else { continue };
            let count = found.len();
            let sensors = if count == 1 { "sensor" } else { "sensors" };
            let least = if has_more { "at least " } else { "" };
            notices.push(format!(
            "field {field:?} of {least}{count} {sensors} has values of another type, which are kept beside it, such as {name:?}"
        ));
        }
        Ok(notices)
    }
}

/// The known names nearest to an unknown one.
pub struct NearestNames<'a> {
    target: String,
    /// At most [`SHOWN_MAX`] names, sorted by distance, then by name.
    found: Vec<(usize, &'a str)>,
    seen: HashSet<&'a str>,
}

impl<'a> NearestNames<'a> {
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { target: normalize(name), found: Vec::new(), seen: HashSet::new() }
    }

    pub fn add(&mut self, name: &'a str) {
        if self.seen.len() >= COMPARED_MAX || !self.seen.insert(name) {
            return;
        }
        let entry = (strsim::levenshtein(&self.target, &normalize(name)), name);
        let index = self.found.partition_point(|found| *found < entry);
        if index < SHOWN_MAX {
            self.found.insert(index, entry);
            self.found.truncate(SHOWN_MAX);
        }
    }

    /// Returns a notice of the unknown name and the nearest known names.
    #[must_use]
    pub fn notice(&self, unknown: &str) -> String {
        let names: Vec<String> = self.found.iter().map(|(_, name)| format!("{name:?}")).collect();
        match self.seen.len() - names.len() {
            _ if names.is_empty() => format!("{unknown}; there are no others that you can read"),
            0 => format!("{unknown}; known: {}", names.join(", ")),
            more => format!("{unknown}; nearest: {}, of {}", names.join(", "), names.len() + more),
        }
    }
}

fn normalize(name: &str) -> String {
    name.chars().take(COMPARED_CHARS_MAX).flat_map(char::to_lowercase).collect()
}

/// The meaning of a bare name such as `temp-01` where a sensor key is expected.
#[derive(Debug)]
pub enum NamedSensor {
    /// The sensor with exactly this key, or none.
    Exact,
    /// The only sensor with the tag `sensor=NAME` that the caller may read.
    Tagged(Arc<Sensor>),
    /// Several sensors have this tag. The text lists their keys.
    Several(String),
}

impl Query {
    /// Resolves a key without tags to a sensor. The sensor with exactly this key takes precedence if the caller may
    /// read it.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn named_sensor(
        &self,
        budget: &Budget,
        database: &str,
        bare: &Sensor,
        pins: &[Pin],
    ) -> Result<NamedSensor, QueryError> {
        let engine = &self.engine;
        let may_read = |sensor: &Sensor| pins.iter().all(|pin| pin.matches(sensor));
        let is_named = |sensor: &Sensor| sensor.tag(SENSOR_TAG) == Some(&*bare.measurement);
        self.in_turn(budget, database, || async {
            if may_read(bare) && engine.named(database, &bare.key).await?.is_some() {
                return Ok(NamedSensor::Exact);
            }
            let sensors = engine.directory(budget, database, engine.options.cache_max_age).await?;
            let mut tagged: Vec<Arc<Sensor>> = Vec::new();
            let mut count = 0;
            for batch in sensors.chunks(CHOOSE) {
                for entry in batch.iter().filter(|entry| may_read(&entry.sensor) && is_named(&entry.sensor)) {
                    count += 1;
                    if count <= KEYS_SHOWN_MAX {
                        tagged.push(entry.sensor.clone());
                    }
                }
                budget.pause().await?;
            }
            Ok::<_, QueryError>(NamedSensor::from_matches(&tagged, count, &bare.measurement))
        })
        .await
    }
}

impl NamedSensor {
    /// Resolves a name whose tag `count` sensors have. `tagged` has the first of them.
    fn from_matches(tagged: &[Arc<Sensor>], count: usize, name: &str) -> Self {
        match tagged {
            [] => Self::Exact,
            [only] => Self::Tagged(only.clone()),
            some => {
                let keys: Vec<&str> = some.iter().map(|sensor| &*sensor.key).collect();
                let more = if count > keys.len() { format!(" and {} more", count - keys.len()) } else { String::new() };
                Self::Several(format!(
                    "{count} sensors have the tag {SENSOR_TAG}={name}; give one of their keys: {}{more}",
                    keys.join(" ")
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_come_first_and_each_once() {
        let mut nearest = NearestNames::new("Tempp");
        for name in ["humidity", "temp", "temp", "pressure", "wind", "tempo", "temp2", "rain"] {
            nearest.add(name);
        }
        let notice = nearest.notice("unknown field \"Tempp\"");
        assert_eq!(
            notice,
            "unknown field \"Tempp\"; nearest: \"temp\", \"temp2\", \"tempo\", \"rain\", \"wind\", of 7"
        );
        assert_eq!(
            NearestNames::new("x").notice("unknown field \"x\""),
            "unknown field \"x\"; there are no others that you can read"
        );
    }
}
