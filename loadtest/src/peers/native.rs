//! A time-series collection of MongoDB, filled by `insert_many` with documents that were built before.

use std::sync::Arc;

use anyhow::{Result, ensure};
use mongodb::Collection;
use mongodb::bson::{DateTime, RawDocumentBuf, doc};
use mongodb::options::{Acknowledgment, TimeseriesGranularity, TimeseriesOptions, WriteConcern};

use super::work::Work;
use crate::sending::{Sender, Sent, send_all};
use crate::servers::mongod::Mongod;
use crate::stats::to_f64;

/// The documents of one command.
type Batch = Vec<RawDocumentBuf>;

/// The readings of the first bodies, in the same batches, grouped by sensor as MongoDB's manual recommends.
pub fn batches(work: &Work) -> Result<Arc<Vec<Batch>>> {
    let numbers: Vec<usize> = (0..work.native_readings).collect();
    let batches = numbers.chunks(work.lines).map(|numbers| {
        let mut readings: Vec<_> = numbers.iter().map(|number| work.fleet.reading(*number)).collect();
        readings.sort_by_key(|reading| reading.sensor);
        readings.iter().map(|reading| {
            let (ts, sensor) = (DateTime::from_millis(reading.time * 1000), format!("s{:06}", reading.sensor));
            let temp = to_f64(reading.temp_hundredths) / 100.0;
            let document = doc! { "ts": ts, "meta": { "sensor": sensor, "site": "a" }, "temp": temp, "humidity": to_f64(reading.humidity) };
            Ok(RawDocumentBuf::try_from(&document)?)
        }).collect()
    });
    Ok(Arc::new(batches.collect::<Result<_>>()?))
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

/// Creates the collection.
pub async fn create(mongod: &Mongod) -> Result<()> {
    let options = TimeseriesOptions::builder()
        .time_field("ts".to_owned())
        .meta_field(Some("meta".to_owned()))
        .granularity(Some(TimeseriesGranularity::Minutes))
        .build();
    Ok(mongod.client().database("native").create_collection("climate").timeseries(options).await?)
}

fn collection(mongod: &Mongod) -> Collection<RawDocumentBuf> {
    mongod.client().database("native").collection("climate")
}

/// Inserts all batches, `at_once` of them concurrently.
pub async fn insert_all(mongod: &Mongod, batches: &Arc<Vec<Batch>>, at_once: usize) -> Result<Sent> {
    let inserter = || Inserter { collection: collection(mongod), batches: batches.clone() };
    send_all((0..at_once).map(|_| inserter()).collect(), batches.len()).await
}

/// Fails unless the collection has every reading.
pub async fn check(mongod: &Mongod, work: &Work) -> Result<()> {
    let count = collection(mongod).count_documents(doc! {}).await?;
    ensure!(usize::try_from(count)? == work.native_readings, "{count} readings instead of {}", work.native_readings);
    Ok(())
}
