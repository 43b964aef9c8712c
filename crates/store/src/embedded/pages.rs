//! Pages in the file: writes groups, reads buckets, scans a sensor's hours.

use std::ops::Range;

use async_trait::async_trait;
use redb::ReadableTable;

use super::file::FileFailure;
use super::keys::Keys;
use super::page_form::{self, PageKey};
use super::tables::{DocumentRows, PAGES, Put, Tables, begin, unseal, write_each};
use super::{EmbeddedStore, remove};
use crate::bucket::store::{BucketId, Extent, Order, PageStore, PageWrite, Projection, Scanned, ScannedPage, Written};
use crate::bucket::{Result, StorageError, StoredPage, WriteKind};
use crate::reading::{Hour, Stamp};

/// A page to be written or removed.
struct PagePut {
    put: Put,
    removed: bool,
}

/// Encodes a group's pages, each as a whole: redb cannot append to a value, so even an append writes the complete page.
fn encode_group(keys: &Keys, write: &PageWrite<'_>) -> Vec<PagePut> {
    let encode = |index: &usize| {
        let page = &write.bucket.pages()[*index];
        let key = keys.page(write.id.hour, &write.id.sensor.key, page.number);
        let removed = page.pending() == Some(WriteKind::Remove);
        let bytes = if removed { Vec::new() } else { page_form::encode(write.id, page) };
        PagePut { put: Put::new(key, page.rev(), bytes), removed }
    };
    write.group.iter().map(encode).collect()
}

/// Writes a group's pages, or none of them if one has another rev than expected.
fn write_group(tables: &mut Tables<'_>, group: &Vec<PagePut>) -> Result<bool, FileFailure> {
    for page in group {
        if !page.put.fits(&tables.pages, rev)? {
            return Ok(false);
        }
    }
    for page in group {
        if page.removed {
            tables.pages.remove(&*page.put.key)?;
        } else {
            page.put.put(&mut tables.pages)?;
        }
    }
    Ok(true)
}

pub(super) fn rev(key: &[u8], value: &[u8]) -> Result<u64> {
    let id = || match Keys::any_page_of(key) {
        Some((hour, sensor, number)) => PageKey { sensor: &sensor, hour, number }.id(),
        None => key.escape_ascii().to_string(),
    };
    page_form::rev(unseal(key, value, id)?, id)
}

fn number_of(key: &[u8]) -> u32 {
    key.last_chunk::<4>().map_or(0, |number| u32::from_be_bytes(*number))
}

/// Implements `Store::scan`; also returns the bytes of the pages found.
///
/// Keys sort by hour before sensor, so this goes from one stored hour to the next and looks for the sensor in each: at
/// most two searches per hour that has pages of any sensor, and none for other hours.
fn scan(
    keys: &Keys,
    pages: &DocumentRows,
    sensor: &str,
    hours: Range<Hour>,
    order: Order,
    projection: &Projection,
    extent: Extent,
) -> Result<(Scanned, usize), FileFailure> {
    let (start, end) = (keys.hour(hours.start), keys.hour(hours.end));
    let (mut found, mut size, mut rest) = (Vec::new(), 0, hours);
    while rest.start < rest.end && found.len() < extent.pages && size < extent.bytes {
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
                    let before = size;
                    for_each_page(pages, keys, hour, sensor, |bytes, page| {
                        if let Some(page) = page_form::decode_for_scan(bytes, page, projection)? {
                            size += page.bytes(bytes.len());
                            found.push(page);
                        }
                        // Without their readings, pages take little memory, however large they are stored.
                        let limit = extent.hour_bytes;
                        if projection.readings && size - before > limit {
                            return Err(StorageError::HourTooLarge { limit, hour }.into());
                        }
                        Ok(())
                    })?;
                }
                keys.hour_of(key.value()).or(Some(hour))
            }
            None => None,
        };
        // Without a page of any sensor in this direction and hour, the scan goes on with the next stored hour.
        match (order, stored) {
            (Order::Ascending, Some(later)) if later > hour => rest.start = later,
            (Order::Ascending, Some(_)) => rest.start = hour.next(),
            (Order::Ascending, None) => rest.start = rest.end,
            (Order::Descending, Some(earlier)) if earlier < hour => rest.end = earlier.next(),
            (Order::Descending, Some(_)) => rest.end = hour,
            (Order::Descending, None) => rest.end = rest.start,
        }
    }
    Ok((Scanned { pages: found, rest }, size))
}

