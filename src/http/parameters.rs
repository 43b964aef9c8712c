//! Parses and checks the query parameters of the read endpoints. Every error names its parameter.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::App;
use super::cursor;
use super::endpoints::Endpoint;
use super::errors::{ApiError, ApiResult};
use super::pairs::Pairs;
use super::render::json::Times;
use crate::access::{Caller, Event, Pin};
use crate::bucket::settings::{AUTOGEN, Settings};
use crate::clock::now_ns;
use crate::ingest::check_database_name;
use crate::query::influx::{expired_notice, is_zone, pattern_fault, zone_named};
use crate::query::native::Selection;
use crate::query::native::notices::{NamedSensor, RequestNames};
use crate::query::native::steps::parse_step;
use crate::query::selector::{Selector, TagFilter, TagTest};
use crate::query::{Budget, Windows};
use crate::reading::duration::{DURATION_UNITS, parse_duration};
use crate::reading::time::{TIMESTAMP_MAX, TIMESTAMP_MIN, as_if_in_utc, parse_rfc3339};
use crate::reading::{Precision, Sensor};
use crate::wire::line_protocol::parse_series;
use crate::wire::names::named_field;

/// Maximum number of `tag.KEY` parameters of a request.
const FILTERS_MAX: usize = 1000;
/// Maximum number of names in a list.
const NAMES_MAX: usize = 1000;
/// The database of requests without the parameter `db`.
pub const DEFAULT_DATABASE: &str = "default";

/// The sender of a request. The service adds it as an extension to every request for an endpoint.
#[derive(Debug, Clone)]
pub struct Requester {
    pub caller: Caller,
    /// The client's address.
    pub address: Option<IpAddr>,
}

impl Requester {
    /// Records a change in the audit trail.
    pub fn note(&self, app: &App, statement: String, database: &str, outcome: impl Into<String>) {
        let Self { caller, address } = self;
        app.audit.note(&Event::Change { caller, address: *address, statement, database, outcome: outcome.into() });
    }
}

/// Extractor for the variable parts of a request's path.
pub struct InPath<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<App>> for InPath<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<Self> {
        let path = Path::from_request_parts(parts, app).await;
        path.map(|Path(named)| Self(named)).map_err(|error| ApiError::Bad(error.body_text()))
    }
}

/// One nanosecond after the last possible timestamp, in the two forms that clients send.
const END: &str = "9223372036854775807";
const END_RFC3339: &str = "2262-04-11T23:47:16.854775807Z";

/// The parameters of a request. Each is known to the endpoint and given at most once.
pub struct Parameters {
    pub app: Arc<App>,
    pub requester: Requester,
    settings: Arc<Settings>,
    /// The database that the request names. `None` if it covers all databases of the caller.
    database: Option<String>,
    pairs: Pairs,
    tags: Vec<TagFilter>,
}

/// The sensors that a request selects.
pub struct SensorSelection {
    pub selector: Selector,
    /// True if `sensor=` is not a key but the value of the tag `sensor`.
    pub is_by_tag: bool,
    /// The reason if nothing is selected.
    pub notice: Option<String>,
}

impl SensorSelection {
    pub fn new(selector: Selector) -> Self {
        Self { selector, is_by_tag: false, notice: None }
    }
}

impl FromRequestParts<Arc<App>> for Parameters {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<Self> {
        let endpoint: &Endpoint = parts.extensions.get::<&'static Endpoint>().copied().ok_or_else(unknown_endpoint)?;
        let known: Vec<&str> = endpoint.parameters().collect();
        let mut sent = Pairs::parse_url(&parts.uri)?;
        let mut tags = Vec::new();
        if known.contains(&"tag.KEY") {
            for (name, value) in sent.extract_if(.., |(name, _)| name.starts_with("tag.")) {
                tags.push(tag_filter(&name["tag.".len()..], &value)?);
            }
            if tags.len() > FILTERS_MAX {
                return Err(ApiError::Bad(format!(
                    "{} parameters tag.…, but at most {FILTERS_MAX} are allowed",
                    tags.len()
                )));
            }
        }
        let pairs = Pairs::strict(sent, &known)?;
        let requester: Requester = parts.extensions.get().cloned().ok_or_else(unknown_endpoint)?;
        let database = named_database(endpoint, &pairs, parts, app).await?;
        if endpoint.effect.is_on_database() {
            requester.caller.check(endpoint.effect, database.as_deref())?;
        }
        Ok(Self { app: app.clone(), requester, settings: app.query.settings(), database, pairs, tags })
    }
}

