//! Relabels: rules by which what is stored under one name is shown under another one, from a time on. They change no stored
//! key and no log record, so that taking one back shows everything as it was. Pure: times and tables are arguments.
//!
//! The rules of a database stand in the order in which they were made. The *present name* of a stored sensor at a time is what
//! they make of it, one after the other, each if it is valid at that time. Reading a name at a time means reading every stored
//! sensor that has the same present name then as that name itself: an old name reads what its new name does.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::reading::time::TIMESTAMP_MIN;
use crate::reading::{Hour, Sensor, Stamp};

/// Most stored sensors that one name may unite.
pub const UNITED_MAX: usize = 256;

/// All times.
const ALWAYS: Range<i64> = i64::MIN..i64::MAX;

/// What a relabel does to a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renaming {
    /// One sensor gets another measurement or other tags.
    Sensor {
        /// The sensor as it was named.
        from: Arc<Sensor>,
        /// The sensor as it is named now.
        to: Arc<Sensor>,
    },
    /// A value of a tag becomes another one.
    TagValue {
        /// Only in this measurement.
        measurement: Option<Box<str>>,
        /// The tag's key.
        tag: Box<str>,
        /// The value as it was.
        from: Box<str>,
        /// The value as it is now.
        to: Box<str>,
    },
    /// A tag gets another key, at sensors that do not have that one already.
    TagKey {
        /// Only in this measurement.
        measurement: Option<Box<str>>,
        /// The key as it was.
        from: Box<str>,
        /// The key as it is now.
        to: Box<str>,
    },
    /// A measurement gets another name.
    Measurement {
        /// The name as it was.
        from: Box<str>,
        /// The name as it is now.
        to: Box<str>,
    },
}

/// Why a renaming is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoRenaming {
    /// Both names are the same.
    #[error("both names are the same")]
    Same,
    /// A name is empty.
    #[error("a name is empty")]
    Empty,
    /// A key with such a part can be read in two ways.
    #[error("a name ends with a backslash, and such names cannot be renamed")]
    Backslash,
}

impl Renaming {
    /// As the API and the store name it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Sensor { .. } => "sensor",
            Self::TagValue { .. } => "tag_value",
            Self::TagKey { .. } => "tag_key",
            Self::Measurement { .. } => "measurement",
        }
    }

    /// The old and the new name, as people write them.
    #[must_use]
    pub fn names(&self) -> (&str, &str) {
        match self {
            Self::Sensor { from, to } => (&from.key, &to.key),
            Self::TagValue { from, to, .. } | Self::TagKey { from, to, .. } | Self::Measurement { from, to } => {
                (from, to)
            }
        }
    }

    /// Whether it names something that can be renamed.
    ///
    /// # Errors
    /// See [`NoRenaming`].
    pub fn check(&self) -> Result<(), NoRenaming> {
        let (from, to) = self.names();
        let tag = if let Self::TagValue { tag, .. } = self { tag } else { from };
        let sensors = if let Self::Sensor { from, to } = self { vec![from, to] } else { Vec::new() };
        if from == to {
            return Err(NoRenaming::Same);
        }
        if from.is_empty() || to.is_empty() || tag.is_empty() {
            return Err(NoRenaming::Empty);
        }
        let is_unclear = |name: &str| name.ends_with('\\');
        if is_unclear(from) || is_unclear(to) || is_unclear(tag) || sensors.into_iter().any(|of| !is_clear(of)) {
            return Err(NoRenaming::Backslash);
        }
        Ok(())
    }

    /// The new name of a sensor; `None` if the renaming does not concern it.
    fn of(&self, sensor: &Sensor) -> Option<Sensor> {
        match self {
            Self::Sensor { from, to } => (sensor.key == from.key).then(|| Sensor::clone(to)),
            Self::TagValue { measurement, tag, from, to } => {
                let is_meant = is_in(measurement.as_deref(), sensor) && sensor.tag(tag) == Some(&**from);
                is_meant.then(|| with_tags(sensor, |key, value| (key, if key == &**tag { &**to } else { value })))?
            }
            Self::TagKey { measurement, from, to } => renamed_key(sensor, measurement.as_deref(), from, to),
            Self::Measurement { from, to } => {
                (sensor.measurement == *from).then(|| with_measurement(sensor, to)).flatten()
            }
        }
    }

    /// A name that this renaming makes to this one.
    fn source_of(&self, sensor: &Sensor) -> Option<Sensor> {
        match self {
            Self::Sensor { from, to } => (sensor.key == to.key).then(|| Sensor::clone(from)),
            Self::TagValue { measurement, tag, from, to } => {
                let is_meant = is_in(measurement.as_deref(), sensor) && sensor.tag(tag) == Some(&**to);
                is_meant.then(|| with_tags(sensor, |key, value| (key, if key == &**tag { &**from } else { value })))?
            }
            Self::TagKey { measurement, from, to } => renamed_key(sensor, measurement.as_deref(), to, from),
            Self::Measurement { from, to } => {
                (sensor.measurement == *to).then(|| with_measurement(sensor, from)).flatten()
            }
        }
    }
}

