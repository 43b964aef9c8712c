//! What an answer says beside its data: which names of the request nobody knows, and which ones the caller may see
//! instead, nearest first. Also finds the sensor that a bare name means.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crate::access::{Caller, Pin};
use crate::bucket::settings::{Drift, owner};
use crate::query::engine::Engine;
use crate::query::engine::directory::DirectoryEntry;
use crate::query::engine::memory::CHOOSE;
use crate::query::native::aggregate::present;
use crate::query::selector::{Selector, TagFilter, TagTest};
use crate::query::service::without_notices;
use crate::query::{Budget, Query, QueryError};
use crate::reading::time::{TIMESTAMP_MAX, TIMESTAMP_MIN};
use crate::reading::{Family, Sensor};

/// The tag by which a bare name means a sensor.
const SENSOR_TAG: &str = "sensor";
/// Names that a notice lists at most.
const SHOWN: usize = 5;
/// Keys of sensors that a notice lists at most.
const KEYS_SHOWN: usize = 10;
/// Sensors with fields beside a named one whose values a notice looks for at most: texts have no summaries, so that they are read.
const LOOKED_AT: usize = 200;
/// Distinct names that are compared with an unknown one at most, and characters of each.
const COMPARED: usize = 10_000;
const COMPARED_CHARS: usize = 64;

/// The names of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestNames<'a> {
    pub database: &'a str,
    pub selector: &'a Selector,
    pub fields: &'a [String],
    /// The tags grouped by.
    pub group_by: &'a [String],
    /// From and to, exclusive, in nanoseconds; `None` for all times.
    pub range: Option<(i64, i64)>,
}

impl<'a> RequestNames<'a> {
    /// The names of a request for sensors, whatever their fields and times.
    #[must_use]
    pub fn of(database: &'a str, selector: &'a Selector) -> Self {
        Self { database, selector, fields: &[], group_by: &[], range: None }
    }
}

impl Query {
    /// A notice for each name that no sensor has which the caller may read.
    /// An answer is not refused because its notices cannot be told.
    pub async fn notices(&self, budget: &Budget, by: &Caller, names: &RequestNames<'_>) -> Vec<String> {
        let read = || async {
            let asked = asked_of(names);
            let range = names.range.map(|(from, to)| from..to);
            let looked = LookedFor { engine: &self.engine, budget, by, database: names.database, names: &asked };
            if let Selector::Sensor(_) = names.selector {
                // Its database may have a million others, which need not be read.
                let chosen = self.engine.choose(budget, names.database, names.selector).await?;
                if let Some(entry) = chosen.entries.first() {
                    let entry = std::slice::from_ref(entry);
                    let mut told = looked.unknown_among(entry, &[]).await?;
                    told.extend(looked.drift_among(range, entry, &[]).await?);
                    return Ok(told);
                }
            }
            let mut told = looked.unknown().await?;
            told.extend(looked.drift(range).await?);
            Ok::<_, QueryError>(told)
        };
        self.in_turn(budget, names.database, read).await.unwrap_or_else(without_notices)
    }
}

/// A named field, and the fields beside it.
#[derive(Default)]
struct Drifted<'a> {
    names: BTreeSet<&'a str>,
    /// At most [`LOOKED_AT`] of those that have any.
    sensors: Vec<DirectoryEntry>,
    has_more: bool,
}

impl<'a> Drifted<'a> {
    fn add(&mut self, name: &'a str, entry: &DirectoryEntry) {
        self.names.insert(name);
        if self.sensors.last().is_some_and(|last| last.sensor.key == entry.sensor.key) {
            return;
        }
        if self.sensors.len() < LOOKED_AT {
            self.sensors.push(entry.clone());
        } else {
            self.has_more = true;
        }
    }
}

/// Where a name is looked for.
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

/// A name of the request. All but measurements and keys are looked for in this measurement only.
pub struct AskedName<'a> {
    pub kind: NameKind<'a>,
    pub name: &'a str,
    pub measurement: Option<&'a str>,
}

fn asked_of<'a>(names: &RequestNames<'a>) -> Vec<AskedName<'a>> {
    let mut asked = Vec::new();
    let measurement = match names.selector {
        Selector::Sensor(sensor) => {
            asked.push(AskedName { kind: NameKind::Key, name: &sensor.key, measurement: None });
            None
        }
        Selector::Matching { measurement, tags, .. } => {
            let measurement = measurement.as_deref();
            asked.extend(measurement.map(|name| AskedName { kind: NameKind::Measurement, name, measurement: None }));
            for TagFilter { key, test, negated } in tags {
                asked.push(AskedName { kind: NameKind::Tag, name: key, measurement });
                match test {
                    TagTest::Is(value) if !negated && !value.is_empty() => {
                        asked.push(AskedName { kind: NameKind::Value(key), name: value, measurement });
                    }
                    TagTest::Is(_) | TagTest::Matches(_) => {}
                }
            }
            measurement
        }
    };
    let of_kind = |kind| move |name: &'a String| AskedName { kind, name, measurement };
    asked.extend(names.group_by.iter().map(of_kind(NameKind::GroupKey)));
    asked.extend(names.fields.iter().map(of_kind(NameKind::Field)));
    asked
}

