//! Keeps group documents up to date with sensor documents. The store notes the sensors whose documents it writes or
//! removes, and updates their group documents later, some sensors at a time. Each update is one transaction, so a sensor is
//! always in exactly one document of each of its groups. If the process dies, the remaining updates are only delayed.
//!
//! Two concurrent transactions for the same sensor conflict: both write the same group document or, if the sensor moves to
//! another group, the field `groups` of the sensor's document.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bson::{Document, RawDocumentBuf, doc};
use mongodb::error::Error;
use mongodb::options::ReadConcern;
use mongodb::{ClientSession, Collection, Database};
use parking_lot::Mutex;

use super::MongoStore;
use super::outcome::{check_statements, classify, transaction_outcome};
use super::reads::{CausalClient, Query};
use super::setup::{self, Collections, prefix};
use super::writes::{COMMAND_BYTES_MAX, durable};
use crate::bucket::store::{Extent, WriteOutcome};
use crate::bucket::{GroupRules, Result, StorageError};
use crate::document::{
    BsonWriter, GROUPED_FIELDS, GroupChanges, GroupId, GroupPage, GroupedSensor, group_changes, group_prefix,
};
use crate::faults;

/// Maximum number of pending sensors. A walk through the sensor documents covers any beyond that.
const PENDING_MAX: usize = 1_000_000;
/// The text of errors.
const GROUPS_FAILED: &str = "cannot update group documents";
/// Maximum number of `_id` ranges per query.
const RANGES_MAX: usize = 100;

/// Sensors whose documents were written or removed since the last update of their group documents.
#[derive(Debug, Default)]
pub struct PendingSensors(Mutex<PendingKeys>);

#[derive(Debug, Default)]
struct PendingKeys {
    by_database: BTreeMap<String, BTreeSet<String>>,
    count: usize,
    /// The database and key that the next batch starts from, so that no sensor waits forever.
    next: (String, String),
    /// True if sensors were left out because of [`PENDING_MAX`].
    is_incomplete: bool,
}

impl PendingSensors {
    pub(super) fn add<'a>(&self, database: &str, keys: impl IntoIterator<Item = &'a str>) {
        let mut pending = self.0.lock();
        let PendingKeys { by_database, count, is_incomplete, .. } = &mut *pending;
        let pending_keys = by_database.entry(database.to_owned()).or_default();
        for key in keys {
            if *count >= PENDING_MAX {
                *is_incomplete = true;
                break;
            }
            *count += usize::from(pending_keys.insert(key.to_owned()));
        }
    }

    /// Takes up to `max` neighbouring keys of one database, and returns them with the database's name.
    pub(super) fn take(&self, max: usize) -> Option<(String, Vec<String>)> {
        let mut pending = self.0.lock();
        let (database, key) = pending.next.clone();
        let following = |keys: &BTreeSet<String>| keys.range(key.clone()..).take(max).cloned().collect::<Vec<_>>();
        let in_database = pending.by_database.get(&database).map(following).filter(|keys| !keys.is_empty());
        let (database, keys) = in_database.map(|keys| (database.clone(), keys)).or_else(|| {
            let after_database = (Bound::Excluded(&*database), Bound::Unbounded);
            let later = pending.by_database.range::<str, _>(after_database);
            let mut others = later.chain(pending.by_database.iter()).filter(|(_, keys)| !keys.is_empty());
            others.next().map(|(name, keys)| (name.clone(), keys.iter().take(max).cloned().collect()))
        })?;
        if let Some(pending_keys) = pending.by_database.get_mut(&database) {
            for key in &keys {
                pending_keys.remove(key);
            }
            if pending_keys.is_empty() {
                pending.by_database.remove(&database);
            }
        }
        pending.count -= keys.len();
        pending.next = (database.clone(), keys.last().cloned().unwrap_or_default());
        Some((database, keys))
    }

    pub(super) fn left(&self) -> u64 {
        self.0.lock().count as u64
    }

    /// Returns true if sensors were left out since the last call.
    pub(super) fn take_incomplete(&self) -> bool {
        std::mem::take(&mut self.0.lock().is_incomplete)
    }
}

