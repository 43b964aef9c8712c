//! Summaries of days whose readings have expired: reads them from the store, and packs them for a backup.
//!
//! ```text
//! summaries := part:u8  day:varint  names  hours  figures
//! part      := 0 the whole day | 1 to 24: the hour 0 to 23 of a day stored by hour
//! day       := counted from 1970-01-01, zigzag
//! names     := count:varint (length:varint UTF-8)…                              the fields' names
//! hours     := count:varint (hour:u8 (0 to 23)  count:varint  first:i64  last:i64)…
//!              the number of readings, and the first and last time in nanoseconds since 1970, little-endian
//! figures   := see `store::figures`
//! ```

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::read::{ExpiredPart, Piece};
use crate::bucket::columns::{ColumnsDamage, PackedBytes};
use crate::bucket::expired::ExpiredHour;
use crate::bucket::store::Projection;
use crate::bucket::{DayId, DayPart, ExpiredDay, SensorDocument, StorageError};
use crate::reading::varint::{put_texts, put_varint, unzigzag, zigzag};
use crate::reading::{Day, Hour};
use crate::store::MergedView;
use crate::store::figures::{FiguresError, HourColumns, PackedFigures, Room, Span};

/// Parts of days in a batch, while some of them still have readings.
const BATCH_PARTS: usize = 4;
/// Maximum number of parts in a batch, if none has readings.
const BATCH_PARTS_MAX: usize = 256;

/// Reads the summaries of expired readings of sensors in a range of hours, in the order of the sensors. Leaves out
/// hours that `readings` cover, because these readings may have expired after they were read. So read `readings` first.
///
/// # Errors
/// If the store fails.
pub async fn read_expired_parts(
    store: &MergedView,
    database: &str,
    hours: &Range<Hour>,
    sensors: &[Arc<SensorDocument>],
    readings: impl IntoIterator<Item = &Piece>,
) -> Result<Vec<ExpiredPart>, StorageError> {
    let settings = store.raw().read_settings().await?.into_iter().find(|(name, _)| name == database);
    let expired = settings.and_then(|(_, settings)| settings.expired_readings);
    let Some(expired) = expired else { return Ok(Vec::new()) };
    let hours = hours.start..hours.end.min(Hour::from_ns(expired.before));
    if hours.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = read_stored_parts(store, database, &hours, sensors).await?;
    if !found.is_empty() {
        let mut seen: BTreeSet<(&str, Hour)> = BTreeSet::new();
        for part in readings.into_iter().filter_map(Piece::readings) {
            let key = &*part.document.sensor.key;
            seen.extend(part.readings.times().iter().map(|time| (key, Hour::from_ns(*time))));
        }
        for part in &mut found {
            let key = &*part.document.sensor.key;
            part.expired.hours.retain(|one| hours.contains(&one.hour) && !seen.contains(&(key, one.hour)));
        }
        found.retain(|part| !part.expired.is_empty());
    }
    Ok(found)
}

async fn read_stored_parts(
    store: &MergedView,
    database: &str,
    hours: &Range<Hour>,
    sensors: &[Arc<SensorDocument>],
) -> Result<Vec<ExpiredPart>, StorageError> {
    let keys: Vec<&str> = sensors.iter().map(|document| &*document.sensor.key).collect();
    let mut parts = store.raw().list_day_parts(database, &keys, Day::range_from_hours(hours)).await?;
    parts.retain(|(.., part)| !part.is_chunk());
    parts.sort_unstable();
    let mut found = Vec::new();
    let mut remaining = &parts[..];
    let mut batch_parts = BATCH_PARTS;
    while !remaining.is_empty() {
        let (batch, rest) = remaining.split_at(batch_parts.min(remaining.len()));
        let id = |(index, day, part): &(usize, Day, DayPart)| DayId {
            sensor: sensors[*index].sensor.clone(),
            day: *day,
            part: *part,
        };
        let ids: Vec<DayId> = batch.iter().map(id).collect();
        let days = store.read_days(database, &ids).await?;
        let has_readings = days.iter().flatten().any(|day| !day.readings.is_empty());
        batch_parts = if has_readings { BATCH_PARTS } else { (batch_parts * 2).min(BATCH_PARTS_MAX) };
        for ((index, day, part), stored) in batch.iter().zip(days) {
            if let Some(expired) = stored.and_then(|stored| stored.expired) {
                found.push(ExpiredPart { document: sensors[*index].clone(), day: *day, part: *part, expired });
            }
        }
        remaining = rest;
    }
    Ok(found)
}

/// Packs the summaries of a part of a day.
#[must_use]
pub fn pack(day: Day, part: DayPart, expired: &ExpiredDay) -> Vec<u8> {
    let hour = if let DayPart::Hour(hour) = part { hour + 1 } else { 0 };
    let names = expired.names();
    let mut out = vec![hour];
    put_varint(&mut out, zigzag(day.0));
    put_texts(&mut out, names.iter().map(|name| &**name));
    put_varint(&mut out, expired.hours.len() as u64);
    let mut figures = HourColumns::new(day, names.len());
    for one in &expired.hours {
        let number = u8::try_from(one.hour.0 - day.hours().start.0).unwrap_or(u8::MAX);
        out.push(number);
        put_varint(&mut out, one.count);
        out.extend(one.first.to_le_bytes());
        out.extend(one.last.to_le_bytes());
        figures.push(one.hour, names.iter().enumerate().filter_map(|(field, name)| Some((field, one.summary(name)?))));
    }
    figures.put(&mut out);
    out
}