fn unknown_endpoint() -> ApiError {
    ApiError::Forbidden("the request was not assigned to an endpoint".to_owned())
}

/// Returns the database that a request names, in its path or by `db`.
async fn named_database(
    endpoint: &Endpoint,
    pairs: &Pairs,
    parts: &mut Parts,
    app: &Arc<App>,
) -> ApiResult<Option<String>> {
    if endpoint.path == "/api/v1/databases/{key}" {
        let InPath(name) = InPath::<String>::from_request_parts(parts, app).await?;
        // The policy `autogen` stands for the database itself.
        return Ok(Some(name.strip_suffix(&format!("/{AUTOGEN}")).unwrap_or(&name).to_owned()));
    }
    let default = (!endpoint.covers_all_databases()).then_some(DEFAULT_DATABASE);
    Ok(pairs.get("db").or(default).map(str::to_owned))
}

impl Parameters {
    /// Starts the budget of a query.
    pub fn budget(&self) -> Budget {
        self.app.query.begin(&self.requester.caller, &self.description())
    }

    /// Describes the request in logs: its parameters, without the values of tags.
    pub fn description(&self) -> String {
        let mut text: Vec<String> = self.pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        text.extend(self.tags.iter().map(|tag| format!("tag.{}", tag.key)));
        text.sort_unstable();
        text.join("&")
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.get(name)
    }

    /// Returns the value of a boolean parameter: true without a value, false if it is missing.
    pub fn flag(&self, name: &str) -> ApiResult<bool> {
        Ok(self.pairs.flag(name)?.unwrap_or(false))
    }

    /// Resolves the database of the request to a stored one, including the default retention policy.
    pub fn database(&self) -> ApiResult<String> {
        self.settings.resolve(&self.stored_database()?, None).map_err(|unknown| ApiError::Bad(unknown.to_string()))
    }

    /// Returns the database of the request without resolving the default retention policy.
    pub fn stored_database(&self) -> ApiResult<String> {
        let name = self.database.as_deref().unwrap_or(DEFAULT_DATABASE);
        check_database_name(name)?;
        Ok(name.to_owned())
    }

    /// Finds the sensor of `sensor=`: by key, or else the only readable sensor with this value in its tag `sensor`.
    async fn sensor(&self, budget: &Budget, text: &str) -> ApiResult<SensorSelection> {
        let sensor = self.key(text)?;
        if !sensor.tags.is_empty() {
            return Ok(SensorSelection::new(Selector::Sensor(Arc::new(self.check_pins(sensor)?))));
        }
        if let Some(sensor) = self.sensor_from_cursor(&sensor) {
            return Ok(SensorSelection { is_by_tag: true, ..SensorSelection::new(Selector::Sensor(sensor)) });
        }
        match self.app.query.named_sensor(budget, &self.database()?, &sensor, self.pins()).await? {
            NamedSensor::Exact => Ok(SensorSelection::new(Selector::Sensor(Arc::new(self.check_pins(sensor)?)))),
            NamedSensor::Tagged(sensor) => {
                // The lookup respects the pins by the shown name; check the resolved sensor again.
                let sensor = self.check_pins(Arc::unwrap_or_clone(sensor))?;
                Ok(SensorSelection { is_by_tag: true, ..SensorSelection::new(Selector::Sensor(Arc::new(sensor))) })
            }
            NamedSensor::Several(notice) => {
                // Select nothing: no measurement has an empty name.
                Ok(SensorSelection { notice: Some(notice), ..SensorSelection::new(self.matching(Some(String::new()))) })
            }
        }
    }

