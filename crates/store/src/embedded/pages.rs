//! Pages in the file: writes of groups, reads of buckets, scans of a sensor's hours.

use std::ops::Range;

use async_trait::async_trait;
use redb::ReadableTable;

use super::file::FileFailure;
use super::keys::Keys;
use super::page_form::{self, PageKey};
use super::tables::{DocumentRows, Listing, PAGES, Put, Tables, begin, unseal, write_each};
use super::{EmbeddedStore, SizedScan, remove};
use crate::bucket::store::{
    BucketId, Extent, Order, PageStore, PageWrite, Projection, ScanResult, ScannedPage, WriteOutcome,
};
use crate::bucket::{Result, StorageError, StoredPage, WriteKind};
use crate::reading::{Hour, Stamp};

/// A write or removal of a page.
struct PagePut {
    put: Put,
    is_removal: bool,
}

/// Encodes the pages of a group. Even an append encodes the complete page, because redb cannot append to a value.
fn encode_group(keys: &Keys, write: &PageWrite<'_>) -> Vec<PagePut> {
    let encode = |index: &usize| {
        let page = &write.bucket.pages()[*index];
        let key = keys.page(write.id.hour, &write.id.sensor.key, page.number);
        let is_removal = page.pending() == Some(WriteKind::Remove);
        let bytes = if is_removal { Vec::new() } else { page_form::encode(write.id, page) };
        PagePut { put: Put::new(key, page.rev(), bytes), is_removal }
    };
    write.group.iter().map(encode).collect()
}

/// Writes all pages of a group. Returns false, without a change, if one of them has another rev than expected.
fn write_group(tables: &mut Tables<'_>, group: &Vec<PagePut>) -> Result<bool, FileFailure> {
    for page in group {
        if !page.put.matches(&tables.pages, rev)? {
            return Ok(false);
        }
    }
    for page in group {
        if page.is_removal {
            tables.pages.remove(&*page.put.key)?;
        } else {
            page.put.put(&mut tables.pages)?;
        }
    }
    Ok(true)
}

pub(super) fn rev(key: &[u8], value: &[u8]) -> Result<u64> {
    let id = || match Keys::parse_any_page(key) {
        Some((hour, sensor, number)) => PageKey { sensor: &sensor, hour, number }.id(),
        None => key.escape_ascii().to_string(),
    };
    page_form::rev(unseal(key, value, id)?, id)
}

fn page_number(key: &[u8]) -> u32 {
    key.last_chunk::<4>().map_or(0, |number| u32::from_be_bytes(*number))
}

/// Implements [`PageStore::scan`].
///
/// Keys sort by hour before sensor, so the scan visits each stored hour and looks for the sensor there. It makes at most
/// two searches per hour that has pages of any sensor, and none for other hours.
fn scan(
    keys: &Keys,
    pages: &DocumentRows,
    sensor: &str,
    hours: Range<Hour>,
    order: Order,
    projection: &Projection,
    extent: Extent,
) -> Result<SizedScan, FileFailure> {
    let start = keys.hour(hours.start);
    let end = keys.hour(hours.end);
    let mut found = Vec::new();
    let mut bytes = 0;
    let mut rest = hours;
    while rest.start < rest.end && found.len() < extent.pages && bytes < extent.bytes {
        let hour = if order == Order::Ascending { rest.start } else { Hour(rest.end.0 - 1) };
        let bucket = keys.bucket(hour, sensor);
        let row = match order {
            Order::Ascending => pages.range(&*bucket..&*end)?.next(),
            Order::Descending => pages.range(&*start..=&*keys.page(hour, sensor, u32::MAX))?.next_back(),
        };
        let stored = match row {
            Some(row) => {
                let (key, _) = row?;
                if key.value().starts_with(&bucket) {
                    let bytes_before = bytes;
                    for_each_page(pages, keys, hour, sensor, |stored, page| {
                        if let Some(page) = page_form::decode_for_scan(stored, page, projection)? {
                            bytes += page.bytes(stored.len());
                            found.push(page);
                        }
                        // The limit is for readings. Pages without them take little memory, whatever their stored size.
                        let limit = extent.hour_bytes;
                        if projection.readings && bytes - bytes_before > limit {
                            return Err(StorageError::HourTooLarge { limit, hour }.into());
                        }
                        Ok(())
                    })?;
                }
                keys.parse_hour(key.value()).or(Some(hour))
            }
            None => None,
        };
        // Continue with the next stored hour; end if there is none.
        match (order, stored) {
            (Order::Ascending, Some(later)) if later > hour => rest.start = later,
            (Order::Ascending, Some(_)) => rest.start = hour.next(),
            (Order::Ascending, None) => rest.start = rest.end,
            (Order::Descending, Some(earlier)) if earlier < hour => rest.end = earlier.next(),
            (Order::Descending, Some(_)) => rest.end = hour,
            (Order::Descending, None) => rest.end = rest.start,
        }
    }
    Ok(SizedScan { scanned: ScanResult { pages: found, rest }, bytes })
}

