//! Lookups in sealed days for readings that are to be stored beside them.

use super::task::{BucketFlush, FlushContext};
use crate::bucket::store::{Extent, Order, Projection};
use crate::bucket::{DayId, DayPart, Readings, StorageError, day};
use crate::catalog::Database;
use crate::clock::{expiry_ns, latest_ns};
use crate::reading::{Day, Stamp};

/// The readings of an hour in a sealed day.
#[derive(Debug)]
pub(crate) struct SealedHour {
    /// The day decides about readings up to this stamp.
    pub(crate) floor: Stamp,
    /// `None` if the readings have expired.
    pub(crate) readings: Option<Readings>,
}

impl FlushContext {
    /// Returns true if the sealed day must be read: some readings are below the floor, so the day may have other values
    /// for them, or the readings of the hour may have expired.
    pub(crate) fn may_be_sealed(&self, run: &BucketFlush) -> bool {
        let is_older = || run.load.first <= self.registry_view.view().floor;
        day::may_be_sealed(run.id.hour, latest_ns()) && (is_older() || self.may_have_expired(run))
    }

    /// Returns true if readings of the hour may have expired while their summaries stay. An instance may have accepted
    /// readings of the hour before it knew that.
    pub(crate) fn may_have_expired(&self, run: &BucketFlush) -> bool {
        let readable_from = self.settings.now().readings_start(&run.load.database.name, expiry_ns());
        readable_from.is_some_and(|readable_from| run.id.hour.start_ns() < readable_from)
    }

    /// Reads a bucket's hour in the sealed day. Call this after the pages are read, because parts are written before
    /// their pages are removed.
    pub(crate) async fn read_sealed_hour(
        &self,
        database: &Database,
        run: &BucketFlush,
    ) -> Result<Option<SealedHour>, StorageError> {
        let floor = self.registry_view.view().floor;
        // Expired readings decide, even if there are other readings of the hour.
        if self.may_have_expired(run) && self.has_expired(database, run).await? {
            return Ok(Some(SealedHour { floor, readings: None }));
        }
        let sensor = &*run.id.sensor.key;
        let hours = run.id.hour..run.id.hour.next();
        let scanned = self
            .store
            .scan_days(&database.name, sensor, hours, Order::Ascending, &Projection::ALL, Extent::ALL)
            .await?;
        let united = day::unite(Vec::new(), scanned.pages).into_iter().next();
        if let Some(readings) = united.and_then(|page| page.readings) {
            return Ok(Some(SealedHour { floor, readings: Some(readings) }));
        }
        let has_expired = self.has_expired(database, run).await?;
        Ok(has_expired.then_some(SealedHour { floor, readings: None }))
    }

    /// Returns true if the hour has summaries without readings, to which no reading can be added.
    async fn has_expired(&self, database: &Database, run: &BucketFlush) -> Result<bool, StorageError> {
        let day = Day::from_hour(run.id.hour);
        let number = u8::try_from(run.id.hour.0 - day.hours().start.0).unwrap_or_default();
        let id = |part| DayId { sensor: run.id.sensor.clone(), day, part };
        let parts = self.store.read_days(&database.name, &[id(DayPart::Whole), id(DayPart::Hour(number))]).await?;
        Ok(parts.iter().flatten().any(|part| part.expired.is_some()))
    }
}