fn is_in(measurement: Option<&str>, sensor: &Sensor) -> bool {
    measurement.is_none_or(|measurement| *sensor.measurement == *measurement)
}

fn with_tags<'s>(sensor: &'s Sensor, tag: impl Fn(&'s str, &'s str) -> (&'s str, &'s str)) -> Option<Sensor> {
    Sensor::new(&sensor.measurement, sensor.tags.iter().map(|(key, value)| tag(key, value))).ok()
}

fn with_measurement(sensor: &Sensor, measurement: &str) -> Option<Sensor> {
    Sensor::new(measurement, sensor.tags.iter().map(|(key, value)| (&**key, &**value))).ok()
}

fn renamed_key<'s>(sensor: &'s Sensor, measurement: Option<&str>, from: &'s str, to: &'s str) -> Option<Sensor> {
    let is_meant = is_in(measurement, sensor) && sensor.tag(from).is_some() && sensor.tag(to).is_none();
    is_meant.then(|| with_tags(sensor, |key, value| (if key == from { to } else { key }, value)))?
}

/// Whether the sensor's key can be read in one way only.
fn is_clear(sensor: &Sensor) -> bool {
    let tags = sensor.tags.iter().flat_map(|(key, value)| [key, value]);
    !std::iter::once(&sensor.measurement).chain(tags).any(|part| part.ends_with('\\'))
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relabel {
    /// Different for all that a database ever had.
    pub id: u64,
    /// What it does.
    pub renaming: Renaming,
    /// Readings from this time on, in nanoseconds; `None` for all.
    pub since: Option<i64>,
    /// When it was made, in nanoseconds since the epoch.
    pub made: i64,
    /// The same as a stamp: a drop of the database with a lower one came before. 0 if it is not known.
    pub stamp: Stamp,
    /// Who made it.
    pub by: String,
    /// Whether it can no longer be taken back.
    pub is_final: bool,
}

impl Relabel {
    fn is_valid_at(&self, time: i64) -> bool {
        self.since.is_none_or(|since| since <= time)
    }

    /// Whether the old name and the new one mean the same. From a time on, a sensor is in another place, or a place is another one; a
    /// tag's key says nothing of a sensor.
    fn respells(&self) -> bool {
        self.since.is_none() || matches!(self.renaming, Renaming::TagKey { .. })
    }

    /// The rule as named texts, from which [`Relabel::of_fields`] makes it again.
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let Self { id, renaming, since, made, stamp, by, is_final } = self;
        let (from, to) = renaming.names();
        let (measurement, tag) = match renaming {
            Renaming::TagValue { measurement, tag, .. } => (measurement.as_deref(), Some(&**tag)),
            Renaming::TagKey { measurement, .. } => (measurement.as_deref(), None),
            Renaming::Sensor { .. } | Renaming::Measurement { .. } => (None, None),
        };
        let mut fields = vec![("id", format!("{id:016x}")), ("kind", renaming.kind().to_owned())];
        fields.extend(measurement.map(|name| ("measurement", name.to_owned())));
        fields.extend(tag.map(|name| ("tag", name.to_owned())));
        fields.extend([("from", from.to_owned()), ("to", to.to_owned())]);
        fields.extend(since.map(|since| ("since", since.to_string())));
        fields.extend([("made", made.to_string()), ("by", by.clone())]);
        fields.extend((*stamp > 0).then(|| ("stamp", stamp.to_string())));
        fields.extend(is_final.then(|| ("final", "true".to_owned())));
        fields
    }

    /// The rule of such texts; `None` if they are not those of a rule.
    #[must_use]
    pub fn of_fields(field: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let text = |name: &str| field(name).map(String::into_boxed_str);
        let (from, to) = (text("from")?, text("to")?);
        let sensor = |key: &str| Sensor::of_key(key).map(Arc::new);
        let renaming = match &*field("kind")? {
            "sensor" => Renaming::Sensor { from: sensor(&from)?, to: sensor(&to)? },
            "tag_value" => Renaming::TagValue { measurement: text("measurement"), tag: text("tag")?, from, to },
            "tag_key" => Renaming::TagKey { measurement: text("measurement"), from, to },
            "measurement" => Renaming::Measurement { from, to },
            _ => return None,
        };
        let since = field("since").map(|since| since.parse()).transpose().ok()?;
        let (id, made) = (u64::from_str_radix(&field("id")?, 16).ok()?, field("made")?.parse().ok()?);
        let stamp = field("stamp").map_or(Ok(0), |stamp| stamp.parse()).ok()?;
        let is_final = field("final").is_some_and(|text| text == "true");
        Some(Self { id, renaming, since, made, stamp, by: field("by")?, is_final })
    }
}