/// Classifies an error of a transaction on group documents.
fn group_error(error: &Error) -> StorageError {
    match transaction_outcome(error) {
        WriteOutcome::Failed(error) => error,
        WriteOutcome::Applied | WriteOutcome::Conflict => StorageError::Busy("group documents".to_owned()),
    }
}

impl MongoStore {
    /// Notes sensors whose documents were, or may have been, written or removed.
    pub(super) fn note_grouped<'a>(&self, database: &str, keys: impl IntoIterator<Item = &'a str>) {
        if !self.options.groups.for_database(database).is_empty() {
            self.pending.add(database, keys);
        }
    }

    /// Updates the group documents of these sensors. Returns the number of documents that it changed.
    pub(super) async fn regroup_keys(&self, database: &str, keys: Vec<String>) -> Result<u64> {
        if keys.is_empty() {
            return Ok(0);
        }
        self.ensure_groups_created(database, &keys).await?;
        let collections = Collections::new(&self.mongo, database);
        let prefix = prefix(&collections.groups).to_owned();
        let client = self.client.clone();
        let transaction = GroupTransaction {
            mongo: self.mongo.clone(),
            collections,
            rules: self.options.groups.clone(),
            database: database.to_owned(),
            keys,
        };
        self.run_write(&prefix, async move { transaction.run(&client).await }).await?
    }

    /// Creates the collection of group documents if it is missing. Does nothing if none of these sensors has a document,
    /// because it must not recreate a dropped database.
    async fn ensure_groups_created(&self, database: &str, keys: &[String]) -> Result<()> {
        if self.grouped.lock().contains(database) {
            return Ok(());
        }
        let sensors = Collections::new(&self.mongo, database).sensors;
        let any = Query::new(doc! { "_id": { "$in": keys } }).project(doc! { "_id": 1 }).limit(Extent::pages(1));
        let mongo = self.mongo.clone();
        let collections = Collections::new(&mongo, database);
        if self.find(&sensors, any).await?.is_empty() {
            return Ok(());
        }
        let prefix = prefix(&collections.groups).to_owned();
        let create = async move { setup::create_groups(&mongo, &collections).await };
        self.run_write(&prefix, create).await?.map_err(|e| classify(&e))?;
        self.grouped.lock().insert(database.to_owned());
        Ok(())
    }
}

/// The transaction that updates the group documents of some sensors.
struct GroupTransaction {
    mongo: Database,
    collections: Collections,
    rules: GroupRules,
    database: String,
    keys: Vec<String>,
}

impl GroupTransaction {
    async fn run(&self, client: &CausalClient) -> Result<u64> {
        let mut session = client.session().await.map_err(|e| classify(&e))?;
        let started = session.start_transaction().read_concern(ReadConcern::snapshot()).write_concern(durable()).await;
        started.map_err(|e| classify(&e))?;
        let changed = self.write_changes(&mut session).await;
        if let Ok(documents) = changed
            && documents > 0
        {
            self.commit(&mut session).await?;
        } else {
            // The server would abort the transaction at the end of the session; this is only sooner.
            let _ = session.abort_transaction().await;
        }
        changed
    }

    async fn commit(&self, session: &mut ClientSession) -> Result<()> {
        faults::point("before_groups");
        session.commit_transaction().await.map_err(|e| group_error(&e))?;
        faults::point("after_groups");
        Ok(())
    }

