//! The settings of databases, in the collection `settings` with a document per database.

use std::collections::{BTreeMap, HashMap};

use bson::{Document, RawDocumentBuf, doc};
use mongodb::{Collection, Database};
use parking_lot::Mutex;

use super::MongoStore;
use super::outcome::{classify, is_duplicate_key};
use super::reads::CausalClient;
use super::writes::durable;
use crate::bucket::store::{DatabaseStore, WriteOutcome};
use crate::bucket::{DatabaseSettings, SealForm};

pub fn collection(mongo: &Database) -> Collection<Document> {
    mongo.collection("settings")
}

/// A cache of the seal forms of databases that have set one. `None` before the settings are read.
#[derive(Debug, Default)]
pub struct SealForms(Mutex<Option<HashMap<String, SealForm>>>);

impl SealForms {
    /// Replaces the cache after a read of the settings.
    pub fn note(&self, rows: &[(String, DatabaseSettings)]) {
        let form = |(name, settings): &(String, DatabaseSettings)| Some((name.clone(), settings.seal_form?));
        *self.0.lock() = Some(rows.iter().filter_map(form).collect());
    }

    /// Empties the cache, so that the settings are read again before the next day is written.
    pub fn forget(&self) {
        *self.0.lock() = None;
    }

    /// Returns the setting of a database. The outer `Option` is `None` if the cache is empty.
    fn get(&self, database: &str) -> Option<Option<SealForm>> {
        let forms = self.0.lock();
        forms.as_ref().map(|forms| forms.get(database).copied())
    }
}

impl MongoStore {
    /// Returns the form for new days of a database. Uses the configured default if the settings cannot be read, because
    /// every form is readable.
    pub(super) async fn seal_form(&self, database: &str) -> SealForm {
        let mut cached = self.seal_forms.get(database);
        if cached.is_none() && self.read_settings().await.is_ok() {
            cached = self.seal_forms.get(database);
        }
        cached.flatten().unwrap_or(self.options.seal_form)
    }
}

/// Returns the known settings that a row has, because a rev never comes again.
pub fn unchanged<'k>(
    row: &RawDocumentBuf,
    known: &'k BTreeMap<String, DatabaseSettings>,
) -> Option<(&'k String, &'k DatabaseSettings)> {
    let found = known.get_key_value(row.get_str("_id").ok()?)?;
    let rev = u64::try_from(row.get_i64("rev").ok()?).ok()?;
    (found.1.rev == rev).then_some(found)
}

/// Replaces a whole document by compare-and-set, or removes it if `document` is `None`. `held` is the expected rev, or 0 if
/// none is stored.
pub async fn write_whole(
    client: &CausalClient,
    collection: &Collection<Document>,
    id: &str,
    held: u64,
    document: Option<Document>,
) -> WriteOutcome {
    let filter = doc! { "_id": id, "rev": i64::try_from(held).unwrap_or(i64::MAX) };
    let mut session = match client.session().await {
        Ok(session) => session,
        Err(error) => return WriteOutcome::Failed(classify(&error)),
    };
    let written = match (held, document) {
        (0, None) => {
            let count = collection.count_documents(doc! { "_id": id }).session(&mut session).await;
            count.map(|count| count == 0)
        }
        (0, Some(document)) => {
            let insert = collection.insert_one(document).write_concern(durable());
            insert.session(&mut session).await.map(|_| true)
        }
        (_, None) => {
            let delete = collection.delete_one(filter).write_concern(durable());
            delete.session(&mut session).await.map(|deleted| deleted.deleted_count == 1)
        }
        (_, Some(document)) => {
            let replace = collection.replace_one(filter, document).write_concern(durable());
            replace.session(&mut session).await.map(|replaced| replaced.matched_count == 1)
        }
    };
    client.note(session.operation_time());
    match written {
        Ok(true) => WriteOutcome::Applied,
        Ok(false) => WriteOutcome::Conflict,
        Err(error) if is_duplicate_key(&error) => WriteOutcome::Conflict,
        Err(error) => WriteOutcome::Failed(classify(&error)),
    }
}
