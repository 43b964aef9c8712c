//! The format of a mapping, and its checks.

use std::collections::BTreeMap;
use std::fmt;

use hourglass_model::named;
use hourglass_model::reading::{Limits, time};
use hourglass_wire::names;
use jiff::tz::TimeZone;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::pointer::Pointer;
use crate::topic::TopicFilter;

/// Maximum number of topic filters.
pub const TOPICS_MAX: usize = 16;
/// Maximum number of tags.
pub const TAGS_MAX: usize = 32;
/// Maximum number of field rules.
pub const FIELD_RULES_MAX: usize = 64;
/// Maximum number of entries of each of `only_with`, `ignore`, `ignore_keys` and `missing`.
pub const IGNORED_MAX: usize = 64;
/// Maximum length of the text of a mapping, which bounds all its strings.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// Maximum length of a mapping's name.
pub const NAME_BYTES_MAX: usize = 64;

/// A mapping from messages to readings. See the crate's documentation for the format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// The name, which is also the endpoint: ASCII letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The MQTT topics of the messages; empty for a mapping that only an endpoint uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<TopicFilter>,
    /// The format of the messages.
    #[serde(default)]
    pub body: BodyFormat,
    /// The measurement.
    pub measurement: Source,
    /// The tags. A message without the value of one is rejected, because tags identify the sensor.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, Source>,
    /// The fields, in order. A value that an earlier rule used is left out of a later object.
    pub fields: Vec<FieldRule>,
    /// The time of a reading; the arrival if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeRule>,
    /// An array with one reading per element. Paths below `EACH/*` are those of the current element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<Pointer>,
    /// Paths that a message or element must have. Others are skipped, such as the other events of a webhook.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only_with: Vec<Pointer>,
    /// Paths that are no fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<Pointer>,
    /// Keys that are no fields, at any depth.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore_keys: Vec<String>,
    /// Texts that mean null, in any case: `nan`, `unavailable`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// The format of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BodyFormat {
    /// JSON: one message, an array of messages, or one message per line.
    #[default]
    Json,
    /// One plain value: a JSON number, boolean or string, or any other text.
    Plain,
}

/// The origin of a name or tag value. In a file it is a text, `{ topic = 2 }` or `{ path = "/id" }`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A level of the topic, from 1.
    Topic(usize),
    /// A number, boolean or string of the message.
    Path(Pointer),
    /// A constant.
    #[serde(untagged)]
    Text(String),
}

/// A field, or all fields below an object or array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldRule {
    /// A scalar is one field. Each scalar below an object or array is a field, with the keys joined by `_`.
    pub path: Pointer,
    /// The field's name, or the first part of the names below an object. A scalar's default is the last key of its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Source>,
    /// The type to convert to. Without it, a value keeps the type that it has in JSON.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub field_type: Option<FieldType>,
}

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    /// A float, also from an integer or `"22.5"`.
    Float,
    /// An integer, also from `22.0` or `"22"`.
    Integer,
    /// A boolean, also from 0 and 1, and from `on`, `off`, `true` and `false` in any case.
    Boolean,
    /// A text, also from a number or boolean.
    String,
}

named!(FieldType: Float "float", Integer "integer", Boolean "boolean", String "string");

/// The time of a reading. If it is absent or null, the arrival counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeRule {
    /// The path of the time.
    pub path: Pointer,
    /// The format of the time.
    pub format: TimeFormat,
    /// The zone of local times, such as `Europe/Berlin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// An RFC 3339 time. An earlier time is from a clock that is not set, so the arrival counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
}

/// The format of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeFormat {
    /// Seconds since the epoch, possibly with a fraction.
    S,
    /// Milliseconds since the epoch.
    Ms,
    /// Microseconds since the epoch.
    Us,
    /// Nanoseconds since the epoch.
    Ns,
    /// RFC 3339, with an offset.
    Rfc3339,
    /// A date and time in `zone`, unless it has an offset.
    Local,
}

named!(TimeFormat: S "s", Ms "ms", Us "us", Ns "ns", Rfc3339 "rfc3339", Local "local");

/// The problems of a mapping, each with the key that it concerns.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct MappingError(pub Vec<String>);

impl Mapping {
    /// Parses and checks a mapping in TOML.
    ///
    /// # Errors
    /// A syntax error, an unknown key, or the problems of [`Mapping::check`].
    pub fn from_toml(text: &str) -> Result<Self, MappingError> {
        Self::checked(text.len(), || toml::from_str(text))
    }

    /// Parses and checks a mapping in JSON.
    ///
    /// # Errors
    /// As [`Mapping::from_toml`].
    pub fn from_json(text: &[u8]) -> Result<Self, MappingError> {
        Self::checked(text.len(), || serde_json::from_slice(text))
    }

    /// Parses and checks a mapping in JSON if the text begins with a brace, else in TOML.
    ///
    /// # Errors
    /// As [`Mapping::from_toml`].
    pub fn from_text(text: &str) -> Result<Self, MappingError> {
        if text.trim_start().starts_with('{') { Self::from_json(text.as_bytes()) } else { Self::from_toml(text) }
    }