    /// Writes the changes and returns the number of documents that it changed.
    async fn write_changes(&self, session: &mut ClientSession) -> Result<u64> {
        let rules = self.rules.for_database(&self.database);
        let mut keys: BTreeSet<&str> = self.keys.iter().map(String::as_str).collect();
        let mut sensors = Vec::new();
        let fields: Document = GROUPED_FIELDS.iter().map(|field| ((*field).to_owned(), 1.into())).collect();
        let documents = Query::new(doc! { "_id": { "$in": &self.keys } }).project(fields);
        for document in find_all(session, &self.collections.sensors, documents).await? {
            match GroupedSensor::from_document(&document, &rules) {
                Ok(sensor) => sensors.push(sensor),
                // An unreadable sensor keeps its memberships.
                Err(error) => {
                    tracing::debug!(%error, "keeping the groups of an unreadable sensor");
                    keys.remove(document.get_str("_id").unwrap_or_default());
                }
            }
        }
        let mut pages = BTreeMap::new();
        let groups = &self.collections.groups;
        let with_members = Query::new(doc! { "members.sensor": { "$in": &self.keys } });
        for document in find_all(session, groups, with_members).await? {
            let page = GroupPage::from_document(&document)?;
            pages.insert(page.id(), page);
        }
        let homes = self.homes(session, &sensors, &mut pages).await?;
        let changes = group_changes(pages, &keys, &sensors, &homes);
        let marks: Vec<&GroupedSensor> = sensors.iter().filter(|sensor| !sensor.is_marked).collect();
        let changed = changes.written.len() + changes.removed.len() + marks.len();
        write(session, &self.mongo, groups, &changes).await?;
        // Mark the sensors last, because writes to their documents wait for this transaction from here on.
        if !marks.is_empty() {
            let update = |sensor: &&GroupedSensor| doc! { "q": { "_id": &sensor.key }, "u": sensor.mark() };
            let updates: Vec<Document> = marks.iter().map(update).collect();
            let command = doc! { "update": self.collections.sensors.name(), "updates": updates };
            let reply = self.mongo.run_command(command).session(&mut *session).await;
            check_statements(&reply.map_err(|e| group_error(&e))?, GROUPS_FAILED)?;
        }
        Ok(changed as u64)
    }

    /// Finds, for each sensor and group, the `_id` of the group document that the sensor belongs to. Adds these
    /// documents to `pages`.
    async fn homes<'a>(
        &self,
        session: &mut ClientSession,
        sensors: &'a [GroupedSensor],
        pages: &mut BTreeMap<String, GroupPage>,
    ) -> Result<BTreeMap<(&'a str, &'a GroupId), String>> {
        let mut homes = BTreeMap::new();
        let mut open: BTreeMap<&GroupId, BTreeSet<&str>> = BTreeMap::new();
        for sensor in sensors {
            for group in &sensor.groups {
                // A document that already has the sensor is its home.
                let range = group_prefix(group)..=group_prefix(group) + &sensor.key;
                match pages.range(range).next_back().filter(|(_, page)| page.has(&sensor.key)) {
                    Some((id, _)) => drop(homes.insert((sensor.key.as_str(), group), id.clone())),
                    None => drop(open.entry(group).or_default().insert(&sensor.key)),
                }
            }
        }
        let ids = self.candidate_ids(session, &open).await?;
        let mut missing = BTreeSet::new();
        for (group, keys) in &open {
            let start = group_prefix(group);
            for key in keys {
                let home = ids.range(start.clone()..=start.clone() + key).next_back();
                if home.is_none() {
                    pages.entry(start.clone()).or_insert_with(|| GroupPage::first((*group).clone()));
                }
                let home = home.unwrap_or(&start).clone();
                if !pages.contains_key(&home) {
                    missing.insert(home.clone());
                }
                homes.insert((*key, *group), home);
            }
        }
        if !missing.is_empty() {
            let filter = doc! { "_id": { "$in": missing.into_iter().collect::<Vec<_>>() } };
            for document in find_all(session, &self.collections.groups, Query::new(filter)).await? {
                let page = GroupPage::from_document(&document)?;
                pages.insert(page.id(), page);
            }
        }
        Ok(homes)
    }

    /// Reads the `_id`s of all group documents that these members could belong to.
    async fn candidate_ids(
        &self,
        session: &mut ClientSession,
        open: &BTreeMap<&GroupId, BTreeSet<&str>>,
    ) -> Result<BTreeSet<String>> {
        let groups = &self.collections.groups;
        let id_only = doc! { "_id": 1 };
        let mut ids = BTreeSet::new();
        let id = |document: RawDocumentBuf| document.get_str("_id").unwrap_or_default().to_owned();
        let mut ranges = Vec::new();
        for (group, keys) in open {
            let start = group_prefix(group);
            let (Some(first), Some(last)) = (keys.first(), keys.last()) else { continue };
            let range = doc! { "$gte": &start, "$lte": start.clone() + first };
            let nearest = Query::new(doc! { "_id": range }).sort(doc! { "_id": -1 }).limit(Extent::pages(1));
            ids.extend(find_all(session, groups, nearest.project(id_only.clone())).await?.into_iter().map(id));
            ranges.push(doc! { "_id": { "$gt": start.clone() + first, "$lte": start + last } });
        }
        for ranges in ranges.chunks(RANGES_MAX) {
            let in_ranges = Query::new(doc! { "$or": ranges }).project(id_only.clone());
            ids.extend(find_all(session, groups, in_ranges).await?.into_iter().map(id));
        }
        Ok(ids)
    }
}

