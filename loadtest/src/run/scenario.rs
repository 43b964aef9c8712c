//! A scenario: what is sent, how, and what is expected of the server, as a TOML file says it. Every key is described
//! in `loadtest/README.md`. Knows nothing of how any of it is done.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::builtin;

/// A whole scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is for, in a line.
    pub description: String,
    /// All that is random depends on it.
    #[serde(default = "one")]
    pub seed: u64,
    /// The time of the first readings.
    #[serde(default)]
    pub start: Start,
    /// For how long POSTs are sent, by the clock on the wall.
    pub duration: Span,
    /// Readings per second by the clock on the wall; else what the devices send at `speed`.
    pub rate: Option<f64>,
    /// Seconds of readings per second on the wall, where no rate is given.
    #[serde(default = "unit")]
    pub speed: f64,
    /// Connections, each with one POST under way at most.
    pub connections: usize,
    /// Readings per POST.
    pub lines: usize,
    /// Whether bodies are compressed.
    #[serde(default)]
    pub gzip: bool,
    /// What an ack promises.
    #[serde(default)]
    pub ack: Ack,
    /// Longest time that an answer is waited for.
    #[serde(default = "timeout")]
    pub timeout: Span,
    /// Who sends what.
    pub measurements: Vec<Measurement>,
    /// What goes wrong on the way.
    #[serde(default)]
    pub faults: Faults,
    /// Who asks meanwhile.
    pub queries: Option<Queries>,
    /// What is expected.
    #[serde(default)]
    pub slo: Slo,
}

/// A kind of device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// The measurement's name.
    pub name: String,
    /// How many there are.
    pub devices: u32,
    /// Between two readings of one.
    pub interval: Span,
    /// Readings are late by a random part of this.
    #[serde(default)]
    pub jitter: Span,
    /// By key.
    pub tags: BTreeMap<String, Tag>,
    /// By key.
    pub fields: BTreeMap<String, Field>,
}

/// How a device's tag is found.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Tag {
    /// The prefix and the device's number: this names the device.
    Numbered {
        /// What comes before the number.
        prefix: String,
        /// Zeros are put before the number until it has so many.
        #[serde(default)]
        digits: usize,
    },
    /// One of these, by chance, for each device for ever.
    Choice {
        /// Of which one is taken.
        values: Vec<String>,
    },
    /// The same for all.
    Fixed {
        /// What it is.
        value: String,
    },
}

/// How the values of a field come about. `least`, `most` and `step` are in the field's unit.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Field {
    /// Each value is the one before, give or take up to `step`.
    Walk(Number),
    /// A sine of a `period`, each device at its own place in it.
    Wave(Number),
    /// Any value, all as likely.
    Uniform(Number),
    /// Falls by up to `step` each time, and when it is empty it is full again.
    Drain(Number),
    /// One of these each time.
    Choice {
        /// Of which one is taken.
        values: Vec<Constant>,
        /// The share of readings in which it changes.
        #[serde(default = "unit")]
        changes: f64,
    },
    /// True or false.
    Flag {
        /// How often it is true.
        share: f64,
    },
    /// What belongs to the value that the device has for a tag.
    ByTag {
        /// The tag's key.
        tag: String,
        /// By the tag's value.
        values: BTreeMap<String, Constant>,
    },
    /// Always the same.
    Fixed {
        /// What it is.
        value: Constant,
    },
}

/// What numbers look like, and how they change.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// The least value.
    pub least: f64,
    /// The greatest.
    pub most: f64,
    /// Digits after the point.
    #[serde(default)]
    pub decimals: u32,
    /// Whether it is sent as an integer (`7i`).
    #[serde(default)]
    pub integer: bool,
    /// The most by which it changes: of `walk` and `drain`.
    pub step: Option<f64>,
    /// The share of readings in which it changes at all: of `walk` and `uniform`; else 1.
    pub changes: Option<f64>,
    /// Of a whole wave, in time of readings: of `wave`.
    pub period: Option<Span>,
}

/// A value that stands in the scenario.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Constant {
    /// Sent as `true` or `false`.
    Bool(bool),
    /// Sent as an integer.
    Integer(i64),
    /// Sent as a float.
    Float(f64),
    /// Sent in quotation marks.
    Text(String),
}

