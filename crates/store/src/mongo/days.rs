//! Parts of days in `<db>.days`, and months in `<db>.months`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::{ClientSession, Collection};
use parking_lot::Mutex;

use super::reads::{Query, find_in_session, snapshot_session};
use super::setup::Collections;
use super::writes::{MongoWrite, insertion, insertion_with};
use super::{MongoStore, READ_BUCKETS, date};
use crate::bucket::day::within;
use crate::bucket::store::{DayStore, Extent, Order, Projection, Scanned, ScannedPage, Written};
use crate::bucket::{DayId, DayPart, DayWrite, MonthId, MonthWrite, Result, StorageError, StoredDay, StoredMonth};
use crate::document;
use crate::faults;
use crate::reading::{Day, Hour, Month};

/// Most days per reply of a scan of one sensor.
const DAYS: usize = 32;
/// Hours of a day.
const HOURS: usize = 24;
/// Months per command.
const MONTHS: usize = 1000;
/// How often a read at one moment is tried again while the server has none, and the wait before each try.
const UNSETTLED_MAX: usize = 20;
const UNSETTLED_WAIT: Duration = Duration::from_millis(50);
/// Most bytes of a part: MongoDB takes documents and commands of 16 MiB.
const PART_BYTES_MAX: usize = 14 << 20;
/// Pages or parts per command that removes them.
pub(super) const REMOVED: usize = 50;

impl MongoStore {
    /// Documents of the collection at one moment: sealing writes a part before it removes chunks.
    async fn parts(&self, database: &str, query: Query) -> Result<Vec<RawDocumentBuf>> {
        self.settled(|| {
            let (client, collection) = (self.client.clone(), Collections::of(&self.mongo, database).days);
            let query = query.clone();
            async move { find_in_session(&mut snapshot_session(&client).await?, &collection, query).await }
        })
        .await
    }

    /// A read at one moment. Just after a collection or an index was made, MongoDB has no moment to read at: it is asked again.
    async fn settled<T, F>(&self, read: impl Fn() -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        for _ in 0..UNSETTLED_MAX {
            match self.read(read()).await {
                Err(StorageError::Busy(_)) => tokio::time::sleep(UNSETTLED_WAIT).await,
                settled => return settled,
            }
        }
        self.read(read()).await
    }

    /// Removes the months of these days.
    async fn remove_months(&self, collections: &Collections, days: &[DayWrite<'_>]) -> Result<()> {
        let of = |day: &DayWrite<'_>| document::month_id(&day.id.sensor.key, Month::of(day.id.day));
        let names: Vec<String> = days.iter().map(of).collect::<BTreeSet<String>>().into_iter().collect();
        for names in names.chunks(MONTHS) {
            self.remove(&collections.months, doc! { "_id": { "$in": names } }).await?;
        }
        Ok(())
    }

    /// Removes parts, each by its place, id and rev, with one command: each command waits for a sync.
    async fn remove_parts(&self, collections: &Collections, parts: &[(usize, String, i64)]) -> Vec<Written> {
        let each: Vec<Document> = parts.iter().map(|(_, id, rev)| doc! { "_id": id, "rev": rev }).collect();
        let ids: Vec<&String> = parts.iter().map(|(_, id, _)| id).collect();
        let left = Query::of(doc! { "_id": { "$in": ids } }).sending(doc! { "_id": 1 });
        let left = match self.remove(&collections.days, doc! { "$or": each }).await {
            Ok(()) => self.find(&collections.days, left).await,
            Err(error) => Err(error),
        };
        match left {
            Ok(left) => {
                let left: HashSet<&str> = left.iter().filter_map(|part| part.get_str("_id").ok()).collect();
                let outcome = |id: &String| if left.contains(&**id) { Written::Conflict } else { Written::Yes };
                parts.iter().map(|(_, id, _)| outcome(id)).collect()
            }
            Err(error) => vec![Written::Failed(error); parts.len()],
        }
    }
}

#[async_trait]
impl DayStore for MongoStore {
    async fn list_day_parts(&self, database: &str, sensors: &[&str], days: Range<Day>) -> Result<Vec<(usize, Day, DayPart)>> {
        let days = doc! { "$gte": date(days.start.hours().start), "$lt": date(days.end.hours().start) };
        let mut found = Vec::new();
        for (lot, keys) in sensors.chunks(super::scan::SENSORS).enumerate() {
            let filter = doc! { "sensor": { "$in": keys }, "start": days.clone() };
            let sent = doc! { "_id": 1, "schemaVersion": 1, "kind": 1, "sensor": 1, "start": 1, "hour": 1, "chunk": 1 };
            let places: HashMap<&str, usize> = keys.iter().enumerate().map(|(place, key)| (*key, place)).collect();
            for part in self.parts(database, Query::of(filter).sending(sent)).await? {
                let Some(place) = part.get_str("sensor").ok().and_then(|sensor| places.get(sensor)) else { continue };
                let Some(day) = day_of(&part) else { continue };
                found.push((lot * super::scan::SENSORS + place, day, document::decode_part(&part)?));
            }
        }
        Ok(found)
    }