async fn find_all(
    session: &mut ClientSession,
    collection: &Collection<RawDocumentBuf>,
    query: Query,
) -> Result<Vec<RawDocumentBuf>> {
    let (find, _) = query.find(collection);
    let mut cursor = find.session(&mut *session).await.map_err(|e| group_error(&e))?;
    let mut documents = Vec::new();
    while cursor.advance(&mut *session).await.map_err(|e| group_error(&e))? {
        documents.push(cursor.current().to_owned());
    }
    Ok(documents)
}

async fn write(
    session: &mut ClientSession,
    mongo: &Database,
    groups: &Collection<RawDocumentBuf>,
    changes: &GroupChanges,
) -> Result<()> {
    if !changes.removed.is_empty() {
        let removed = groups.delete_many(doc! { "_id": { "$in": &changes.removed } }).session(&mut *session).await;
        removed.map_err(|e| group_error(&e))?;
    }
    let mut pages = changes.written.iter().peekable();
    while pages.peek().is_some() {
        let mut w = BsonWriter::document(COMMAND_BYTES_MAX / 4);
        w.text("update", groups.name());
        w.begin_array("updates");
        let mut number = 0;
        while w.byte_count() < COMMAND_BYTES_MAX
            && let Some(page) = pages.next()
        {
            w.begin_element(number);
            w.begin("q");
            w.text("_id", &page.id());
            w.end();
            w.raw("u", &page.encoded());
            w.boolean("upsert", true);
            w.end();
            number += 1;
        }
        w.end();
        let command = RawDocumentBuf::from_bytes(w.finish()).map_err(|e| group_error(&Error::from(e)))?;
        let reply = mongo.run_raw_command(command).session(&mut *session).await;
        check_statements(&reply.map_err(|e| group_error(&e))?, GROUPS_FAILED)?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn batches_have_neighbours_and_every_sensor_is_taken() {
        let pending = PendingSensors::default();
        pending.add("a", ["3", "1", "2", "1"]);
        pending.add("b", ["9"]);
        assert_eq!(
            (pending.left(), pending.take(2)),
            (4, Some(("a".to_owned(), vec!["1".to_owned(), "2".to_owned()])))
        );
        // A sensor that is added again waits for the others.
        pending.add("a", ["1"]);
        assert_eq!(pending.take(2), Some(("a".to_owned(), vec!["3".to_owned()])));
        assert_eq!(pending.take(2), Some(("b".to_owned(), vec!["9".to_owned()])));
        assert_eq!(pending.take(2), Some(("a".to_owned(), vec!["1".to_owned()])));
        assert_eq!((pending.take(2), pending.left(), pending.take_incomplete()), (None, 0, false));
        let keys: Vec<String> = (0..=PENDING_MAX).map(|number| number.to_string()).collect();
        pending.add("a", keys.iter().map(String::as_str));
        assert!(pending.left() == PENDING_MAX as u64 && pending.take_incomplete() && !pending.take_incomplete());
    }
}