fn for_each_page(
    pages: &DocumentRows,
    keys: &Keys,
    hour: Hour,
    sensor: &str,
    mut on_page: impl FnMut(&[u8], PageKey<'_>) -> Result<(), FileFailure>,
) -> Result<(), FileFailure> {
    let first = keys.page(hour, sensor, 0);
    let last = keys.page(hour, sensor, u32::MAX);
    for row in pages.range(&*first..=&*last)? {
        let (key, value) = row?;
        let page = PageKey { sensor, hour, number: page_number(key.value()) };
        on_page(unseal(key.value(), value.value(), || page.id())?, page)?;
    }
    Ok(())
}

#[async_trait]
impl PageStore for EmbeddedStore {
    async fn write_pages(&self, database: &str, writes: &[PageWrite<'_>]) -> Vec<WriteOutcome> {
        let name = database.to_owned();
        let keys = Keys::new(database);
        let groups: Vec<_> = writes.iter().map(|write| encode_group(&keys, write)).collect();
        let bytes = groups.iter().flatten().map(|page| page.put.bytes()).sum();
        self.write(groups.len(), bytes, move |db| write_each(db, &name, Listing::Add, &groups, write_group)).await
    }

    async fn read_buckets(&self, database: &str, ids: &[BucketId], pages_max: usize) -> Result<Vec<Vec<StoredPage>>> {
        let ids = ids.to_vec();
        self.read_table(PAGES, database, move |keys, pages| {
            let read = |id: &BucketId| {
                let hour = id.hour;
                let sensor = &*id.sensor.key;
                let mut found = Vec::new();
                let last = pages.range(&*keys.page(hour, sensor, 0)..=&*keys.page(hour, sensor, u32::MAX))?.next_back();
                let last = last.transpose()?.map_or(0, |(key, _)| page_number(key.value()));
                let is_large = usize::try_from(last).is_ok_and(|last| last >= pages_max);
                for_each_page(pages, keys, hour, sensor, |bytes, page| {
                    found.push(if is_large {
                        page_form::decode_marks(bytes, page)?
                    } else {
                        page_form::decode(bytes, page)?
                    });
                    Ok(())
                })?;
                Ok(found)
            };
            ids.iter().map(read).collect()
        })
        .await
    }

    async fn read_pages(&self, database: &str, id: &BucketId, numbers: &[u32]) -> Result<Vec<StoredPage>> {
        let id = id.clone();
        let numbers = numbers.to_vec();
        self.read_table(PAGES, database, move |keys, pages| {
            let hour = id.hour;
            let sensor = &*id.sensor.key;
            let mut found = Vec::with_capacity(numbers.len());
            for number in numbers {
                let key = keys.page(hour, sensor, number);
                let page = PageKey { sensor, hour, number };
                if let Some(value) = pages.get(&*key)? {
                    found.push(page_form::decode(unseal(&key, value.value(), || page.id())?, page)?);
                }
            }
            Ok(found)
        })
        .await
    }

    async fn scan(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<ScanResult> {
        let sensor = sensor.to_owned();
        let projection = projection.clone();
        let scanned = self.read_table(PAGES, database, move |keys, pages| {
            scan(keys, pages, &sensor, hours, order, &projection, extent)
        });
        Ok(scanned.await?.scanned)
    }

    async fn scan_sensors(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>> {
        let projection = projection.clone();
        self.scan_each(PAGES, database, sensors, bytes_max, move |keys, pages, sensor, left| {
            let extent = Extent { pages: usize::MAX, bytes: left.saturating_add(1), hour_bytes: left };
            match scan(keys, pages, sensor, hours.clone(), Order::Ascending, &projection, extent) {
                Ok(scan) => Ok(Some(scan)),
                Err(FileFailure::Document(StorageError::HourTooLarge { .. })) => Ok(None),
                Err(error) => Err(error),
            }
        })
        .await
    }

    async fn remove_single_pages(&self, database: &str, pages: &[(BucketId, u64)]) -> Result<()> {
        if pages.is_empty() {
            // Even an empty transaction would sync the disk.
            return Ok(());
        }
        let name = database.to_owned();
        let pages = pages.to_vec();
        self.run_to_end(move |db| {
            let keys = Keys::new(&name);
            let transaction = begin(db)?;
            {
                let mut tables = Tables::open(&transaction)?;
                for (id, expected) in &pages {
                    let key = keys.page(id.hour, &id.sensor.key, 0);
                    let stored_rev = tables.pages.get(&*key)?.map(|value| rev(&key, value.value())).transpose()?;
                    let second = keys.page(id.hour, &id.sensor.key, 1);
                    let last = keys.page(id.hour, &id.sensor.key, u32::MAX);
                    let is_single = tables.pages.range::<&[u8]>(&*second..=&*last)?.next().is_none();
                    if stored_rev == Some(*expected) && is_single {
                        tables.pages.remove(&*key)?;
                    }
                }
            }
            transaction.commit()?;
            Ok(())
        })
        .await
    }

    async fn next_buckets(
        &self,
        database: &str,
        start: &(Hour, String),
        end: Hour,
        max: usize,
    ) -> Result<Vec<(Hour, String)>> {
        let start = start.clone();
        self.read_table(PAGES, database, move |keys, pages| {
            let mut found: Vec<(Hour, String)> = Vec::new();
            for row in pages.range(&*keys.page(start.0, &start.1, u32::MAX)..&*keys.hour(end))? {
                let (key, _) = row?;
                let Some((hour, sensor, _)) = keys.parse_page(key.value()) else { continue };
                if found.last().is_some_and(|last| last.0 == hour && last.1 == sensor)
                    || (hour, &sensor) == (start.0, &start.1)
                {
                    continue;
                }
                if found.len() >= max {
                    break;
                }
                found.push((hour, sensor));
            }
            Ok(found)
        })
        .await
    }

    async fn remove_buckets(&self, database: &str, sensors: &[&str], hours: Range<Hour>, limit: Stamp) -> Result<()> {
        for sensor in sensors {
            let mut next = Some(hours.start);
            while let Some(start) = next {
                let name = database.to_owned();
                let sensor = (*sensor).to_owned();
                let left = start..hours.end;
                next = self.run_to_end(move |db| remove::buckets(db, &name, &sensor, left.clone(), limit)).await?;
            }
        }
        Ok(())
    }
}
