//! The TOML format of scenarios: readings, schedule and bounds. `loadtest/README.md` describes every key.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use jiff::SignedDuration;
use serde::Deserialize;

use crate::fleet::{Delivery, Fleet, Order, Values, float, round_up};

/// The names and texts of the built-in scenarios.
pub const BUILT_IN: [(&str, &str); 5] = [
    ("gateway-batches", include_str!("../scenarios/gateway-batches.toml")),
    ("wide-fleet", include_str!("../scenarios/wide-fleet.toml")),
    ("device-posts", include_str!("../scenarios/device-posts.toml")),
    ("late-data", include_str!("../scenarios/late-data.toml")),
    ("reconnect-storm", include_str!("../scenarios/reconnect-storm.toml")),
];

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The file's name without its ending.
    #[serde(skip)]
    pub name: String,
    /// The purpose, in one line.
    pub description: String,
    pub sensors: i64,
    /// The time between two readings of one sensor.
    #[serde(default = "minute")]
    pub interval: Span,
    #[serde(default = "waves")]
    pub values: Values,
    /// Number of connections, each with at most one POST at a time.
    pub connections: usize,
    /// Readings per POST.
    pub lines: i64,
    /// Number of readings, if they are sent as fast as they are acked.
    pub readings: i64,
    /// Divisor of the number of readings for MongoDB's time-series collection, which would otherwise take most of the
    /// run; 0 for no readings.
    #[serde(default)]
    pub native_part: i64,
    /// Readings per second, if they are sent on a schedule.
    pub rate: f64,
    /// Duration of a schedule.
    pub duration: Span,
    /// The level of acks: `log` or `store`.
    #[serde(default = "log")]
    pub ack: String,
    /// The share of late readings.
    #[serde(default)]
    pub late: f64,
    /// Maximum delay of late readings, by their timestamps.
    #[serde(default = "minute")]
    pub late_by: Span,
    /// The share of POSTs that are sent twice, as after a lost ack.
    #[serde(default)]
    pub twice: f64,
    /// Interval at which all connections are dropped at once, even with requests under way.
    pub reconnect_every: Option<Span>,
    /// Bounds of a run on a schedule.
    #[serde(default)]
    pub slo: Slo,
}

/// The bounds that a run must meet. A missing bound is not checked.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    /// Maximum 99th percentile of the time from the due time of a POST to its ack, in milliseconds.
    pub ack_p99_ms: Option<f64>,
    /// Maximum share of failed attempts, including 503.
    pub errors_max: Option<f64>,
    /// Minimum share of the offered readings that must be acked within the duration.
    pub achieved_min: Option<f64>,
}

/// A length of time, such as `10s` or `1m 30s`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span(pub Duration);

impl Span {
    pub fn ms(self) -> i64 {
        i64::try_from(self.0.as_millis()).unwrap_or(i64::MAX)
    }
}

impl FromStr for Span {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let error = || anyhow!("'{text}' is not a length of time such as \"10s\" or \"500ms\"");
        let parsed: SignedDuration = text.parse().map_err(|_| error())?;
        Ok(Self(Duration::try_from(parsed).map_err(|_| error())?))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

fn minute() -> Span {
    Span(Duration::from_secs(60))
}

fn waves() -> Values {
    Values::Waves
}

fn log() -> String {
    "log".to_owned()
}

impl FromStr for Scenario {
    type Err = anyhow::Error;

    /// Finds a built-in scenario of this name, or else reads the file at this path.
    fn from_str(name_or_path: &str) -> Result<Self> {
        let path = Path::new(name_or_path);
        let text = match BUILT_IN.iter().find(|(name, _)| *name == name_or_path) {
            Some((_, text)) => (*text).to_owned(),
            None => std::fs::read_to_string(path).with_context(|| {
                let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
                format!("'{name_or_path}' is neither a built-in scenario ({}) nor a readable file", names.join(", "))
            })?,
        };
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let scenario = Self::parse(&text).with_context(|| format!("the scenario {name}"))?;
        Ok(Self { name, ..scenario })
    }
}

impl Scenario {
    fn parse(text: &str) -> Result<Self> {
        let scenario: Self = toml::from_str(text)?;
        scenario.check()?;
        Ok(scenario)
    }

    /// Checks all bounds.
    pub fn check(&self) -> Result<()> {
        ensure!(
            self.sensors > 0 && self.lines > 0 && self.connections > 0,
            "sensors, lines and connections must not be 0"
        );
        ensure!(self.readings > 0 && self.native_part >= 0, "readings must not be 0, and native_part not below 0");
        ensure!(self.rate.is_finite() && self.rate > 0.0, "rate: must be above 0");
        ensure!(self.interval.ms() > 0 && self.late_by.ms() > 0, "interval and late_by must be at least 1ms");
        ensure!(!self.duration.0.is_zero(), "duration: must not be 0");
        ensure!(self.reconnect_every.is_none_or(|every| !every.0.is_zero()), "reconnect_every: must not be 0");
        ensure!(["log", "store"].contains(&&*self.ack), "ack: must be \"log\" or \"store\"");
        for (key, share) in [("late", self.late), ("twice", self.twice)] {
            ensure!((0.0..1.0).contains(&share), "{key}: must be 0 or more, and below 1");
        }
        Ok(())
    }

    /// Returns its sensors with at least this many readings.
    pub fn fleet(&self, readings: i64) -> Fleet {
        let ticks = round_up(readings, self.sensors) / self.sensors;
        let values = self.values;
        Fleet { interval_ms: self.interval.ms(), values, ..Fleet::by_minute(self.sensors, ticks) }
    }

    /// Returns at least this many readings, in the order in which they are sent on a schedule.
    pub fn delivery(&self, readings: i64) -> Delivery {
        let order = match self.late {
            share if share > 0.0 => Order::Late { share, by_ms: self.late_by.ms() },
            _ => Order::Time,
        };
        Delivery { fleet: self.fleet(readings), order }
    }

    /// Describes its sizes in one line.
    pub fn sizes(&self) -> String {
        let Self { sensors, lines, connections, .. } = self;
        let number = |count: i64| crate::stats::three_digits(float(count));
        format!("{} sensors, {} per POST, {connections} connections", number(*sensors), number(*lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = "description = \"a test\"\nsensors = 10\nconnections = 4\nlines = 10\nreadings = 100\nrate = 1000\nduration = \"2s\"\n";

    #[test]
    fn mistakes_are_named_by_their_key() {
        assert!(Scenario::parse(MINIMAL).is_ok());
        for (mistake, expected) in [
            (MINIMAL.replace("lines = 10", "lines = 0"), "lines"),
            (MINIMAL.replace("lines = 10", ""), "missing field `lines`"),
            (format!("{MINIMAL}ratte = 5"), "unknown field `ratte`"),
            (format!("{MINIMAL}ack = \"maybe\""), "ack: must be"),
            (MINIMAL.replace("2s", "2 lightyears"), "'2 lightyears' is not a length of time"),
            (format!("{MINIMAL}late = 1.5"), "late: must be"),
            (format!("{MINIMAL}slo = {{ p99 = 1 }}"), "unknown field `p99`"),
        ] {
            let error = format!("{:#}", Scenario::parse(&mistake).unwrap_err());
            assert!(error.contains(expected), "{expected} is not in: {error}");
        }
    }

    #[test]
    fn every_built_in_scenario_is_sound() {
        for (name, _) in BUILT_IN {
            let scenario: Scenario = name.parse().unwrap();
            assert!(scenario.name == name && scenario.description.len() < 130, "{name}");
        }
    }
}
