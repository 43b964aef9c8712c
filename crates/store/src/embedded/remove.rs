//! Removes buckets, sensor documents and databases, in transactions of bounded size.

use std::ops::Range;

use redb::{Database, ReadableDatabase, ReadableTable, Table};

use super::file::FileFailure;
use super::keys::Keys;
use super::tables::{PAGES, Tables, begin, unseal};
use super::{days, page_form, pages, sensors};
use crate::bucket::{Result, StorageError};
use crate::reading::{Hour, Stamp};

/// Maximum rows that one transaction removes. The pages of the last bucket may exceed it.
pub(super) const ROWS_MAX: usize = 2000;

/// Removes a sensor's buckets in a range of hours if all stamps of a bucket are below `limit`. Returns the hour to
/// continue from, or `None` when done.
pub(super) fn buckets(
    database: &Database,
    name: &str,
    sensor: &str,
    hours: Range<Hour>,
    limit: Stamp,
) -> Result<Option<Hour>, FileFailure> {
    let keys = Keys::new(name);
    let mut found = Vec::new();
    let mut next = None;
    {
        let transaction = database.begin_read()?;
        let pages = transaction.open_table(PAGES)?;
        let end = keys.hour(hours.end);
        let mut hour = hours.start;
        while hour < hours.end {
            if found.len() >= ROWS_MAX {
                next = Some(hour);
                break;
            }
            let bucket = keys.bucket(hour, sensor);
            let Some(row) = pages.range(&*bucket..&*end)?.next() else { break };
            match keys.parse_hour(row?.0.value()) {
                Some(later) if later > hour => hour = later,
                _ => {
                    let last = keys.page(hour, sensor, u32::MAX);
                    let mut keys = Vec::new();
                    let mut is_old = true;
                    for row in pages.range(&*bucket..=&*last)? {
                        let (key, value) = row?;
                        let id = || format!("{sensor} {}", hour.0);
                        is_old &= page_form::last_stamp(unseal(key.value(), value.value(), id)?, id)? < limit;
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

/// Removes sensor documents and their outlier marks. A document with an expected rev is kept if it has another rev.
pub(super) fn sensor_documents(
    database: &Database,
    name: &str,
    sensors: &[(String, Option<u64>)],
) -> Result<(), FileFailure> {
    let read_rev = sensors::rev;
    let keys = Keys::new(name);
    let transaction = begin(database)?;
    {
        let mut tables = Tables::open(&transaction)?;
        let mut found: Vec<Vec<u8>> = Vec::with_capacity(sensors.len());
        for (sensor, rev) in sensors {
            let key = keys.sensor(sensor);
            let stored_rev = match (rev, tables.sensors.get(&*key)?) {
                (Some(_), Some(value)) => Some(read_rev(&key, value.value())?),
                _ => None,
            };
            if rev.is_none() || stored_rev == *rev {
                found.push(key);
            }
        }
        refuse_newer(&tables.sensors, &found, read_rev)?;
        remove_all(&mut tables.sensors, &found)?;
        remove_all(&mut tables.outliers, &found)?;
    }
    transaction.commit()?;
    Ok(())
}

/// Removes rows of a database, at most [`ROWS_MAX`] of each table. Returns true if none are left. Fails at a row that a
/// later version wrote.
pub(super) fn database_rows(database: &Database, name: &str) -> Result<bool, FileFailure> {
    let all = Keys::new(name).all();
    let transaction = begin(database)?;
    let is_last;
    {
        let mut tables = Tables::open(&transaction)?;
        let pages = remove_first(&mut tables.pages, &all, pages::rev)?;
        let days = remove_first(&mut tables.days, &all, days::rev)?;
        remove_all(&mut tables.chunks, &days)?;
        // Months can be removed without a check of their version, because they only cache totals of days.
        let months = remove_first(&mut tables.months, &all, |_, _| Ok(0))?;
        let documents = remove_first(&mut tables.sensors, &all, sensors::rev)?;
        remove_all(&mut tables.outliers, &documents)?;
        is_last = [pages, days, months, documents].iter().all(|keys| keys.len() < ROWS_MAX);
    }
    transaction.commit()?;
    Ok(is_last)
}

/// Removes the first [`ROWS_MAX`] rows of a range and returns their keys. Fails if a later version wrote one of them.
fn remove_first(
    table: &mut Table<'_, &'static [u8], &'static [u8]>,
    range: &Range<Vec<u8>>,
    read_rev: impl Fn(&[u8], &[u8]) -> Result<u64>,
) -> Result<Vec<Vec<u8>>, FileFailure> {
    let rows = table.range::<&[u8]>(&*range.start..&*range.end)?.take(ROWS_MAX);
    let keys = rows.map(|row| Ok(row?.0.value().to_vec())).collect::<Result<Vec<_>, FileFailure>>()?;
    refuse_newer(table, &keys, read_rev)?;
    remove_all(table, &keys)?;
    Ok(keys)
}

/// Fails if a later version wrote one of these rows. `read_rev` reads the rev of a row. Its other errors are ignored,
/// so that damaged rows can be removed.
fn refuse_newer(
    table: &Table<'_, &'static [u8], &'static [u8]>,
    keys: &[Vec<u8>],
    read_rev: impl Fn(&[u8], &[u8]) -> Result<u64>,
) -> Result<(), FileFailure> {
    for key in keys {
        let rev = table.get(&**key)?.map(|value| read_rev(key, value.value()));
        if let Some(Err(error @ StorageError::Newer { .. })) = rev {
            return Err(error.into());
        }
    }
    Ok(())
}

/// Removes these keys. Looks each key up first, because redb's `remove` changes the table even if the key is missing.
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
