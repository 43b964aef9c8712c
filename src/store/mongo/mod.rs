//! The MongoDB store: pages of a database in `<db>.buckets` and `<db>.overflow`, sensors in
//! `<db>.sensors`, the databases' names in `databases`.
//!
//! The driver's futures must not be dropped half-way (its README, RUST-937) and it has no socket
//! timeout, so every command runs as a task of its own and is waited for under a deadline.

mod connect;
mod outcome;
mod reads;
mod remove;
mod scan;
mod setup;
mod walk;
mod writes;

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bson::{Document, RawDocumentBuf, doc};
use mongodb::{Client, Collection, Database};
use tokio::sync::Semaphore;

pub use self::connect::MongoOptions;

use self::outcome::{classify, of_insert, of_updates};
use self::reads::{Revs, find};
use self::remove::Removed;
use self::setup::Collections;
use self::writes::{Change, chunks};
use crate::bucket::kept::{Cursor, KeptBucket, KeptSensor, Walked};
use crate::bucket::page::StoredPage;
use crate::bucket::store::{BucketId, PageWrite, ScannedPage, SensorFilter, Written};
use crate::bucket::{SensorDocument, StorageError, Store};
use crate::reading::Hour;
use crate::store::document;

/// How many sensors one read asks for at most.
const READ_SENSORS: usize = 1000;
/// How many buckets: their pages may be large.
const READ_BUCKETS: usize = 64;

/// Pages and sensors in MongoDB.
#[derive(Debug)]
pub struct MongoStore {
    client: Client,
    mongo: Database,
    options: MongoOptions,
    writes: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    /// For looking whether MongoDB is there at all, which must not wait behind anything.
    checks: Arc<Semaphore>,
    /// Databases whose collections this process has seen to.
    created: Mutex<HashSet<String>>,
}

impl MongoStore {
    /// Takes the URI apart and starts looking for the servers; does not wait for them.
    ///
    /// # Errors
    /// [`StorageError::Refused`] for a URI that the driver does not take.
    pub async fn open(uri: &str, options: MongoOptions) -> Result<Self, StorageError> {
        let (client, mongo) = connect::connect(uri, &options).await?;
        let permits = options.commands_in_flight as usize;
        Ok(Self {
            mongo,
            client,
            options,
            writes: Arc::new(Semaphore::new(permits)),
            reads: Arc::new(Semaphore::new(permits)),
            checks: Arc::new(Semaphore::new(1)),
            created: Mutex::default(),
        })
    }

