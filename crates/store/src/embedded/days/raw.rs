//! Parts of days for walks: decoded as they are stored, with their differences from a fresh encoding.

use std::sync::Arc;

use super::{
    DayHead, HourSummaries, PLAIN, PLAIN_VERSION, READINGS, VERSION, encode_expired, encode_readings, unreadable,
};
use crate::bucket::day::is_plain;
use crate::bucket::raw::{Cursor, DayDocument, Mismatch, RawDay};
use crate::bucket::{DayId, DayPart, StorageError};
use crate::document::day_id;
use crate::embedded::keys::Keys;
use crate::embedded::page_form::parse_sensor;
use crate::embedded::tables::unseal;
use crate::reading::{Day, Hour};

/// Decodes a part for a walk, as it is stored.
pub(in crate::embedded) fn raw_day(key: &[u8], value: &[u8]) -> RawDay {
    let cursor = Cursor(key.to_vec());
    let days = Day::from_hour(Hour::from_ns(i64::MIN))..=Day::from_hour(Hour::from_ns(i64::MAX));
    let Some((sensor, day, part)) = Keys::parse_any_day(key).filter(|(_, day, _)| days.contains(day)) else {
        let key = key.escape_ascii().to_string();
        let detail = "the key is not a valid day key".to_owned();
        return RawDay { cursor, document: Err(StorageError::Unreadable { id: key.clone(), detail }), key };
    };
    let id = day_id(&sensor, day, part);
    let decode =
        |bytes| decode_document(key, bytes, &sensor, day, part).map_err(|error| unreadable(id.clone(), &*error));
    let document = unseal(key, value, || id.clone()).and_then(decode);
    RawDay { cursor, key: id, document }
}

/// Appends a part that a write would give another form: one of version 1 with few readings. Also appends a part that
/// cannot be read, or has a later version, as an error.
pub(in crate::embedded) fn add_outdated(found: &mut Vec<RawDay>, key: &[u8], value: &[u8]) {
    let is_candidate = match value {
        [VERSION, READINGS, ..] => true,
        [version, ..] => *version > PLAIN_VERSION,
        [] => true,
    };
    if !is_candidate {
        return;
    }
    let part = raw_day(key, value);
    if part.document.as_ref().map_or(true, |part| is_plain(&part.day.readings)) {
        found.push(part);
    }
}

/// Decodes a part and compares it with the encoding of its own readings.
fn decode_document(
    stored_key: &[u8],
    stored: &[u8],
    key: &str,
    day: Day,
    part: DayPart,
) -> Result<DayDocument, Box<dyn std::error::Error>> {
    let head = DayHead::read(stored_key, stored)?;
    let stored_day = head.day(day)?;
    let id = DayId { sensor: Arc::new(parse_sensor(key, &head.part_lengths)?), day, part };
    let mut mismatches = Vec::new();
    let mut compare = |part: &str, expected: String, found: String| {
        if expected != found {
            mismatches.push(Mismatch { part: part.to_owned(), expected, found });
        }
    };
    compare("sensor", key.to_owned(), id.sensor.key.to_string());
    let expected = match &stored_day.expired {
        Some(expired) => encode_expired(stored_key, &id, head.rev, head.floor, expired),
        None => encode_readings(stored_key, &id, head.rev, &stored_day.readings, head.kind == PLAIN),
    };
    let written = DayHead::read(stored_key, &expected)?;
    let expected = written.hours(day)?;
    let found = head.hours(day)?;
    compare("oldest", written.oldest.to_string(), head.oldest.to_string());
    compare("names", format!("{:?}", written.names), format!("{:?}", head.names));
    let hour_list = |hours: &[(Hour, HourSummaries)]| {
        let hours: Vec<i64> = hours.iter().map(|(hour, _)| hour.0).collect();
        format!("{hours:?}")
    };
    compare("hours", hour_list(&expected), hour_list(&found));
    for ((_, expected), (hour, found)) in expected.iter().zip(&found) {
        compare(&format!("hours of {}", hour.start_ms()), format!("{expected:?}"), format!("{found:?}"));
    }
    Ok(DayDocument { day: stored_day, id, mismatches })
}
