//! Pure checks of sealed days.

use super::finding::{Findings, Note, What};
use crate::bucket::raw::RawDay;
use crate::reading::{Day, Hour};

/// Checks one day: it says of its readings what a write of them would say, and all of them are of this day.
#[must_use]
pub fn check_day(stored: &RawDay) -> Findings {
    let mut findings = Findings::default();
    let document = match &stored.document {
        Ok(document) => document,
        Err(error) => {
            findings.unreadable(&stored.key, "a sealed day that can be read", error);
            return findings;
        }
    };
    for other in &document.mismatches {
        let what = match &*other.part {
            "count" | "first" | "last" => What::Count,
            "_id" | "sensor" | "measurement" | "tags" | "start" | "end" => What::Identity,
            _ => What::Summary,
        };
        let of = |value: &str| format!("{} {value}", other.part);
        findings.differs(&stored.key, what, of(&other.expected), of(&other.found));
    }
    let readings = &document.day.readings;
    let strangers = readings.times().iter().filter(|time| Day::of(Hour::of(**time)) != document.id.day).count();
    if strangers > 0 {
        findings.differs(&stored.key, What::Hour, "readings of this day", format!("{strangers} of other days"));
    }
    if document.day.is_empty() {
        findings.note(&stored.key, Note::Claim);
    }
    findings
}
