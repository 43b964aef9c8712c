//! The storage traits of the embedded store: each method runs a function on the file where blocking is allowed.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::task::spawn_blocking;

use super::file::FileFailure;
use super::keys::Keys;
use super::{
    EmbeddedStore, SCAN_LEAST, SCAN_SENSORS, SMALL_BYTES, compact, days, months, pages, remove, sensors, tables,
};
use crate::bucket::registry::MemberRegistry;
use crate::bucket::store::{
    BucketId, Coordination, DatabaseStore, DayStore, Extent, MongoExtras, Order, PageStore, PageWrite, Projection,
    Scanned, ScannedPage, SensorFilter, SensorStore, Written,
};
use crate::bucket::{
    DatabaseSettings, DayId, DayPart, DayWrite, MonthId, MonthWrite, Readings, SensorDocument, StorageError, Store,
    StoreSpace, StoredDay, StoredMonth, StoredPage,
};
use crate::free_bytes;
use crate::reading::{Day, Hour, Month, Stamp};

impl Store for EmbeddedStore {
    fn mongo_extras(self: Arc<Self>) -> Option<Arc<dyn MongoExtras>> {
        None
    }
}

#[async_trait]
impl PageStore for EmbeddedStore {
    async fn write_pages(&self, database: &str, writes: &[PageWrite<'_>]) -> Vec<Written> {
        let (name, keys) = (database.to_owned(), Keys::of(database));
        let groups: Vec<_> = writes.iter().map(|write| pages::encode_group(&keys, write)).collect();
        let size = (groups.len(), groups.iter().flatten().map(pages::PagePut::bytes).sum());
        self.write(size, move |db| tables::write_each(db, (&name, true), &groups, pages::write_group)).await
    }

    async fn read_buckets(
        &self,
        database: &str,
        ids: &[BucketId],
        pages_max: usize,
    ) -> Result<Vec<Vec<StoredPage>>, StorageError> {
        let (name, ids) = (database.to_owned(), ids.to_vec());
        self.read(move |db| pages::read_buckets(db, &name, &ids, pages_max)).await
    }

    async fn read_pages(
        &self,
        database: &str,
        id: &BucketId,
        numbers: &[u32],
    ) -> Result<Vec<StoredPage>, StorageError> {
        let (name, id, numbers) = (database.to_owned(), id.clone(), numbers.to_vec());
        self.read(move |db| pages::read_pages(db, &name, &id, &numbers)).await
    }

    async fn scan(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned, StorageError> {
        let (name, sensor, wanted) = (database.to_owned(), sensor.to_owned(), projection.clone());
        self.read(move |db| Ok(pages::scan(db, &name, &sensor, hours, order, &wanted, extent)?.0)).await
    }

    async fn scan_sensors(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>, StorageError> {
        let wanted = projection.clone();
        self.scan_each(database, sensors, bytes_max, move |db, name, sensor, left| {
            let extent = Extent { pages: usize::MAX, bytes: left.saturating_add(1), hour_bytes: left };
            match pages::scan(db, name, sensor, hours.clone(), Order::Ascending, &wanted, extent) {
                Ok((scanned, bytes)) => Ok(Some((scanned.pages, bytes))),
                Err(FileFailure::Document(StorageError::HourTooLarge { .. })) => Ok(None),
                Err(error) => Err(error),
            }
        })
        .await
    }

    async fn remove_single_pages(&self, database: &str, pages: &[(BucketId, u64)]) -> Result<(), StorageError> {
        if pages.is_empty() {
            return Ok(()); // A transaction without changes would sync the disk, too.
        }
        let (name, pages) = (database.to_owned(), pages.to_vec());
        self.run_to_its_end(move |db| pages::remove_single(db, &name, &pages)).await
    }

    async fn next_buckets(
        &self,
        database: &str,
        from: &(Hour, String),
        until: Hour,
        most: usize,
    ) -> Result<Vec<(Hour, String)>, StorageError> {
        let (name, from) = (database.to_owned(), from.clone());
        self.read(move |db| pages::next_buckets(db, &name, &from, until, most)).await
    }

    async fn remove_buckets(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        before: Stamp,
    ) -> Result<(), StorageError> {
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

#[async_trait]
impl DayStore for EmbeddedStore {
    async fn parts_of(
        &self,
        database: &str,
        sensors: &[&str],
        days: Range<Day>,
    ) -> Result<Vec<(usize, Day, DayPart)>, StorageError> {
        let (name, sensors) = (database.to_owned(), sensors.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>());
        self.read(move |db| days::parts_of(db, &name, &sensors, &days)).await
    }

    async fn read_days(&self, database: &str, ids: &[DayId]) -> Result<Vec<Option<StoredDay>>, StorageError> {
        let (name, ids) = (database.to_owned(), ids.to_vec());
        self.read(move |db| days::read(db, &name, &ids)).await
    }

    async fn write_days(&self, database: &str, days: &[DayWrite<'_>]) -> Vec<Written> {
        let (name, keys) = (database.to_owned(), Keys::of(database));
        let puts: Vec<_> = days.iter().map(|day| days::encode(&keys, day)).collect();
        let bytes = days.iter().map(|day| SMALL_BYTES + day.readings.map_or(0, Readings::bytes)).sum();
        self.write((puts.len(), bytes), move |db| tables::write_days(db, &name, &puts)).await
    }

    async fn scan_days(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned, StorageError> {
        let (name, sensor, wanted) = (database.to_owned(), sensor.to_owned(), projection.clone());
        self.read(move |db| Ok(days::scan(db, &name, &sensor, &hours, order, &wanted, extent)?.0)).await
    }

    async fn scan_days_of(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>, StorageError> {
        let wanted = projection.clone();
        self.scan_each(database, sensors, bytes_max, move |db, name, sensor, left| {
            let extent = Extent { bytes: left.saturating_add(1), ..Extent::ALL };
            let (scanned, bytes) = days::scan(db, name, sensor, &hours, Order::Ascending, &wanted, extent)?;
            Ok(Some((scanned.pages, bytes)))
        })
        .await
    }

    async fn next_chunks(
        &self,
        database: &str,
        from: &(Day, String),
        until: Day,
        most: usize,
    ) -> Result<Vec<(Day, String)>, StorageError> {
        let (name, from) = (database.to_owned(), from.clone());
        self.read(move |db| days::next_chunks(db, &name, &from, until, most)).await
    }

    async fn last_day(&self, database: &str) -> Result<Option<Day>, StorageError> {
        let name = database.to_owned();
        self.read(move |db| days::last(db, &name)).await
    }

    async fn read_months(
        &self,
        database: &str,
        sensors: &[&str],
        months: Range<Month>,
        projection: &Projection,
    ) -> Result<Vec<(MonthId, StoredMonth)>, StorageError> {
        let lot = sensors.len().div_ceil(self.cores).clamp(SCAN_LEAST, SCAN_SENSORS);
        let lots = sensors.chunks(lot).map(|lot| {
            let (name, wanted, months) = (database.to_owned(), projection.clone(), months.clone());
            let lot: Vec<Arc<str>> = lot.iter().map(|sensor| Arc::from(*sensor)).collect();
            self.read(move |db| months::read(db, &name, &lot, &months, &wanted))
        });
        Ok(futures_util::future::try_join_all(lots).await?.into_iter().flatten().collect())
    }

    async fn write_months(&self, database: &str, months: &[MonthWrite<'_>]) -> Vec<Written> {
        let (name, keys) = (database.to_owned(), Keys::of(database));
        let puts: Vec<_> = months.iter().map(|month| months::encode(&keys, month)).collect();
        let bytes = puts.iter().map(|put| put.bytes()).sum();
        self.write((puts.len(), bytes), move |db| months::write(db, &name, &puts)).await
    }
}

#[async_trait]
impl SensorStore for EmbeddedStore {
    async fn read_sensors(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorDocument>, StorageError> {
        let (name, sensors) = (database.to_owned(), keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>());
        self.read(move |db| sensors::read(db, &name, &sensors)).await
    }

    async fn list_sensors(&self, database: &str, filter: &SensorFilter) -> Result<Vec<SensorDocument>, StorageError> {
        let (name, filter) = (database.to_owned(), filter.clone());
        self.read(move |db| sensors::list(db, &name, &filter)).await
    }

    async fn write_sensors(&self, database: &str, documents: &[SensorDocument]) -> Vec<Written> {
        let (name, keys) = (database.to_owned(), Keys::of(database));
        let puts: Vec<_> = documents.iter().map(|document| sensors::encode(&keys, document)).collect();
        let size = (puts.len(), puts.len() * SMALL_BYTES);
        self.write(size, move |db| tables::write_each(db, (&name, true), &puts, sensors::write)).await
    }

    async fn remove_sensors(&self, database: &str, sensors: &[(&str, Option<u64>)]) -> Result<(), StorageError> {
        let name = database.to_owned();
        let sensors: Vec<_> = sensors.iter().map(|(key, rev)| ((*key).to_owned(), *rev)).collect();
        self.run_to_its_end(move |db| remove::sensor_documents(db, &name, &sensors)).await
    }
}

#[async_trait]
impl DatabaseStore for EmbeddedStore {
    async fn databases(&self) -> Result<Vec<String>, StorageError> {
        self.read(tables::databases).await
    }

    async fn create_database(&self, database: &str) -> Result<(), StorageError> {
        let name = database.to_owned();
        self.run(SMALL_BYTES, move |db| tables::create_database(db, &name)).await
    }

    async fn drop_database(&self, database: &str) -> Result<(), StorageError> {
        loop {
            let name = database.to_owned();
            if self.run_to_its_end(move |db| remove::part_of_database(db, &name)).await? {
                return Ok(());
            }
        }
    }

    async fn unlist_database(&self, database: &str) -> Result<(), StorageError> {
        let name = database.to_owned();
        self.run(SMALL_BYTES, move |db| tables::unlist_database(db, &name)).await
    }

    async fn read_settings(&self) -> Result<Vec<(String, DatabaseSettings)>, StorageError> {
        self.read(tables::read_settings).await
    }

    async fn write_settings(&self, database: &str, held: u64, settings: Option<&DatabaseSettings>) -> Written {
        let (name, settings) = (database.to_owned(), settings.cloned());
        let written =
            self.write((1, SMALL_BYTES), move |db| tables::write_settings(db, &name, held, settings.as_ref())).await;
        written.into_iter().next().unwrap_or(Written::Conflict)
    }
}

#[async_trait]
impl Coordination for EmbeddedStore {
    async fn read_registry(&self) -> Result<MemberRegistry, StorageError> {
        self.read(tables::read_registry).await
    }

    async fn write_registry(&self, registry: &MemberRegistry) -> Written {
        let registry = registry.clone();
        let written = self.write((1, SMALL_BYTES), move |db| tables::write_registry(db, &registry)).await;
        written.into_iter().next().unwrap_or(Written::Conflict)
    }

    /// The file is locked for this process.
    fn has_other_writers(&self) -> bool {
        false
    }

    /// The clock of this machine is the only one.
    async fn clock_ms(&self) -> Result<Option<u64>, StorageError> {
        Ok(None)
    }

    /// Nobody else deletes from the file.
    async fn revisit(&self, _database: &str) -> Result<(), StorageError> {
        Ok(())
    }

    async fn check(&self) -> Result<(), StorageError> {
        self.read(|_| Ok(())).await
    }

    async fn space(&self) -> Result<StoreSpace, StorageError> {
        let path = self.path.clone();
        let measured = tokio::task::spawn_blocking(move || StoreSpace {
            taken: compact::disk_bytes(&path).ok(),
            free: free_bytes(&path).ok(),
        });
        Ok(measured.await.unwrap_or_default())
    }

    async fn close(&self) {
        let file = self.file.clone();
        // Confirmed writes are on the disk already, so nothing is lost if the runtime is shutting down.
        let _ = spawn_blocking(move || file.close()).await;
    }
}
