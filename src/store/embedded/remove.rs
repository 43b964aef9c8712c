//! Removes buckets, sensor documents and databases, in transactions of bounded size.

use std::ops::Range;

use redb::{Database, ReadableDatabase, ReadableTable, Table};

use super::file::FileFailure;
use super::form;
use super::keys::Keys;
use super::tables::{PAGES, Tables, begin, unseal};
use crate::reading::{Hour, Stamp};

/// Maximum rows that one transaction removes; the last bucket may exceed it.
const ROWS: usize = 2000;

/// Removes a sensor's buckets in these hours whose pages are all older than a stamp. Returns the hour to continue from;
/// `None` when done.
pub(super) fn buckets(
    database: &Database,
    name: &str,
    sensor: &str,
    hours: Range<Hour>,
    before: Stamp,
) -> Result<Option<Hour>, FileFailure> {
    let keys = Keys::of(name);
    let (mut found, mut next) = (Vec::new(), None);
    {
        let transaction = database.begin_read()?;
        let pages = transaction.open_table(PAGES)?;
        let end = keys.hour(hours.end);
        let mut hour = hours.start;
        while hour < hours.end {
            if found.len() >= ROWS {
                next = Some(hour);
                break;
            }
            let bucket = keys.bucket(hour, sensor);
            let Some(row) = pages.range(&*bucket..&*end)?.next() else { break };
            match keys.hour_of(row?.0.value()) {
                Some(later) if later > hour => hour = later,
                _ => {
                    let last = keys.page(hour, sensor, u32::MAX);
                    let (mut keys, mut is_old) = (Vec::new(), true);
                    for row in pages.range(&*bucket..=&*last)? {
                        let (key, value) = row?;
                        let id = || format!("{sensor} {}", hour.0);
                        is_old &= form::last(unseal(key.value(), value.value(), id)?, id)? < before;
                        keys.push(key.value().to_vec());
                    }
                    if is_old {
                        found.append(&mut keys);
                    }
                    hour = hour.next();
                }
            }
        }
    }
    if !found.is_empty() {
        let transaction = begin(database)?;
        remove_all(&mut Tables::open(&transaction)?.pages, &found)?;
        transaction.commit()?;
    }
    Ok(next)
}

/// Removes sensor documents and their outlier marks.
pub(super) fn sensors(database: &Database, name: &str, sensors: &[String]) -> Result<(), FileFailure> {
    let keys = Keys::of(name);
    let found: Vec<Vec<u8>> = sensors.iter().map(|sensor| keys.sensor(sensor)).collect();
    let transaction = begin(database)?;
    {
        let mut tables = Tables::open(&transaction)?;
        remove_all(&mut tables.sensors, &found)?;
        remove_all(&mut tables.outliers, &found)?;
    }
    transaction.commit()?;
    Ok(())
}

/// Removes some rows of a database; true if none are left.
pub(super) fn part_of_database(database: &Database, name: &str) -> Result<bool, FileFailure> {
    let all = Keys::of(name).all();
    let transaction = begin(database)?;
    let is_last;
    {
        let mut tables = Tables::open(&transaction)?;
        let pages = first_keys(&tables.pages, &all)?;
        remove_all(&mut tables.pages, &pages)?;
        let days = first_keys(&tables.days, &all)?;
        remove_all(&mut tables.days, &days)?;
        remove_all(&mut tables.chunks, &days)?;
        let sensors = first_keys(&tables.sensors, &all)?;
        remove_all(&mut tables.sensors, &sensors)?;
        remove_all(&mut tables.outliers, &sensors)?;
        is_last = pages.len() < ROWS && days.len() < ROWS && sensors.len() < ROWS;
        if is_last {
            tables.databases.remove(name)?;
        }
    }
    transaction.commit()?;
    Ok(is_last)
}

fn first_keys(
    table: &Table<'_, &'static [u8], &'static [u8]>,
    range: &Range<Vec<u8>>,
) -> Result<Vec<Vec<u8>>, FileFailure> {
    table.range::<&[u8]>(&*range.start..&*range.end)?.take(ROWS).map(|row| Ok(row?.0.value().to_vec())).collect()
}

/// Looks each key up first: a redb removal changes the table even if the key is missing.
fn remove_all<V: redb::Value + 'static>(
    table: &mut Table<'_, &'static [u8], V>,
    keys: &[Vec<u8>],
) -> Result<(), FileFailure> {
    for key in keys {
        if table.get(&**key)?.is_some() {
            table.remove(&**key)?;
        }
    }
    Ok(())
}
