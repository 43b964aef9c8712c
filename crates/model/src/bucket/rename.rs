//! Renames: the names under which a database shows its stored sensors. Names are translated in two places only: where a
//! query lists stored sensors, and where a written name enters the catalog. All other code uses stored names.
//!
//! Renames do not chain and do not depend on time. An entry's `from` is always a stored name.

use std::sync::Arc;

use crate::reading::Sensor;

/// Maximum number of entries per database.
pub const RENAMES_MAX: usize = 256;
/// Maximum bytes of all names in the entries. Every instance keeps the settings of all databases in memory.
pub const BYTES_MAX: usize = 64 << 10;
/// Maximum number of stored names that share one shown name.
const SOURCES_MAX: usize = 256;

/// The kind of name that an entry replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RenameKind {
    /// The whole key of a sensor. Such an entry takes precedence over all others.
    Sensor,
    /// A measurement.
    Measurement,
    /// The key of a tag.
    TagKey,
    /// A value of a tag.
    TagValue,
}

named!(RenameKind: Sensor "sensor", Measurement "measurement", TagKey "tag_key", TagValue "tag_value");

/// One entry. `to` is the last field, so that it does not affect the order of entries for different stored names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rename {
    /// The kind of the names.
    pub kind: RenameKind,
    /// The stored key of the tag whose value is renamed; empty for other kinds.
    pub tag: Box<str>,
    /// The stored measurement to which the renaming of a tag's value is limited; empty for all.
    pub measurement: Box<str>,
    /// The stored name.
    pub from: Box<str>,
    /// The shown name.
    pub to: Box<str>,
}

/// The reason that an entry is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRename {
    /// The stored and the shown name are the same.
    #[error("both names are the same: delete the entry to show the stored name")]
    Same,
    /// A name is empty.
    #[error("a name is empty")]
    Empty,
    /// The shown name has a control character, which no written name may have.
    #[error("a shown name has no control characters")]
    Control,
    /// A name ends with a backslash, so a key that contains it is ambiguous.
    #[error("a name ends with a backslash, and such names cannot be renamed")]
    Backslash,
    /// The text is not the canonical key of a sensor.
    #[error("{0:?} is not the key of a sensor, such as climate,room=lab")]
    NoKey(Box<str>),
    /// `tag` is missing for a tag value, or `tag` or `measurement` is given for another kind.
    #[error("tag goes with kind tag_value, and only with it; so does measurement")]
    Scope,
    /// The database has [`RENAMES_MAX`] entries, or their names have [`BYTES_MAX`] bytes.
    #[error("there are {RENAMES_MAX} renames, or their names have {BYTES_MAX} bytes, which is the limit: delete some")]
    TooMany,
    /// Too many stored names would share one shown name. A write looks all of them up.
    #[error("one name would stand for more than {SOURCES_MAX} stored names: rename single sensors instead")]
    TooWide,
}

impl Rename {
    /// The entry's parts by field name, without empty ones.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let Self { kind, tag, measurement, from, to } = self;
        let fields =
            [("kind", kind.name()), ("tag", &**tag), ("measurement", &**measurement), ("from", &**from), ("to", &**to)];
        fields.into_iter().filter(|(_, text)| !text.is_empty())
    }

    /// The inverse of [`Rename::fields`].
    #[must_use]
    pub fn from_fields<'t>(field: impl Fn(&str) -> Option<&'t str>) -> Option<Self> {
        let optional = |name: &str| field(name).unwrap_or_default().into();
        Some(Self {
            kind: RenameKind::from_name(field("kind")?)?,
            tag: optional("tag"),
            measurement: optional("measurement"),
            from: field("from")?.into(),
            to: field("to")?.into(),
        })
    }

    /// Checks the entry independently of other entries.
    fn check(&self) -> Result<(), InvalidRename> {
        let Self { kind, tag, measurement, from, to } = self;
        let is_tag_value = *kind == RenameKind::TagValue;
        if is_tag_value == tag.is_empty() || !is_tag_value && !measurement.is_empty() {
            return Err(InvalidRename::Scope);
        }
        if from.is_empty() || to.is_empty() {
            return Err(InvalidRename::Empty);
        }
        if from == to {
            return Err(InvalidRename::Same);
        }
        if to.chars().any(char::is_control) {
            return Err(InvalidRename::Control);
        }
        for name in [tag, measurement, from, to] {
            if name.ends_with('\\') {
                return Err(InvalidRename::Backslash);
            }
            if *kind == RenameKind::Sensor && (name == from || name == to) {
                let sensor = Sensor::from_key(name).filter(|sensor| sensor.key == *name);
                let sensor = sensor.ok_or_else(|| InvalidRename::NoKey(name.clone()))?;
                if !is_unambiguous(&sensor) {
                    return Err(InvalidRename::Backslash);
                }
            }
        }
        Ok(())
    }
}

