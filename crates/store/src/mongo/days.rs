//! Parts of days in `<db>.days`, and monthly totals in `<db>.months`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::Collection;
use parking_lot::Mutex;

use super::reads::{Query, SnapshotReads};
use super::remove;
use super::setup::Collections;
use super::writes::{MongoWrite, insertion, insertion_with_copies};
use super::{MongoStore, READ_BUCKETS_MAX, date};
use crate::bucket::day::hours_in_range;
use crate::bucket::store::{DayStore, Extent, Order, Projection, ScanResult, ScannedPage, WriteOutcome};
use crate::bucket::{DayId, DayPart, DayWrite, MonthId, MonthWrite, Result, StorageError, StoredDay, StoredMonth};
use crate::document;
use crate::faults;
use crate::reading::{Day, Hour, Month, Stamp};

/// Maximum number of days per read in a scan of one sensor.
const SCAN_DAYS_MAX: usize = 32;
/// Hours per day.
const DAY_HOURS: usize = 24;
/// Maximum number of months per command.
const MONTHS_MAX: usize = 1000;
/// Maximum number of retries of a snapshot read, and the wait before each retry.
const SNAPSHOT_RETRIES_MAX: usize = 20;
const SNAPSHOT_RETRY_WAIT: Duration = Duration::from_millis(50);
/// Maximum size of a part in bytes. MongoDB limits documents and commands to 16 MiB.
const PART_BYTES_MAX: usize = 14 << 20;
/// Maximum number of parts that one command removes by their age.
const REMOVED_DAYS_MAX: usize = 500;
/// Maximum number of pages or parts that one command removes.
pub(super) const REMOVED_MAX: usize = 50;

impl MongoStore {
    /// Reads documents of the collection from one snapshot, because sealing writes a part before it removes chunks.
    async fn read_parts(&self, database: &str, query: Query) -> Result<Vec<RawDocumentBuf>> {
        self.read_snapshot(|| {
            let client = self.client.clone();
            let collection = Collections::new(&self.mongo, database).days;
            let query = query.clone();
            async move { client.snapshot().find(&collection, query).await }
        })
        .await
    }

    /// Runs a snapshot read. Retries it while MongoDB has no snapshot, as just after it created a collection or an index.
    async fn read_snapshot<T, F>(&self, read: impl Fn() -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        for _ in 0..SNAPSHOT_RETRIES_MAX {
            match self.read(read()).await {
                Err(StorageError::Busy(_)) => tokio::time::sleep(SNAPSHOT_RETRY_WAIT).await,
                result => return result,
            }
        }
        self.read(read()).await
    }

    /// Removes the monthly totals that include these days of sensors.
    async fn remove_months(
        &self,
        collections: &Collections,
        days: impl Iterator<Item = (&str, Day)> + Send,
    ) -> Result<()> {
        let names: BTreeSet<String> =
            days.map(|(sensor, day)| document::month_id(sensor, Month::from_day(day))).collect();
        let names: Vec<String> = names.into_iter().collect();
        for names in names.chunks(MONTHS_MAX) {
            self.remove(&collections.months, doc! { "_id": { "$in": names } }).await?;
        }
        Ok(())
    }

    /// Removes parts by compare-and-set on their revs. Uses a single command, because every command waits for a sync.
    async fn remove_parts(&self, collections: &Collections, parts: &[PartRemoval]) -> Result<Vec<WriteOutcome>> {
        let filters: Vec<Document> = parts.iter().map(|part| doc! { "_id": &part.id, "rev": part.rev }).collect();
        self.remove(&collections.days, doc! { "$or": filters }).await?;
        // A part that is still stored has another rev.
        let ids: Vec<&String> = parts.iter().map(|part| &part.id).collect();
        let query = Query::new(doc! { "_id": { "$in": ids } }).project(doc! { "_id": 1 });
        let left = self.find(&collections.days, query).await?;
        let left: HashSet<&str> = left.iter().filter_map(|part| part.get_str("_id").ok()).collect();
        let outcome =
            |part: &PartRemoval| if left.contains(&*part.id) { WriteOutcome::Conflict } else { WriteOutcome::Applied };
        Ok(parts.iter().map(outcome).collect())
    }
}

