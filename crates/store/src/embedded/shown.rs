//! Documents of a sensor as MongoDB would have them, for people.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bson::{Document, RawDocumentBuf};

use super::EmbeddedStore;
use crate::bucket::store::{
    BucketId, DayStore, Extent, Order, PageStore, Projection, SensorStore, ShowStore, ShownDocument,
};
use crate::bucket::{Bucket, DayId, DayWrite, Overflow, Result, SealForm, StorageError};
use crate::document::{day_document, page_document, sensor_document};
use crate::reading::{Day, Hour, Sensor};
use crate::shown::{BUCKETS, DAYS, OVERFLOW, SENSORS, shown};

#[async_trait]
impl ShowStore for EmbeddedStore {
    async fn show(
        &self,
        database: &str,
        sensor: &Sensor,
        hours: Range<Hour>,
        max: usize,
    ) -> Result<Vec<ShownDocument>> {
        let mut found = Vec::new();
        for document in self.read_sensors(database, &[&sensor.key]).await? {
            found.push(render(SENSORS, &sensor_document(&document, None), document.rev)?);
        }
        let places = Projection::without_fields();
        let scanned =
            self.scan(database, &sensor.key, hours.clone(), Order::Ascending, &places, Extent::pages(max)).await?;
        let mut hours_found: Vec<Hour> = scanned.pages.iter().map(|page| page.hour).collect();
        hours_found.dedup();
        let sensor = Arc::new(sensor.clone());
        let mut overflow = Vec::new();
        for hour in hours_found {
            let id = BucketId { sensor: sensor.clone(), hour };
            // Page by page, because an hour of a fast sensor has many.
            let mut first = None;
            let mut closed = Overflow::default();
            for number in 0..=u32::try_from(max - overflow.len()).unwrap_or(u32::MAX) {
                let pages = self.read_pages(database, &id, &[number]).await?;
                let Some(rev) = pages.first().map(|page| page.rev) else { break };
                for page in Bucket::from_stored(pages).pages() {
                    if number == 0 {
                        first = Some((page.clone(), rev));
                        continue;
                    }
                    overflow.push(render(OVERFLOW, &page_document(&id, page), rev)?);
                    closed.pages += u32::from(page.closed);
                    closed.count += if page.closed { page.readings.len() as u64 } else { 0 };
                }
            }
            if let Some((mut page, rev)) = first {
                page.overflow = page.has_overflow.then_some(closed);
                found.push(render(BUCKETS, &page_document(&id, &page), rev)?);
            }
        }
        found.append(&mut overflow);
        let parts = self.list_day_parts(database, &[&sensor.key], Day::range_from_hours(&hours)).await?;
        let ids = parts.into_iter().take(max);
        let ids: Vec<DayId> = ids.map(|(_, day, part)| DayId { sensor: sensor.clone(), day, part }).collect();
        for id in &ids {
            for day in self.read_days(database, std::slice::from_ref(id)).await?.into_iter().flatten() {
                let write = DayWrite::again(id, day.rev, &day.readings, day.expired.as_ref());
                found.push(render(DAYS, &day_document(&write, SealForm::Packed), day.rev)?);
            }
        }
        Ok(found)
    }
}

/// Renders an encoded document. Encoders write the next rev, so the stored one replaces it.
fn render(collection: &'static str, encoded: &[u8], rev: u64) -> Result<ShownDocument> {
    let with_rev = || -> bson::error::Result<RawDocumentBuf> {
        let mut document = Document::from_reader(encoded)?;
        document.insert("rev", i64::try_from(rev).unwrap_or(i64::MAX));
        RawDocumentBuf::try_from(&document)
    };
    let raw = with_rev()
        .map_err(|error| StorageError::Unreadable { id: collection.to_owned(), detail: error.to_string() })?;
    shown(collection, &raw)
}
