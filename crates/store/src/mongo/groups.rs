//! Groups' documents, which follow the sensors' documents: this store notes whose documents it writes or removes, and sets those of
//! their groups as they say, some sensors at a time, each time in one transaction. So a sensor is in one document of each of its
//! groups at every moment, and what a process that dies leaves undone is only late.
//!
//! Two transactions about one sensor never both commit what one of them read before it changed: they write the same group's
//! document, or, where it moves, the sensor's own (`groups`).

use std::collections::{BTreeMap, BTreeSet};

use bson::{Document, RawDocumentBuf, doc};
use mongodb::error::Error;
use mongodb::options::ReadConcern;
use mongodb::{Client, ClientSession, Collection, Database};
use parking_lot::Mutex;

use super::MongoStore;
use super::outcome::{checked, classify, of_transaction};
use super::reads::Query;
use super::setup::{self, Collections, prefix};
use super::writes::{COMMAND_BYTES, durable};
use crate::bucket::store::{Extent, Written};
use crate::bucket::{GroupRules, Result, StorageError};
use crate::document::{
    BsonWriter, GROUPED_FIELDS, GroupChanges, GroupPage, GroupedSensor, Place, place_prefix, settled,
};
use crate::faults;

/// Most sensors that are noted. Beyond them, a walk through the sensors' documents finds what is left.
const NOTED: usize = 1_000_000;
/// What an error says.
const WHAT: &str = "groups' documents were not set";
/// Most ranges of `_id`s that one query looks into.
const RANGES: usize = 100;

/// Sensors whose documents were written or removed since their groups' documents were set.
#[derive(Debug, Default)]
pub struct NotedSensors(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    by_database: BTreeMap<String, BTreeSet<String>>,
    count: usize,
    /// Where the next ones are taken from, so that everyone's turn comes.
    next: (String, String),
    /// Whether some are missing here.
    is_incomplete: bool,
}

impl NotedSensors {
    pub(super) fn add<'a>(&self, database: &str, keys: impl IntoIterator<Item = &'a str>) {
        let mut noted = self.0.lock();
        let Noted { by_database, count, is_incomplete, .. } = &mut *noted;
        let of = by_database.entry(database.to_owned()).or_default();
        for key in keys {
            if *count >= NOTED {
                *is_incomplete = true;
                break;
            }
            *count += usize::from(of.insert(key.to_owned()));
        }
    }

    /// Takes neighbours of one database.
    pub(super) fn take(&self, most: usize) -> Option<(String, Vec<String>)> {
        let mut noted = self.0.lock();
        let (database, key) = noted.next.clone();
        let after = |of: &BTreeSet<String>| of.range(key.clone()..).take(most).cloned().collect::<Vec<_>>();
        let here = noted.by_database.get(&database).map(after).filter(|keys| !keys.is_empty());
        let (database, keys) = here.map(|keys| (database.clone(), keys)).or_else(|| {
            let later =
                noted.by_database.range::<str, _>((std::ops::Bound::Excluded(&*database), std::ops::Bound::Unbounded));
            let mut others = later.chain(noted.by_database.iter()).filter(|(_, of)| !of.is_empty());
            others.next().map(|(name, of)| (name.clone(), of.iter().take(most).cloned().collect()))
        })?;
        if let Some(of) = noted.by_database.get_mut(&database) {
            for key in &keys {
                of.remove(key);
            }
            if of.is_empty() {
                noted.by_database.remove(&database);
            }
        }
        noted.count -= keys.len();
        noted.next = (database.clone(), keys.last().cloned().unwrap_or_default());
        Some((database, keys))
    }

    pub(super) fn left(&self) -> u64 {
        self.0.lock().count as u64
    }

    /// Whether some may be missing here. Asked for once, it is taken for answered.
    pub(super) fn take_incomplete(&self) -> bool {
        std::mem::take(&mut self.0.lock().is_incomplete)
    }
}

/// Why groups' documents were not set.
fn failed(error: &Error) -> StorageError {
    match of_transaction(error) {
        Written::Failed(error) => error,
        Written::Yes | Written::Conflict => StorageError::Busy("groups' documents".to_owned()),
    }
}

