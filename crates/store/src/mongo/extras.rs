//! The features of the MongoDB store only: copies of metadata, group documents and declared indexes.

use std::collections::BTreeSet;

use async_trait::async_trait;
use bson::{Document, RawDocumentBuf, doc};
use futures_util::future::join_all;

use super::MongoStore;
use super::copies::{copied_fields, decode_copies, refresh_statement};
use super::kinds::{DUPLICATE, EXEMPT};
use super::reads::Query;
use super::setup::Collections;
use crate::bucket::store::{
    Extent, GroupUpdateStep, MongoExtras, SettledIndexes, StaleCopyStep, UniqueClaim, UniqueOwner,
};
use crate::bucket::{CopyRefreshProgress, CopyScope, GroupUpdateProgress, KindRules, Result, StorageError};
use crate::document::{CopyPlan, GroupPage};

#[async_trait]
impl MongoExtras for MongoStore {
    fn keeps_copies(&self) -> bool {
        !(self.options.copies.is_empty() && self.options.kinds.is_empty())
    }

    async fn refresh_copies(&self, database: &str, sensors: &[&str], scope: CopyScope) -> Result<CopyRefreshProgress> {
        let plan = self.copy_plan(database);
        let collections = Collections::new(&self.mongo, database);
        let copies = if plan.is_empty() { Vec::new() } else { self.sensor_copies(database, sensors).await? };
        let mut done = CopyRefreshProgress { documents: 0, is_complete: true };
        if copies.is_empty() {
            return Ok(done);
        }
        let statements = |plan: &CopyPlan<'_>, condition: Document| {
            let statement = |copies| refresh_statement(copies, plan, scope, &condition);
            let statements = copies.iter().map(statement).collect::<Result<Vec<Document>, _>>();
            statements.map_err(|detail| StorageError::Unreadable { id: database.to_owned(), detail })
        };
        let updates = statements(&plan, doc! {})?;
        let mut of_days = updates.clone();
        if !plan.kinds.is_empty() {
            // In version 1 of parts of days, `kind` was the form.
            of_days = statements(&plan, doc! { "schemaVersion": { "$gt": 1 } })?;
            if !plan.names.is_empty() {
                let kinds = &KindRules::default();
                let without_kind = CopyPlan { names: plan.names.clone(), kinds };
                of_days.extend(statements(&without_kind, doc! { "schemaVersion": 1 })?);
            }
        }
        let targets =
            [(&collections.buckets, updates.clone()), (&collections.overflow, updates), (&collections.days, of_days)];
        let commands = targets.map(|(collection, updates)| self.run_updates(collection, updates));
        for updated in join_all(commands).await {
            let updated = updated?;
            done.documents += updated.documents;
            done.is_complete &= updated.is_complete;
        }
        if done.is_complete && scope == CopyScope::All {
            let marks = copies.iter().filter(|copies| copies.is_stale(&plan));
            let marks = marks
                .map(|copies| doc! { "q": { "_id": &copies.sensor }, "u": copies.done(&plan, bson::DateTime::now()) });
            self.run_updates(&collections.sensors, marks.collect()).await?;
        }
        Ok(done)
    }

    async fn next_stale_copies(&self, database: &str, last_key: &str, max: usize) -> Result<StaleCopyStep> {
        let plan = self.copy_plan(database);
        if plan.is_empty() {
            return Ok(StaleCopyStep::default());
        }
        let sensors = Collections::new(&self.mongo, database).sensors;
        // Read sensors without metadata too, so that the time of a step does not depend on their number.
        let query = Query::new(doc! { "_id": { "$gt": last_key } }).sort(doc! { "_id": 1 }).project(copied_fields());
        let found = self.find(&sensors, query.limit(Extent::pages(max))).await?;
        let found = found.iter().map(decode_copies).collect::<Result<Vec<_>, _>>()?;
        let last_key = found.last().filter(|_| found.len() >= max).map(|copies| copies.sensor.clone());
        let stale = found.into_iter().filter(|copies| copies.is_stale(&plan));
        Ok(StaleCopyStep { sensors: stale.map(|copies| copies.sensor).collect(), last_key })
    }

    fn keeps_groups(&self) -> bool {
        !self.options.groups.is_empty()
    }

    async fn regroup(&self, max: usize) -> Result<GroupUpdateProgress> {
        let mut done = GroupUpdateProgress::default();
        if let Some((database, keys)) = self.pending.take(max) {
            done.sensors = keys.len() as u64;
            match self.regroup_keys(&database, keys.clone()).await {
                Ok(documents) => done.documents = documents,
                Err(error) => {
                    self.pending.add(&database, keys.iter().map(String::as_str));
                    return Err(error);
                }
            }
        }
        done.left = self.pending.left();
        done.is_incomplete = self.pending.take_incomplete();
        Ok(done)
    }

    async fn regroup_after(&self, database: &str, last_key: &str, max: usize) -> Result<GroupUpdateStep> {
        let rules = self.options.groups.for_database(database);
        if rules.is_empty() {
            return Ok(GroupUpdateStep::default());
        }
        let Collections { sensors, groups, .. } = Collections::new(&self.mongo, database);
        if last_key.is_empty() {
            let names: Vec<&str> = rules.iter().map(|rule| &*rule.name).collect();
            self.remove(&groups, doc! { "group": { "$nin": names } }).await?;
        }
        let next = Query::new(doc! { "_id": { "$gt": last_key } }).sort(doc! { "_id": 1 }).project(doc! { "_id": 1 });
        let next = self.find(&sensors, next.limit(Extent::pages(max))).await?;
        let id = |document: &RawDocumentBuf| document.get_str("_id").unwrap_or_default().to_owned();
        let mut keys: BTreeSet<String> = next.iter().map(id).collect();
        let end_key = keys.last().filter(|_| keys.len() >= max).cloned();
        let mut range = doc! { "$gt": last_key };
        if let Some(end_key) = &end_key {
            range.insert("$lte", end_key);
        }
        let filter = doc! { "members": { "$elemMatch": { "sensor": range } } };
        for page in self.find(&groups, Query::new(filter)).await? {
            let page = GroupPage::from_document(&page)?;
            let is_in_range = |key: &&str| *key > last_key && end_key.as_deref().is_none_or(|end| *key <= end);
            keys.extend(page.keys().filter(is_in_range).map(str::to_owned));
        }
        let sensors = keys.len() as u64;
        let documents = self.regroup_keys(database, keys.into_iter().collect()).await?;
        let progress = GroupUpdateProgress { sensors, documents, left: self.pending.left(), is_incomplete: false };
        Ok(GroupUpdateStep { progress, last_key: end_key })
    }

    async fn settle_indexes(&self, database: &str) -> Result<SettledIndexes> {
        self.settle_validators(database).await?;
        let settled = self.update_declared_indexes(database).await?;
        // Without a unique index, MongoDB would let this remove the marks of its duplicates.
        let marks: &[&str] = if settled.refused.is_empty() { &[EXEMPT, DUPLICATE] } else { &[EXEMPT] };
        Ok(SettledIndexes { exempt: self.settle_marks(database, marks).await?, ..settled })
    }

    async fn claim_unique(&self, database: &str, claim: &UniqueClaim<'_>) -> Result<Option<UniqueOwner>> {
        self.claim(database, claim).await
    }
}
