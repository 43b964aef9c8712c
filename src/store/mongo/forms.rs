//! Documents of other forms than this program writes. In `databases`, `forms` is the newest that a program may have written
//! to a database, and `migrated` the forms since which none is older.

use bson::{Document, RawDocumentBuf, doc};
use mongodb::Collection;

use super::MongoStore;
use super::outcome::classify;
use super::reads::find;
use super::setup::{self, Collections};
use super::writes::durable;
use crate::bucket::StorageError;
use crate::bucket::raw::{Cursor, OtherForms};
use crate::bucket::store::{Extent, Written};
use crate::store::document::{FORMS, older_page};

/// The collections of a walk, in its order: the first letter of a cursor.
const WALKED: [u8; 2] = [b'b', b'o'];

/// This program's forms, as a number of BSON.
pub fn own() -> i64 {
    i64::try_from(FORMS).unwrap_or(i64::MAX)
}

/// Implements `Store::other_forms`. Only what tells the form of a document leaves the server.
pub async fn other(collections: &Collections, from: Option<Cursor>, most: usize) -> Result<OtherForms, StorageError> {
    let from = from.map_or_else(Vec::new, |from| from.0);
    let (walked, from) = from.split_first().map_or((WALKED[0], &[][..]), |(walked, from)| (*walked, from));
    let collection = if walked == b'b' { &collections.buckets } else { &collections.overflow };
    let sent = doc! {
        "_id": 1, "schemaVersion": 1, "measurement": 1, "tags": 1, "start": 1, "page": 1, "rev": 1, "order.rev": 1,
    };
    let most = most.max(1);
    let filter = doc! { "_id": { "$gt": &*String::from_utf8_lossy(from) } };
    let documents = find(collection, filter, doc! { "_id": 1 }, Some(sent), Extent::pages(most)).await?;
    let mut found = OtherForms { examined: documents.len() as u64, ..OtherForms::default() };
    for document in &documents {
        match older_page(document) {
            Ok(page) => found.pages.extend(page),
            Err(StorageError::Newer { .. }) => found.newer += 1,
            Err(_) => {}
        }
    }
    found.next = match documents.last().filter(|_| documents.len() == most) {
        Some(last) => Some(Cursor([&[walked], last.get_str("_id").unwrap_or_default().as_bytes()].concat())),
        None => WALKED.iter().skip_while(|of| **of != walked).nth(1).map(|next| Cursor(vec![*next])),
    };
    Ok(found)
}

/// Implements `Store::unmigrated`.
pub async fn unmigrated(databases: &Collection<Document>) -> Result<Vec<String>, StorageError> {
    let filter = doc! { "dropped": { "$ne": true }, "$nor": [{ "migrated": { "$gte": own() } }] };
    let listed: Collection<RawDocumentBuf> = databases.clone_with_type();
    let found = find(&listed, filter, doc! { "_id": 1 }, Some(doc! { "_id": 1 }), Extent::ALL).await?;
    Ok(found.iter().filter_map(|database| database.get_str("_id").ok().map(str::to_owned)).collect())
}

/// Implements `Store::note_migrated`.
pub async fn note_migrated(databases: &Collection<Document>, name: &str) -> Result<(), StorageError> {
    let noted = databases.update_one(doc! { "_id": name }, doc! { "$max": { "migrated": own() } });
    noted.write_concern(durable()).await.map(drop).map_err(|error| classify(&error))
}

impl MongoStore {
    /// Fails if a later version with forms of its own uses the database.
    pub(super) async fn refuse_newer_database(&self, database: &str) -> Result<(), StorageError> {
        let (databases, filter) = (setup::databases(&self.mongo), doc! { "_id": database, "forms": { "$gt": own() } });
        let found = async move { databases.find_one(filter).await.map_err(|error| classify(&error)) };
        match self.read(found).await? {
            None => Ok(()),
            Some(found) => Err(StorageError::Newer {
                id: format!("{database} of databases"),
                detail: format!(
                    "the database has forms {}, this program knows {FORMS}",
                    found.get_i64("forms").unwrap_or_default()
                ),
            }),
        }
    }

    /// What a collection's validator refuses may only lack what a later version requires: it waits for that version.
    pub(super) async fn wait_for_newer(&self, database: &str, mut outcomes: Vec<Written>) -> Vec<Written> {
        let is_refused = |written: &Written| matches!(written, Written::Failed(StorageError::Refused { .. }));
        if outcomes.iter().any(is_refused)
            && let Err(error) = self.refuse_newer_database(database).await
        {
            outcomes
                .iter_mut()
                .filter(|written| is_refused(written))
                .for_each(|one| *one = Written::Failed(error.clone()));
        }
        outcomes
    }
}