fn for_each_page(
    pages: &DocumentRows,
    keys: &Keys,
    hour: Hour,
    sensor: &str,
    mut take: impl FnMut(&[u8], PageKey<'_>) -> Result<(), FileFailure>,
) -> Result<(), FileFailure> {
    let (first, last) = (keys.page(hour, sensor, 0), keys.page(hour, sensor, u32::MAX));
    for row in pages.range(&*first..=&*last)? {
        let (key, value) = row?;
        let page = PageKey { sensor, hour, number: number_of(key.value()) };
        take(unseal(key.value(), value.value(), || page.id())?, page)?;
    }
    Ok(())
}

#[async_trait]
impl PageStore for EmbeddedStore {
    async fn write_pages(&self, database: &str, writes: &[PageWrite<'_>]) -> Vec<Written> {
        let (name, keys) = (database.to_owned(), Keys::of(database));
        let groups: Vec<_> = writes.iter().map(|write| encode_group(&keys, write)).collect();
        let size = (groups.len(), groups.iter().flatten().map(|page| page.put.bytes()).sum());
        self.write(size, move |db| write_each(db, (&name, true), &groups, write_group)).await
    }

    async fn read_buckets(&self, database: &str, ids: &[BucketId], pages_max: usize) -> Result<Vec<Vec<StoredPage>>> {
        let ids = ids.to_vec();
        self.read_table((PAGES, database), move |keys, pages| {
            let read = |id: &BucketId| {
                let (hour, sensor) = (id.hour, &*id.sensor.key);
                let mut found = Vec::new();
                let last = pages.range(&*keys.page(hour, sensor, 0)..=&*keys.page(hour, sensor, u32::MAX))?.next_back();
                let last = last.transpose()?.map_or(0, |(key, _)| number_of(key.value()));
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
        let (id, numbers) = (id.clone(), numbers.to_vec());
        self.read_table((PAGES, database), move |keys, pages| {
            let (sensor, hour) = (&*id.sensor.key, id.hour);
            let mut found = Vec::with_capacity(numbers.len());
            for number in numbers {
                let (key, page) = (keys.page(hour, sensor, number), PageKey { sensor, hour, number });
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
    ) -> Result<Scanned> {
        let (sensor, wanted) = (sensor.to_owned(), projection.clone());
        let scanned = self.read_table((PAGES, database), move |keys, pages| {
            scan(keys, pages, &sensor, hours, order, &wanted, extent)
        });
        Ok(scanned.await?.0)
    }

    async fn scan_sensors(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>> {
        let wanted = projection.clone();
        self.scan_each((PAGES, database), sensors, bytes_max, move |keys, pages, sensor, left| {
            let extent = Extent { pages: usize::MAX, bytes: left.saturating_add(1), hour_bytes: left };
            match scan(keys, pages, sensor, hours.clone(), Order::Ascending, &wanted, extent) {
                Ok((scanned, bytes)) => Ok(Some((scanned.pages, bytes))),
                Err(FileFailure::Document(StorageError::HourTooLarge { .. })) => Ok(None),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// Whoever adds a second page changes the first one.
    async fn remove_single_pages(&self, database: &str, pages: &[(BucketId, u64)]) -> Result<()> {
        if pages.is_empty() {
            return Ok(()); // A transaction without changes would sync the disk, too.
        }
        let (name, pages) = (database.to_owned(), pages.to_vec());
        self.run_to_its_end(move |db| {
            let keys = Keys::of(&name);
            let transaction = begin(db)?;
            {
                let mut tables = Tables::open(&transaction)?;
                for (id, expected) in &pages {
                    let key = keys.page(id.hour, &id.sensor.key, 0);
                    let held = tables.pages.get(&*key)?.map(|value| rev(&key, value.value())).transpose()?;
                    let bucket = (keys.page(id.hour, &id.sensor.key, 1), keys.page(id.hour, &id.sensor.key, u32::MAX));
                    let is_single = tables.pages.range::<&[u8]>(&*bucket.0..=&*bucket.1)?.next().is_none();
                    if held == Some(*expected) && is_single {
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
        from: &(Hour, String),
        until: Hour,
        most: usize,
    ) -> Result<Vec<(Hour, String)>> {
        let from = from.clone();
        self.read_table((PAGES, database), move |keys, pages| {
            let mut found: Vec<(Hour, String)> = Vec::new();
            for row in pages.range(&*keys.page(from.0, &from.1, u32::MAX)..&*keys.hour(until))? {
                let (key, _) = row?;
                let Some((hour, sensor, _)) = keys.page_of(key.value()) else { continue };
                if found.last().is_some_and(|last| last.0 == hour && last.1 == sensor)
                    || (hour, &sensor) == (from.0, &from.1)
                {
                    continue;
                }
                if found.len() >= most {
                    break;
                }
                found.push((hour, sensor));
            }
            Ok(found)
        })
        .await
    }

    async fn remove_buckets(&self, database: &str, sensors: &[&str], hours: Range<Hour>, before: Stamp) -> Result<()> {
        for sensor in sensors {
            let (name, sensor) = (database.to_owned(), (*sensor).to_owned());
            let mut next = Some(hours.start);
            while let Some(from) = next {
                let (name, sensor, hours) = (name.clone(), sensor.clone(), from..hours.end);
                next =
                    self.run_to_its_end(move |db| remove::buckets(db, &name, &sensor, hours.clone(), before)).await?;
            }
        }
        Ok(())
    }
}
