//! The TOML format of scenarios: what is sent, how, and what is expected of the server. `loadtest/README.md` describes
//! every key.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::builtin;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The purpose, in one line.
    pub description: String,
    /// Determines everything that is random.
    #[serde(default = "one")]
    pub seed: u64,
    /// The time of the first readings.
    #[serde(default)]
    pub start: Start,
    /// How long POSTs are sent, in real time.
    pub duration: Span,
    /// Readings per second of real time. Without it, the rate of the devices times `speed`.
    pub rate: Option<f64>,
    /// Seconds of reading time per second of real time, if no rate is given.
    #[serde(default = "unit")]
    pub speed: f64,
    /// Number of connections, each with at most one POST at a time.
    pub connections: usize,
    /// Readings per POST.
    pub lines: usize,
    /// Whether bodies are compressed with gzip.
    #[serde(default)]
    pub gzip: bool,
    /// What an ack promises.
    #[serde(default)]
    pub ack: Ack,
    /// Maximum wait for an answer.
    #[serde(default = "timeout")]
    pub timeout: Span,
    /// The kinds of devices.
    pub measurements: Vec<Measurement>,
    /// What goes wrong between the devices and the server.
    #[serde(default)]
    pub faults: Faults,
    /// Queries to run at the same time.
    pub queries: Option<Queries>,
    /// Bounds that the run must meet.
    #[serde(default)]
    pub slo: Slo,
}

/// A kind of device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    pub name: String,
    /// The number of devices.
    pub devices: u32,
    /// The time between two readings of one device.
    pub interval: Span,
    /// Each reading's timestamp is later by a random part of this.
    #[serde(default)]
    pub jitter: Span,
    pub tags: BTreeMap<String, Tag>,
    pub fields: BTreeMap<String, Field>,
}

/// How the value of a device's tag is chosen.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Tag {
    /// The prefix and the number of the device. This tag identifies the device.
    Numbered {
        prefix: String,
        /// Minimum number of digits; shorter numbers get leading zeros.
        #[serde(default)]
        digits: usize,
    },
    /// A random one of these values, constant for each device.
    Choice { values: Vec<String> },
    /// The same value for all devices.
    Fixed { value: String },
}

/// How the values of a field are generated. `least`, `most` and `step` are in the unit of the field.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Field {
    /// A random walk: each value differs from the one before by at most `step`.
    Walk(Number),
    /// A sine wave of length `period`, with a random phase for each device.
    Wave(Number),
    /// Uniformly distributed random values.
    Uniform(Number),
    /// Falls by up to `step` each time, and jumps back to `most` at the end.
    Drain(Number),
    /// A random one of these values each time.
    Choice {
        values: Vec<Constant>,
        /// The share of readings in which the value changes.
        #[serde(default = "unit")]
        changes: f64,
    },
    /// True or false.
    Flag {
        /// The share of readings in which it is true.
        share: f64,
    },
    /// A value that depends on the value of one of the device's tags.
    ByTag {
        /// The key of the tag.
        tag: String,
        /// By the value of the tag.
        values: BTreeMap<String, Constant>,
    },
    /// A constant value.
    Fixed { value: Constant },
}

/// The range and format of numbers, and how they change.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    pub least: f64,
    pub most: f64,
    /// Digits after the point.
    #[serde(default)]
    pub decimals: u32,
    /// Whether the field is an integer (`7i`).
    #[serde(default)]
    pub integer: bool,
    /// Maximum change, for `walk` and `drain`.
    pub step: Option<f64>,
    /// The share of readings in which the value changes, for `walk` and `uniform`; 1 by default.
    pub changes: Option<f64>,
    /// The length of a wave in reading time, for `wave`.
    pub period: Option<Span>,
}

/// A constant in a scenario.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Constant {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
}

/// What goes wrong between the devices and the server. Shares are 0 to 1.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Lines per batch; whole batches can be missing or late.
    pub batch: u32,
    /// The share of batches that are never sent.
    pub batch_missing: f64,
    /// The share of batches that are sent late.
    pub batch_late: f64,
    /// The share of lines that are never sent.
    pub entry_missing: f64,
    /// The share of lines that are sent late.
    pub entry_late: f64,
    /// Maximum delay in reading time. Without it, as in TSBS: whenever something is sent, a delayed line or batch is
    /// sent instead with a chance of one half.
    pub late_by: Option<Span>,
    /// The share of readings in which one field is missing.
    pub field_missing: f64,
    /// The share of readings in which one tag is missing, except the one that identifies the device.
    pub tag_missing: f64,
    /// The share of POSTs that are sent twice, as after a lost ack.
    pub posts_twice: f64,
    /// The interval of real time at which all connections are dropped at once, even with requests under way.
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

/// Queries that run while readings are written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queries {
    /// Number of connections, each with at most one query at a time.
    pub connections: usize,
    pub templates: Vec<Template>,
}

/// A query that is repeated at a rate.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// The name in the results.
    pub name: String,
    /// The path, with the placeholders `{db}`, `{sensor}` (a random device), `{from}` and `{to}` (nanoseconds).
    pub path: String,
    /// An InfluxQL statement with the same placeholders, appended as the parameter `q`.
    pub influxql: Option<String>,
    /// The measurement of the devices for `{sensor}`; the first one by default.
    pub measurement: Option<String>,
    /// Queries per second.
    pub rate: f64,
    /// The time from `{from}` to `{to}`, which is the latest timestamp sent so far.
    pub range: Span,
}

/// Bounds that the run must meet; those that are not given are not checked.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    /// Bound of the 99th percentile of the time from when a POST was due to its ack, in milliseconds.
    pub ack_p99_ms: Option<f64>,
    /// Bound of the 99th percentile of the time from when a query was due to its answer, in milliseconds.
    pub query_p99_ms: Option<f64>,
    /// Maximum share of failed attempts, including 503.
    pub errors_max: Option<f64>,
    /// Minimum share of the offered readings that must be acked within the duration.
    pub achieved_min: Option<f64>,
}

/// What an ack promises.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ack {
    /// The readings are in the server's WAL.
    #[default]
    Log,
    /// The readings are in the store.
    Store,
}

impl Ack {
    /// The server's name for it.
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
    /// The time when the run begins, in whole seconds.
    Now,
    /// Nanoseconds since 1970.
    At(i64),
}

impl Default for Start {
    fn default() -> Self {
        // 2026-01-15T00:00:00Z: in the past, and the same in every run.
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
    /// Returns the name and text of a scenario: a built-in one of that name, or else the file at that path.
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

    /// Parses a scenario and checks all bounds.
    pub fn parse(text: &str) -> Result<Self> {
        let scenario: Self = toml::from_str(text)?;
        super::bounds::check(&scenario)?;
        Ok(scenario)
    }

    /// Readings that all devices generate per second of reading time.
    pub fn natural_rate(&self) -> f64 {
        let of = |one: &Measurement| f64::from(one.devices) / one.interval.0.as_secs_f64();
        self.measurements.iter().map(of).sum()
    }

    /// Readings per second of real time.
    pub fn rate(&self) -> f64 {
        self.rate.unwrap_or_else(|| self.natural_rate() * self.speed)
    }
}