    /// Returns the sensor in the cursor, if an earlier part of the answer found it by its tag.
    fn sensor_from_cursor(&self, bare: &Sensor) -> Option<Arc<Sensor>> {
        let (_, key) = self.get("cursor")?.split_once('.')?;
        let sensor = self.key(&cursor::decode(key)?).ok().and_then(|sensor| self.check_pins(sensor).ok())?;
        (sensor.tag("sensor") == Some(&*bare.measurement)).then(|| Arc::new(sensor))
    }

    /// Parses a sensor key.
    pub fn key(&self, text: &str) -> ApiResult<Sensor> {
        parse_series(text, &self.app.settings.reading_limits()).map_err(|error| match error.column {
            // Column 0 means the whole key.
            0 => ApiError::Bad(format!("parameter sensor: {}", error.reason)),
            column => ApiError::Bad(format!("parameter sensor, column {column}: {}", error.reason)),
        })
    }

    /// Returns the sensor, if the caller's pins allow it.
    pub fn check_pins(&self, sensor: Sensor) -> ApiResult<Sensor> {
        match self.requester.caller.pins().iter().find(|pin| !pin.matches(&sensor)) {
            None => Ok(sensor),
            Some(Pin { key, .. }) => Err(ApiError::Forbidden(format!(
                "{} may not use this sensor, by its tag {key:?}",
                self.requester.caller.name()
            ))),
        }
    }

    /// The tag values that the caller's token is pinned to.
    pub fn pins(&self) -> &[Pin] {
        self.requester.caller.pins()
    }

    /// Returns the selected database, range and fields. The sensor key is empty if several sensors are selected.
    pub fn selection(&self, selector: &Selector) -> ApiResult<Selection> {
        let sensor = if let Selector::Sensor(sensor) = selector { sensor.key.to_string() } else { String::new() };
        Ok(Selection { database: self.database()?, sensor, range: self.range()?, fields: self.fields()? })
    }

    /// Returns true if a range ends in the past, so that only late data can change its readings.
    pub fn is_past(range: &Range<i64>) -> bool {
        range.end <= now_ns()
    }

    /// The keys of the tag filters.
    pub fn tag_keys(&self) -> impl Iterator<Item = &str> {
        self.tags.iter().map(|filter| &*filter.key)
    }

    /// Splits a comma-separated list of names; empty if the parameter is missing.
    ///
    /// # Errors
    /// If there are too many.
    pub fn names(&self, name: &str) -> ApiResult<Vec<String>> {
        let names: Vec<String> =
            self.get(name).into_iter().flat_map(|names| names.split(',')).map(str::to_owned).collect();
        if names.len() > NAMES_MAX {
            return Err(ApiError::Bad(format!("parameter {name}: at most {NAMES_MAX} names")));
        }
        Ok(names)
    }

    /// Returns the fields to read, which may be named as readings and CSV columns show them.
    ///
    /// # Errors
    /// If there are too many.
    pub fn fields(&self) -> ApiResult<Vec<String>> {
        let is_taken = |name: &str| name == "ts" || name == "sensor" || name.starts_with("tag.");
        Ok(self.names("fields")?.iter().map(|shown| named_field(shown, is_taken)).collect())
    }

    /// Returns the range `from..to`. A missing bound is unlimited.
    pub fn range(&self) -> ApiResult<Range<i64>> {
        let range = self.time("from", TIMESTAMP_MIN)?..self.end("to")?;
        if range.start > range.end {
            return Err(ApiError::Bad("parameter from is later than to".to_owned()));
        }
        Ok(range)
    }

    /// Selects one sensor by `sensor=`, or many by `measurement=` and `tag.KEY=`.
    pub async fn selector(&self, budget: &Budget) -> ApiResult<SensorSelection> {
        let measurement = self.get("measurement").map(str::to_owned);
        if let Some(sensor) = self.get("sensor") {
            if measurement.is_some() || !self.tags.is_empty() {
                return Err(ApiError::Bad(
                    "parameter sensor names one sensor: leave out measurement and tag.…".to_owned(),
                ));
            }
            return self.sensor(budget, sensor).await;
        }
        if measurement.is_none() && self.tags.is_empty() {
            return Err(ApiError::Bad(
                "no sensors selected: give sensor=climate,sensor=temp-01, or measurement=climate, or tag.KEY=value"
                    .to_owned(),
            ));
        }
        Ok(SensorSelection::new(self.matching(measurement)))
    }