#[async_trait]
impl DayStore for MongoStore {
    async fn list_day_parts(
        &self,
        database: &str,
        sensors: &[&str],
        days: Range<Day>,
    ) -> Result<Vec<(usize, Day, DayPart)>> {
        let days = doc! { "$gte": date(days.start.hours().start), "$lt": date(days.end.hours().start) };
        let mut found = Vec::new();
        for (batch, keys) in sensors.chunks(super::scan::SENSORS_MAX).enumerate() {
            let filter = doc! { "sensor": { "$in": keys }, "start": days.clone() };
            let fields = doc! { "_id": 1, "schemaVersion": 1, "form": 1, "kind": 1, "sensor": 1, "start": 1, "hour": 1, "chunk": 1 };
            let indexes: HashMap<&str, usize> = keys.iter().enumerate().map(|(index, key)| (*key, index)).collect();
            for part in self.read_parts(database, Query::new(filter).project(fields)).await? {
                let Some(index) = part.get_str("sensor").ok().and_then(|sensor| indexes.get(sensor)) else { continue };
                let Some(day) = part_day(&part) else { continue };
                found.push((batch * super::scan::SENSORS_MAX + index, day, document::decode_part(&part)?));
            }
        }
        Ok(found)
    }

    async fn read_days(&self, database: &str, ids: &[DayId]) -> Result<Vec<Option<StoredDay>>> {
        let collection = Collections::new(&self.mongo, database).days;
        let mut found: HashMap<String, StoredDay> = HashMap::with_capacity(ids.len());
        let names: Vec<String> = ids.iter().map(|id| document::day_id(&id.sensor.key, id.day, id.part)).collect();
        for names in names.chunks(READ_BUCKETS_MAX) {
            for day in &self.find(&collection, Query::new(doc! { "_id": { "$in": names } })).await? {
                found.insert(day.get_str("_id").unwrap_or_default().to_owned(), document::decode_day(day)?);
            }
        }
        Ok(names.iter().map(|name| found.remove(name)).collect())
    }

