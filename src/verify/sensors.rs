//! Pure checks of sensor documents against their pages.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::finding::{FindingKind, Findings, Note};
use crate::bucket::raw::{RawPage, RawSensor};
use crate::bucket::{DayId, Readings, SensorDocument};
use crate::reading::time::MILLI_NS;
use crate::reading::{Family, Sensor, Value};

/// The fields and times of one sensor, collected from its pages.
#[derive(Debug, Clone)]
pub struct SeenSensor {
    pub sensor: Arc<Sensor>,
    /// All fields of its readings, each with the first family found.
    pub fields: BTreeMap<Arc<str>, Family>,
    /// The times of the earliest and of the latest reading.
    pub times: Option<(i64, i64)>,
}

/// The sensors of a database, collected from its pages, by sensor key.
#[derive(Debug, Default)]
pub struct SeenSensors(HashMap<Box<str>, SeenSensor>);

impl SeenSensors {
    /// Adds a page, unless its measurement and tags contradict its sensor key.
    pub fn add(&mut self, page: &RawPage) {
        if page.sensor.key != page.sensor_key {
            return;
        }
        let seen = self.entry(&page.sensor);
        for reading in &page.readings {
            seen.add_times(reading.time, reading.time);
            reading.fields.iter().for_each(|(name, value)| seen.add_field(name, value));
        }
    }

    /// Adds a sealed day.
    pub fn add_day(&mut self, id: &DayId, readings: &Readings) {
        let (Some(first), Some(last)) = (readings.times().first(), readings.times().last()) else { return };
        let seen = self.entry(&id.sensor);
        seen.add_times(*first, *last);
        for (name, cells) in readings.columns() {
            if let Some(value) = cells.iter().flatten().next() {
                seen.add_field(name, value);
            }
        }
    }

    fn entry(&mut self, sensor: &Arc<Sensor>) -> &mut SeenSensor {
        let new = || SeenSensor { sensor: sensor.clone(), fields: BTreeMap::new(), times: None };
        self.0.entry(sensor.key.as_ref().into()).or_insert_with(new)
    }

    /// Removes and returns a sensor that has a document.
    pub fn take(&mut self, key: &str) -> Option<SeenSensor> {
        self.0.remove(key)
    }

    /// Returns the remaining sensors, which have no document, sorted by key.
    #[must_use]
    pub fn into_rest(self) -> Vec<SeenSensor> {
        let mut rest: Vec<SeenSensor> = self.0.into_values().collect();
        rest.sort_unstable_by(|a, b| a.sensor.key.cmp(&b.sensor.key));
        rest
    }
}

impl SeenSensor {
    fn add_times(&mut self, first: i64, last: i64) {
        let extend = |(start, end): (i64, i64)| (start.min(first), end.max(last));
        self.times = Some(self.times.map_or((first, last), extend));
    }

    fn add_field(&mut self, name: &Arc<str>, value: &Value) {
        if !self.fields.contains_key(name) {
            self.fields.insert(name.clone(), value.family());
        }
    }

    /// Returns the fields that a document lacks.
    pub fn missing_fields<'a>(&'a self, document: &'a SensorDocument) -> impl Iterator<Item = (&'a Arc<str>, Family)> {
        let is_known = |name: &str| document.fields.iter().any(|(field, _)| **field == *name);
        self.fields.iter().filter(move |(name, _)| !is_known(name)).map(|(name, family)| (name, *family))
    }
}

/// Checks one document. `seen` is the sensor by its pages, if it has pages.
#[must_use]
pub fn check_sensor(kept: &RawSensor, seen: Option<&SeenSensor>) -> Findings {
    let mut findings = Findings::default();
    let document = match &kept.document {
        Ok(document) => document,
        Err(error) => {
            findings.unreadable(&kept.key, "a sensor document that can be read", error);
            return findings;
        }
    };
    if *document.sensor.key != *kept.key {
        let expected = format!("measurement and tags that give {}", kept.key);
        findings.differs(&kept.key, FindingKind::Identity, expected, document.sensor.key.to_string());
    }
    if let Some(seen) = seen {
        check_fields(document, seen, &mut findings);
        check_lag(document, seen, &mut findings);
    }
    findings
}

/// Returns the finding for a sensor without a document.
#[must_use]
pub fn no_document(seen: &SeenSensor) -> Findings {
    let mut findings = Findings::default();
    findings.differs(&seen.sensor.key, FindingKind::NoSensor, "a document, since the sensor has pages", "none");
    findings
}

fn check_fields(document: &SensorDocument, seen: &SeenSensor, findings: &mut Findings) {
    let key = &document.sensor.key;
    let missing: Vec<&str> = seen.missing_fields(document).map(|(name, _)| &**name).collect();
    if !missing.is_empty() {
        let known: Vec<&str> = document.fields.iter().map(|(name, _)| &**name).collect();
        let expected = format!("all fields of its pages, including {}", missing.join(", "));
        findings.differs(key, FindingKind::Fields, expected, known.join(", "));
    }
    let other_family = |(name, family): &(Arc<str>, Family)| seen.fields.get(name).is_some_and(|seen| seen != family);
    if document.fields.iter().any(other_family) {
        findings.note(key, Note::Family);
    }
}

fn check_lag(document: &SensorDocument, seen: &SeenSensor, findings: &mut Findings) {
    let Some((first, last)) = seen.times else { return };
    let whole = |time: i64| time.div_euclid(MILLI_NS);
    let lags = |seen: Option<i64>, is_beyond: &dyn Fn(i64) -> bool| seen.is_none_or(|seen| is_beyond(whole(seen)));
    if lags(document.first_seen, &|seen| seen > whole(first)) || lags(document.last_seen, &|seen| seen < whole(last)) {
        findings.note(&document.sensor.key, Note::SeenLags);
    }
    if document.recent.last().is_none_or(|recent| recent.time < last) {
        findings.note(&document.sensor.key, Note::RecentLags);
    }
}

#[cfg(test)]
mod tests;