    /// As [`Parameters::selector`], but selects all sensors without such parameters.
    pub async fn selector_or_all(&self, budget: &Budget) -> ApiResult<SensorSelection> {
        match (self.get("sensor"), self.get("measurement"), &*self.tags) {
            (None, None, []) => Ok(SensorSelection::new(self.all_sensors())),
            _ => self.selector(budget).await,
        }
    }

    /// Selects all sensors that the caller may read.
    pub fn all_sensors(&self) -> Selector {
        self.matching(None)
    }

    /// Collects the notices of an answer. Looks for unknown names only if the answer is empty or the request has names
    /// that may be unknown although it is not.
    pub async fn notices(
        &self,
        budget: &Budget,
        selected: &SensorSelection,
        names: RequestNames<'_>,
        is_empty: bool,
    ) -> Vec<String> {
        if let Some(notice) = &selected.notice {
            return vec![notice.clone()];
        }
        // Only the first part of an answer has notices.
        let is_first = self.get("cursor").is_none();
        let expired = match self.get("from") {
            // Use the settings from before the read, because readings that expired since may be in the answer.
            Some(_) if is_first => {
                self.range().ok().and_then(|range| expired_notice(&self.settings, names.database, range.start))
            }
            _ => None,
        };
        let has_names = !(self.tags.is_empty() && names.fields.is_empty() && names.group_by.is_empty());
        let mut notices = Vec::new();
        if is_first && (is_empty || has_names) {
            notices = self.app.query.notices(budget, &self.requester.caller, &names).await;
        }
        notices.extend(expired);
        if is_first {
            notices.extend(self.app.query.notices_of(budget));
        }
        notices
    }

    fn matching(&self, measurement: Option<String>) -> Selector {
        Selector::Matching { measurement, tags: self.tags.clone(), pins: self.pins().to_vec() }
    }

    /// Parses the exclusive end of a range. Also accepts one nanosecond after the last possible timestamp.
    fn end(&self, name: &str) -> ApiResult<i64> {
        let is_nanoseconds = matches!(self.get("precision"), None | Some("auto" | "n" | "ns"));
        match self.get(name) {
            Some(END) if is_nanoseconds => Ok(TIMESTAMP_MAX + 1),
            Some(END_RFC3339) => Ok(TIMESTAMP_MAX + 1),
            _ => self.time(name, TIMESTAMP_MAX + 1),
        }
    }

    /// Parses a time to nanoseconds since the epoch.
    pub fn time(&self, name: &str, default: i64) -> ApiResult<i64> {
        let Some(text) = self.get(name) else { return Ok(default) };
        let unit = self.get("precision").unwrap_or("auto");
        let unit = Precision::from_name(unit)
            .ok_or_else(|| ApiError::Bad(format!("invalid precision {unit:?} (use auto, n, u, ms, s, m or h)")))?;
        // `+` in a query means a space, so restore it in the offset of an RFC 3339 time.
        let time = match (text.parse::<i64>(), relative(text)) {
            (Ok(number), _) => unit.to_ns(number),
            (Err(_), Some(before)) => Some(now_ns().saturating_sub(before)),
            (Err(_), None) => match self.midnight(text) {
                Some(midnight) => midnight,
                None => parse_rfc3339(&text.replace(' ', "+")),
            },
        };
        if let (None, Some(in_utc)) = (time, as_if_in_utc(text)) {
            return Err(ApiError::Bad(format!(
                "parameter {name}: {text:?} has no zone: send {name}={in_utc} for UTC, or replace Z by an offset such as %2B01:00"
            )));
        }
        time.ok_or_else(|| {
            ApiError::Bad(format!(
                "parameter {name}: {text:?} is neither RFC 3339, an integer in range (precision={unit:?}), now, nor a duration such as -24h"
            ))
        })
    }

