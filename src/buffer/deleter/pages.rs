//! Deletion of readings from pages.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::cells::DeletedCells;
use super::{CONFLICTS_MAX, Deleter};
use crate::bucket::store::{BucketId, PageWrite, Projection};
use crate::bucket::{Bucket, StorageError, Store, StoredPage};
use crate::catalog::reads::read_buckets_each;
use crate::reading::{Hour, Sensor};

/// Maximum number of buckets rewritten at a time. All of them are in memory.
const BUCKETS: usize = 32;
/// Maximum stored bytes of several buckets that are rewritten at a time. Decoded, they take a multiple of that.
const LOT_BYTES: usize = 8 << 20;

impl Deleter {
    /// Removes deleted cells from the pages of these sensors.
    pub(super) async fn delete_readings(
        &self,
        gone: &DeletedCells<'_>,
        sensors: &[Sensor],
    ) -> Result<(), StorageError> {
        let store = &*self.context.store;
        let keys: Vec<&str> = sensors.iter().map(|sensor| &*sensor.key).collect();
        let whole = gone.whole_hours();
        if !whole.is_empty() {
            store.raw().remove_buckets(gone.database, &keys, whole.clone(), gone.before).await?;
        }
        // Remaining buckets in whole hours have newer cells or several pages.
        let mut left: Vec<(Arc<Sensor>, Hour)> = Vec::new();
        let shared: Vec<Arc<Sensor>> = sensors.iter().cloned().map(Arc::new).collect();
        if !whole.is_empty() {
            let places = Projection::without_fields();
            let scanned = store.raw().scan_sensors(gone.database, &keys, whole, &places, usize::MAX).await?;
            for (sensor, pages) in shared.iter().zip(scanned.unwrap_or_default()) {
                let old = pages.into_iter().filter(|page| page.oldest < gone.before);
                left.extend(old.map(|page| (sensor.clone(), page.hour)));
            }
        }
        for sensor in &shared {
            left.extend(gone.cut_hours(&sensor.key).into_iter().map(|hour| (sensor.clone(), hour)));
        }
        let ids: Vec<BucketId> = left.into_iter().map(|(sensor, hour)| BucketId { sensor, hour }).collect();
        for chunk in ids.chunks(BUCKETS) {
            for lot in self.lots_in_memory(gone.database, chunk).await? {
                self.cut(gone, lot.to_vec()).await?;
            }
        }
        Ok(())
    }

    /// Splits the buckets into lots that fit into memory. A larger bucket is a lot of its own.
    async fn lots_in_memory<'i>(
        &self,
        database: &str,
        ids: &'i [BucketId],
    ) -> Result<Vec<&'i [BucketId]>, StorageError> {
        let mut bytes = Vec::with_capacity(ids.len());
        for pages in read_buckets_each(&self.context.store, database, ids, 0).await {
            let of_page = |page: &StoredPage| page.left_out.map_or(page.readings.bytes(), |out| out.bytes);
            bytes.push(pages?.iter().map(of_page).sum::<usize>());
        }
        let mut lots = Vec::new();
        let mut first = 0;
        let mut lot_bytes = 0;
        for (index, bytes) in bytes.into_iter().enumerate() {
            if lot_bytes > 0 && lot_bytes + bytes > LOT_BYTES {
                lots.push(&ids[first..index]);
                first = index;
                lot_bytes = 0;
            }
            lot_bytes += bytes;
        }
        lots.push(&ids[first..]);
        Ok(lots)
    }

    /// Removes deleted readings from buckets that may keep some.
    async fn cut(&self, gone: &DeletedCells<'_>, mut ids: Vec<BucketId>) -> Result<(), StorageError> {
        for _ in 0..CONFLICTS_MAX {
            let read = read_buckets_each(&self.context.store, gone.database, &ids, usize::MAX).await;
            let mut buckets = Vec::with_capacity(ids.len());
            for (id, pages) in ids.into_iter().zip(read) {
                let mut bucket = Bucket::from_stored(pages?);
                bucket.cut(|readings| gone.cut(&id.sensor.key, readings));
                buckets.push((id, bucket));
            }
            ids = write_buckets(&**self.context.store.raw(), gone.database, buckets).await?;
            if ids.is_empty() {
                return Ok(());
            }
        }
        Err(StorageError::Contended(ids[0].sensor.key.to_string()))
    }
}

/// Writes buckets until nothing is left to write. Returns the buckets that other writers changed meanwhile.
pub async fn write_buckets(
    store: &dyn Store,
    database: &str,
    mut buckets: Vec<(BucketId, Bucket)>,
) -> Result<Vec<BucketId>, StorageError> {
    let mut changed: Vec<BucketId> = Vec::new();
    loop {
        let of_bucket = |(number, (id, bucket)): (usize, &'_ (BucketId, Bucket))| {
            bucket.next_writes().into_iter().map(move |group| (number, id.clone(), group)).collect::<Vec<_>>()
        };
        let groups: Vec<(usize, BucketId, Vec<usize>)> = buckets.iter().enumerate().flat_map(of_bucket).collect();
        if groups.is_empty() {
            return Ok(changed);
        }
        let writes: Vec<PageWrite<'_>> = groups
            .iter()
            .map(|(number, id, group)| PageWrite { id, bucket: &buckets[*number].1, group: group.clone() })
            .collect();
        let outcomes = store.write_pages(database, &writes).await;
        drop(writes);
        let mut conflicts = BTreeSet::new();
        for ((number, _, group), outcome) in groups.into_iter().zip(outcomes) {
            if outcome.applied()? {
                buckets[number].1.mark_written(&group);
            } else {
                conflicts.insert(number);
            }
        }
        changed.extend(conflicts.into_iter().rev().map(|number| buckets.swap_remove(number).0));
    }
}
