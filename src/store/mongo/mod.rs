//! The MongoDB store: pages of a database in `<db>.buckets` and `<db>.overflow`, sensors in `<db>.sensors`, the list of
//! databases in `databases`.
//!
//! The driver's futures must not be dropped before they complete (its README, RUST-937), and it has no socket timeout,
//! so every command runs as a task of its own and its caller waits under a deadline.

mod about;
mod commands;
mod connect;
mod copies;
mod days;
mod declared;
mod forms;
mod given_up;
mod groups;
mod indexes;
mod months;
mod outcome;
mod probe;
mod reads;
mod registry;
mod remove;
mod scan;
mod settings;
mod setup;
mod space;
mod tokens;
mod told;
mod walk;
mod writes;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bson::{Document, doc};
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use tokio::sync::Semaphore;

pub use self::connect::MongoOptions;

use self::connect::Connected;
use self::given_up::GivenUp;
use self::groups::NotedSensors;
use self::outcome::classify;
use self::reads::find;
use self::settings::SealForms;
use self::setup::Collections;
use self::writes::MongoWrite;
use crate::bucket::page::StoredPage;
use crate::bucket::raw::{Cursor, OtherForms, RawBucket, RawDay, RawSensor, Walked};
use crate::bucket::registry::MemberRegistry;
use crate::bucket::store::{
    BucketId, DaysScanned, Extent, Order, PageWrite, Projection, Scanned, ScannedPage, SensorFilter, Written,
};
use crate::bucket::{
    CopiesRefreshed, CopyScope, DatabaseSettings, DayId, DayPart, DayWrite, HeldCopies, MonthId, MonthWrite, Regrouped,
    SensorDocument, StorageError, Store, StoreSpace, StoredDay, StoredMonth,
};
use crate::reading::{Day, Hour, Month, Stamp};
use crate::store::{ScanBudget, document};

/// Sensors that are removed together, each by its rev: mongod plans larger alternatives slowly.
const REMOVE_SENSORS: usize = 50;
/// Maximum sensors per read command.
const READ_SENSORS: usize = 1000;
/// Maximum buckets per read command: their pages may be large.
const READ_BUCKETS: usize = 64;

/// Pages and sensors in MongoDB.
#[derive(Debug)]
pub struct MongoStore {
    client: Client,
    mongo: Database,
    /// The address as the driver understood it, to ask its servers one by one.
    address: ClientOptions,
    /// User, database and hosts: for the operator only.
    whom: String,
    options: MongoOptions,
    writes: Arc<Semaphore>,
    given_up: Arc<GivenUp>,
    reads: Arc<Semaphore>,
    /// Permit for health checks, the registry and the server's clock, which must not wait behind other commands.
    checks: Arc<Semaphore>,
    /// Databases whose collections this process has created or found.
    created: Mutex<HashSet<String>>,
    /// Those whose collection of groups' documents it has created or found.
    grouped: Mutex<HashSet<String>>,
    noted: NotedSensors,
    seal_forms: SealForms,
}

impl MongoStore {
    /// Parses the URI and starts looking for the servers, without waiting for them.
    ///
    /// # Errors
    /// [`StorageError::Address`] if the driver rejects the URI.
    pub async fn open(uri: &str, options: MongoOptions) -> Result<Self, StorageError> {
        let Connected { client, mongo, address, whom } = connect::connect(uri, &options).await?;
        let permits = options.commands_in_flight as usize;
        Ok(Self {
            mongo,
            client,
            address,
            whom,
            options,
            writes: Arc::new(Semaphore::new(permits)),
            reads: Arc::new(Semaphore::new(permits)),
            given_up: Arc::default(),
            checks: Arc::new(Semaphore::new(1)),
            created: Mutex::default(),
            grouped: Mutex::default(),
            noted: NotedSensors::default(),
            seal_forms: SealForms::default(),
        })
    }