    async fn read_days(&self, database: &str, ids: &[DayId]) -> Result<Vec<Option<StoredDay>>> {
        let collection = Collections::of(&self.mongo, database).days;
        let mut found: HashMap<String, StoredDay> = HashMap::with_capacity(ids.len());
        let names: Vec<String> = ids.iter().map(|id| document::day_id(&id.sensor.key, id.day, id.part)).collect();
        for names in names.chunks(READ_BUCKETS) {
            for day in &self.find(&collection, Query::of(doc! { "_id": { "$in": names } })).await? {
                found.insert(day.get_str("_id").unwrap_or_default().to_owned(), document::decode_day(day)?);
            }
        }
        Ok(names.iter().map(|name| found.remove(name)).collect())
    }

    async fn write_days(&self, database: &str, days: &[DayWrite<'_>]) -> Vec<Written> {
        // Claims, removals and changes of parts that are stored make no database anew that is gone since.
        let is_new = |day: &DayWrite<'_>| day.rev == 0 && day.readings.is_some_and(|readings| !readings.is_empty());
        let new = days.iter().filter(|day| day.rev == 0).map(|day| &*day.id.sensor.key);
        let prepared = async {
            if days.iter().any(is_new) {
                self.created(database).await?;
            }
            self.new_copies(database, new).await
        };
        let copies = match prepared.await {
            Ok(copies) => copies,
            Err(error) => return vec![Written::Failed(error); days.len()],
        };
        let collections = Collections::of(&self.mongo, database);
        let form = self.seal_form(database).await;
        let outcomes = Mutex::new(vec![Written::Yes; days.len()]);
        let (mut changes, mut removals) = (Vec::new(), Vec::new());
        for (place, day) in days.iter().enumerate() {
            let id = document::day_id(&day.id.sensor.key, day.id.day, day.id.part);
            let change = match day.rev {
                rev if day.readings.is_none() => {
                    removals.push((place, id, i64::try_from(rev).unwrap_or(i64::MAX)));
                    continue;
                }
                0 => insertion_with(document::day_document(day, form), &copies, &day.id.sensor.key),
                rev => MongoWrite::Update { id, shard: None, rev, update: document::day_update(day, form) },
            };
            if change.bytes() > PART_BYTES_MAX {
                let detail = format!("a part of a day of {} bytes is larger than MongoDB takes", change.bytes());
                let refused = Written::Failed(StorageError::Refused(detail));
                outcomes.lock()[place] = refused;
                continue;
            }
            changes.push((place, change));
        }
        for lot in removals.chunks(REMOVED) {
            let removed = self.remove_parts(&collections, lot).await;
            let mut outcomes = outcomes.lock();
            lot.iter().zip(removed).for_each(|((place, ..), removed)| outcomes[*place] = removed);
        }
        self.write(&collections.days, changes, &outcomes).await;
        faults::point("month_left");
        // Whatever became of the writes: some may have been applied that failed.
        match self.remove_months(&collections, days).await {
            Ok(()) => outcomes.into_inner(),
            Err(error) => vec![Written::Failed(error); days.len()],
        }
    }

    async fn scan_days(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned> {
        self.settled(|| {
            let (client, collection) = (self.client.clone(), Collections::of(&self.mongo, database).days);
            let (sensor, hours, projection) = (sensor.to_owned(), hours.clone(), projection.clone());
            async move {
                let mut scan = PartsScan { session: snapshot_session(&client).await?, collection, projection };
                scan.run(&sensor, hours, order, extent).await
            }
        })
        .await
    }

    async fn scan_days_of(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>> {
        let days = Day::of_hours(&hours);
        let range = doc! { "$gte": date(days.start.hours().start), "$lt": date(days.end.hours().start) };
        let mut found: Vec<Vec<ScannedPage>> = vec![Vec::new(); sensors.len()];
        let mut left = bytes_max;
        for (lot, keys) in sensors.chunks(super::scan::SENSORS).enumerate() {
            let filter = doc! { "sensor": { "$in": keys }, "start": range.clone() };
            let extent = Extent { bytes: left.saturating_add(1), ..Extent::ALL };
            let read = self.parts(database, Query::of(filter).sending(sent(projection)).within(extent)).await?;
            let places: HashMap<&str, usize> = keys.iter().enumerate().map(|(place, key)| (*key, place)).collect();
            for day in &read {
                let Some(place) = day.get_str("sensor").ok().and_then(|sensor| places.get(sensor)) else { continue };
                let pages = document::decode_day_scanned(day, &hours, projection)?;
                let bytes = day.as_bytes().len().max(pages.iter().map(|page| page.bytes(0)).sum());
                let Some(less) = left.checked_sub(bytes) else { return Ok(None) };
                left = less;
                found[lot * super::scan::SENSORS + place].extend(pages);
            }
        }
        found.iter_mut().for_each(|pages| pages.sort_by_key(|page| page.hour));
        Ok(Some(found))
    }

    async fn next_chunks(
        &self,
        database: &str,
        from: &(Day, String),
        until: Day,
        most: usize,
    ) -> Result<Vec<(Day, String)>> {
        let (day, sensor) = from;
        let mut found: Vec<(Day, String)> = Vec::new();
        let mut after = document::chunks_of(sensor, *day);
        let days = Collections::of(&self.mongo, database).days;
        while found.len() < most {
            let range = doc! { "$gt": &after, "$lt": document::chunks_of("", until) };
            let sent = doc! { "_id": 0, "chunkOf": 1, "sensor": 1, "start": 1 };
            let query = Query::of(doc! { "chunkOf": range }).sorted(doc! { "chunkOf": 1 }).sending(sent);
            let read = self.find(&days, query.within(Extent::pages(most))).await?;
            let Some(last) = read.last() else { break };
            last.get_str("chunkOf").unwrap_or_default().clone_into(&mut after);
            let of = |chunk: &RawDocumentBuf| Some((day_of(chunk)?, chunk.get_str("sensor").ok()?.to_owned()));
            found.extend(read.iter().filter_map(of));
            found.dedup();
        }
        found.truncate(most);
        Ok(found)
    }

    /// An id begins with its day.
    async fn last_day(&self, database: &str) -> Result<Option<Day>> {
        let days = Collections::of(&self.mongo, database).days;
        let query = Query::of(Document::new()).sorted(doc! { "_id": -1 }).sending(doc! { "_id": 1, "start": 1 });
        Ok(self.find(&days, query.within(Extent::pages(1))).await?.first().and_then(day_of))
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
        let of = Collections::of(&self.mongo, database).months;
        let reads = names.chunks(MONTHS).map(|names| self.find(&of, Query::of(doc! { "_id": { "$in": names } })));
        let read = futures_util::future::try_join_all(reads).await?;
        read.iter().flatten().map(|month| document::decode_month(month, projection)).collect()
    }

    async fn write_months(&self, database: &str, months: &[MonthWrite<'_>]) -> Vec<Written> {
        // The sealer found parts of days before it added them up. If the database was dropped since, this must not create it again.
        let collections = Collections::of(&self.mongo, database);
        let outcomes = Mutex::new(vec![Written::Yes; months.len()]);
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

/// A scan of one sensor's parts, all at one moment.
struct PartsScan {
    session: ClientSession,
    collection: Collection<RawDocumentBuf>,
    projection: Projection,
}

/// Parts that are read together: all of some days, or of a day in parts by hour, those that have an hour.
struct Together {
    ids: Vec<String>,
    hours: Range<Hour>,
}

impl PartsScan {
    async fn run(&mut self, sensor: &str, hours: Range<Hour>, order: Order, extent: Extent) -> Result<Scanned> {
        let (mut pages, mut bytes) = (Vec::new(), 0);
        let most = (extent.pages / HOURS).clamp(1, DAYS);
        let mut left = self.list(sensor, &hours, order, most).await?.into_iter().peekable();
        while let Some(Together { ids, hours: of }) =
            left.next_if(|_| pages.len() < extent.pages && bytes < extent.bytes)
        {
            let wanted = of.start.max(hours.start)..of.end.min(hours.end);
            let mut found: Vec<ScannedPage> = Vec::new();
            let query = Query::of(doc! { "_id": { "$in": ids } }).sending(sent(&self.projection));
            for part in find_in_session(&mut self.session, &self.collection, query).await? {
                let of_part = document::decode_day_scanned(&part, &wanted, &self.projection)?;
                bytes += part.as_bytes().len().max(of_part.iter().map(|page| page.bytes(0)).sum());
                found.extend(of_part);
            }
            found.sort_by_key(|page| page.hour);
            if order == Order::Descending {
                found.reverse();
            }
            pages.extend(found);
        }
        let rest = match (left.next(), order) {
            (None, _) => hours.end..hours.end,
            (Some(next), Order::Ascending) => next.hours.start.max(hours.start)..hours.end,
            (Some(next), Order::Descending) => hours.start..next.hours.end.min(hours.end),
        };
        Ok(Scanned { pages, rest })
    }

    /// The sensor's parts that have some of the hours, in the scan's order, at most `most` days together.
    async fn list(&mut self, sensor: &str, hours: &Range<Hour>, order: Order, most: usize) -> Result<Vec<Together>> {
        let days = Day::of_hours(hours);
        let filter = doc! { "sensor": sensor, "start": {
            "$gte": date(days.start.hours().start), "$lt": date(days.end.hours().start),
        } };
        let sent = doc! { "_id": 1, "schemaVersion": 1, "kind": 1, "start": 1, "hour": 1, "chunk": 1 };
        let all = Query::of(filter).sorted(doc! { "start": 1 }).sending(sent);
        let mut by_day: BTreeMap<i64, Vec<(DayPart, String)>> = BTreeMap::new();
        for part in find_in_session(&mut self.session, &self.collection, all).await? {
            let Some(day) = day_of(&part) else { continue };
            let id = part.get_str("_id").unwrap_or_default().to_owned();
            by_day.entry(day.0).or_default().push((document::decode_part(&part)?, id));
        }
        let mut by_day: Vec<(Day, Vec<(DayPart, String)>)> =
            by_day.into_iter().map(|(day, parts)| (Day(day), parts)).collect();
        if order == Order::Descending {
            by_day.reverse();
        }
        let (mut all, mut days): (Vec<Together>, usize) = (Vec::new(), 0);
        for (day, parts) in by_day {
            if !parts.iter().any(|(part, _)| matches!(part, DayPart::Hour(_))) {
                let ids = parts.into_iter().map(|(_, id)| id);
                match all.last_mut().filter(|_| (1..most).contains(&days)) {
                    Some(last) => {
                        last.ids.extend(ids);
                        last.hours.start = last.hours.start.min(day.hours().start);
                        last.hours.end = last.hours.end.max(day.hours().end);
                        days += 1;
                    }
                    None => {
                        all.push(Together { ids: ids.collect(), hours: day.hours() });
                        days = 1;
                    }
                }
                continue;
            }
            days = 0;
            let of = within(day, hours);
            let mut of_hours: Vec<Together> = Vec::new();
            for hour in (of.start.0..of.end.0).map(Hour) {
                let has = |(part, _): &&(DayPart, String)| part.hours(day).contains(&hour);
                let ids: Vec<String> = parts.iter().filter(has).map(|(_, id)| id.clone()).collect();
                if !ids.is_empty() {
                    of_hours.push(Together { ids, hours: hour..hour.next() });
                }
            }
            if order == Order::Descending {
                of_hours.reverse();
            }
            all.extend(of_hours);
        }
        Ok(all)
    }
}

fn day_of(part: &RawDocumentBuf) -> Option<Day> {
    Some(Day::of(Hour::of_ms(part.get_datetime("start").ok()?.timestamp_millis())))
}

/// The projection of a scan: with readings the whole part, else its hours.
fn sent(projection: &Projection) -> Option<Document> {
    let fields = || document::day_fields(projection).into_iter().map(|field| (field.into_owned(), Bson::Int32(1)));
    (!projection.readings).then(|| fields().collect())
}
