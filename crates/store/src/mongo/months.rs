//! Months in `<db>.months`.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bson::doc;

use super::MongoStore;
use super::reads::Query;
use super::setup::Collections;
use super::writes::{MongoWrite, insertion};
use crate::bucket::store::{Projection, Written};
use crate::bucket::{DayWrite, MonthId, MonthWrite, StorageError, StoredMonth};
use crate::document;
use crate::reading::Month;

/// Months per command.
const MONTHS: usize = 1000;

impl MongoStore {
    pub(super) async fn stored_months(
        &self,
        database: &str,
        sensors: &[&str],
        months: Range<Month>,
        projection: &Projection,
    ) -> Result<Vec<(MonthId, StoredMonth)>, StorageError> {
        let mut names = Vec::with_capacity(sensors.len());
        for month in (months.start.0..months.end.0).map(Month) {
            names.extend(sensors.iter().map(|sensor| document::month_id(sensor, month)));
        }
        let of = Collections::of(&self.mongo, database).months;
        let reads = names.chunks(MONTHS).map(|names| self.find(&of, Query::of(doc! { "_id": { "$in": names } })));
        let read = futures_util::future::try_join_all(reads).await?;
        read.iter().flatten().map(|month| document::decode_month(month, projection)).collect()
    }

    pub(super) async fn put_months(&self, database: &str, months: &[MonthWrite<'_>]) -> Vec<Written> {
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
        outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the months of these days.
    pub(super) async fn remove_months(
        &self,
        collections: &Collections,
        days: &[DayWrite<'_>],
    ) -> Result<(), StorageError> {
        let of = |day: &DayWrite<'_>| document::month_id(&day.id.sensor.key, Month::of(day.id.day));
        let names: Vec<String> = days.iter().map(of).collect::<BTreeSet<String>>().into_iter().collect();
        for names in names.chunks(MONTHS) {
            self.remove(&collections.months, doc! { "_id": { "$in": names } }).await?;
        }
        Ok(())
    }
}