    /// Ensures that the database's collections exist, once per process.
    async fn created(&self, database: &str) -> Result<Collections, StorageError> {
        let known = self.created.lock().unwrap_or_else(PoisonError::into_inner).contains(database);
        if !known {
            let (mongo, name) = (self.mongo.clone(), database.to_owned());
            let of = Collections::of(&mongo, database);
            let create = async move { setup::create(&mongo, &name).await };
            self.run_write(setup::prefix(&of.buckets), create).await?.map_err(|e| classify(&e))?;
            self.created.lock().unwrap_or_else(PoisonError::into_inner).insert(database.to_owned());
        }
        Ok(Collections::of(&self.mongo, database))
    }

    /// Forgets that the database's collections exist.
    fn forget(&self, database: &str) {
        self.created.lock().unwrap_or_else(PoisonError::into_inner).remove(database);
        self.grouped.lock().unwrap_or_else(PoisonError::into_inner).remove(database);
    }
}

/// MongoDB writes sizes as whatever type of number they fit in.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of a disk")]
fn bytes_of(value: &bson::Bson) -> Option<u64> {
    match value {
        bson::Bson::Int32(bytes) => u64::try_from(*bytes).ok(),
        bson::Bson::Int64(bytes) => u64::try_from(*bytes).ok(),
        bson::Bson::Double(bytes) if *bytes >= 0.0 => Some(*bytes as u64),
        _ => None,
    }
}

fn date(hour: Hour) -> bson::DateTime {
    bson::DateTime::from_millis(hour.start_ms())
}

#[async_trait]
impl Store for MongoStore {
    async fn write_pages(&self, database: &str, writes: &[PageWrite<'_>]) -> Vec<Written> {
        let collections = match self.created(database).await {
            Ok(collections) => collections,
            Err(error) => return vec![Written::Failed(error); writes.len()],
        };
        let new = writes.iter().filter(|write| writes::has_new_page(write)).map(|write| &*write.id.sensor.key);
        let copies = match self.new_copies(database, new).await {
            Ok(copies) => copies,
            Err(error) => return vec![Written::Failed(error); writes.len()],
        };
        let outcomes = Mutex::new(vec![Written::Yes; writes.len()]);
        let (mut buckets, mut overflow, mut together) = (Vec::new(), Vec::new(), Vec::new());
        for (place, write) in writes.iter().enumerate() {
            let in_buckets = |index: &usize| write.bucket.pages()[*index].number == 0;
            match write.group[..] {
                [index] if !writes::is_removal(write, index) => {
                    let list = if in_buckets(&index) { &mut buckets } else { &mut overflow };
                    list.push((place, writes::page_change(write, index, &copies)));
                }
                _ => together.push(place),
            }
        }
        let together = Mutex::new(together);
        let transactions = self.transact_each(&collections, (writes, &copies), &together, &outcomes);
        tokio::join!(
            self.write(&collections.buckets, buckets, &outcomes),
            self.write(&collections.overflow, overflow, &outcomes),
            transactions
        );
        self.wait_for_newer(database, outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)).await
    }

    async fn read_buckets(
        &self,
        database: &str,
        ids: &[BucketId],
        pages_max: usize,
    ) -> Result<Vec<Vec<StoredPage>>, StorageError> {
        let collections = Collections::of(&self.mongo, database);
        let page_ids: Vec<String> = ids.iter().map(|id| document::page_id(&id.sensor.key, id.hour, 0)).collect();
        let mut places: HashMap<String, usize> = HashMap::with_capacity(ids.len());
        let mut buckets: Vec<Vec<StoredPage>> = vec![Vec::new(); ids.len()];
        for (ids, page_ids) in ids.chunks(READ_BUCKETS).zip(page_ids.chunks(READ_BUCKETS)) {
            let offset = places.len();
            places.extend(page_ids.iter().enumerate().map(|(i, id)| (id.clone(), offset + i)));
            let (collection, filter) = (collections.buckets.clone(), doc! { "_id": { "$in": page_ids } });
            let sent = (pages_max == 0).then(scan::marks);
            let first_pages =
                self.read(async move { find(&collection, filter, Document::new(), sent, Extent::ALL).await }).await?;
            let mut spilled = Vec::new();
            for first in &first_pages {
                let Some(place) = first.get_str("_id").ok().and_then(|id| places.get(id)).copied() else { continue };
                let id = &ids[place - offset];
                let page = if pages_max == 0 {
                    document::decode_page_marks(first)?
                } else {
                    document::check_owner(first, &id.sensor.key, id.hour)?;
                    document::decode_page(first)?
                };
                if page.has_overflow {
                    spilled.push((&ids[place - offset], place));
                } else {
                    buckets[place].push(page);
                }
            }
            for (id, place) in spilled {
                buckets[place] = self.spilled_pages(&collections, id, pages_max).await?;
            }
        }
        Ok(buckets)
    }

