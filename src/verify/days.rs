//! Pure checks of sealed days.

use super::finding::{FindingKind, Findings, Note};
use crate::bucket::raw::RawDay;
use crate::reading::{Day, Hour};

/// Checks one day: its other members must be those that a write of its readings would produce, and all readings must be
/// of this day.
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
        let kind = match &*other.part {
            "count" | "first" | "last" => FindingKind::Count,
            "_id" | "sensor" | "measurement" | "tags" | "start" | "end" => FindingKind::Identity,
            _ => FindingKind::Summary,
        };
        let named = |value: &str| format!("{} {value}", other.part);
        findings.differs(&stored.key, kind, named(&other.expected), named(&other.found));
    }
    let readings = &document.day.readings;
    let strangers =
        readings.times().iter().filter(|time| Day::from_hour(Hour::from_ns(**time)) != document.id.day).count();
    if strangers > 0 {
        findings.differs(&stored.key, FindingKind::Hour, "readings of this day", format!("{strangers} of other days"));
    }
    if document.day.is_empty() {
        findings.note(&stored.key, Note::Claim);
    }
    findings
}
