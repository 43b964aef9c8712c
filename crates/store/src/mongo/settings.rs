//! The settings of databases: the collection `settings`, a document per database that has any.

use std::collections::HashMap;

use bson::{Document, doc};
use mongodb::{Collection, Database};
use parking_lot::Mutex;

use super::MongoStore;
use super::outcome::{classify, is_duplicate_key};
use super::writes::durable;
use crate::bucket::store::{DatabaseStore, Written};
use crate::bucket::{DatabaseSettings, Result, SealForm};
use crate::document::decode_settings;

pub fn collection(mongo: &Database) -> Collection<Document> {
    mongo.collection("settings")
}

/// How days are sealed of databases that say so, as when the settings were last read; `None` before that.
#[derive(Debug, Default)]
pub struct SealForms(Mutex<Option<HashMap<String, SealForm>>>);

impl SealForms {
    /// Keeps what was read.
    pub fn note(&self, rows: &[(String, DatabaseSettings)]) {
        let of = |(name, settings): &(String, DatabaseSettings)| Some((name.clone(), settings.seal_form?));
        *self.0.lock() = Some(rows.iter().filter_map(of).collect());
    }

    /// Forgets everything: it is read again before the next day is written.
    pub fn forget(&self) {
        *self.0.lock() = None;
    }

    fn of(&self, database: &str) -> Option<Option<SealForm>> {
        let forms = self.0.lock();
        forms.as_ref().map(|forms| forms.get(database).copied())
    }
}

impl MongoStore {
    /// The form in which days of a database are written. Whatever it is, every form is read: so the config's default does
    /// where the settings cannot be read.
    pub(super) async fn seal_form(&self, database: &str) -> SealForm {
        let known = match self.seal_forms.of(database) {
            Some(known) => known,
            None => self.read_settings().await.ok().and_then(|_| self.seal_forms.of(database)).flatten(),
        };
        known.unwrap_or(self.options.seal_form)
    }
}

/// Reads the settings of all databases.
pub async fn read(collection: &Collection<Document>) -> Result<Vec<(String, DatabaseSettings)>> {
    let mut cursor = collection.find(doc! {}).await.map_err(|error| classify(&error))?;
    let mut found = Vec::new();
    while cursor.advance().await.map_err(|error| classify(&error))? {
        let document = cursor.deserialize_current().map_err(|error| classify(&error))?;
        found.push(decode_settings(&document)?);
    }
    Ok(found)
}

/// Replaces or removes a whole document by compare-and-set on its rev; 0 for none stored.
pub async fn write_whole(
    collection: &Collection<Document>,
    id: &str,
    held: u64,
    document: Option<Document>,
) -> Written {
    let filter = doc! { "_id": id, "rev": i64::try_from(held).unwrap_or(i64::MAX) };
    let written = match (held, document) {
        (0, None) => collection.count_documents(doc! { "_id": id }).await.map(|count| count == 0),
        (0, Some(document)) => collection.insert_one(document).write_concern(durable()).await.map(|_| true),
        (_, None) => {
            collection.delete_one(filter).write_concern(durable()).await.map(|deleted| deleted.deleted_count == 1)
        }
        (_, Some(document)) => {
            let replaced = collection.replace_one(filter, document).write_concern(durable()).await;
            replaced.map(|replaced| replaced.matched_count == 1)
        }
    };
    match written {
        Ok(true) => Written::Yes,
        Ok(false) => Written::Conflict,
        Err(error) if is_duplicate_key(&error) => Written::Conflict,
        Err(error) => Written::Failed(classify(&error)),
    }
}
