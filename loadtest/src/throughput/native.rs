//! A time-series collection of MongoDB, filled by `insert_many` with documents built in advance.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use mongodb::Collection;
use mongodb::bson::{DateTime, Document, RawDocumentBuf, doc};
use mongodb::options::{Acknowledgment, WriteConcern};

use crate::fleet::{Delivery, Reading, float, sensor_name, site_name};
use crate::load::closed::{Load, SendResult, Sender, send_all};
use crate::servers::system::System;

/// The documents of one command.
type Batch = Vec<RawDocumentBuf>;

/// Inserts a load, one command in place of each POST.
pub async fn send(system: &System<'_>, load: Load) -> Result<SendResult> {
    let batches: Vec<Batch> =
        (0..load.posts).map(|post| batch(load.delivery, post, load.lines)).collect::<Result<_>>()?;
    let batches = Arc::new(batches);
    let collection = system.collection()?.clone_with_type();
    let inserter = |_| Inserter { collection: collection.clone(), batches: batches.clone() };
    send_all((0..load.connections).map(inserter).collect(), load.posts, Duration::MAX).await
}

/// Returns the readings of a body, grouped by sensor as MongoDB's manual recommends.
fn batch(delivery: Delivery, post: usize, lines: i64) -> Result<Batch> {
    let first = i64::try_from(post)? * lines;
    let numbers = first..delivery.fleet.readings().min(first + lines);
    let mut readings: Vec<Reading> = numbers.map(|number| delivery.reading(number)).collect();
    readings.sort_by_key(|reading| reading.sensor);
    readings.iter().map(|reading| Ok(RawDocumentBuf::try_from(&document(reading))?)).collect()
}

/// Converts a reading to a document.
pub fn document(reading: &Reading) -> Document {
    let meta = doc! { "sensor": sensor_name(reading.sensor), "site": site_name(reading.sensor) };
    let ts = DateTime::from_millis(reading.time_ms);
    doc! { "ts": ts, "meta": meta, "temp": reading.temp(), "humidity": float(reading.humidity) }
}

struct Inserter {
    collection: Collection<RawDocumentBuf>,
    batches: Arc<Vec<Batch>>,
}

impl Sender for Inserter {
    async fn send(&mut self, number: usize) -> Result<usize> {
        let batch = &self.batches[number];
        let concern = WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build();
        let inserted = self.collection.insert_many(batch).ordered(false).write_concern(concern).await?;
        ensure!(inserted.inserted_ids.len() == batch.len(), "a batch was inserted in part");
        Ok(0)
    }
}
