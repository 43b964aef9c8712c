//! What only MongoDB has: copies of metadata, groups' documents and declared indexes.

use std::collections::BTreeSet;

use async_trait::async_trait;
use bson::{Bson, RawDocumentBuf, doc};
use futures_util::future::join_all;

use super::MongoStore;
use super::copies::{needed, of_document, refreshing};
use super::reads::Query;
use super::setup::Collections;
use crate::bucket::store::{Extent, MongoExtras};
use crate::bucket::{CopiesRefreshed, CopyScope, Regrouped, Result, StorageError};
use crate::document::GroupPage;

#[async_trait]
impl MongoExtras for MongoStore {
    fn keeps_copies(&self) -> bool {
        !self.options.copies.is_empty()
    }

    async fn refresh_copies(&self, database: &str, sensors: &[&str], scope: CopyScope) -> Result<CopiesRefreshed> {
        let names = self.options.copies.names(database);
        let collections = Collections::of(&self.mongo, database);
        let of = if names.is_empty() { Vec::new() } else { self.sensor_copies(database, sensors).await? };
        let mut done = CopiesRefreshed { documents: 0, is_complete: true };
        if of.is_empty() {
            return Ok(done);
        }
        let unreadable = |detail| StorageError::Unreadable { id: database.to_owned(), detail };
        let updates = of.iter().map(|of| refreshing(of, &names, scope)).collect::<Result<Vec<Bson>, _>>();
        let updates = updates.map_err(unreadable)?;
        // Together, so that they wait for the journal once.
        let everywhere = [&collections.buckets, &collections.overflow, &collections.days];
        let mended = everywhere.map(|collection| self.mend(collection, updates.clone()));
        for mended in join_all(mended).await {
            let (changed, is_complete) = mended?;
            done.documents += changed;
            done.is_complete &= is_complete;
        }
        if done.is_complete && scope == CopyScope::All {
            let marks = of.iter().filter(|of| of.is_stale(&names)).map(|of| {
                let update = doc! { "$set": { "copied": of.done(&names) } };
                Bson::Document(doc! { "q": { "_id": &of.sensor }, "u": update })
            });
            self.mend(&collections.sensors, marks.collect()).await?;
        }
        Ok(done)
    }

    async fn next_stale_copies(
        &self,
        database: &str,
        after: &str,
        most: usize,
    ) -> Result<(Vec<String>, Option<String>)> {
        let names = self.options.copies.names(database);
        if names.is_empty() {
            return Ok((Vec::new(), None));
        }
        let sensors = Collections::of(&self.mongo, database).sensors;
        // Those without metadata, too: a step takes a bounded time, however many of them follow each other.
        let query = Query::of(doc! { "_id": { "$gt": after } }).sorted(doc! { "_id": 1 }).sending(needed());
        let found = self.find(&sensors, query.within(Extent::pages(most))).await?;
        let found = found.iter().map(of_document).collect::<Result<Vec<_>, _>>()?;
        let last = found.last().filter(|_| found.len() >= most).map(|of| of.sensor.clone());
        Ok((found.into_iter().filter(|of| of.is_stale(&names)).map(|of| of.sensor).collect(), last))
    }

    fn keeps_groups(&self) -> bool {
        !self.options.groups.is_empty()
    }

    async fn regroup(&self, most: usize) -> Result<Regrouped> {
        let mut done = Regrouped::default();
        if let Some((database, keys)) = self.noted.take(most) {
            done.sensors = keys.len() as u64;
            match self.regroup_keys(&database, keys.clone()).await {
                Ok(documents) => done.documents = documents,
                Err(error) => {
                    self.noted.add(&database, keys.iter().map(String::as_str));
                    return Err(error);
                }
            }
        }
        (done.left, done.is_incomplete) = (self.noted.left(), self.noted.take_incomplete());
        Ok(done)
    }

    async fn regroup_after(&self, database: &str, after: &str, most: usize) -> Result<(Regrouped, Option<String>)> {
        let rules = self.options.groups.of(database);
        if rules.is_empty() {
            return Ok((Regrouped::default(), None));
        }
        let Collections { sensors, groups, .. } = Collections::of(&self.mongo, database);
        if after.is_empty() {
            let names: Vec<&str> = rules.iter().map(|rule| &*rule.name).collect();
            self.remove(&groups, doc! { "group": { "$nin": names } }).await?;
        }
        let next = Query::of(doc! { "_id": { "$gt": after } }).sorted(doc! { "_id": 1 }).sending(doc! { "_id": 1 });
        let next = self.find(&sensors, next.within(Extent::pages(most))).await?;
        let id = |document: &RawDocumentBuf| document.get_str("_id").unwrap_or_default().to_owned();
        let mut keys: BTreeSet<String> = next.iter().map(id).collect();
        let last = keys.last().filter(|_| keys.len() >= most).cloned();
        let mut between = doc! { "$gt": after };
        last.iter().for_each(|last| drop(between.insert("$lte", last)));
        let filter = doc! { "members": { "$elemMatch": { "sensor": between } } };
        for page in self.find(&groups, Query::of(filter)).await? {
            let page = GroupPage::of(&page)?;
            let is_between = |key: &&str| *key > after && last.as_deref().is_none_or(|last| *key <= last);
            keys.extend(page.keys().filter(is_between).map(str::to_owned));
        }
        let looked_at = keys.len() as u64;
        let documents = self.regroup_keys(database, keys.into_iter().collect()).await?;
        Ok((Regrouped { sensors: looked_at, documents, left: self.noted.left(), is_incomplete: false }, last))
    }

    async fn settle_indexes(&self, database: &str) -> Result<u64> {
        self.settled_indexes(database).await
    }
}