    async fn write_days(&self, database: &str, days: &[DayWrite<'_>]) -> Vec<WriteOutcome> {
        // Only new readings create a database. Claims, removals and changes of stored parts must not recreate a dropped one.
        let is_new = |day: &DayWrite<'_>| day.rev == 0 && day.readings.is_some_and(|readings| !readings.is_empty());
        // A rewrite of a part sets its kind again, so that no form of version 1 stays there.
        let gets_copies =
            |day: &&DayWrite<'_>| day.readings.is_some() && (day.rev == 0 || !self.options.kinds.is_empty());
        let written = days.iter().filter(gets_copies).map(|day| &*day.id.sensor);
        let prepared = async {
            if days.iter().any(is_new) {
                self.ensure_created(database).await?;
            }
            self.new_copies(database, written).await
        };
        let copies = match prepared.await {
            Ok(copies) => copies,
            Err(error) => return vec![WriteOutcome::Failed(error); days.len()],
        };
        let collections = Collections::new(&self.mongo, database);
        let form = self.seal_form(database).await;
        let outcomes = Mutex::new(vec![WriteOutcome::Applied; days.len()]);
        let mut changes = Vec::new();
        let mut removals = Vec::new();
        for (index, day) in days.iter().enumerate() {
            let id = document::day_id(&day.id.sensor.key, day.id.day, day.id.part);
            if day.readings.is_none() {
                removals.push(PartRemoval { index, id, rev: i64::try_from(day.rev).unwrap_or(i64::MAX) });
                continue;
            }
            let change = match day.rev {
                0 => insertion_with_copies(document::day_document(day, form), &copies, &day.id.sensor.key),
                rev => {
                    let kind = copies.get(&*day.id.sensor.key).and_then(|copies| copies.kind.as_deref());
                    MongoWrite::Update { id, shard: None, rev, update: document::day_update(day, form, kind) }
                }
            };
            let bytes = change.bytes();
            if bytes > PART_BYTES_MAX {
                let detail =
                    format!("part of a day exceeds the {PART_BYTES_MAX} bytes that MongoDB takes: {bytes} bytes");
                outcomes.lock()[index] = WriteOutcome::Failed(StorageError::Refused(detail));
                continue;
            }
            changes.push((index, change));
        }
        for batch in removals.chunks(REMOVED_MAX) {
            let removed = self.remove_parts(&collections, batch).await;
            let removed = removed.unwrap_or_else(|error| vec![WriteOutcome::Failed(error); batch.len()]);
            let mut outcomes = outcomes.lock();
            for (removal, outcome) in batch.iter().zip(removed) {
                outcomes[removal.index] = outcome;
            }
        }
        self.write(&collections.days, changes, &outcomes).await;
        faults::point("month_left");
        // Remove the months even if writes failed, because a failed write may have been applied.
        let of_days = days.iter().map(|day| (&*day.id.sensor.key, day.id.day));
        match self.remove_months(&collections, of_days).await {
            Ok(()) => outcomes.into_inner(),
            Err(error) => vec![WriteOutcome::Failed(error); days.len()],
        }
    }

    async fn remove_days(&self, database: &str, sensors: &[&str], hours: Range<Hour>, limit: Stamp) -> Result<()> {
        let collections = Collections::new(&self.mongo, database);
        for batch in sensors.chunks(remove::SENSORS_MAX) {
            let range = doc! {
                "sensor": { "$in": batch }, "start": { "$gte": date(hours.start) }, "end": { "$lte": date(hours.end) },
            };
            let mut filter = range.clone();
            filter.extend(remove::are_parts_below(limit));
            filter.insert("$nor", [remove::is_newer(document::DAY_VERSION)]);
            loop {
                let fields = doc! { "_id": 1, "sensor": 1, "start": 1 };
                let query = Query::new(filter.clone()).project(fields).limit(Extent::pages(REMOVED_DAYS_MAX));
                let found = self.find(&collections.days, query).await?;
                let ids: Vec<&str> = found.iter().filter_map(|part| part.get_str("_id").ok()).collect();
                if ids.is_empty() {
                    break;
                }
                let mut with_ids = filter.clone();
                with_ids.insert("_id", doc! { "$in": ids });
                let of_days = || found.iter().filter_map(|part| Some((part.get_str("sensor").ok()?, part_day(part)?)));
                // A retry after an interruption does not find the removed parts, so their totals must be gone before.
                self.remove_months(&collections, of_days()).await?;
                self.remove(&collections.days, with_ids).await?;
                faults::point("month_left");
                // Totals may have been added in between.
                self.remove_months(&collections, of_days()).await?;
            }
            self.refuse_newer(&collections.days, range, document::DAY_VERSION).await?;
        }
        Ok(())
    }

    async fn scan_days(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<ScanResult> {
        self.read_snapshot(|| {
            let client = self.client.clone();
            let collection = Collections::new(&self.mongo, database).days;
            let projection = projection.clone();
            let sensor = sensor.to_owned();
            let hours = hours.clone();
            async move {
                let mut scan = PartsScan { reads: client.snapshot(), collection, projection };
                scan.run(&sensor, hours, order, extent).await
            }
        })
        .await
    }

    async fn scan_sensor_days(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>> {
        let days = Day::range_from_hours(&hours);
        let range = doc! { "$gte": date(days.start.hours().start), "$lt": date(days.end.hours().start) };
        let mut found: Vec<Vec<ScannedPage>> = vec![Vec::new(); sensors.len()];
        let mut left = bytes_max;
        for (batch, keys) in sensors.chunks(super::scan::SENSORS_MAX).enumerate() {
            let filter = doc! { "sensor": { "$in": keys }, "start": range.clone() };
            let extent = Extent { bytes: left.saturating_add(1), ..Extent::ALL };
            let query = Query::new(filter).project(scan_fields(projection)).limit(extent);
            let indexes: HashMap<&str, usize> = keys.iter().enumerate().map(|(index, key)| (*key, index)).collect();
            for part in &self.read_parts(database, query).await? {
                let Some(index) = part.get_str("sensor").ok().and_then(|sensor| indexes.get(sensor)) else { continue };
                let pages = document::decode_day_scanned(part, &hours, projection)?;
                let bytes = part.as_bytes().len().max(pages.iter().map(|page| page.bytes(0)).sum());
                let Some(remaining) = left.checked_sub(bytes) else { return Ok(None) };
                left = remaining;
                found[batch * super::scan::SENSORS_MAX + index].extend(pages);
            }
        }
        found.iter_mut().for_each(|pages| pages.sort_by_key(|page| page.hour));
        Ok(Some(found))
    }

    async fn next_chunks(
        &self,
        database: &str,
        start: &(Day, String),
        end: Day,
        max: usize,
    ) -> Result<Vec<(Day, String)>> {
        let (day, sensor) = start;
        let mut found: Vec<(Day, String)> = Vec::new();
        let mut last_id = document::day_chunks_id(sensor, *day);
        let days = Collections::new(&self.mongo, database).days;
        while found.len() < max {
            let range = doc! { "$gt": &last_id, "$lt": document::day_chunks_id("", end) };
            let fields = doc! { "_id": 0, "chunkOf": 1, "sensor": 1, "start": 1 };
            let query = Query::new(doc! { "chunkOf": range }).sort(doc! { "chunkOf": 1 }).project(fields);
            let chunks = self.find(&days, query.limit(Extent::pages(max))).await?;
            let Some(last) = chunks.last() else { break };
            last.get_str("chunkOf").unwrap_or_default().clone_into(&mut last_id);
            let entry = |chunk: &RawDocumentBuf| Some((part_day(chunk)?, chunk.get_str("sensor").ok()?.to_owned()));
            found.extend(chunks.iter().filter_map(entry));
            found.dedup();
        }
        found.truncate(max);
        Ok(found)
    }

    async fn last_day(&self, database: &str) -> Result<Option<Day>> {
        let days = Collections::new(&self.mongo, database).days;
        // Ids begin with the day, so the greatest id has the latest day.
        let query = Query::new(Document::new()).sort(doc! { "_id": -1 }).project(doc! { "_id": 1, "start": 1 });
        Ok(self.find(&days, query.limit(Extent::pages(1))).await?.first().and_then(part_day))
    }

    async fn read_months(
        &self,
        database: &str,
        sensors: &[&str],
        months: Range<Month>,
        projection: &Projection,
    ) -> Result<Vec<(MonthId, StoredMonth)>> {
        let mut names = Vec::with_capacity(sensors.len());
        for month in (months.start.0..months.end.0).map(Month) {
            names.extend(sensors.iter().map(|sensor| document::month_id(sensor, month)));
        }
        let collection = Collections::new(&self.mongo, database).months;
        let reads = names.chunks(MONTHS_MAX).map(|names| {
            let query = Query::new(doc! { "_id": { "$in": names } });
            self.find(&collection, query)
        });
        let found = futures_util::future::try_join_all(reads).await?;
        found.iter().flatten().map(|month| document::decode_month(month, projection)).collect()
    }

    async fn write_months(&self, database: &str, months: &[MonthWrite<'_>]) -> Vec<WriteOutcome> {
        // If the database was dropped since its days were added up, this must not recreate it, so create no collections.
        let collections = Collections::new(&self.mongo, database);
        let outcomes = Mutex::new(vec![WriteOutcome::Applied; months.len()]);
        let change = |month: &MonthWrite<'_>| match month.rev {
            0 => insertion(document::month_document(month)),
            rev => MongoWrite::Update {
                id: document::month_id(&month.id.sensor, month.id.month),
                shard: None,
                rev,
                update: document::month_update(month),
            },
        };
        let changes = months.iter().map(change).enumerate().collect();
        self.write(&collections.months, changes, &outcomes).await;
        outcomes.into_inner()
    }
}

/// The removal of a part by compare-and-set.
struct PartRemoval {
    /// Index of the write among the writes of the call.
    index: usize,
    id: String,
    /// The expected rev.
    rev: i64,
}

/// A part in the list that a scan starts with.
struct ListedPart {
    part: DayPart,
    id: String,
}

/// A scan of one sensor's parts from one snapshot.
struct PartsScan<'a> {
    reads: SnapshotReads<'a>,
    collection: Collection<RawDocumentBuf>,
    projection: Projection,
}

/// Parts that a scan reads with one query: all parts of some days, or the parts with a given hour of one day.
struct PartBatch {
    ids: Vec<String>,
    hours: Range<Hour>,
}

impl PartsScan<'_> {
    async fn run(&mut self, sensor: &str, hours: Range<Hour>, order: Order, extent: Extent) -> Result<ScanResult> {
        let mut pages = Vec::new();
        let mut bytes = 0;
        let days_max = (extent.pages / DAY_HOURS).clamp(1, SCAN_DAYS_MAX);
        let mut batches = self.list(sensor, &hours, order, days_max).await?.into_iter().peekable();
        while let Some(batch) = batches.next_if(|_| pages.len() < extent.pages && bytes < extent.bytes) {
            let wanted = batch.hours.start.max(hours.start)..batch.hours.end.min(hours.end);
            let mut found: Vec<ScannedPage> = Vec::new();
            let query = Query::new(doc! { "_id": { "$in": batch.ids } }).project(scan_fields(&self.projection));
            for part in self.reads.find(&self.collection, query).await? {
                let part_pages = document::decode_day_scanned(&part, &wanted, &self.projection)?;
                bytes += part.as_bytes().len().max(part_pages.iter().map(|page| page.bytes(0)).sum());
                found.extend(part_pages);
            }
            found.sort_by_key(|page| page.hour);
            if order == Order::Descending {
                found.reverse();
            }
            pages.extend(found);
        }
        let rest = match (batches.next(), order) {
            (None, _) => hours.end..hours.end,
            (Some(next), Order::Ascending) => next.hours.start.max(hours.start)..hours.end,
            (Some(next), Order::Descending) => hours.start..next.hours.end.min(hours.end),
        };
        Ok(ScanResult { pages, rest })
    }

    /// Lists the sensor's parts that overlap `hours`, in the scan's order, in batches of at most `days_max` days.
    async fn list(
        &mut self,
        sensor: &str,
        hours: &Range<Hour>,
        order: Order,
        days_max: usize,
    ) -> Result<Vec<PartBatch>> {
        let days = Day::range_from_hours(hours);
        let filter = doc! { "sensor": sensor, "start": {
            "$gte": date(days.start.hours().start), "$lt": date(days.end.hours().start),
        } };
        let fields = doc! { "_id": 1, "schemaVersion": 1, "form": 1, "kind": 1, "start": 1, "hour": 1, "chunk": 1 };
        let query = Query::new(filter).sort(doc! { "start": 1 }).project(fields);
        let mut by_day: BTreeMap<i64, Vec<ListedPart>> = BTreeMap::new();
        for part in self.reads.find(&self.collection, query).await? {
            let Some(day) = part_day(&part) else { continue };
            let id = part.get_str("_id").unwrap_or_default().to_owned();
            by_day.entry(day.0).or_default().push(ListedPart { part: document::decode_part(&part)?, id });
        }
        let mut by_day: Vec<(Day, Vec<ListedPart>)> =
            by_day.into_iter().map(|(day, parts)| (Day(day), parts)).collect();
        if order == Order::Descending {
            by_day.reverse();
        }
        let mut batches: Vec<PartBatch> = Vec::new();
        // Days in the last batch. 0 if the batch must not grow.
        let mut batch_days = 0;
        for (day, parts) in by_day {
            if parts.iter().any(|listed| matches!(listed.part, DayPart::Hour(_))) {
                batch_days = 0;
                let mut hourly = hourly_batches(day, &parts, hours);
                if order == Order::Descending {
                    hourly.reverse();
                }
                batches.extend(hourly);
                continue;
            }
            let ids = parts.into_iter().map(|listed| listed.id);
            if let Some(last) = batches.last_mut().filter(|_| (1..days_max).contains(&batch_days)) {
                last.ids.extend(ids);
                last.hours.start = last.hours.start.min(day.hours().start);
                last.hours.end = last.hours.end.max(day.hours().end);
                batch_days += 1;
            } else {
                batches.push(PartBatch { ids: ids.collect(), hours: day.hours() });
                batch_days = 1;
            }
        }
        Ok(batches)
    }
}

/// Returns a batch for each of the hours that some part of a day has, in ascending order.
fn hourly_batches(day: Day, parts: &[ListedPart], hours: &Range<Hour>) -> Vec<PartBatch> {
    let wanted = hours_in_range(day, hours);
    let mut batches = Vec::new();
    for hour in (wanted.start.0..wanted.end.0).map(Hour) {
        let has_hour = |listed: &&ListedPart| listed.part.hours(day).contains(&hour);
        let ids: Vec<String> = parts.iter().filter(has_hour).map(|listed| listed.id.clone()).collect();
        if !ids.is_empty() {
            batches.push(PartBatch { ids, hours: hour..hour.next() });
        }
    }
    batches
}

fn part_day(part: &RawDocumentBuf) -> Option<Day> {
    Some(Day::from_hour(Hour::from_ms(part.get_datetime("start").ok()?.timestamp_millis())))
}

/// Returns the fields that a scan needs: all of them (`None`) for readings, otherwise the summaries.
fn scan_fields(projection: &Projection) -> Option<Document> {
    let fields = || document::day_fields(projection).into_iter().map(|field| (field.into_owned(), Bson::Int32(1)));
    (!projection.readings).then(|| fields().collect())
}