    fn checked<E: fmt::Display>(bytes: usize, parse: impl FnOnce() -> Result<Self, E>) -> Result<Self, MappingError> {
        if bytes > TEXT_BYTES_MAX {
            return Err(MappingError(vec![format!("{bytes} bytes, at most {TEXT_BYTES_MAX} are allowed")]));
        }
        let mapping = parse().map_err(|error| MappingError(vec![error.to_string()]))?;
        mapping.check()?;
        Ok(mapping)
    }

    /// Returns true if one of the filters matches the topic.
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        self.topics.iter().any(|filter| filter.matches(topic))
    }

    /// Checks the parts of the mapping against each other, and their sizes.
    ///
    /// # Errors
    /// All problems.
    pub fn check(&self) -> Result<(), MappingError> {
        let mut problems = Vec::new();
        let is_name_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX || !self.name.chars().all(is_name_char) {
            problems.push(format!("name: use 1 to {NAME_BYTES_MAX} of the characters A-Z a-z 0-9 - _ ."));
        }
        if self.fields.is_empty() {
            problems.push("fields: a mapping needs at least one field".to_owned());
        }
        let counts = [
            ("topics", self.topics.len(), TOPICS_MAX),
            ("tags", self.tags.len(), TAGS_MAX),
            ("fields", self.fields.len(), FIELD_RULES_MAX),
            ("only_with", self.only_with.len(), IGNORED_MAX),
            ("ignore", self.ignore.len(), IGNORED_MAX),
            ("ignore_keys", self.ignore_keys.len(), IGNORED_MAX),
            ("missing", self.missing.len(), IGNORED_MAX),
        ];
        for (key, count, most) in counts.into_iter().filter(|(_, count, most)| count > most) {
            problems.push(format!("{key}: {count} entries, at most {most} are allowed"));
        }
        self.check_source("measurement", &self.measurement, names::MEASUREMENT, &mut problems);
        for (tag, source) in &self.tags {
            let key = format!("tags.{tag}");
            problems
                .extend(names::TAG_KEY.check(tag, &Limits::default()).err().map(|reason| format!("{key}: {reason}")));
            self.check_source(&key, source, names::TAG_VALUE, &mut problems);
        }
        for (index, rule) in self.fields.iter().enumerate() {
            let key = format!("fields[{index}]");
            if let Some(name) = &rule.name {
                self.check_source(&format!("{key}.name"), name, names::FIELD_KEY, &mut problems);
            }
            // A field outside of the array would be stored once per element.
            if let Some(each) = &self.each
                && rule.path.within(each).is_none()
            {
                problems.push(format!("{key}.path: with each, a field's path must begin with {}/*", each.as_str()));
            }
        }
        if let Some(rule) = &self.time {
            rule.check(&mut problems);
        }
        if problems.is_empty() { Ok(()) } else { Err(MappingError(problems)) }
    }

    fn check_source(&self, key: &str, source: &Source, name: names::Name, problems: &mut Vec<String>) {
        match source {
            Source::Text(text) => {
                problems.extend(name.check(text, &Limits::default()).err().map(|reason| format!("{key}: {reason}")));
            }
            Source::Topic(0) => problems.push(format!("{key}: the levels of a topic count from 1")),
            Source::Topic(_) if self.topics.is_empty() => {
                problems.push(format!("{key}: a topic level needs a filter in topics"));
            }
            Source::Topic(level) => {
                for filter in self.topics.iter().filter(|filter| filter.levels() < *level) {
                    let levels = filter.levels();
                    problems.push(format!("{key}: topic level {level}, but {:?} has {levels} levels", filter.as_str()));
                }
            }
            Source::Path(_) => {}
        }
    }
}

impl TimeRule {
    fn check(&self, problems: &mut Vec<String>) {
        match &self.zone {
            Some(zone) if TimeZone::get(zone).is_err() => {
                problems.push(format!("time.zone: unknown zone {zone:?}, use a name such as Europe/Berlin or UTC"));
            }
            zone if zone.is_some() != (self.format == TimeFormat::Local) => {
                problems.push("time.zone: needed for the format \"local\", and only there".to_owned());
            }
            _ => {}
        }
        if self.not_before.as_deref().is_some_and(|text| time::parse_rfc3339(text).is_none()) {
            problems.push("time.not_before: expected an RFC 3339 time such as 2000-01-01T00:00:00Z".to_owned());
        }
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Reference {
            topic: Option<usize>,
            path: Option<Pointer>,
        }
        struct SourceVisitor;
        impl<'de> Visitor<'de> for SourceVisitor {
            type Value = Source;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, { topic = LEVEL } or { path = \"/PATH\" }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Source, E> {
                Ok(Source::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Source, A::Error> {
                match Reference::deserialize(MapAccessDeserializer::new(map))? {
                    Reference { topic: Some(level), path: None } => Ok(Source::Topic(level)),
                    Reference { topic: None, path: Some(path) } => Ok(Source::Path(path)),
                    _ => Err(A::Error::custom("expected either topic or path")),
                }
            }
        }
        deserializer.deserialize_any(SourceVisitor)
    }
}