/// The renames of a database, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renames(Arc<[Rename]>);

impl Renames {
    /// Creates a table of entries that [`Renames::with`] has checked before.
    #[must_use]
    pub fn new(mut entries: Vec<Rename>) -> Self {
        entries.sort_unstable();
        Self(entries.into())
    }

    /// The entries, in order.
    #[must_use]
    pub fn entries(&self) -> &[Rename] {
        &self.0
    }

    /// Returns true if no name is replaced.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the table with one entry added or changed. The names of the new entry may be stored or shown names.
    ///
    /// # Errors
    /// See [`InvalidRename`].
    pub fn with(&self, mut rename: Rename) -> Result<Self, InvalidRename> {
        rename.check()?;
        rename.tag = self.stored_name(RenameKind::TagKey, &rename.tag);
        rename.measurement = self.stored_name(RenameKind::Measurement, &rename.measurement);
        let mut entries = self.0.to_vec();
        // A value that is renamed in one measurement may already be shown under the name that an entry for all
        // measurements gives it.
        if !rename.measurement.is_empty() {
            let is_global =
                |entry: &&Rename| entry.kind == rename.kind && entry.tag == rename.tag && entry.measurement.is_empty();
            if let Some(shown) = entries.iter().filter(is_global).find(|entry| entry.to == rename.from) {
                rename.from = shown.from.clone();
            }
        }
        let is_in_scope = |entry: &Rename| {
            (entry.kind, &entry.tag, &entry.measurement) == (rename.kind, &rename.tag, &rename.measurement)
        };
        let mut is_known = false;
        for entry in entries.iter_mut().filter(|entry| is_in_scope(entry) && entry.to == rename.from) {
            entry.to = rename.to.clone();
            is_known = true;
        }
        if !is_known {
            entries.retain(|entry| !(is_in_scope(entry) && entry.from == rename.from));
            entries.push(rename);
        }
        entries.retain(|entry| entry.from != entry.to);
        let bytes: usize = entries.iter().flat_map(Rename::fields).map(|(_, text)| text.len()).sum();
        if entries.len() > RENAMES_MAX || bytes > BYTES_MAX {
            return Err(InvalidRename::TooMany);
        }
        let renames = Self::new(entries);
        if renames.sources_max() > SOURCES_MAX { Err(InvalidRename::TooWide) } else { Ok(renames) }
    }

    /// Returns the table without the entry of a stored name; `None` if there is no such entry.
    #[must_use]
    pub fn without(&self, kind: RenameKind, tag: &str, measurement: &str, from: &str) -> Option<Self> {
        let index = self.position(kind, tag, measurement, from)?;
        let mut entries = self.0.to_vec();
        entries.remove(index);
        Some(Self::new(entries))
    }

    /// The name under which a stored sensor is shown; `None` if it is not renamed.
    #[must_use]
    pub fn shown_sensor(&self, stored: &Sensor) -> Option<Sensor> {
        if self.is_empty() || !is_unambiguous(stored) {
            return None;
        }
        if let Some(index) = self.position(RenameKind::Sensor, "", "", &stored.key) {
            return Sensor::from_key(&self.0[index].to);
        }
        let name = |kind, tag, measurement, from| {
            let index = self.position(kind, tag, measurement, from)?;
            Some(&*self.0[index].to)
        };
        let measurement = &*stored.measurement;
        let tags = stored.tags.iter().map(|(key, value)| {
            let shown_key = name(RenameKind::TagKey, "", "", key).unwrap_or(key);
            let in_measurement = name(RenameKind::TagValue, key, measurement, value);
            let shown_value = in_measurement.or_else(|| name(RenameKind::TagValue, key, "", value)).unwrap_or(value);
            (shown_key, shown_value)
        });
        let shown = Sensor::new(name(RenameKind::Measurement, "", "", measurement).unwrap_or(measurement), tags);
        // If the sensor already has a tag with the new key, it keeps its name.
        shown.ok().filter(|shown| shown.key != stored.key)
    }

