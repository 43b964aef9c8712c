//! Which family a field of a sensor has, changed: a compare-and-set of the sensor's document, by which every instance goes. No reading is
//! touched; values of the family that it had are left out by queries until they are moved beside the field.

use super::Ingest;
use crate::bucket::store::Written;
use crate::bucket::{SensorDocument, StorageError};
use crate::faults;
use crate::ingest::catalog::reads::read_sensors_each;
use crate::ingest::error::IngestError;
use crate::ingest::flush::sensors::ATTEMPTS_MAX;
use crate::reading::Family;

impl Ingest {
    /// Gives a field of these sensors values of this family from now on, where it has another one. The field beside it, for the values
    /// that it has, becomes known too. A sensor whose document is gone or cannot be read is left as it is.
    ///
    /// # Errors
    /// If the store does not answer, or no change is taken at present. Some may be changed by then; to repeat it is harmless.
    pub async fn set_family(
        &self,
        database: &str,
        keys: &[&str],
        (field, family): (&str, Family),
    ) -> Result<(), IngestError> {
        self.submitter.read_only.check()?;
        let mut open: Vec<&str> = keys.to_vec();
        for _ in 0..ATTEMPTS_MAX {
            let mut read = read_sensors_each(&*self.store, database, &open).await?;
            let (mut written_of, mut documents) = (Vec::new(), Vec::new());
            for key in open.drain(..) {
                let document = read.remove(key).and_then(Result::ok);
                if let Some(document) = document.and_then(|document| retyped(document, field, family)) {
                    written_of.push(key);
                    documents.push(document);
                }
            }
            if documents.is_empty() {
                return Ok(());
            }
            let written = self.store.raw().write_sensors(database, &documents).await;
            for ((key, document), written) in written_of.into_iter().zip(&documents).zip(written) {
                match written {
                    Written::Yes => self.adopt(database, document),
                    Written::Conflict => open.push(key),
                    Written::Failed(error) => return Err(error.into()),
                }
            }
            faults::point("family_set");
        }
        Err(StorageError::Contended { detail: open.first().copied().unwrap_or_default().to_owned() }.into())
    }

    fn adopt(&self, database: &str, document: &SensorDocument) {
        let database = self.catalog.database(database);
        let known = database.and_then(|database| self.catalog.sensor(&database, &document.sensor.key));
        known.into_iter().for_each(|known| known.adopt(document));
    }
}

/// The document with the field's new family; `None` if it has no such field, or one of this family.
fn retyped(mut document: SensorDocument, field: &str, family: Family) -> Option<SensorDocument> {
    let (_, held) = document.fields.iter_mut().find(|(name, held)| **name == *field && *held != family)?;
    let before = std::mem::replace(held, family);
    let beside = before.beside(field);
    if !document.fields.iter().any(|(name, _)| **name == *beside) {
        document.fields.push((beside.into(), before));
    }
    Some(document)
}
