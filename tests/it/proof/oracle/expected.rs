//! Expected contents: all requests in order; for those without an ack, the markers decide.

use crate::support::prelude::*;

use super::seen::{Found, Series};
use super::traffic::{Kind, MARKERS, Traffic};
use super::{Connection, Violation};

/// State of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// Not acked and absent.
    Absent,
    /// Not acked and partly there, which is a violation.
    Half,
    /// Not acked and there.
    Whole,
    Acked,
}

/// Allowed values of a field.
struct Slot {
    /// Certainty that it is there.
    claim: Fate,
    candidates: Vec<f64>,
}

type Slots = BTreeMap<i64, BTreeMap<&'static str, Slot>>;

/// Compares what was found with what a connection sent.
pub fn compare(connection: &mut Connection, found: &Found) -> Vec<Violation> {
    let mut violations = Vec::new();
    let traffic = connection.traffic;
    let nothing = Series::new();
    let series = |kind: Kind| found.get(&traffic.sensor(kind)).unwrap_or(&nothing);
    let fates: Vec<Fate> = connection
        .sent
        .iter()
        .zip(0..)
        .map(|(sent, request)| {
            let time = Traffic::marker_time(request);
            let markers = (0..MARKERS).filter(|n| series(Kind::Marker(*n)).contains_key(&time)).count();
            match (sent.acked, markers) {
                (true, _) => Fate::Acked,
                (false, 0) => Fate::Absent,
                (false, MARKERS) => Fate::Whole,
                (false, markers) => {
                    violations.push(Violation::HalfARequest {
                        connection: traffic.connection,
                        request,
                        what: format!("{markers} of {MARKERS} markers"),
                    });
                    Fate::Half
                }
            }
        })
        .collect();
    let slots = fold(&traffic, &fates);
    for kind in Kind::all().into_iter().filter(|kind| *kind != Kind::Undated) {
        let none = Slots::new();
        compare_sensor(&traffic.sensor(kind), slots.get(&kind).unwrap_or(&none), series(kind), &mut violations);
    }
    compare_undated(connection, &fates, series(Kind::Undated), &mut violations);
    violations
}

fn fold(traffic: &Traffic, fates: &[Fate]) -> BTreeMap<Kind, Slots> {
    let mut slots: BTreeMap<Kind, Slots> = BTreeMap::new();
    let there = fates.iter().zip(0..).filter(|(fate, _)| **fate != Fate::Absent);
    for (fate, line) in there.flat_map(|(fate, request)| traffic.lines(request).into_iter().map(move |l| (*fate, l))) {
        let Some(time) = line.time else { continue };
        let reading = slots.entry(line.kind).or_default().entry(time).or_default();
        for (field, value) in line.values() {
            let slot = reading.entry(field).or_insert(Slot { claim: Fate::Absent, candidates: Vec::new() });
            if fate > Fate::Half {
                slot.candidates.clear();
            }
            slot.candidates.push(value);
            slot.claim = slot.claim.max(fate);
        }
    }
    slots
}

fn compare_sensor(sensor: &str, slots: &Slots, found: &Series, violations: &mut Vec<Violation>) {
    for (time, fields) in slots {
        for (field, slot) in fields {
            let place = || format!("{sensor} at {time}: {field}");
            match found.get(time).and_then(|fields| fields.get(*field)) {
                None if slot.claim == Fate::Acked => violations.push(Violation::Lost(place())),
                None if slot.claim == Fate::Whole => violations.push(Violation::PartMissing(place())),
                None => {}
                Some(value) if slot.candidates.iter().any(|one| one.to_bits() == value.to_bits()) => {}
                Some(value) => {
                    let found = *value;
                    let expected = slot.candidates.clone();
                    violations.push(Violation::Wrong { place: place(), found, expected });
                }
            }
        }
    }
    for (time, fields) in found {
        for field in fields.keys() {
            if slots.get(time).is_none_or(|slots| !slots.contains_key(&**field)) {
                violations.push(Violation::NeverSent(format!("{sensor} at {time}: {field}")));
            }
        }
    }
}

/// Undated readings are identified by value: once if acked, plus at most once per further attempt.
fn compare_undated(connection: &mut Connection, fates: &[Fate], found: &Series, violations: &mut Vec<Violation>) {
    let traffic = connection.traffic;
    let sensor = traffic.sensor(Kind::Undated);
    let mut times: BTreeMap<u64, BTreeSet<i64>> = BTreeMap::new();
    for (time, fields) in found {
        if let Some(value) = fields.get("v") {
            times.entry(value.to_bits()).or_default().insert(*time);
        }
    }
    for ((fate, sent), request) in fates.iter().zip(&connection.sent).zip(0..) {
        for line in traffic.lines(request).into_iter().filter(|line| line.time.is_none()) {
            let value = line.values()[0].1.to_bits();
            let stamps = times.remove(&value).unwrap_or_default();
            let place = || format!("{sensor}: line {} of request {request}", line.value);
            match (fate, stamps.len()) {
                (Fate::Acked, 0) => violations.push(Violation::Lost(place())),
                (Fate::Whole, 0) | (Fate::Absent, 1..) => violations.push(Violation::PartMissing(place())),
                (_, there) if there > sent.attempts => {
                    violations.push(Violation::Doubled { place: place(), there, sent: sent.attempts });
                }
                _ => {}
            }
            if *fate < Fate::Whole {
                continue;
            }
            let known = connection.stamps.entry(line.value).or_insert_with(|| stamps.clone());
            if *known != stamps {
                violations.push(Violation::Restamped { place: place(), before: known.clone(), now: stamps });
            }
        }
    }
    let unknown = times.values().flatten().map(|time| Violation::NeverSent(format!("{sensor} at {time}")));
    violations.extend(unknown);
}
