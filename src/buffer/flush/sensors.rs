//! Writes of sensor documents that must precede pages: documents of new sensors by insert, and documents with new
//! fields by compare-and-set.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::documents::Documents;
use crate::bucket::store::WriteOutcome;
use crate::bucket::{SensorDocument, StorageError};
use crate::catalog::KnownSensor;
use crate::catalog::reads::read_sensors_each;

/// The number of attempts to write a document against other instances.
pub const ATTEMPTS_MAX: usize = 30;

/// Adds the known firm fields to a document. Returns true if any was new.
pub fn add_fields(document: &mut SensorDocument, known: &KnownSensor) -> bool {
    let fields = known.fields();
    let before = document.fields.len();
    for (name, family) in fields.firm() {
        if !document.fields.iter().any(|(stored, _)| stored == name) {
            document.fields.push((name.clone(), *family));
        }
    }
    document.fields.len() > before
}

impl Documents<'_> {
    /// Stores the documents of sensors that are new or have new fields, before any of their pages. Returns the errors
    /// of failed documents by sensor id.
    pub async fn store_before_pages(self, sensors: Vec<Arc<KnownSensor>>) -> HashMap<u32, StorageError> {
        // Most sensors are new. Insert their documents without a read, and read only those that exist already.
        let (unseen, seen): (Vec<_>, Vec<_>) = sensors.into_iter().partition(|known| !known.fields().is_stored);
        let mut failed = HashMap::new();
        let inserts = unseen.iter().map(|known| (known.clone(), SensorDocument::new(known.sensor.clone()))).collect();
        let mut open = self.store_fields(inserts, &mut failed).await;
        open.extend(seen);
        for _ in 0..ATTEMPTS_MAX {
            if open.is_empty() {
                return failed;
            }
            let keys: Vec<&str> = open.iter().map(|known| &*known.sensor.key).collect();
            let mut stored = match read_sensors_each(&self.context.store, self.database, &keys).await {
                Ok(stored) => stored,
                Err(error) => {
                    failed.extend(open.iter().map(|known| (known.id, error.clone())));
                    return failed;
                }
            };
            let mut documents = Vec::with_capacity(open.len());
            for known in open {
                match stored.remove(&known.sensor.key) {
                    None => documents.push((known.clone(), SensorDocument::new(known.sensor.clone()))),
                    Some(Ok(document)) => documents.push((known, document)),
                    Some(Err(error)) => drop(failed.insert(known.id, error)),
                }
            }
            open = self.store_fields(documents, &mut failed).await;
        }
        let contended = |known: &KnownSensor| StorageError::Contended(known.sensor.key.to_string());
        failed.extend(open.iter().map(|known| (known.id, contended(known))));
        failed
    }

    /// Adds each sensor's fields to its document, and writes the documents that gained a field. Returns the sensors
    /// whose documents others changed meanwhile.
    async fn store_fields(
        self,
        sensors: Vec<(Arc<KnownSensor>, SensorDocument)>,
        failed: &mut HashMap<u32, StorageError>,
    ) -> Vec<Arc<KnownSensor>> {
        let mut writers = Vec::new();
        let mut documents = Vec::new();
        for (known, mut document) in sensors {
            let has_new = add_fields(&mut document, &known);
            if document.rev > 0 && !has_new {
                known.adopt(&document);
            } else {
                writers.push(known);
                documents.push(document);
            }
        }
        if documents.is_empty() {
            return Vec::new();
        }
        let mut open = Vec::new();
        let written = self.context.store.raw().write_sensors(self.database, &documents).await;
        for ((known, document), written) in writers.into_iter().zip(&documents).zip(written) {
            match written {
                WriteOutcome::Applied => {
                    self.context.metrics.sensor_writes.increment(1);
                    // If another instance wrote the document last, leave `written_rev` behind, so that the next refresh
                    // reads the buckets.
                    if document.rev == known.written_rev.load(Ordering::Relaxed) {
                        known.written_rev.store(document.rev + 1, Ordering::Relaxed);
                    }
                    known.adopt(document);
                }
                WriteOutcome::Conflict => open.push(known),
                WriteOutcome::Failed(error) => drop(failed.insert(known.id, error)),
            }
        }
        open
    }
}
