//! Documents changed by hand, as a shell, a failing disk or a mistake in a program might.

use mongodb::bson::{Document, doc};
use redb::{Database, ReadableDatabase, ReadableTable};

use super::{CHECKSUM_BYTES, Kind, PAGES, Place, SENSORS, Stored};

impl Stored {
    /// Changes the document of this `_id`, which must be there; its checksum is made to fit.
    #[track_caller]
    pub fn change(&self, kind: Kind, id: &str, change: impl FnOnce(&mut Document)) {
        self.replace(kind, id, |mut document| {
            change(&mut document);
            Some(document)
        });
    }

    /// Deletes the document of this `_id`, which must be there.
    #[track_caller]
    pub fn delete(&self, kind: Kind, id: &str) {
        self.replace(kind, id, |_| None);
    }

    /// All documents, unchecked.
    pub fn each_document(&self, kind: Kind, mut visit: impl FnMut(&Document)) {
        self.each(kind, |raw| visit(&Document::from_reader(raw.as_bytes()).expect("BSON")));
    }

    #[track_caller]
    fn replace(&self, kind: Kind, id: &str, change: impl FnOnce(Document) -> Option<Document>) {
        match &self.place {
            Place::Mongo { runtime, mongo } => runtime.block_on(async {
                let collection = mongo.collection::<Document>(&format!("{}.{}", self.database, kind.name()));
                let found = collection.find_one(doc! { "_id": id }).await.expect("an answer");
                let Some(changed) = change(found.unwrap_or_else(|| panic!("{id} is stored"))) else {
                    assert_eq!(collection.delete_one(doc! { "_id": id }).await.expect("deleted").deleted_count, 1);
                    return;
                };
                let command = doc! {
                    "update": collection.name(),
                    "updates": [{ "q": { "_id": id }, "u": changed }],
                    "bypassDocumentValidation": true,
                };
                let answer = mongo.run_command(command).await.expect("an answer");
                assert_eq!(answer.get_i32("n").expect("a number"), 1, "{answer}");
            }),
            Place::Embedded { file } => {
                let database = Database::open(file).expect("the file is whole, and nobody has it open");
                let table = if kind == Kind::Sensors { SENSORS } else { PAGES };
                let rows: Vec<(Vec<u8>, Document)> = {
                    let transaction = database.begin_read().expect("a read");
                    let table = transaction.open_table(table).expect("the table");
                    let rows = table.iter().expect("rows").map(|row| {
                        let (key, value) = row.expect("a row");
                        let bytes = value.value();
                        let document = Document::from_reader(&bytes[..bytes.len() - CHECKSUM_BYTES]).expect("BSON");
                        (key.value().to_vec(), document)
                    });
                    let prefix = [self.database.as_bytes(), &[0, 0]].concat();
                    rows.filter(|(key, d)| key.starts_with(&prefix) && d.get_str("_id").is_ok_and(|found| found == id))
                        .collect()
                };
                let [(key, document)] = &rows[..] else { panic!("{} rows are {id}", rows.len()) };
                let transaction = database.begin_write().expect("a transaction");
                {
                    let mut table = transaction.open_table(table).expect("the table");
                    match change(document.clone()) {
                        None => drop(table.remove(&**key).expect("removed")),
                        Some(changed) => {
                            let mut bytes = changed.to_vec().expect("BSON");
                            let mut hasher = crc32fast::Hasher::new();
                            hasher.update(key);
                            hasher.update(&bytes);
                            bytes.extend_from_slice(&hasher.finalize().to_le_bytes());
                            table.insert(&**key, &*bytes).expect("inserted");
                        }
                    }
                }
                transaction.commit().expect("a commit");
            }
        }
    }
}