    /// The stored names that are shown as `shown`, those with the most renamed parts first.
    #[must_use]
    pub fn stored_sensors(&self, shown: &Sensor) -> Vec<Sensor> {
        if !is_unambiguous(shown) {
            return vec![shown.clone()];
        }
        let whole = self.entries_of_kind(RenameKind::Sensor).filter(|entry| entry.to == shown.key);
        let mut found: Vec<Sensor> = whole.filter_map(|entry| Sensor::from_key(&entry.from)).collect();
        let measurements = self.sources(RenameKind::Measurement, "", &shown.measurement);
        let mut drafts: Vec<(&str, Vec<(&str, &str)>)> =
            measurements.into_iter().map(|measurement| (measurement, Vec::new())).collect();
        for (key, value) in shown.tags.iter() {
            let mut longer = Vec::new();
            for key in self.sources(RenameKind::TagKey, "", key) {
                for value in self.sources(RenameKind::TagValue, key, value) {
                    longer.extend(drafts.iter().map(|(measurement, tags)| {
                        let tags = tags.iter().copied().chain([(key, value)]).collect();
                        (*measurement, tags)
                    }));
                }
            }
            drafts = longer;
        }
        found.extend(drafts.into_iter().filter_map(|(measurement, tags)| Sensor::new(measurement, tags).ok()));
        found.retain(|stored| match self.shown_sensor(stored) {
            Some(name) => name.key == shown.key,
            None => stored.key == shown.key,
        });
        found
    }

    /// The stored sensors that a written name may refer to, in order of precedence. The first has exactly this name. If
    /// none of them exists, the last is the name of the new sensor. So a write under a shown name reaches the sensor
    /// that is shown under it.
    #[must_use]
    pub fn stored_candidates(&self, name: &Sensor) -> Vec<Sensor> {
        let mut stored = self.stored_sensors(name);
        if stored.is_empty() {
            stored = self.shown_sensor(name).map(|shown| self.stored_sensors(&shown)).unwrap_or_default();
        }
        let mut names = vec![name.clone()];
        names.extend(stored.iter().skip(1).cloned());
        names.extend(stored.first().cloned());
        names.dedup_by(|later, earlier| later.key == earlier.key);
        names
    }

    fn entries_of_kind(&self, kind: RenameKind) -> impl Iterator<Item = &Rename> {
        self.0.iter().filter(move |entry| entry.kind == kind)
    }

    fn position(&self, kind: RenameKind, tag: &str, measurement: &str, from: &str) -> Option<usize> {
        let key = (kind, tag, measurement, from);
        self.0.binary_search_by(|entry| (entry.kind, &*entry.tag, &*entry.measurement, &*entry.from).cmp(&key)).ok()
    }

    /// The stored names that entries of this kind show as `name`, and `name` itself.
    fn sources<'n>(&'n self, kind: RenameKind, tag: &str, name: &'n str) -> Vec<&'n str> {
        let entries = self.entries_of_kind(kind).filter(|entry| *entry.tag == *tag && *entry.to == *name);
        let mut sources: Vec<&str> = Vec::new();
        for source in entries.map(|entry| &*entry.from).chain([name]) {
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
        sources
    }

    /// The stored name of a tag key or measurement, given its stored or shown name.
    fn stored_name(&self, kind: RenameKind, name: &str) -> Box<str> {
        self.sources(kind, "", name)[0].into()
    }

    /// An upper bound on the number of stored names that share one shown name.
    fn sources_max(&self) -> usize {
        let widest = |kind, tag: &str| {
            let in_tag = || self.entries_of_kind(kind).filter(move |entry| *entry.tag == *tag);
            let count = |to: &str| in_tag().filter(|entry| *entry.to == *to).count();
            in_tag().map(|entry| count(&entry.to)).max().unwrap_or(0)
        };
        let mut tags: Vec<&str> = self.entries_of_kind(RenameKind::TagValue).map(|entry| &*entry.tag).collect();
        tags.dedup();
        let values = tags.into_iter().map(|tag| 1 + widest(RenameKind::TagValue, tag));
        let keys = self.entries_of_kind(RenameKind::TagKey).map(|_| 2);
        let product = values.chain(keys).fold(1 + widest(RenameKind::Measurement, ""), usize::saturating_mul);
        product.saturating_add(widest(RenameKind::Sensor, ""))
    }
}

/// Returns true if the sensor's key has only one interpretation: no part ends in a backslash.
fn is_unambiguous(sensor: &Sensor) -> bool {
    let tags = sensor.tags.iter().flat_map(|(key, value)| [key, value]);
    !std::iter::once(&sensor.measurement).chain(tags).any(|part| part.ends_with('\\'))
}

#[cfg(test)]
mod tests;