    /// Runs a command as a task that nobody can cancel, among at most as many as `gate` lets
    /// through, and waits for it until the deadline. A task that is given up on keeps its place
    /// until the driver is done with it.
    async fn run<T: Send + 'static>(
        &self,
        gate: &Arc<Semaphore>,
        command: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, StorageError> {
        let timeout = self.options.command_timeout;
        let busy = || StorageError::Unavailable { detail: "earlier commands are still unanswered".to_owned() };
        let permit = tokio::time::timeout(timeout, gate.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| busy())?.map_err(|_| busy())?;
        let task = tokio::spawn(async move {
            let result = command.await;
            drop(permit);
            result
        });
        match tokio::time::timeout(timeout, task).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(failed)) => Err(StorageError::Unknown { detail: failed.to_string() }),
            Err(_) => {
                Err(StorageError::Unknown { detail: format!("no answer within {timeout:?} (store.command_timeout)") })
            }
        }
    }

    async fn read<T: Send + 'static>(
        &self,
        command: impl Future<Output = Result<T, StorageError>> + Send + 'static,
    ) -> Result<T, StorageError> {
        self.run(&self.reads, command).await?
    }

    /// Sees to it that the database's collections exist, once per process.
    async fn created(&self, database: &str) -> Result<Collections, StorageError> {
        let known = self.created.lock().unwrap_or_else(PoisonError::into_inner).contains(database);
        if !known {
            let (mongo, name) = (self.mongo.clone(), database.to_owned());
            let create = async move { setup::create(&mongo, &name).await };
            self.run(&self.writes, create).await?.map_err(|e| classify(&e))?;
            self.created.lock().unwrap_or_else(PoisonError::into_inner).insert(database.to_owned());
        }
        Ok(Collections::of(&self.mongo, database))
    }

    /// Writes changes to one collection, in commands that run beside each other, and puts the
    /// outcomes in their places.
    async fn write(
        &self,
        collection: &Collection<RawDocumentBuf>,
        changes: Vec<(usize, Change)>,
        outcomes: &Mutex<Vec<Written>>,
    ) {
        let (inserts, updates) = changes.into_iter().partition(|(_, change)| matches!(change, Change::Insert(_)));
        let commands = chunks(inserts).into_iter().chain(chunks(updates));
        let commands = commands.map(|chunk| self.write_chunk(collection, chunk, outcomes));
        futures_util::future::join_all(commands).await;
    }

    async fn write_chunk(
        &self,
        collection: &Collection<RawDocumentBuf>,
        chunk: Vec<(usize, Change)>,
        outcomes: &Mutex<Vec<Written>>,
    ) {
        let (places, changes): (Vec<usize>, Vec<Change>) = chunk.into_iter().unzip();
        let (count, collection, mongo) = (places.len(), collection.clone(), self.mongo.clone());
        let command = async move {
            if matches!(changes.first(), Some(Change::Insert(_))) {
                let documents = changes.into_iter().filter_map(|change| match change {
                    Change::Insert(document) => Some(document),
                    Change::Update { .. } | Change::Remove { .. } => None,
                });
                return of_insert(writes::insert(&collection, documents.collect()).await, count);
            }
            let reply = match writes::update_command(collection.name(), &changes, false) {
                Ok(command) => mongo.run_raw_command(command).await,
                Err(error) => Err(error),
            };
            if let Ok(reply) = &reply {
                writes::remove_torsos(&collection, &changes, reply).await;
            }
            of_updates(reply, count)
        };
        let results = self.run(&self.writes, command).await.unwrap_or_else(|e| vec![Written::Failed(e); count]);
        let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, result) in places.into_iter().zip(results) {
            outcomes[place] = result;
        }
    }

    /// Whatever is known of a database's collections counts no more.
    fn forget(&self, database: &str) {
        self.created.lock().unwrap_or_else(PoisonError::into_inner).remove(database);
    }

    /// Removes all documents of a filter. The server ends each command before its deadline here, so that
    /// none outlives the call and removes what is written after it; what it has removed by then is gone.
    async fn remove(&self, collection: &Collection<RawDocumentBuf>, filter: Document) -> Result<(), StorageError> {
        let most = self.options.command_timeout / 2;
        loop {
            let command = remove::command(collection.name(), filter.clone(), most);
            let mongo = self.mongo.clone();
            let ran = self.run(&self.writes, async move { mongo.run_command(command).await }).await;
            let removed = ran.map(remove::outcome).unwrap_or_else(Removed::Failed);
            match removed {
                Removed::All => return Ok(()),
                Removed::InPart => {}
                Removed::Failed(error) => return Err(self.at_rest(error).await),
            }
        }
    }

    /// An error of a command that removes things, once the command is not at work any more, wherever it is.
    async fn at_rest(&self, error: StorageError) -> StorageError {
        if matches!(error, StorageError::Unknown { .. }) {
            tokio::time::sleep(self.options.command_timeout / 2).await;
        }
        error
    }

    async fn transact(&self, changes: Vec<(Collection<RawDocumentBuf>, Change)>) -> Written {
        let (client, mongo) = (self.client.clone(), self.mongo.clone());
        let transaction = async move { writes::transact(&client, &mongo, changes).await };
        match self.run(&self.writes, transaction).await {
            Ok(Ok(written)) => written,
            Ok(Err(error)) => Written::Failed(classify(&error)),
            Err(error) => Written::Failed(error),
        }
    }

    /// All pages of one bucket that has several, in order of their numbers and as they were at one
    /// moment: were one split while they are read, its later half would else be there twice.
    async fn spilled(
        &self,
        collections: &Collections,
        sensor: &str,
        hour: Hour,
        projection: Option<Document>,
    ) -> Result<Vec<RawDocumentBuf>, StorageError> {
        let filter = doc! { "sensor": sensor, "start": date(hour) };
        let (client, collections) = (self.client.clone(), collections.clone());
        self.read(async move { reads::snapshot(&client, &collections, filter, projection).await }).await
    }

    /// Pages of one sensor by hour, rising (1) or falling (-1).
    async fn scan_sorted(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: i32,
        with_readings: bool,
        pages_max: usize,
    ) -> Result<Vec<ScannedPage>, StorageError> {
        let collections = Collections::of(&self.mongo, database);
        let projection = (!with_readings).then(|| doc! { "readings": 0, "applied": 0, "tags": 0 });
        let filter = doc! { "sensor": sensor, "start": { "$gte": date(hours.start), "$lt": date(hours.end) } };
        let (collection, asked) = (collections.buckets.clone(), projection.clone());
        let limit = i64::try_from(pages_max).ok();
        let first_pages =
            self.read(async move { find(&collection, filter, doc! { "start": order }, asked, limit).await }).await?;
        let mut pages = Vec::new();
        for first in first_pages {
            if pages.len() >= pages_max {
                break;
            }
            let page = document::decode_scanned(&first, with_readings)?;
            if first.get_bool("hasOverflow").unwrap_or(false) {
                for page in self.spilled(&collections, sensor, page.hour, projection.clone()).await? {
                    pages.push(document::decode_scanned(&page, with_readings)?);
                }
            } else {
                pages.push(page);
            }
        }
        Ok(pages)
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
        let collection_of = |write: &PageWrite<'_>, index: usize| match write.bucket.pages()[index].number {
            0 => &collections.buckets,
            _ => &collections.overflow,
        };
        let outcomes = Mutex::new(vec![Written::Yes; writes.len()]);
        let (mut buckets, mut overflow) = (Vec::new(), Vec::new());
        for (place, write) in writes.iter().enumerate() {
            let change =
                |index: &usize| Some((collection_of(write, *index).clone(), writes::page_change(write, *index)?));
            let mut changes: Vec<_> = write.group.iter().filter_map(change).collect();
            if changes.len() > 1 || matches!(changes.first(), Some((_, Change::Remove { .. }))) {
                let outcome = self.transact(changes).await;
                outcomes.lock().unwrap_or_else(PoisonError::into_inner)[place] = outcome;
            } else if let Some((collection, change)) = changes.pop() {
                let list = if collection.name() == collections.buckets.name() { &mut buckets } else { &mut overflow };
                list.push((place, change));
            }
        }
        tokio::join!(
            self.write(&collections.buckets, buckets, &outcomes),
            self.write(&collections.overflow, overflow, &outcomes)
        );
        outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read_buckets(&self, database: &str, ids: &[BucketId]) -> Result<Vec<Vec<StoredPage>>, StorageError> {
        let collections = Collections::of(&self.mongo, database);
        let page_ids: Vec<String> = ids.iter().map(|id| document::page_id(&id.sensor.key, id.hour, 0)).collect();
        let mut places: HashMap<String, usize> = HashMap::with_capacity(ids.len());
        let mut buckets: Vec<Vec<StoredPage>> = vec![Vec::new(); ids.len()];
        for (ids, page_ids) in ids.chunks(READ_BUCKETS).zip(page_ids.chunks(READ_BUCKETS)) {
            let offset = places.len();
            places.extend(page_ids.iter().enumerate().map(|(i, id)| (id.clone(), offset + i)));
            let (collection, filter) = (collections.buckets.clone(), doc! { "_id": { "$in": page_ids } });
            let first_pages =
                self.read(async move { find(&collection, filter, Document::new(), None, None).await }).await?;
            let mut spilled = Vec::new();
            for first in &first_pages {
                let page = document::decode_page(first)?;
                let Some(place) = first.get_str("_id").ok().and_then(|id| places.get(id)).copied() else { continue };
                if page.has_overflow {
                    spilled.push((&ids[place - offset], place));
                } else {
                    buckets[place].push(page);
                }
            }
            for (id, place) in spilled {
                for page in self.spilled(&collections, &id.sensor.key, id.hour, None).await? {
                    buckets[place].push(document::decode_page(&page)?);
                }
            }
        }
        Ok(buckets)
    }

    async fn read_revs(&self, database: &str, ids: &[BucketId]) -> Result<Vec<Vec<(u32, u64)>>, StorageError> {
        let collections = Collections::of(&self.mongo, database);
        let mut revs = Revs::default();
        for ids in ids.chunks(READ_SENSORS) {
            let page_ids: Vec<String> = ids.iter().map(|id| document::page_id(&id.sensor.key, id.hour, 0)).collect();
            let (collection, filter) = (collections.buckets.clone(), doc! { "_id": { "$in": page_ids } });
            revs.add(&self.read(async move { reads::headers(&collection, filter).await }).await?)?;
        }
        for spilled in std::mem::take(&mut revs.spilled).chunks(READ_BUCKETS) {
            let (collection, filter) = (collections.overflow.clone(), doc! { "$or": spilled.to_vec() });
            revs.add(&self.read(async move { reads::headers(&collection, filter).await }).await?)?;
        }
        Ok(ids.iter().map(|id| revs.take(id)).collect())
    }

    async fn scan(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        with_readings: bool,
        pages_max: usize,
    ) -> Result<Vec<ScannedPage>, StorageError> {
        self.scan_sorted(database, sensor, hours, 1, with_readings, pages_max).await
    }

    async fn scan_back(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        pages_max: usize,
    ) -> Result<Vec<ScannedPage>, StorageError> {
        self.scan_sorted(database, sensor, hours, -1, true, pages_max).await
    }

    async fn scan_sensors(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        with_readings: bool,
        fields: Option<&[&str]>,
    ) -> Result<Vec<Vec<ScannedPage>>, StorageError> {
        let collections = Collections::of(&self.mongo, database);
        let projection = scan::projection(with_readings, fields);
        let places: HashMap<String, usize> =
            sensors.iter().enumerate().map(|(place, sensor)| ((*sensor).to_owned(), place)).collect();
        let places = Arc::new(places);
        let lots = (0..sensors.len()).step_by(scan::SENSORS).map(|from| {
            let (collection, places) = (collections.buckets.clone(), places.clone());
            let lot = from..from + scan::SENSORS;
            self.read(scan::first_pages(collection, places, lot, hours.clone(), projection.clone(), with_readings))
        });
        let mut pages: Vec<Vec<ScannedPage>> = vec![Vec::new(); sensors.len()];
        for found in futures_util::future::try_join_all(lots).await?.into_iter().flatten() {
            if !found.has_overflow {
                pages[found.place].push(found.page);
                continue;
            }
            for page in self.spilled(&collections, sensors[found.place], found.page.hour, projection.clone()).await? {
                pages[found.place].push(document::decode_scanned(&page, with_readings)?);
            }
        }
        pages.iter_mut().for_each(|pages| pages.sort_by_key(|page| (page.hour, page.number)));
        Ok(pages)
    }

    async fn read_sensors(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorDocument>, StorageError> {
        let collection = Collections::of(&self.mongo, database).sensors;
        let mut sensors = Vec::with_capacity(keys.len());
        for keys in keys.chunks(READ_SENSORS) {
            let (collection, filter) = (collection.clone(), doc! { "_id": { "$in": keys } });
            let found = self.read(async move { find(&collection, filter, Document::new(), None, None).await }).await?;
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
            0 => Change::Insert(document::sensor_document(sensor)),
            rev => {
                let (id, update) = (sensor.sensor.key.to_string(), document::sensor_update(sensor));
                Change::Update { id, shard: None, rev, update }
            }
        };
        let outcomes = Mutex::new(vec![Written::Yes; documents.len()]);
        self.write(&collections.sensors, documents.iter().map(change).enumerate().collect(), &outcomes).await;
        outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    async fn databases(&self) -> Result<Vec<String>, StorageError> {
        let collection = setup::databases(&self.mongo);
        let list = async move { reads::names(&collection).await };
        self.read(list).await
    }

    async fn create_database(&self, database: &str) -> Result<(), StorageError> {
        self.created(database).await.map(drop)
    }

    async fn remove_buckets(&self, database: &str, sensors: &[&str], hours: Range<Hour>) -> Result<(), StorageError> {
        let collections = Collections::of(&self.mongo, database);
        let hours = doc! { "$gte": date(hours.start), "$lt": date(hours.end) };
        for lot in sensors.chunks(remove::SENSORS) {
            let filter = doc! { "sensor": { "$in": lot }, "start": hours.clone() };
            // First the pages by which those in `overflow` are found: nobody adds to them any more.
            for collection in [&collections.buckets, &collections.overflow] {
                self.remove(collection, filter.clone()).await?;
            }
        }
        Ok(())
    }

    async fn remove_sensors(&self, database: &str, keys: &[&str]) -> Result<(), StorageError> {
        let sensors = Collections::of(&self.mongo, database).sensors;
        for lot in keys.chunks(READ_SENSORS) {
            self.remove(&sensors, doc! { "_id": { "$in": lot } }).await?;
        }
        Ok(())
    }

    async fn drop_database(&self, database: &str) -> Result<(), StorageError> {
        let (mongo, name, most) = (self.mongo.clone(), database.to_owned(), self.options.command_timeout / 2);
        self.forget(database);
        let dropped = async move { remove::drop_database(&mongo, &name, most).await };
        let dropped = self.run(&self.writes, dropped).await.and_then(|dropped| dropped.map_err(|e| classify(&e)));
        match dropped {
            Ok(()) => Ok(()),
            Err(error) => Err(self.at_rest(error).await),
        }
    }

    async fn announce_deletion(&self, database: &str) -> Result<u64, StorageError> {
        let (mongo, name) = (self.mongo.clone(), database.to_owned());
        let announced = async move { remove::announce(&mongo, &name, doc! {}).await };
        self.run(&self.writes, announced).await?.map_err(|e| classify(&e))
    }

    async fn incarnations(&self) -> Result<Vec<(String, u64)>, StorageError> {
        let databases = setup::databases(&self.mongo);
        self.read(async move { reads::incarnations(&databases).await }).await
    }

    async fn revisit(&self, database: &str) -> Result<(), StorageError> {
        self.forget(database);
        let buckets = Collections::of(&self.mongo, database).buckets;
        let any = async move { find(&buckets, doc! {}, doc! {}, Some(doc! { "_id": 1 }), Some(1)).await };
        // Somebody wrote to it who did not know yet that it was dropped: it is there again.
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
    ) -> Result<Walked<KeptBucket>, StorageError> {
        let (client, collections) = (self.client.clone(), Collections::of(&self.mongo, database));
        let from = from.cloned();
        self.read(async move { walk::buckets(&client, &collections, from, pages_max).await }).await
    }

    async fn walk_sensors(
        &self,
        database: &str,
        from: Option<&Cursor>,
        max: usize,
    ) -> Result<Walked<KeptSensor>, StorageError> {
        let (collection, from) = (Collections::of(&self.mongo, database).sensors, from.cloned());
        self.read(async move { walk::sensors(&collection, from, max).await }).await
    }

    async fn estimate_pages(&self) -> Result<u64, StorageError> {
        let (mongo, names) = (self.mongo.clone(), self.databases().await?);
        self.read(async move { walk::estimate_pages(&mongo, &names).await }).await
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn check(&self) -> Result<(), StorageError> {
        let mongo = self.mongo.clone();
        let hello = async move { mongo.run_command(doc! { "hello": 1 }).await };
        let hello = self.run(&self.checks, hello).await?.map_err(|e| classify(&e))?;
        // Transactions and snapshots, which the law needs where pages are split, are not for others.
        if hello.contains_key("setName") || hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid") {
            return Ok(());
        }
        let detail = "a standalone mongod: start it with --replSet, a set of one is enough".to_owned();
        Err(StorageError::Refused { detail })
    }

    async fn close(&self) {
        self.client.clone().shutdown().immediate(true).await;
    }
}
