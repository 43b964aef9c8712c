//! Removes buckets, sensor documents and databases, in transactions of bounded size.

use std::ops::Range;

use redb::{Database, ReadableDatabase, ReadableTable, Table};

use super::file::FileFailure;
use super::keys::Keys;
use super::tables::{PAGES, Tables, begin, unseal};
use super::{days, page_form, pages, sensors};
use crate::bucket::{Result, StorageError};
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
                        is_old &= page_form::last(unseal(key.value(), value.value(), id)?, id)? < before;
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

/// Removes sensor documents and their outlier marks: of those with a rev, the ones that still have it.
pub(super) fn sensor_documents(
    database: &Database,
    name: &str,
    of: &[(String, Option<u64>)],
) -> Result<(), FileFailure> {
    let keys = Keys::of(name);
    let transaction = begin(database)?;
    {
        let mut tables = Tables::open(&transaction)?;
        let mut found: Vec<Vec<u8>> = Vec::with_capacity(of.len());
        for (sensor, rev) in of {
            let key = keys.sensor(sensor);
            let held = match (rev, tables.sensors.get(&*key)?) {
                (Some(_), Some(value)) => Some(sensors::rev(&key, value.value())?),
                _ => None,
            };
            if rev.is_none() || held == *rev {
                found.push(key);
            }
        }
        refuse_newer(&tables.sensors, &found, sensors::rev)?;
        remove_all(&mut tables.sensors, &found)?;
        remove_all(&mut tables.outliers, &found)?;
    }
    transaction.commit()?;
    Ok(())
}

/// Removes some rows of a database; true if none are left. Fails at a row that a later version wrote.
pub(super) fn part_of_database(database: &Database, name: &str) -> Result<bool, FileFailure> {
    let all = Keys::of(name).all();
    let transaction = begin(database)?;
    let is_last;
    {
        let mut tables = Tables::open(&transaction)?;
        let pages = remove_first(&mut tables.pages, &all, pages::rev)?;
        let days = remove_first(&mut tables.days, &all, days::rev)?;
        remove_all(&mut tables.chunks, &days)?;
        // A month of a later version is as good as none.
        let months = remove_first(&mut tables.months, &all, |_, _| Ok(0))?;
        let documents = remove_first(&mut tables.sensors, &all, sensors::rev)?;
        remove_all(&mut tables.outliers, &documents)?;
        is_last = pages.len() < ROWS && days.len() < ROWS && months.len() < ROWS && documents.len() < ROWS;
    }
    transaction.commit()?;
    Ok(is_last)
}

/// Removes the first rows of a range, and returns their keys. Fails if a later version wrote one of them.
fn remove_first(
    table: &mut Table<'_, &'static [u8], &'static [u8]>,
    range: &Range<Vec<u8>>,
    rev: impl Fn(&[u8], &[u8]) -> Result<u64>,
) -> Result<Vec<Vec<u8>>, FileFailure> {
    let rows = table.range::<&[u8]>(&*range.start..&*range.end)?.take(ROWS);
    let keys = rows.map(|row| Ok(row?.0.value().to_vec())).collect::<Result<Vec<_>, FileFailure>>()?;
    refuse_newer(table, &keys, rev)?;
    remove_all(table, &keys)?;
    Ok(keys)
}

/// Fails if a later version wrote one of these rows. `rev` reads the rev of a row; a damaged one may be removed.
fn refuse_newer(
    table: &Table<'_, &'static [u8], &'static [u8]>,
    keys: &[Vec<u8>],
    rev: impl Fn(&[u8], &[u8]) -> Result<u64>,
) -> Result<(), FileFailure> {
    for key in keys {
        let held = table.get(&**key)?.map(|value| rev(key, value.value()));
        if let Some(Err(error @ StorageError::Newer { .. })) = held {
            return Err(error.into());
        }
    }
    Ok(())
}

/// Looks each key up first: a redb removal changes the table even if the key is missing.
pub(super) fn remove_all<V: redb::Value + 'static>(
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