/// Unpacks the summaries of a part of a day.
///
/// # Errors
/// If the bytes are damaged.
pub fn unpack(bytes: &[u8]) -> Result<(Day, DayPart, ExpiredDay), FiguresError> {
    let mut bytes = PackedBytes::new(bytes);
    let part = match bytes.byte()? {
        0 => DayPart::Whole,
        hour @ 1..=24 => DayPart::Hour(hour - 1),
        found => return Err(unknown_byte("a part of a day", found)),
    };
    let day = Day(unzigzag(bytes.varint()?));
    let names: Vec<Arc<str>> = bytes.texts()?.into_iter().map(Arc::from).collect();
    let mut hours: Vec<ExpiredHour> = Vec::new();
    for _ in 0..bytes.varint()? {
        let number = bytes.byte()?;
        if number >= 24 {
            return Err(unknown_byte("an hour", number));
        }
        let count = bytes.varint()?;
        let mut time = || Ok::<_, ColumnsDamage>(i64::from_le_bytes(bytes.take(8)?.try_into().unwrap_or_default()));
        let first = time()?;
        let last = time()?;
        let hour = Hour(day.0.saturating_mul(24).saturating_add(i64::from(number)));
        hours.push(ExpiredHour { hour, count, first, last, summaries: Vec::new() });
    }
    let figures = PackedFigures::at_end(Span::Hours, bytes)?;
    let mut room = Room::default();
    let mut has_unknown_hour = false;
    figures.each(
        names.len(),
        |_| true,
        &Projection::SUMMARIES,
        &mut room,
        |field, number, summary| match hours.iter_mut().find(|one| one.hour.0.rem_euclid(24) == i64::from(number)) {
            Some(hour) => hour.summaries.push((names[field].clone(), summary)),
            None => has_unknown_hour = true,
        },
    )?;
    if has_unknown_hour {
        return Err(unknown_byte("an hour with summaries", 0));
    }
    Ok((day, part, ExpiredDay { hours }))
}

fn unknown_byte(what: &'static str, found: u8) -> FiguresError {
    FiguresError::Damage(ColumnsDamage::Unknown { what, found: found.into() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::backup::SetDigest;
    use crate::bucket::summary::distribution::FieldBounds;
    use crate::bucket::{Reading, Readings};
    use crate::reading::Value;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i64>().prop_map(Value::Integer),
            any::<f64>().prop_filter("finite", |v| v.is_finite()).prop_map(Value::Float),
            any::<u64>().prop_map(Value::Unsigned),
            any::<bool>().prop_map(Value::Boolean),
        ]
    }

    fn expired(day: i64) -> impl Strategy<Value = ExpiredDay> {
        let start = Day(day).hours().start.start_ns();
        let fields = proptest::collection::btree_map("[a-cü]", value(), 0..4);
        proptest::collection::btree_map(0..24 * 3_600_000_000_000_i64, fields, 1..60).prop_map(move |readings| {
            let reading = |(time, fields): (i64, std::collections::BTreeMap<String, Value>)| Reading {
                time: start + time,
                fields: fields.into_iter().map(|(name, value)| (Arc::from(name), value)).collect(),
            };
            let mut readings: Readings = readings.into_iter().map(reading).collect();
            readings.set_bounds(&FieldBounds::new([("a".into(), [-5.0, 1e6].into())]));
            ExpiredDay::from_readings(&readings)
        })
    }

    proptest! {
        /// Exact to the last bit, including the rounding errors of sums.
        #[test]
        fn what_is_packed_is_unpacked((day, expired) in (-40_000..40_000_i64).prop_flat_map(|day| (Just(day), expired(day))), hour in 0..24_u8) {
            for part in [DayPart::Whole, DayPart::Hour(hour)] {
                let packed = pack(Day(day), part, &expired);
                let (found_day, found_part, found) = unpack(&packed).unwrap();
                prop_assert_eq!((found_day, found_part, &found), (Day(day), part, &expired));
                prop_assert_eq!(SetDigest::from_expired("m", &found), SetDigest::from_expired("m", &expired));
                for cut in (0..packed.len()).step_by(1 + packed.len() / 16) {
                    prop_assert!(unpack(&packed[..cut]).is_err());
                }
            }
        }

        /// The digest depends on every bit of a sum, but not on how the hours are split into parts.
        #[test]
        fn parts_of_a_day_add_up(expired in expired(20_000)) {
            let mut sum = SetDigest::default();
            for hour in &expired.hours {
                sum += SetDigest::from_expired("m", &ExpiredDay { hours: vec![hour.clone()] });
            }
            prop_assert_eq!(sum, SetDigest::from_expired("m", &expired));
            prop_assert!(sum.sum != SetDigest::from_expired("n", &expired).sum);
        }
    }
}
