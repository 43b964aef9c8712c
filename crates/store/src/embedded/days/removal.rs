//! Removal of parts of days that a deletion covers whole, in transactions of bounded size, without decoding them.

use std::collections::BTreeSet;
use std::ops::Range;

use redb::{Database, ReadableDatabase};

use super::scan::next_day;
use super::{has_head, part_id, take_kind, unreadable};
use crate::bucket::columns::PackedBytes;
use crate::bucket::store::Order;
use crate::bucket::{DayPart, Result, StorageError};
use crate::embedded::file::FileFailure;
use crate::embedded::keys::Keys;
use crate::embedded::page_form::PageError;
use crate::embedded::remove::{ROWS_MAX, remove_all};
use crate::embedded::tables::{DAYS, Tables, begin};
use crate::reading::{Day, Hour, Month, Stamp};

/// Removes the parts of a sensor's days in a range of hours whose stamps are all below `limit`, and the totals of their
/// months. Returns the day to continue from, or `None` when done.
pub(in crate::embedded) fn remove(
    database: &Database,
    name: &str,
    sensor: &str,
    hours: &Range<Hour>,
    limit: Stamp,
) -> Result<Option<Day>, FileFailure> {
    let keys = Keys::new(name);
    let mut left = days_within(hours);
    let mut found = Vec::new();
    let mut months = BTreeSet::new();
    let mut next = None;
    let mut newer = None;
    {
        let transaction = database.begin_read()?;
        let table = transaction.open_table(DAYS)?;
        while let Some(day) = next_day(&table, &keys, sensor, Order::Ascending, &left)? {
            if found.len() >= ROWS_MAX {
                next = Some(day);
                break;
            }
            for row in table.range::<&[u8]>(&*keys.day(day, sensor, DayPart::Whole)..&*keys.day_end(day, sensor))? {
                let (key, value) = row?;
                let Some(part) = keys.parse_part(key.value(), day, sensor) else { continue };
                match is_below(key.value(), value.value(), part, limit) {
                    Ok(true) => {
                        found.push(key.value().to_vec());
                        months.insert(keys.month(Month::from_day(day), sensor));
                    }
                    Ok(false) => {}
                    Err(error @ StorageError::Newer { .. }) => newer = Some(error),
                    // The caller decides about a damaged part.
                    Err(_) => {}
                }
            }
            left.start = day.next();
        }
    }
    if !found.is_empty() {
        let transaction = begin(database)?;
        {
            let mut tables = Tables::open(&transaction)?;
            remove_all(&mut tables.months, &months.into_iter().collect::<Vec<_>>())?;
            remove_all(&mut tables.days, &found)?;
            remove_all(&mut tables.chunks, &found)?;
        }
        transaction.commit()?;
    }
    newer.map_or(Ok(next), |error| Err(error.into()))
}

/// Returns true if all cells of a part have stamps below `limit`.
///
/// # Errors
/// If the beginning of the part cannot be read.
fn is_below(key: &[u8], value: &[u8], part: DayPart, limit: Stamp) -> Result<bool> {
    let floor = || -> Result<Stamp, PageError> {
        let mut bytes = PackedBytes::new(value);
        if has_head(take_kind(&mut bytes)?) {
            bytes = PackedBytes::new(bytes.prefixed_bytes()?);
        }
        bytes.varint()?;
        Ok(bytes.varint()?)
    };
    let floor = floor().map_err(|error| unreadable(part_id(key), &error))?;
    Ok(if let DayPart::Chunk { stamp, .. } = part { stamp < limit } else { floor < limit })
}

/// Returns the days that lie in a range of hours.
pub(super) fn days_within(hours: &Range<Hour>) -> Range<Day> {
    let first = Day::from_hour(hours.start);
    let first = if first.hours().start < hours.start { first.next() } else { first };
    first..Day::from_hour(hours.end)
}
