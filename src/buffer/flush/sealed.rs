//! What a sealed day says of readings that are to be stored beside it.

use super::task::{BucketFlush, FlushContext};
use crate::bucket::store::{Extent, Order, Projection};
use crate::bucket::{DayId, DayPart, Readings, StorageError, day};
use crate::catalog::Database;
use crate::clock::{latest_ns, now_ns};
use crate::reading::{Day, Stamp};

impl FlushContext {
    /// Whether the sealed day must be asked. Some of the readings are below the floor: then it may have other values for
    /// them although there is no page. Or what it has of the hour may have expired.
    pub(crate) fn may_be_sealed(&self, run: &BucketFlush) -> bool {
        let is_older = || run.load.first <= self.registry_view.view().floor;
        day::may_be_sealed(run.id.hour, latest_ns()) && (is_older() || self.may_have_expired(run))
    }

    /// Whether readings of the hour expire while their summaries stay. An instance may have taken some before it knew that.
    pub(crate) fn may_have_expired(&self, run: &BucketFlush) -> bool {
        let from = self.settings.now().readings_from(&run.load.database.name, now_ns());
        from.is_some_and(|from| run.id.hour.start_ns() < from)
    }

    /// What the sealed day has of a bucket's hour. Call it after the pages are read: a part is written before its pages are
    /// removed.
    pub(crate) async fn sealed(
        &self,
        database: &Database,
        run: &BucketFlush,
    ) -> Result<Option<(Stamp, Option<Readings>)>, StorageError> {
        let floor = self.registry_view.view().floor;
        // Whatever else there is beside it.
        if self.may_have_expired(run) && self.has_expired(database, run).await? {
            return Ok(Some((floor, None)));
        }
        let (sensor, hours) = (&*run.id.sensor.key, run.id.hour..run.id.hour.next());
        let scanned = self
            .store
            .scan_days(&database.name, sensor, hours, Order::Ascending, &Projection::ALL, Extent::ALL)
            .await?;
        let united = day::unite(Vec::new(), scanned.pages).into_iter().next();
        if let Some(readings) = united.and_then(|page| page.readings) {
            return Ok(Some((floor, Some(readings))));
        }
        Ok(self.has_expired(database, run).await?.then_some((floor, None)))
    }

    /// Whether there are summaries of the hour without readings, which cannot take in another one.
    async fn has_expired(&self, database: &Database, run: &BucketFlush) -> Result<bool, StorageError> {
        let day = Day::of(run.id.hour);
        let number = u8::try_from(run.id.hour.0 - day.hours().start.0).unwrap_or_default();
        let id = |part| DayId { sensor: run.id.sensor.clone(), day, part };
        let parts = self.store.read_days(&database.name, &[id(DayPart::Whole), id(DayPart::Hour(number))]).await?;
        Ok(parts.iter().flatten().any(|part| part.expired.is_some()))
    }
}
