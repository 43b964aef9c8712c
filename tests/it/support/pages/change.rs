//! Documents changed by hand, as by a shell, a failing disk or a bug.

use mongodb::bson::{Document, doc};
use redb::{Database, ReadableDatabase, ReadableTable};

use super::{CHECKSUM_BYTES, Kind, Location, PAGES, SENSORS, Stored, packed};

/// Key and value of a row in the embedded file, without the checksum.
type Row = (Vec<u8>, Vec<u8>);

impl Stored {
    /// Returns true if pages are packed under keys that alone identify them.
    pub fn is_embedded(&self) -> bool {
        matches!(self.location, Location::Embedded { .. })
    }

    /// Turns the sensor key of a page in the embedded file into a measurement without tags.
    #[track_caller]
    pub fn take_tags(&self, id: &str) {
        self.replace_row(Kind::Buckets, id, |(key, value)| {
            let changed = packed::without_tags(&key, &self.database, &value);
            Some((key, changed))
        });
    }

    /// Moves a page in the embedded file to another number of its bucket.
    #[track_caller]
    pub fn renumber(&self, id: &str, number: u32) {
        self.replace_row(Kind::Buckets, id, |(key, value)| {
            let key = packed::Key::parse(&key, &self.database).with_number(number);
            Some((key.bytes(&self.database), value))
        });
    }

    /// Changes an existing document and updates its checksum.
    #[track_caller]
    pub fn change(&self, kind: Kind, id: &str, change: impl FnOnce(&mut Document)) {
        self.replace(kind, id, |mut document| {
            change(&mut document);
            Some(document)
        });
    }

    /// Deletes an existing document.
    #[track_caller]
    pub fn delete(&self, kind: Kind, id: &str) {
        self.replace(kind, id, |_| None);
    }

    /// Visits all documents, unchecked.
    pub fn each_document(&self, kind: Kind, mut visit: impl FnMut(&Document)) {
        self.each(kind, |raw| visit(&Document::from_reader(raw.as_bytes()).expect("BSON")));
    }

    #[track_caller]
    fn replace(&self, kind: Kind, id: &str, change: impl FnOnce(Document) -> Option<Document>) {
        match &self.location {
            Location::Mongo { runtime, mongo } => runtime.block_on(async {
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
            Location::Embedded { .. } => self.replace_row(kind, id, |(key, value)| {
                if kind == Kind::Sensors {
                    let changed = change(Document::from_reader(&*value).expect("BSON"))?;
                    return Some((key, changed.to_vec().expect("BSON")));
                }
                let before = packed::document(&key, &self.database, &value);
                let changed = packed::value(&change(before.clone())?, &before);
                Some((key, changed))
            }),
        }
    }

    /// Replaces an existing row in the embedded file and updates its checksum.
    #[track_caller]
    fn replace_row(&self, kind: Kind, id: &str, change: impl FnOnce(Row) -> Option<Row>) {
        let Location::Embedded { file } = &self.location else { panic!("rows are in a file") };
        let database = Database::open(file).expect("the file is intact and not open elsewhere");
        let table = if kind == Kind::Sensors { SENSORS } else { PAGES };
        let prefix = [self.database.as_bytes(), &[0, 0]].concat();
        let is_match = |key: &[u8]| {
            key.starts_with(&prefix)
                && match kind {
                    Kind::Sensors => &key[prefix.len()..] == id.as_bytes(),
                    Kind::Buckets | Kind::Overflow => packed::Key::parse(key, &self.database).id() == id,
                }
        };
        let rows: Vec<Row> = {
            let transaction = database.begin_read().expect("a read");
            let table = transaction.open_table(table).expect("the table");
            let rows = table.iter().expect("rows").map(|row| {
                let (key, value) = row.expect("a row");
                let bytes = value.value();
                (key.value().to_vec(), bytes[..bytes.len() - CHECKSUM_BYTES].to_vec())
            });
            rows.filter(|(key, _)| is_match(key)).collect()
        };
        let [row] = &rows[..] else { panic!("{} rows are {id}", rows.len()) };
        let transaction = database.begin_write().expect("a transaction");
        {
            let mut table = transaction.open_table(table).expect("the table");
            drop(table.remove(&*row.0).expect("removed"));
            if let Some((key, mut value)) = change(row.clone()) {
                let mut hasher = crc32fast::Hasher::new();
                hasher.update(&key);
                hasher.update(&value);
                value.extend_from_slice(&hasher.finalize().to_le_bytes());
                table.insert(&*key, &*value).expect("inserted");
            }
        }
        transaction.commit().expect("a commit");
    }
}