impl MongoStore {
    /// Notes that sensors' documents were written or removed, or may have been.
    pub(super) fn note_grouped<'a>(&self, database: &str, keys: impl IntoIterator<Item = &'a str>) {
        if !self.options.groups.of(database).is_empty() {
            self.noted.add(database, keys);
        }
    }

    /// Sets the groups' documents of these sensors as their documents say; returns how many it changed.
    pub(super) async fn regroup_keys(&self, database: &str, keys: Vec<String>) -> Result<u64> {
        if keys.is_empty() {
            return Ok(0);
        }
        self.make_groups(database, &keys).await?;
        let collections = Collections::of(&self.mongo, database);
        let of = prefix(&collections.groups).to_owned();
        let (client, mongo) = (self.client.clone(), self.mongo.clone());
        let (rules, database) = (self.options.groups.clone(), database.to_owned());
        let transaction = async move {
            let turn = Turn { mongo, collections, rules, database, keys };
            turn.run(&client).await
        };
        self.run_write(&of, transaction).await?
    }

    /// Makes the collection of groups' documents if there is none and one of these sensors has a document: nothing is made for a
    /// database that was dropped.
    async fn make_groups(&self, database: &str, keys: &[String]) -> Result<()> {
        if self.grouped.lock().contains(database) {
            return Ok(());
        }
        let sensors = Collections::of(&self.mongo, database).sensors;
        let any = Query::of(doc! { "_id": { "$in": keys } }).sending(doc! { "_id": 1 }).within(Extent::pages(1));
        let mongo = self.mongo.clone();
        let collections = Collections::of(&mongo, database);
        if self.find(&sensors, any).await?.is_empty() {
            return Ok(());
        }
        let of = prefix(&collections.groups).to_owned();
        let create = async move { setup::create_groups(&mongo, &collections).await };
        self.run_write(&of, create).await?.map_err(|e| classify(&e))?;
        self.grouped.lock().insert(database.to_owned());
        Ok(())
    }
}

/// One transaction.
struct Turn {
    mongo: Database,
    collections: Collections,
    rules: GroupRules,
    database: String,
    keys: Vec<String>,
}

impl Turn {
    async fn run(&self, client: &Client) -> Result<u64> {
        let mut session = client.start_session().await.map_err(|e| classify(&e))?;
        let started = session.start_transaction().read_concern(ReadConcern::snapshot()).write_concern(durable()).await;
        started.map_err(|e| classify(&e))?;
        let settled = self.settle(&mut session).await;
        if let Ok(documents) = settled
            && documents > 0
        {
            self.commit(&mut session).await?;
        } else {
            // The server aborts a transaction when its session ends; this only does so sooner.
            let _ = session.abort_transaction().await;
        }
        settled
    }

    async fn commit(&self, session: &mut ClientSession) -> Result<()> {
        faults::point("before_groups");
        session.commit_transaction().await.map_err(|e| failed(&e))?;
        faults::point("after_groups");
        Ok(())
    }

    /// Returns how many documents it changed.
    async fn settle(&self, session: &mut ClientSession) -> Result<u64> {
        let rules = self.rules.of(&self.database);
        let mut keys: BTreeSet<&str> = self.keys.iter().map(String::as_str).collect();
        let mut sensors = Vec::new();
        let needed: Document = GROUPED_FIELDS.iter().map(|field| ((*field).to_owned(), 1.into())).collect();
        let documents = Query::of(doc! { "_id": { "$in": &self.keys } }).sending(needed);
        for document in all(session, &self.collections.sensors, documents).await? {
            match GroupedSensor::of(&document, &rules) {
                Ok(sensor) => sensors.push(sensor),
                // One that cannot be read stays where it is.
                Err(error) => {
                    tracing::debug!(%error, "a sensor's groups are left as they are");
                    keys.remove(document.get_str("_id").unwrap_or_default());
                }
            }
        }
        let mut pages = BTreeMap::new();
        let groups = &self.collections.groups;
        let with_members = Query::of(doc! { "members.sensor": { "$in": &self.keys } });
        for document in all(session, groups, with_members).await? {
            let page = GroupPage::of(&document)?;
            pages.insert(page.id(), page);
        }
        let homes = self.homes(session, &sensors, &mut pages).await?;
        let changes = settled(pages, &keys, &sensors, &homes);
        let marks: Vec<&GroupedSensor> = sensors.iter().filter(|sensor| !sensor.is_marked).collect();
        let changed = changes.written.len() + changes.removed.len() + marks.len();
        write(session, &self.mongo, groups, &changes).await?;
        // Last, since readings of these sensors that are stored meanwhile wait for this transaction.
        if !marks.is_empty() {
            let update = |sensor: &&GroupedSensor| doc! { "q": { "_id": &sensor.key }, "u": sensor.mark() };
            let updates: Vec<Document> = marks.iter().map(update).collect();
            let command = doc! { "update": self.collections.sensors.name(), "updates": updates };
            let reply = self.mongo.run_command(command).session(&mut *session).await;
            checked(&reply.map_err(|e| failed(&e))?, WHAT)?;
        }
        Ok(changed as u64)
    }