    /// Returns the first instant of a date in the zone of `tz` or in UTC. The outer option is `None` if the text is not
    /// a date; the inner one if the time is out of range.
    fn midnight(&self, text: &str) -> Option<Option<i64>> {
        let is_date = text.len() == "2026-01-15".len() && text.bytes().filter(|byte| *byte == b'-').count() == 2;
        let date: jiff::civil::Date = text.parse().ok().filter(|_| is_date)?;
        let zone = zone_named(self.get("tz").unwrap_or_default()).unwrap_or(jiff::tz::TimeZone::UTC);
        let start = date.to_zoned(zone).ok()?.timestamp();
        let time = i64::try_from(start.as_nanosecond()).ok();
        Some(time.filter(|time| (TIMESTAMP_MIN..=TIMESTAMP_MAX).contains(time)))
    }

    /// Parses the windows of `step` and `tz`.
    pub fn windows(&self, default: Option<&str>) -> ApiResult<Option<Windows>> {
        let zone = self.get("tz");
        if let Some(zone) = zone.filter(|zone| !is_zone(zone)) {
            return Err(ApiError::Bad(format!("parameter tz: {zone:?} is not a time zone such as Europe/Berlin")));
        }
        let Some(step) = self.get("step").or(default) else { return Ok(None) };
        let windows = parse_step(step, zone).ok_or_else(|| {
            ApiError::Bad(format!(
                "parameter step: {step:?} is neither a duration such as 30s, 15m, 1h or 1d, nor weeks, months, quarters or years such as 1w, 3mo, 1q or 1y"
            ))
        })?;
        Ok(Some(windows))
    }

    /// Parses a number from 1 to `max`.
    pub fn count(&self, name: &str, max: usize) -> ApiResult<Option<usize>> {
        let Some(text) = self.get(name) else { return Ok(None) };
        match text.parse() {
            Ok(count) if (1..=max).contains(&count) => Ok(Some(count)),
            _ => Err(ApiError::Bad(format!("parameter {name}: {text:?} is not a number from 1 to {max}"))),
        }
    }

    /// Parses the parameter `limit`.
    pub fn limit(&self, default: usize, max: usize) -> ApiResult<usize> {
        Ok(self.count("limit", max)?.unwrap_or(default))
    }

    /// Parses the format of timestamps (`epoch`).
    pub fn times(&self) -> ApiResult<Times> {
        let Some(name) = self.get("epoch") else { return Ok(Times::Text) };
        let unit = Precision::from_name(name).filter(|unit| *unit != Precision::Auto);
        let times = unit.map(|unit| Times::Epoch(unit.unit_ns(0)));
        times.ok_or_else(|| ApiError::Bad(format!("parameter epoch: {name:?} is not one of ns, u, ms, s, m, h")))
    }
}

/// Parses a tag filter, given as the text after `tag.`, split at the first `=`: `site=lab`, `site!=lab`,
/// `room=~^r[0-9]+$` or `room!~^r`.
fn tag_filter(name: &str, value: &str) -> ApiResult<TagFilter> {
    let pattern = |key: &str, pattern: &str, is_negated: bool| {
        if let Some(fault) = pattern_fault(pattern) {
            return Err(ApiError::Bad(format!("parameter tag.{key}: {pattern:?} is not a valid regex: {fault}")));
        }
        Ok(TagFilter { key: key.to_owned(), test: TagTest::Matches(pattern.to_owned()), is_negated })
    };
    if let Some((key, start)) = name.split_once("!~") {
        // The pattern may contain the `=` at which the parameter was split.
        let rest = if value.is_empty() { start.to_owned() } else { format!("{start}={value}") };
        return pattern(key, &rest, true);
    }
    let (key, is_negated) = name.strip_suffix('!').map_or((name, false), |key| (key, true));
    match value.strip_prefix('~').filter(|_| !is_negated) {
        Some(text) => pattern(key, text, false),
        None => Ok(TagFilter { key: key.to_owned(), test: TagTest::Is(value.to_owned()), is_negated }),
    }
}

/// Parses `now`, `-24h` or `now-24h` to the nanoseconds before now.
fn relative(text: &str) -> Option<i64> {
    let back = text.strip_prefix("now").unwrap_or(text);
    match back.strip_prefix('-') {
        Some(duration) => parse_duration(duration, &DURATION_UNITS).ok().filter(|back| *back > 0),
        None => (text == "now").then_some(0),
    }
}
