//! What the pages say of each sensor, and checks of its document against that. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::finding::{Findings, Note, What};
use crate::bucket::kept::{KeptPage, KeptSensor};
use crate::bucket::{SensorDocument, StorageError};
use crate::reading::time::MILLI_NS;
use crate::reading::{Family, Sensor};

/// What the pages say of one sensor.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Who.
    pub sensor: Arc<Sensor>,
    /// The fields of all its readings, with a family that each has.
    pub fields: BTreeMap<Arc<str>, Family>,
    /// The earliest and the latest reading's time.
    pub times: Option<(i64, i64)>,
}

/// What the pages say of all sensors of a database, by key.
#[derive(Debug, Default)]
pub struct AllSeen(HashMap<Box<str>, Seen>);

impl AllSeen {
    /// Takes a page in. One whose measurement and tags are another sensor's than its key says tells nothing.
    pub fn add(&mut self, page: &KeptPage) {
        if page.sensor.key != page.sensor_key {
            return;
        }
        let new = || Seen { sensor: page.sensor.clone(), fields: BTreeMap::new(), times: None };
        let seen = self.0.entry(page.sensor_key.clone()).or_insert_with(new);
        for reading in &page.readings {
            seen.times = Some(seen.times.map_or((reading.time, reading.time), |(first, last)| {
                (first.min(reading.time), last.max(reading.time))
            }));
            for (name, value) in &reading.fields {
                if !seen.fields.contains_key(name) {
                    seen.fields.insert(name.clone(), value.family());
                }
            }
        }
    }

    /// What the pages say of the sensor that a document is kept for; it is then no more among those without one.
    pub fn take(&mut self, key: &str) -> Option<Seen> {
        self.0.remove(key)
    }

    /// The sensors that no document was met for, by key.
    #[must_use]
    pub fn into_rest(self) -> Vec<Seen> {
        let mut rest: Vec<Seen> = self.0.into_values().collect();
        rest.sort_unstable_by(|a, b| a.sensor.key.cmp(&b.sensor.key));
        rest
    }
}

impl Seen {
    /// The fields that a document lacks.
    pub fn missing_in<'a>(&'a self, document: &'a SensorDocument) -> impl Iterator<Item = (&'a Arc<str>, Family)> {
        let known = |name: &str| document.fields.iter().any(|(field, _)| **field == *name);
        self.fields.iter().filter(move |(name, _)| !known(name)).map(|(name, family)| (name, *family))
    }
}

/// Checks one document; `seen` is what the pages of its sensor say, if it has any.
#[must_use]
pub fn check_sensor(kept: &KeptSensor, seen: Option<&Seen>) -> Findings {
    let mut findings = Findings::default();
    let document = match &kept.document {
        Ok(document) => document,
        Err(error) => {
            let found = match error {
                StorageError::Unreadable { detail, .. } => detail.clone(),
                other => other.to_string(),
            };
            findings.differs(&kept.key, What::Unreadable, "a sensor's document that can be read", found);
            return findings;
        }
    };
    if *document.sensor.key != *kept.key {
        let expected = format!("measurement and tags that make {}", kept.key);
        findings.differs(&kept.key, What::Identity, expected, document.sensor.key.to_string());
    }
    if let Some(seen) = seen {
        check_fields(document, seen, &mut findings);
        check_lag(document, seen, &mut findings);
    }
    findings
}

/// The difference that a sensor without a document is.
#[must_use]
pub fn no_document(seen: &Seen) -> Findings {
    let mut findings = Findings::default();
    findings.differs(&seen.sensor.key, What::NoSensor, "a document, since the sensor has pages", "none");
    findings
}

fn check_fields(document: &SensorDocument, seen: &Seen, findings: &mut Findings) {
    let key = &document.sensor.key;
    let missing: Vec<&str> = seen.missing_in(document).map(|(name, _)| &**name).collect();
    if !missing.is_empty() {
        let known: Vec<&str> = document.fields.iter().map(|(name, _)| &**name).collect();
        let expected = format!("the fields that its pages have, {} among them", missing.join(", "));
        findings.differs(key, What::Fields, expected, known.join(", "));
    }
    let other_family = |(name, family): &(Arc<str>, Family)| seen.fields.get(name).is_some_and(|seen| seen != family);
    if document.fields.iter().any(other_family) {
        findings.note(key, Note::Family);
    }
}

fn check_lag(document: &SensorDocument, seen: &Seen, findings: &mut Findings) {
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