/// A stored sensor, as far as it is read under a name.
#[derive(Debug, Clone, PartialEq)]
pub struct UnitedPart {
    /// The sensor as it is stored.
    pub sensor: Arc<Sensor>,
    /// When it is read under the name: ranges of nanoseconds, in order, without a gap of length 0.
    pub times: Vec<Range<i64>>,
}

impl UnitedPart {
    /// With the times at which it is shown, where readings from a time on are kept and of earlier hours only summaries.
    #[must_use]
    pub fn shown_with_readings_from(self, readings_from: i64) -> Self {
        let shown = |times: Range<i64>| shown_from(times.start, readings_from)..shown_from(times.end, readings_from);
        let times = self.times.into_iter().map(shown).filter(|times| !times.is_empty()).collect();
        Self { times, ..self }
    }
}

/// When a relabel that is valid from `since` on begins to be shown: of hours whose readings have expired there are only summaries, and
/// each belongs as a whole to the name it began with.
#[must_use]
pub fn shown_from(since: i64, readings_from: i64) -> i64 {
    let hour = Hour::of(since);
    if since < readings_from && since > TIMESTAMP_MIN && hour.start_ns() != since { hour.end_ns() } else { since }
}

/// Another name that stands for a present one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherName {
    /// The name.
    pub sensor: Arc<Sensor>,
    /// Whether it is only another spelling, which conditions may use: no rule with `since` lies between the two.
    pub is_spelling: bool,
}

/// What the tags of an old key are called by now, the key made last first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaterKeys(Vec<LaterKey>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct LaterKey {
    key: Box<str>,
    /// Only in these measurements.
    measurements: Option<Vec<Box<str>>>,
}

/// The measurements, or all, of which a renaming in one, or in all, is about; `None` if it is about none of them.
fn narrowed(of: Option<Vec<Box<str>>>, only: Option<&str>) -> Option<Option<Vec<Box<str>>>> {
    match (of, only) {
        (of, None) => Some(of),
        (None, Some(only)) => Some(Some(vec![only.into()])),
        (Some(names), Some(only)) => names.iter().any(|name| **name == *only).then(|| Some(vec![only.into()])),
    }
}