impl<'a> AskedName<'a> {
    fn may_be_field(&self) -> bool {
        matches!(self.kind, NameKind::Field | NameKind::Column)
    }

    /// Gives the names of this kind that a sensor has, until one is taken.
    fn any(&self, entry: &'a DirectoryEntry, mut takes: impl FnMut(&'a str) -> bool) -> bool {
        let sensor = &*entry.sensor;
        if self.measurement.is_some_and(|measurement| *sensor.measurement != *measurement) {
            return false;
        }
        match self.kind {
            NameKind::Key => takes(&sensor.key),
            NameKind::Measurement => takes(&sensor.measurement),
            NameKind::Tag | NameKind::GroupKey => {
                sensor.tags.iter().any(|(key, _)| takes(key)) || (entry.tag(self.name).is_some() && takes(self.name))
            }
            NameKind::Value(tag) => {
                let is_meta = entry.tag(tag).is_some_and(|value| value == self.name);
                sensor.tags.iter().any(|(key, value)| **key == *tag && takes(value)) || (is_meta && takes(self.name))
            }
            NameKind::Field => entry.fields.iter().any(|(name, _)| takes(name)),
            NameKind::Column => {
                let is_meta = entry.tag(self.name).is_some() && takes(self.name);
                is_meta
                    || entry.fields.iter().any(|(name, _)| takes(name))
                    || sensor.tags.iter().any(|(key, _)| takes(key))
            }
        }
    }

    fn described(&self) -> String {
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

/// Names that are looked for among the sensors of a database.
pub struct LookedFor<'a> {
    pub engine: &'a Engine,
    pub budget: &'a Budget,
    pub by: &'a Caller,
    pub database: &'a str,
    pub names: &'a [AskedName<'a>],
}

impl LookedFor<'_> {
    /// A notice for the database if there is none of this name, else for each name that no sensor has which the caller may read.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn unknown(&self) -> Result<Vec<String>, QueryError> {
        let Self { engine, budget, by, database, .. } = *self;
        let sensors = engine.directory(budget, database, engine.options.cache_max_age).await?;
        if sensors.is_empty() && !engine.has_database(database).await? {
            let known = engine.all_databases().await?;
            let mut nearest = Nearest::to(database);
            known.iter().filter(|name| by.may_read(name) && owner(name) == **name).for_each(|name| nearest.add(name));
            return Ok(vec![nearest.notice(&format!("unknown database {database:?}"))]);
        }
        self.unknown_among(&sensors, by.pins()).await
    }

    /// A notice for each name that none of these sensors has, of those that the pins let the caller see.
    async fn unknown_among(&self, sensors: &[DirectoryEntry], pins: &[Pin]) -> Result<Vec<String>, QueryError> {
        let is_theirs = |entry: &&DirectoryEntry| pins.iter().all(|pin| pin.matches(&entry.sensor));
        let mut missing: Vec<&AskedName<'_>> = self.names.iter().collect();
        for some in sensors.chunks(CHOOSE) {
            for entry in some.iter().filter(is_theirs) {
                missing.retain(|asked| !asked.any(entry, |name| name == asked.name));
                if missing.is_empty() {
                    return Ok(Vec::new());
                }
            }
            self.budget.pause().await?;
        }
        // Without its measurement, none of the other names can be found.
        let measurement = missing.iter().find(|asked| asked.kind == NameKind::Measurement);
        let missing = measurement.map_or_else(|| missing.clone(), |measurement| vec![*measurement]);
        let without_value = |asked: &&AskedName<'_>| match asked.kind {
            NameKind::Value(tag) => !missing.iter().any(|other| other.kind == NameKind::Tag && other.name == tag),
            _ => true,
        };
        let mut nearest: Vec<_> =
            missing.iter().copied().filter(without_value).map(|asked| (asked, Nearest::to(asked.name))).collect();
        for some in sensors.chunks(CHOOSE / 8) {
            for entry in some.iter().filter(is_theirs) {
                for (asked, nearest) in &mut nearest {
                    asked.any(entry, |name| {
                        nearest.add(name);
                        false
                    });
                }
            }
            self.budget.pause().await?;
        }
        Ok(nearest.into_iter().map(|(asked, nearest)| nearest.notice(&asked.described())).collect())
    }

    /// A notice for each named field beside which there are values of other families in a range of times, if they are kept at all.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn drift(&self, range: Option<Range<i64>>) -> Result<Vec<String>, QueryError> {
        let Self { engine, budget, by, database, names } = *self;
        let is_kept = engine.settings.now().drift(database) == Drift::Keep;
        if !is_kept || !names.iter().any(AskedName::may_be_field) {
            return Ok(Vec::new());
        }
        let sensors = engine.directory(budget, database, engine.options.cache_max_age).await?;
        self.drift_among(range, &sensors, by.pins()).await
    }

    async fn drift_among(
        &self,
        range: Option<Range<i64>>,
        sensors: &[DirectoryEntry],
        pins: &[Pin],
    ) -> Result<Vec<String>, QueryError> {
        let mut found: BTreeMap<&str, Drifted<'_>> = BTreeMap::new();
        let fields: Vec<&AskedName<'_>> = self.names.iter().filter(|asked| asked.may_be_field()).collect();
        let is_theirs = |entry: &&DirectoryEntry| pins.iter().all(|pin| pin.matches(&entry.sensor));
        for some in sensors.chunks(CHOOSE / 8) {
            for entry in some.iter().filter(is_theirs) {
                for (name, _) in entry.fields.iter() {
                    let Some((field, _)) = Family::kept_beside(name) else { continue };
                    let of = |asked: &&&AskedName<'_>| {
                        asked.name == field && asked.measurement.is_none_or(|name| *entry.sensor.measurement == *name)
                    };
                    if let Some(asked) = fields.iter().find(of) {
                        found.entry(asked.name).or_default().add(name, entry);
                    }
                }
            }
            self.budget.pause().await?;
        }
        let (mut told, range) = (Vec::new(), range.unwrap_or(TIMESTAMP_MIN..TIMESTAMP_MAX));
        for (field, Drifted { names, sensors, has_more }) in found {
            // What was deleted or written at another time is no news: a field stays known when it has no values.
            let names = names.into_iter().map(str::to_owned).collect();
            let having = present(self.engine, self.budget, self.database, (range.clone(), names), &sensors).await?;
            let Some(name) = having.first().and_then(|names| names.first()) else { continue };
            let (count, sensors) = (having.len(), if having.len() == 1 { "sensor" } else { "sensors" });
            let least = if has_more { "at least " } else { "" };
            told.push(format!(
            "field {field:?} of {least}{count} {sensors} has values of another type, which are kept beside it, such as {name:?}"
        ));
        }
        Ok(told)
    }
}