    /// In which document each sensor is, or is to be, of each of its places; adds these to `pages`.
    async fn homes<'a>(
        &self,
        session: &mut ClientSession,
        sensors: &'a [GroupedSensor],
        pages: &mut BTreeMap<String, GroupPage>,
    ) -> Result<BTreeMap<(&'a str, &'a Place), String>> {
        let mut homes = BTreeMap::new();
        let mut open: BTreeMap<&Place, BTreeSet<&str>> = BTreeMap::new();
        for sensor in sensors {
            for place in &sensor.places {
                // Where it is already is where it belongs.
                let range = place_prefix(place)..=place_prefix(place) + &sensor.key;
                match pages.range(range).next_back().filter(|(_, page)| page.has(&sensor.key)) {
                    Some((id, _)) => drop(homes.insert((sensor.key.as_str(), place), id.clone())),
                    None => drop(open.entry(place).or_default().insert(&sensor.key)),
                }
            }
        }
        let ids = self.ids_of(session, &open).await?;
        let mut missing = BTreeSet::new();
        for (place, keys) in &open {
            let start = place_prefix(place);
            for key in keys {
                let home = ids.range(start.clone()..=start.clone() + key).next_back();
                if home.is_none() {
                    pages.entry(start.clone()).or_insert_with(|| GroupPage::first((*place).clone()));
                }
                let home = home.unwrap_or(&start).clone();
                if !pages.contains_key(&home) {
                    missing.insert(home.clone());
                }
                homes.insert((*key, *place), home);
            }
        }
        if !missing.is_empty() {
            let filter = doc! { "_id": { "$in": missing.into_iter().collect::<Vec<_>>() } };
            for document in all(session, &self.collections.groups, Query::of(filter)).await? {
                let page = GroupPage::of(&document)?;
                pages.insert(page.id(), page);
            }
        }
        Ok(homes)
    }

    /// The `_id`s of the documents that these members may belong to.
    async fn ids_of(
        &self,
        session: &mut ClientSession,
        open: &BTreeMap<&Place, BTreeSet<&str>>,
    ) -> Result<BTreeSet<String>> {
        let (mut ids, groups, sent) = (BTreeSet::new(), &self.collections.groups, doc! { "_id": 1 });
        let id = |document: RawDocumentBuf| document.get_str("_id").unwrap_or_default().to_owned();
        let mut ranges = Vec::new();
        for (place, keys) in open {
            let start = place_prefix(place);
            let (Some(first), Some(last)) = (keys.first(), keys.last()) else { continue };
            let range = doc! { "$gte": &start, "$lte": start.clone() + first };
            let nearest = Query::of(doc! { "_id": range }).sorted(doc! { "_id": -1 }).within(Extent::pages(1));
            ids.extend(all(session, groups, nearest.sending(sent.clone())).await?.into_iter().map(id));
            ranges.push(doc! { "_id": { "$gt": start.clone() + first, "$lte": start + last } });
        }
        for ranges in ranges.chunks(RANGES) {
            let within = Query::of(doc! { "$or": ranges }).sending(sent.clone());
            ids.extend(all(session, groups, within).await?.into_iter().map(id));
        }
        Ok(ids)
    }
}

async fn all(
    session: &mut ClientSession,
    collection: &Collection<RawDocumentBuf>,
    query: Query,
) -> Result<Vec<RawDocumentBuf>> {
    let (find, _) = query.find(collection);
    let mut cursor = find.session(&mut *session).await.map_err(|e| failed(&e))?;
    let mut documents = Vec::new();
    while cursor.advance(&mut *session).await.map_err(|e| failed(&e))? {
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
        removed.map_err(|e| failed(&e))?;
    }
    let mut pages = changes.written.iter().peekable();
    while pages.peek().is_some() {
        let (mut w, mut number) = (BsonWriter::document(COMMAND_BYTES / 4), 0);
        w.text("update", groups.name());
        w.begin_array("updates");
        while w.written() < COMMAND_BYTES
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
        let command = RawDocumentBuf::from_bytes(w.finish()).map_err(|e| failed(&Error::from(e)))?;
        let reply = mongo.run_raw_command(command).session(&mut *session).await;
        checked(&reply.map_err(|e| failed(&e))?, WHAT)?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_taken_together_and_everyone_in_turn() {
        let noted = NotedSensors::default();
        noted.add("a", ["3", "1", "2", "1"]);
        noted.add("b", ["9"]);
        assert_eq!((noted.left(), noted.take(2)), (4, Some(("a".to_owned(), vec!["1".to_owned(), "2".to_owned()]))));
        // What comes again waits until the others had their turn.
        noted.add("a", ["1"]);
        assert_eq!(noted.take(2), Some(("a".to_owned(), vec!["3".to_owned()])));
        assert_eq!(noted.take(2), Some(("b".to_owned(), vec!["9".to_owned()])));
        assert_eq!(noted.take(2), Some(("a".to_owned(), vec!["1".to_owned()])));
        assert_eq!((noted.take(2), noted.left(), noted.take_incomplete()), (None, 0, false));
        let keys: Vec<String> = (0..=NOTED).map(|number| number.to_string()).collect();
        noted.add("a", keys.iter().map(String::as_str));
        assert!(noted.left() == NOTED as u64 && noted.take_incomplete() && !noted.take_incomplete());
    }
}