impl LaterKeys {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of the tag at a sensor by its present name.
    #[must_use]
    pub fn value<'s>(&self, sensor: &'s Sensor) -> Option<&'s str> {
        let is_meant =
            |later: &&LaterKey| later.measurements.as_ref().is_none_or(|names| names.contains(&sensor.measurement));
        self.0.iter().filter(is_meant).find_map(|later| sensor.tag(&later.key))
    }
}

/// The rules of a database, in the order in which they were made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Relabels(Arc<[Relabel]>);

impl Relabels {
    /// A table of these rules.
    #[must_use]
    pub fn new(rules: Vec<Relabel>) -> Self {
        Self(rules.into())
    }

    /// The rules, in the order in which they were made.
    #[must_use]
    pub fn rules(&self) -> &[Relabel] {
        &self.0
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The table with another rule.
    #[must_use]
    pub fn with(&self, rule: Relabel) -> Self {
        Self(self.0.iter().cloned().chain([rule]).collect())
    }

    /// The table with a rule changed, or without it if `change` gives `None`.
    #[must_use]
    pub fn changed(&self, id: u64, change: impl Fn(Relabel) -> Option<Relabel>) -> Self {
        let rules = self.0.iter().cloned();
        Self(rules.filter_map(|rule| if rule.id == id { change(rule) } else { Some(rule) }).collect())
    }

    /// The rules that were made after a stamp.
    #[must_use]
    pub fn made_after(&self, stamp: Stamp) -> Self {
        Self(self.0.iter().filter(|rule| rule.stamp > stamp).cloned().collect())
    }

    /// The times at which names change, in order.
    #[must_use]
    pub fn starts(&self) -> BTreeSet<i64> {
        self.0.iter().filter_map(|rule| rule.since).collect()
    }

    /// What a stored sensor is named at a time; `None` if as it is stored.
    #[must_use]
    pub fn name_at(&self, sensor: &Sensor, time: i64) -> Option<Sensor> {
        Some(self.other_name_at(sensor, time)?.0)
    }

    /// As [`Relabels::name_at`], and whether the sensor's own name is only another spelling of that.
    fn other_name_at(&self, sensor: &Sensor, time: i64) -> Option<(Sensor, bool)> {
        if !is_clear(sensor) {
            return None;
        }
        let (mut name, mut is_spelling) = (None, true);
        for rule in self.0.iter().filter(|rule| rule.is_valid_at(time)) {
            if let Some(renamed) = rule.renaming.of(name.as_ref().unwrap_or(sensor)) {
                name = Some(renamed);
                is_spelling &= rule.respells();
            }
        }
        name.filter(|name| name.key != sensor.key).map(|name| (name, is_spelling))
    }

    /// What a stored sensor is named when: ranges of time without gaps.
    #[must_use]
    pub fn names_of(&self, sensor: &Arc<Sensor>) -> Vec<(Range<i64>, Arc<Sensor>)> {
        let starts = self.starts_for(sensor);
        let mut names: Vec<(Range<i64>, Arc<Sensor>)> = Vec::new();
        for start in std::iter::once(ALWAYS.start).chain(starts.into_iter().flatten()) {
            let name = self.name_at(sensor, start).map_or_else(|| sensor.clone(), Arc::new);
            match names.last_mut() {
                Some((_, last)) if last.key == name.key => {}
                last => {
                    if let Some((times, _)) = last {
                        times.end = start;
                    }
                    names.push((start..ALWAYS.end, name));
                }
            }
        }
        names
    }

    /// The times at which the name of a sensor may change; `None` if no rule ever concerns it.
    fn starts_for(&self, sensor: &Sensor) -> Option<BTreeSet<i64>> {
        let (mut reached, mut starts): (Vec<Sensor>, BTreeSet<i64>) = (Vec::new(), BTreeSet::new());
        for rule in &*self.0 {
            let made: Vec<Sensor> =
                std::iter::once(sensor).chain(&reached).filter_map(|name| rule.renaming.of(name)).collect();
            if !made.is_empty() {
                starts.extend(rule.since);
                made.into_iter().for_each(|name| add(&mut reached, name));
            }
        }
        (!reached.is_empty()).then_some(starts)
    }

    /// The times at which the name of a stored sensor may change, or one of the other names that stand for it.
    #[must_use]
    pub fn starts_of(&self, sensor: &Arc<Sensor>) -> BTreeSet<i64> {
        let mut starts = self.starts_for(sensor).unwrap_or_default();
        for (_, name) in self.names_of(sensor) {
            let sources = self.sources_of(&name);
            starts.extend(sources.iter().filter_map(|source| self.starts_for(source)).flatten());
        }
        starts
    }

    /// The names that may ever stand for this one, itself first: every stored sensor that is ever shown under it is among them.
    #[must_use]
    pub fn sources_of(&self, name: &Sensor) -> Vec<Sensor> {
        let mut sources = vec![name.clone()];
        if !is_clear(name) {
            return sources;
        }
        for rule in self.0.iter().rev() {
            let more: Vec<Sensor> = sources.iter().filter_map(|source| rule.renaming.source_of(source)).collect();
            more.into_iter().for_each(|source| add(&mut sources, source));
            if sources.len() > UNITED_MAX {
                break;
            }
        }
        sources
    }

    /// About the most names that stand for one: never fewer than there are of any stored sensor.
    #[must_use]
    pub fn united_most(&self) -> usize {
        let (mut tags, mut keys, mut measurements) = (BTreeMap::new(), 0_u32, 1);
        // What comes to a name by renamings of whole sensors, each with all that stands for it.
        let mut sensors: HashMap<Box<str>, usize> = HashMap::new();
        for (nth, rule) in self.0.iter().enumerate() {
            match &rule.renaming {
                Renaming::Sensor { from, to } => {
                    let more = self.sources_of(from).len();
                    for name in self.shown_later(to, nth + 1) {
                        *sensors.entry(name.key).or_default() += more;
                    }
                }
                Renaming::TagValue { tag, to, .. } => {
                    let most: &mut usize = tags.entry(tag).or_insert(1);
                    *most = (*most).max(self.reached(to, |other| match other {
                        Renaming::TagValue { tag: of, from, to, .. } if of == tag => Some((from, to)),
                        _ => None,
                    }));
                }
                Renaming::TagKey { .. } => keys += 1,
                Renaming::Measurement { to, .. } => {
                    measurements = measurements.max(self.reached(to, |other| match other {
                        Renaming::Measurement { from, to } => Some((from, to)),
                        _ => None,
                    }));
                }
            }
        }
        let of_tags = tags.into_values().fold(1, usize::saturating_mul);
        let of_keys = 2_usize.saturating_pow(keys);
        let of_sensors = sensors.into_values().max().unwrap_or(0);
        of_tags.saturating_mul(of_keys).saturating_mul(measurements).saturating_add(of_sensors)
    }

    /// What the rules from one on may make of a name, itself included.
    fn shown_later(&self, name: &Sensor, from: usize) -> Vec<Sensor> {
        let mut shown = vec![name.clone()];
        for rule in &self.0[from..] {
            let more: Vec<Sensor> = shown.iter().filter_map(|name| rule.renaming.of(name)).collect();
            more.into_iter().for_each(|name| add(&mut shown, name));
        }
        shown
    }

    /// How many names lead to one by some of the renamings, itself included.
    fn reached<'a>(
        &'a self,
        to: &'a str,
        names: impl Fn(&'a Renaming) -> Option<(&'a Box<str>, &'a Box<str>)>,
    ) -> usize {
        let (mut reached, mut before) = (BTreeSet::from([to]), 0);
        while before < reached.len() {
            before = reached.len();
            for (from, to) in self.0.iter().filter_map(|rule| names(&rule.renaming)) {
                if reached.contains(&**to) {
                    reached.insert(from);
                }
            }
        }
        reached.len()
    }

    /// The other names that stand for this one at some time.
    #[must_use]
    pub fn other_names(&self, name: &Sensor) -> Vec<OtherName> {
        let other = |other: Sensor| {
            let starts = self.starts_for(&other).into_iter().flatten();
            let times = std::iter::once(ALWAYS.start).chain(starts);
            let shown = times.filter_map(|time| self.other_name_at(&other, time));
            let is_spelling =
                shown.filter(|(shown, _)| shown.key == name.key).map(|(_, is)| is).reduce(|a, b| a | b)?;
            Some(OtherName { sensor: Arc::new(other), is_spelling })
        };
        self.sources_of(name).into_iter().skip(1).filter_map(other).collect()
    }

    /// The other names that stand for this one at a time.
    #[must_use]
    pub fn other_names_at(&self, name: &Sensor, time: i64) -> Vec<OtherName> {
        let other = |other: Sensor| {
            let (_, is_spelling) = self.other_name_at(&other, time).filter(|(shown, _)| shown.key == name.key)?;
            Some(OtherName { sensor: Arc::new(other), is_spelling })
        };
        self.sources_of(name).into_iter().skip(1).filter_map(other).collect()
    }

    /// The keys that a tag of this key may have by now.
    #[must_use]
    pub fn later_keys(&self, key: &str) -> LaterKeys {
        let mut later: Vec<LaterKey> = Vec::new();
        for rule in self.rules() {
            match &rule.renaming {
                Renaming::TagKey { measurement, from, to } => {
                    let before =
                        later.iter().filter(|known| known.key == *from).map(|known| known.measurements.clone());
                    let own = (**from == *key).then_some(None);
                    let of: Vec<_> = before.chain(own).filter_map(|of| narrowed(of, measurement.as_deref())).collect();
                    later.extend(of.into_iter().map(|measurements| LaterKey { key: to.clone(), measurements }));
                }
                Renaming::Measurement { from, to } => {
                    let of = later.iter_mut().filter_map(|known| known.measurements.as_mut());
                    of.filter(|names| names.contains(from)).for_each(|names| names.push(to.clone()));
                }
                Renaming::Sensor { .. } | Renaming::TagValue { .. } => {}
            }
        }
        later.reverse();
        LaterKeys(later)
    }

    /// What is shown under a name: the stored sensors, first the one whose value counts where several have one. `None` if
    /// that is the sensor of this name at all times, and nothing else; none at all for a name that is shown as another one.
    #[must_use]
    pub fn parts_of(&self, name: &Arc<Sensor>) -> Option<Vec<UnitedPart>> {
        let mut parts: Vec<UnitedPart> = Vec::new();
        for sensor in self.sources_of(name).into_iter().map(Arc::new) {
            let shown = self.names_of(&sensor).into_iter().filter(|(_, shown)| shown.key == name.key);
            let times: Vec<Range<i64>> = shown.map(|(times, _)| times).collect();
            if !times.is_empty() {
                parts.push(UnitedPart { sensor, times });
            }
        }
        // The name itself is the first of its sources.
        let own = parts.iter().take_while(|part| part.sensor.key == name.key).count();
        parts[own..].sort_by(|a, b| a.sensor.key.cmp(&b.sensor.key));
        match &*parts {
            [only] if only.sensor.key == name.key && only.times == [ALWAYS] => None,
            _ => Some(parts),
        }
    }

    /// Whose metadata a name is about: the stored sensors that are shown under it, or, if nothing is shown under it any more, under its
    /// present name; before them the name under which they are shown.
    #[must_use]
    pub fn described_by(&self, name: &Arc<Sensor>) -> (Arc<Sensor>, Vec<Arc<Sensor>>) {
        let stored = |name: &Arc<Sensor>| match self.parts_of(name) {
            None => vec![name.clone()],
            Some(parts) => parts.into_iter().map(|part| part.sensor).collect(),
        };
        let present = match stored(name) {
            shown if shown.is_empty() => self.names_of(name).pop(),
            shown => return (name.clone(), shown),
        };
        let present = present.map_or_else(|| name.clone(), |(_, present)| present);
        let shown = stored(&present);
        (present, shown)
    }
}

fn add(names: &mut Vec<Sensor>, name: Sensor) {
    if !names.iter().any(|known| known.key == name.key) {
        names.push(name);
    }
}

#[cfg(test)]
mod tests;