/// The known names that are nearest to one that is unknown.
pub struct Nearest<'a> {
    to: String,
    /// By distance, then by name; at most [`SHOWN`].
    found: Vec<(usize, &'a str)>,
    seen: HashSet<&'a str>,
}

impl<'a> Nearest<'a> {
    #[must_use]
    pub fn to(name: &str) -> Self {
        Self { to: compared(name), found: Vec::new(), seen: HashSet::new() }
    }

    pub fn add(&mut self, name: &'a str) {
        if self.seen.len() >= COMPARED || !self.seen.insert(name) {
            return;
        }
        let place = (strsim::levenshtein(&self.to, &compared(name)), name);
        let at = self.found.partition_point(|found| *found < place);
        if at < SHOWN {
            self.found.insert(at, place);
            self.found.truncate(SHOWN);
        }
    }

    /// What is unknown, and what there is instead.
    #[must_use]
    pub fn notice(&self, unknown: &str) -> String {
        let names: Vec<String> = self.found.iter().map(|(_, name)| format!("{name:?}")).collect();
        match self.seen.len() - names.len() {
            _ if names.is_empty() => format!("{unknown}; there is none that you may read"),
            0 => format!("{unknown}; known: {}", names.join(", ")),
            more => format!("{unknown}; nearest: {}, of {}", names.join(", "), names.len() + more),
        }
    }
}

fn compared(name: &str) -> String {
    name.chars().take(COMPARED_CHARS).flat_map(char::to_lowercase).collect()
}

/// What a bare name such as `temp-01` means where a sensor's key is expected.
#[derive(Debug)]
pub enum NamedSensor {
    /// The sensor with this key, if there is one, else none.
    Exact,
    /// The only sensor with the tag `sensor=NAME` that the caller may read.
    Tagged(Arc<Sensor>),
    /// Several have this tag: the text lists their keys.
    Several(String),
}

impl Query {
    /// The sensor that a key without tags means. The sensor with exactly this key wins if the caller may read it.
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
            for some in sensors.chunks(CHOOSE) {
                for entry in some.iter().filter(|entry| may_read(&entry.sensor) && is_named(&entry.sensor)) {
                    count += 1;
                    if count <= KEYS_SHOWN {
                        tagged.push(entry.sensor.clone());
                    }
                }
                budget.pause().await?;
            }
            Ok::<_, QueryError>(NamedSensor::among(&tagged, count, &bare.measurement))
        })
        .await
    }
}

impl NamedSensor {
    /// The sensor of a name, of which `count` have the tag: the first of them are `tagged`.
    fn among(tagged: &[Arc<Sensor>], count: usize, name: &str) -> Self {
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
        let mut nearest = Nearest::to("Tempp");
        for name in ["humidity", "temp", "temp", "pressure", "wind", "tempo", "temp2", "rain"] {
            nearest.add(name);
        }
        let notice = nearest.notice("unknown field \"Tempp\"");
        assert_eq!(
            notice,
            "unknown field \"Tempp\"; nearest: \"temp\", \"temp2\", \"tempo\", \"rain\", \"wind\", of 7"
        );
        assert_eq!(
            Nearest::to("x").notice("unknown field \"x\""),
            "unknown field \"x\"; there is none that you may read"
        );
    }
}