    async fn read_pages(
        &self,
        database: &str,
        id: &BucketId,
        numbers: &[u32],
    ) -> Result<Vec<StoredPage>, StorageError> {
        let collections = Collections::of(&self.mongo, database);
        let (first, others): (Vec<u32>, Vec<u32>) = numbers.iter().partition(|number| **number == 0);
        let mut pages = Vec::with_capacity(numbers.len());
        for (collection, numbers) in [(collections.buckets, first), (collections.overflow, others)] {
            if numbers.is_empty() {
                continue;
            }
            let ids: Vec<String> =
                numbers.iter().map(|number| document::page_id(&id.sensor.key, id.hour, *number)).collect();
            let filter = doc! { "_id": { "$in": ids } };
            let found =
                self.read(async move { find(&collection, filter, Document::new(), None, Extent::ALL).await }).await?;
            for page in &found {
                document::check_owner(page, &id.sensor.key, id.hour)?;
                pages.push(document::decode_page(page)?);
            }
        }
        Ok(pages)
    }

    async fn scan(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned, StorageError> {
        self.scan_sorted(database, sensor, hours, 1, projection, extent).await
    }

    async fn scan_back(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned, StorageError> {
        self.scan_sorted(database, sensor, hours, -1, projection, extent).await
    }

    async fn scan_sensors(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>, StorageError> {
        self.scan_many(database, sensors, hours, projection, ScanBudget::new(bytes_max)).await
    }

    async fn parts_of(
        &self,
        database: &str,
        sensors: &[&str],
        days: Range<Day>,
    ) -> Result<Vec<(usize, Day, DayPart)>, StorageError> {
        self.stored_parts_of(database, sensors, days).await
    }

    async fn next_chunks(
        &self,
        database: &str,
        from: &(Day, String),
        until: Day,
        most: usize,
    ) -> Result<Vec<(Day, String)>, StorageError> {
        self.chunks_after(database, from, until, most).await
    }

    async fn last_day(&self, database: &str) -> Result<Option<Day>, StorageError> {
        self.last_stored_day(database).await
    }

    async fn read_days(&self, database: &str, ids: &[DayId]) -> Result<Vec<Option<StoredDay>>, StorageError> {
        self.stored_days(database, ids).await
    }

    async fn write_days(&self, database: &str, days: &[DayWrite<'_>]) -> Vec<Written> {
        self.put_days(database, days).await
    }

    async fn read_months(
        &self,
        database: &str,
        sensors: &[&str],
        months: Range<Month>,
        projection: &Projection,
    ) -> Result<Vec<(MonthId, StoredMonth)>, StorageError> {
        self.stored_months(database, sensors, months, projection).await
    }

    async fn write_months(&self, database: &str, months: &[MonthWrite<'_>]) -> Vec<Written> {
        self.put_months(database, months).await
    }

    async fn scan_days(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<DaysScanned, StorageError> {
        self.scanned_days(database, sensor, hours, order, projection, extent).await
    }

    async fn scan_days_of(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>, StorageError> {
        self.scanned_days_of(database, sensors, hours, projection, bytes_max).await
    }

    async fn remove_single_pages(&self, database: &str, pages: &[(BucketId, u64)]) -> Result<(), StorageError> {
        self.remove_sealed(database, pages).await
    }

    async fn next_buckets(
        &self,
        database: &str,
        from: &(Hour, String),
        until: Hour,
        most: usize,
    ) -> Result<Vec<(Hour, String)>, StorageError> {
        self.buckets_after(database, from, until, most).await
    }

    async fn read_sensors(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorDocument>, StorageError> {
        let collection = Collections::of(&self.mongo, database).sensors;
        let mut sensors = Vec::with_capacity(keys.len());
        for keys in keys.chunks(READ_SENSORS) {
            let (collection, filter) = (collection.clone(), doc! { "_id": { "$in": keys } });
            let found =
                self.read(async move { find(&collection, filter, Document::new(), None, Extent::ALL).await }).await?;
            for sensor in found {
                sensors.push(document::decode_sensor(&sensor)?);
            }
        }
        Ok(sensors)
    }

    async fn list_sensors(&self, database: &str, filter: &SensorFilter) -> Result<Vec<SensorDocument>, StorageError> {
        let (collection, filter) = (Collections::of(&self.mongo, database).sensors, filter.clone());
        let found = self.read(async move { reads::list_sensors(&collection, &filter).await }).await?;
        found.iter().map(|sensor| document::decode_sensor(sensor)).collect()
    }

    async fn write_sensors(&self, database: &str, documents: &[SensorDocument]) -> Vec<Written> {
        let collections = match self.created(database).await {
            Ok(collections) => collections,
            Err(error) => return vec![Written::Failed(error); documents.len()],
        };
        let change = |sensor: &SensorDocument| match sensor.rev {
            0 => writes::insertion(document::sensor_document(sensor)),
            rev => {
                let (id, update) = (sensor.sensor.key.to_string(), document::sensor_update(sensor));
                MongoWrite::Update { id, shard: None, rev, update }
            }
        };
        let outcomes = Mutex::new(vec![Written::Yes; documents.len()]);
        self.write(&collections.sensors, documents.iter().map(change).enumerate().collect(), &outcomes).await;
        self.note_grouped(database, documents.iter().map(|document| &*document.sensor.key));
        self.wait_for_newer(database, outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)).await
    }

    fn keeps_copies(&self) -> bool {
        !self.options.copies.is_empty()
    }

    async fn held_copies(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
    ) -> Result<Vec<HeldCopies>, StorageError> {
        self.copies_held(database, sensors, hours).await
    }

    async fn refresh_copies(
        &self,
        database: &str,
        sensors: &[&str],
        scope: CopyScope,
    ) -> Result<CopiesRefreshed, StorageError> {
        self.refreshed_copies(database, sensors, scope).await
    }

    async fn next_stale_copies(
        &self,
        database: &str,
        after: &str,
        most: usize,
    ) -> Result<(Vec<String>, Option<String>), StorageError> {
        self.stale_copies_after(database, after, most).await
    }

    fn keeps_groups(&self) -> bool {
        !self.options.groups.is_empty()
    }

    async fn regroup(&self, most: usize) -> Result<Regrouped, StorageError> {
        self.regrouped(most).await
    }

    async fn regroup_after(
        &self,
        database: &str,
        after: &str,
        most: usize,
    ) -> Result<(Regrouped, Option<String>), StorageError> {
        self.regrouped_after(database, after, most).await
    }

    async fn settle_indexes(&self, database: &str) -> Result<u64, StorageError> {
        self.settled_indexes(database).await
    }

    async fn databases(&self) -> Result<Vec<String>, StorageError> {
        let collection = setup::databases(&self.mongo);
        let list = async move { reads::names(&collection).await };
        self.read(list).await
    }

    async fn create_database(&self, database: &str) -> Result<(), StorageError> {
        self.created(database).await?;
        // Another process may have taken it off the list since this one found its collections.
        let (mongo, name) = (self.mongo.clone(), database.to_owned());
        let of = Collections::of(&mongo, database);
        let list = async move { setup::list(&mongo, &name).await };
        self.run_write(setup::prefix(&of.buckets), list).await?.map_err(|e| classify(&e))
    }

    async fn remove_buckets(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        before: Stamp,
    ) -> Result<(), StorageError> {
        let collections = Collections::of(&self.mongo, database);
        let hours = doc! { "$gte": date(hours.start), "$lt": date(hours.end) };
        for lot in sensors.chunks(remove::SENSORS) {
            let of = doc! { "sensor": { "$in": lot }, "start": hours.clone() };
            let filter = doc! {
                "sensor": { "$in": lot }, "start": hours.clone(), "hasOverflow": false,
                "$nor": [remove::has_later(before), remove::is_newer()],
            };
            self.remove(&collections.buckets, filter).await?;
            self.refuse_newer(&collections.buckets, of).await?;
        }
        Ok(())
    }

    async fn remove_sensors(&self, database: &str, sensors: &[(&str, Option<u64>)]) -> Result<(), StorageError> {
        let documents = Collections::of(&self.mongo, database).sensors;
        for lot in sensors.chunks(REMOVE_SENSORS) {
            let one = |(key, rev): &(&str, Option<u64>)| match rev {
                Some(rev) => doc! { "_id": key, "rev": i64::try_from(*rev).unwrap_or(i64::MAX) },
                None => doc! { "_id": key },
            };
            let keys: Vec<&str> = lot.iter().map(|(key, _)| *key).collect();
            let any: Vec<Document> = lot.iter().map(one).collect();
            let removed = self.remove(&documents, doc! { "$or": any, "$nor": [remove::is_newer()] }).await;
            self.note_grouped(database, keys.iter().copied());
            removed?;
            self.refuse_newer(&documents, doc! { "_id": { "$in": keys } }).await?;
        }
        Ok(())
    }

    async fn drop_database(&self, database: &str) -> Result<(), StorageError> {
        let (mongo, name, most) = (self.mongo.clone(), database.to_owned(), self.options.command_timeout / 2);
        self.forget(database);
        self.refuse_newer_database(database).await?;
        let of = Collections::of(&mongo, database);
        self.quiet(setup::prefix(&of.buckets)).await?;
        let dropped = async move { remove::drop_database(&mongo, &name, most).await };
        let dropped = self
            .run_write(setup::prefix(&of.buckets), dropped)
            .await
            .and_then(|dropped| dropped.map_err(|e| classify(&e)));
        // Somebody may have created them meanwhile.
        self.forget(database);
        match dropped {
            Ok(()) => Ok(()),
            Err(error) => Err(self.at_rest(error).await),
        }
    }

    async fn unlist_database(&self, database: &str) -> Result<(), StorageError> {
        let (mongo, name) = (self.mongo.clone(), database.to_owned());
        let of = Collections::of(&mongo, database);
        let unlisted = async move { remove::unlist(&mongo, &name).await };
        let unlisted = self.run_write(setup::prefix(&of.buckets), unlisted).await?.map_err(|e| classify(&e));
        // The next write lists it again.
        self.forget(database);
        unlisted
    }

    async fn read_registry(&self) -> Result<MemberRegistry, StorageError> {
        let collection = registry::collection(&self.mongo);
        self.read(async move { registry::read(&collection).await }).await
    }

    async fn write_registry(&self, registry: &MemberRegistry) -> Written {
        let (collection, registry) = (registry::collection(&self.mongo), registry.clone());
        let written = self.run(&self.checks, async move { registry::write(&collection, &registry).await }).await;
        written.unwrap_or_else(Written::Failed)
    }

    async fn read_settings(&self) -> Result<Vec<(String, DatabaseSettings)>, StorageError> {
        let collection = settings::collection(&self.mongo);
        let rows = self.read(async move { settings::read(&collection).await }).await?;
        self.seal_forms.note(&rows);
        Ok(rows)
    }

    async fn write_settings(&self, database: &str, held: u64, settings: Option<&DatabaseSettings>) -> Written {
        let (collection, database, settings) =
            (settings::collection(&self.mongo), database.to_owned(), settings.cloned());
        let write = async move { settings::write(&collection, &database, held, settings.as_ref()).await };
        let written = self.run(&self.checks, write).await.unwrap_or_else(Written::Failed);
        self.seal_forms.forget();
        written
    }

    async fn clock_ms(&self) -> Result<Option<u64>, StorageError> {
        let mongo = self.mongo.clone();
        let hello = async move { mongo.run_command(doc! { "hello": 1 }).await };
        let hello = self.run(&self.checks, hello).await?.map_err(|e| classify(&e))?;
        Ok(hello.get_datetime("localTime").ok().and_then(|time| u64::try_from(time.timestamp_millis()).ok()))
    }

    async fn revisit(&self, database: &str) -> Result<(), StorageError> {
        self.forget(database);
        let buckets = Collections::of(&self.mongo, database).buckets;
        let any = async move { find(&buckets, doc! {}, doc! {}, Some(doc! { "_id": 1 }), Extent::pages(1)).await };
        // If there is a page, another instance wrote to the database before it learned of the drop: list it again.
        if !self.read(any).await?.is_empty() {
            self.created(database).await?;
        }
        Ok(())
    }

    async fn walk_buckets(
        &self,
        database: &str,
        from: Option<&Cursor>,
        pages_max: usize,
    ) -> Result<Walked<RawBucket>, StorageError> {
        let (client, collections) = (self.client.clone(), Collections::of(&self.mongo, database));
        let from = from.cloned();
        self.read(async move { walk::buckets(&client, &collections, from, pages_max).await }).await
    }

    async fn walk_sensors(
        &self,
        database: &str,
        from: Option<&Cursor>,
        max: usize,
    ) -> Result<Walked<RawSensor>, StorageError> {
        let (collection, from) = (Collections::of(&self.mongo, database).sensors, from.cloned());
        self.read(async move { walk::sensors(&collection, from, max).await }).await
    }

    async fn walk_days(
        &self,
        database: &str,
        from: Option<&Cursor>,
        max: usize,
    ) -> Result<Walked<RawDay>, StorageError> {
        let (collection, from) = (Collections::of(&self.mongo, database).days, from.cloned());
        self.read(async move { walk::days(&collection, from, max).await }).await
    }

    async fn other_forms(
        &self,
        database: &str,
        from: Option<&Cursor>,
        most: usize,
    ) -> Result<OtherForms, StorageError> {
        let (collections, from) = (Collections::of(&self.mongo, database), from.cloned());
        self.read(async move { forms::other(&collections, from, most).await }).await
    }

    async fn unmigrated(&self) -> Result<Vec<String>, StorageError> {
        let databases = setup::databases(&self.mongo);
        self.read(async move { forms::unmigrated(&databases).await }).await
    }

    async fn note_migrated(&self, database: &str) -> Result<(), StorageError> {
        let (databases, name) = (setup::databases(&self.mongo), database.to_owned());
        let of = Collections::of(&self.mongo, database);
        let noted = async move { forms::note_migrated(&databases, &name).await };
        self.run_write(setup::prefix(&of.buckets), noted).await?
    }

    async fn estimate_pages(&self) -> Result<u64, StorageError> {
        let (mongo, names) = (self.mongo.clone(), self.databases().await?);
        self.read(async move { walk::estimate_pages(&mongo, &names).await }).await
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn check(&self) -> Result<(), StorageError> {
        self.probe().await
    }

    async fn space(&self) -> Result<StoreSpace, StorageError> {
        let mongo = self.mongo.clone();
        let stats = async move { mongo.run_command(doc! { "dbStats": 1 }).await.map_err(|e| classify(&e)) };
        let stats = self.read(stats).await?;
        let of = |name: &str| stats.get(name).and_then(bytes_of);
        // A sharded cluster tells them by shard only.
        let free = of("fsTotalSize").zip(of("fsUsedSize")).map(|(total, used)| total.saturating_sub(used));
        Ok(StoreSpace { taken: of("totalSize"), free })
    }

    async fn close(&self) {
        self.client.clone().shutdown().immediate(true).await;
    }
}
