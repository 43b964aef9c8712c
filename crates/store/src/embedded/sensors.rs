//! Sensor documents in the file.

use std::ops::Bound;

use async_trait::async_trait;
use bson::RawDocument;
use redb::{ReadableDatabase, ReadableTable};

use super::file::FileFailure;
use super::keys::Keys;
use super::tables::{Listing, OUTLIERS, Put, SENSORS, Tables, unseal_document, write_each};
use super::{EmbeddedStore, SMALL_WRITE_BYTES, remove};
use crate::bucket::store::{SensorFilter, SensorStore, WriteOutcome};
use crate::bucket::{Result, SensorDocument};
use crate::document::{decode_sensor, document_rev, sensor_document};

/// A write of a sensor document.
struct SensorPut {
    put: Put,
    has_outlier: bool,
}

/// Encodes a document with its key.
fn encode(keys: &Keys, document: &SensorDocument) -> SensorPut {
    let key = keys.sensor(&document.sensor.key);
    SensorPut {
        put: Put::new(key, document.rev, sensor_document(document, None)),
        has_outlier: document.outlier.is_some(),
    }
}

/// Writes a document. Returns false if the stored rev is not the expected one.
fn write(tables: &mut Tables<'_>, sensor: &SensorPut) -> Result<bool, FileFailure> {
    if !sensor.put.matches(&tables.sensors, rev)? {
        return Ok(false);
    }
    sensor.put.put(&mut tables.sensors)?;
    // Look the mark up first, because redb's `remove` changes the table even if the key is missing.
    let is_marked = tables.outliers.get(&*sensor.put.key)?.is_some();
    match (sensor.has_outlier, is_marked) {
        (true, false) => _ = tables.outliers.insert(&*sensor.put.key, ())?,
        (false, true) => _ = tables.outliers.remove(&*sensor.put.key)?,
        (true, true) | (false, false) => {}
    }
    Ok(true)
}

fn unseal_sensor<'v>(key: &[u8], value: &'v [u8]) -> Result<&'v RawDocument> {
    unseal_document(key, value, || Keys::parse_sensor(key).unwrap_or_default().to_owned())
}

pub(super) fn rev(key: &[u8], value: &[u8]) -> Result<u64> {
    document_rev(unseal_sensor(key, value)?)
}

#[async_trait]
impl SensorStore for EmbeddedStore {
    async fn read_sensors(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorDocument>> {
        let sensors: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        self.read_table(SENSORS, database, move |keys, rows| {
            let mut found = Vec::with_capacity(sensors.len());
            for key in sensors.iter().map(|sensor| keys.sensor(sensor)) {
                if let Some(value) = rows.get(&*key)? {
                    found.push(decode_sensor(unseal_sensor(&key, value.value())?)?);
                }
            }
            Ok(found)
        })
        .await
    }

    async fn list_sensors(&self, database: &str, filter: &SensorFilter) -> Result<Vec<SensorDocument>> {
        let name = database.to_owned();
        let filter = filter.clone();
        self.read(move |db| {
            let keys = Keys::new(&name);
            let all = keys.all();
            let start = match &filter.after {
                Some(after) => Bound::Excluded(keys.sensor(after)),
                None => Bound::Included(all.start),
            };
            let range = (start.as_ref().map(|key| &**key), Bound::Excluded(&*all.end));
            let transaction = db.begin_read()?;
            let sensors = transaction.open_table(SENSORS)?;
            let mut found = Vec::new();
            if filter.outliers {
                for row in transaction.open_table(OUTLIERS)?.range::<&[u8]>(range)?.take(filter.limit) {
                    let (key, _) = row?;
                    if let Some(value) = sensors.get(key.value())? {
                        found.push(decode_sensor(unseal_sensor(key.value(), value.value())?)?);
                    }
                }
            } else {
                for row in sensors.range::<&[u8]>(range)?.take(filter.limit) {
                    let (key, value) = row?;
                    found.push(decode_sensor(unseal_sensor(key.value(), value.value())?)?);
                }
            }
            Ok(found)
        })
        .await
    }

    async fn write_sensors(&self, database: &str, documents: &[SensorDocument]) -> Vec<WriteOutcome> {
        let name = database.to_owned();
        let keys = Keys::new(database);
        let puts: Vec<_> = documents.iter().map(|document| encode(&keys, document)).collect();
        let bytes = puts.len() * SMALL_WRITE_BYTES;
        self.write(puts.len(), bytes, move |db| write_each(db, &name, Listing::Add, &puts, write)).await
    }

    async fn remove_sensors(&self, database: &str, sensors: &[(&str, Option<u64>)]) -> Result<()> {
        let name = database.to_owned();
        let sensors: Vec<_> = sensors.iter().map(|(key, rev)| ((*key).to_owned(), *rev)).collect();
        self.run_to_end(move |db| remove::sensor_documents(db, &name, &sensors)).await
    }
}