/// What goes wrong on the way from the devices. Shares are 0 to 1.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Lines in a batch that is missing or late as a whole.
    pub batch: u32,
    /// The share of batches that are never sent.
    pub batch_missing: f64,
    /// The share of batches that come later.
    pub batch_late: f64,
    /// The share of lines that are never sent.
    pub entry_missing: f64,
    /// The share of lines that come later.
    pub entry_late: f64,
    /// How much later at most, in time of readings; else as TSBS has it: whatever waits comes with an even chance each
    /// time that something is to be sent.
    pub late_by: Option<Span>,
    /// The share of readings in which one field is missing.
    pub field_missing: f64,
    /// The share of readings in which one tag is missing, but never the one that names the device.
    pub tag_missing: f64,
    /// The share of POSTs that are sent twice, as when an ack was lost.
    pub posts_twice: f64,
    /// All connections are dropped at once, whatever is under way, each time that so long has gone by on the wall.
    pub reconnect_every: Option<Span>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            batch: 10,
            batch_missing: 0.0,
            batch_late: 0.0,
            entry_missing: 0.0,
            entry_late: 0.0,
            late_by: None,
            field_missing: 0.0,
            tag_missing: 0.0,
            posts_twice: 0.0,
            reconnect_every: None,
        }
    }
}

/// Queries while readings are written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queries {
    /// Connections, each with one query under way at most.
    pub connections: usize,
    /// What is asked.
    pub templates: Vec<Template>,
}

/// A query that is asked again and again.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// What it is called in results.
    pub name: String,
    /// The path, in which `{db}`, `{sensor}` (of a random device), `{from}` and `{to}` (nanoseconds) are filled in.
    pub path: String,
    /// The same for the statement of InfluxQL that is appended, encoded, as `q`.
    pub influxql: Option<String>,
    /// The measurement whose devices `{sensor}` is taken from; else the first.
    pub measurement: Option<String>,
    /// Queries per second.
    pub rate: f64,
    /// How far `{from}` lies before `{to}`, the latest time that readings have reached.
    pub range: Span,
}

/// What is expected; what is not named is not judged.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    /// 99 of 100 acks come within so many milliseconds of the time at which their POST was due.
    pub ack_p99_ms: Option<f64>,
    /// 99 of 100 answers to queries do.
    pub query_p99_ms: Option<f64>,
    /// The greatest share of tries that may fail, 503 among them.
    pub errors_max: Option<f64>,
    /// The least share of the offered readings that must be acked within the duration.
    pub achieved_min: Option<f64>,
}

/// What an ack promises.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ack {
    /// The readings are in the server's log.
    #[default]
    Log,
    /// They are in the store.
    Store,
}

impl Ack {
    /// As the server calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Store => "store",
        }
    }
}

/// The time of the first readings.
#[derive(Debug, Clone, Copy)]
pub enum Start {
    /// When the run begins, in whole seconds.
    Now,
    /// Nanoseconds since 1970.
    At(i64),
}

impl Default for Start {
    fn default() -> Self {
        // 2026-01-15T00:00:00Z: over for long, and the same in every run.
        Self::At(1_768_435_200_000_000_000)
    }
}

impl<'de> Deserialize<'de> for Start {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let at = |time: Timestamp| i64::try_from(time.as_nanosecond()).map_err(serde::de::Error::custom);
        match text.as_str() {
            "now" => Ok(Self::Now),
            _ => Ok(Self::At(at(text.parse().map_err(serde::de::Error::custom)?)?)),
        }
    }
}

/// A length of time, such as `10s` or `1m 30s`.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Span(pub Duration);

impl Span {
    /// In nanoseconds.
    pub fn nanoseconds(self) -> i64 {
        i64::try_from(self.0.as_nanos()).unwrap_or(i64::MAX)
    }
}

impl FromStr for Span {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let wanted = || anyhow!("'{text}' is no length of time such as \"10s\" or \"500ms\"");
        let parsed: SignedDuration = text.parse().map_err(|_| wanted())?;
        Ok(Self(Duration::try_from(parsed).map_err(|_| wanted())?))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

fn one() -> u64 {
    1
}

fn unit() -> f64 {
    1.0
}

fn timeout() -> Span {
    Span(Duration::from_secs(30))
}

impl Scenario {
    /// The built-in one of that name, or the one in the file of that path, and what it is called.
    pub fn find(name_or_path: &str) -> Result<(String, String)> {
        if let Some(text) = builtin::text(name_or_path) {
            return Ok((name_or_path.to_owned(), text.to_owned()));
        }
        let path = Path::new(name_or_path);
        let text = std::fs::read_to_string(path).with_context(|| {
            format!("'{name_or_path}' is no built-in scenario ({}) and no readable file", builtin::names().join(", "))
        })?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, text))
    }

    /// What the text says, with everything in bounds.
    pub fn parse(text: &str) -> Result<Self> {
        let scenario: Self = toml::from_str(text)?;
        super::bounds::check(&scenario)?;
        Ok(scenario)
    }

    /// Readings per second of readings' time that all devices make.
    pub fn natural_rate(&self) -> f64 {
        let of = |one: &Measurement| f64::from(one.devices) / one.interval.0.as_secs_f64();
        self.measurements.iter().map(of).sum()
    }

    /// Readings per second on the wall.
    pub fn rate(&self) -> f64 {
        self.rate.unwrap_or_else(|| self.natural_rate() * self.speed)
    }
}
