//! Indexes that the configuration declares: made in the background, and dropped once they are not declared any more. Their names
//! begin with a prefix of their own, and no other index is ever touched.

use std::collections::BTreeMap;

use bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{Hint, IndexOptions};
use mongodb::{Collection, IndexModel};
use serde_json::Value;

use super::MongoStore;
use super::indexes::is_no_collection;
use super::outcome::classify;
use super::setup::Collections;
use crate::bucket::StorageError;
use crate::bucket::declared::{DeclaredIndex, IndexOf};
use crate::names::key;

/// What the name of each index begins with that is declared, and of no other one.
const OWNED: &str = "hourglass.";
/// What stands in shown queries for a value that the reader chooses, and for a time.
const VALUE: &str = "VALUE";
const SINCE: &str = "2026-01-15T00:00:00Z";

/// An index as it is to be.
#[derive(Debug, Clone, PartialEq)]
struct Wanted {
    keys: Document,
    /// Which documents it has.
    only: Document,
    /// What a query has, in words of the shell, that uses it.
    filter: String,
}

/// The indexes of one collection by their names.
type WantedHere = BTreeMap<String, Wanted>;

/// Which indexes a collection is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    Readings,
    Sensors,
}

fn wanted<'a>(holds: Holds, rules: impl Iterator<Item = &'a IndexOf>) -> WantedHere {
    let mut all = WantedHere::new();
    for rule in rules {
        match rule {
            IndexOf::Copy(name) => drop(all.insert(format!("{OWNED}meta.{name}"), of_copy(holds, name))),
            IndexOf::Kind { name, measurement } => {
                if let Some(measurement) = measurement {
                    all.insert(format!("{OWNED}kind.{name}"), of_field(holds, "measurement", measurement));
                }
                if holds == Holds::Sensors {
                    all.insert(format!("{OWNED}named.{name}"), of_field(holds, "meta.kind", name));
                }
            }
        }
    }
    all
}

/// Of what has a name of metadata: by its value, and by time.
fn of_copy(holds: Holds, name: &str) -> Wanted {
    let field = format!("meta.{}", key(name));
    let only = doc! { &field: { "$exists": true } };
    let field_is = format!("{}: {}", quoted(&field), quoted(VALUE));
    match holds {
        Holds::Readings => {
            Wanted { keys: doc! { field: 1, "start": 1 }, only, filter: format!("{field_is}, {}", since("start")) }
        }
        Holds::Sensors => Wanted { keys: doc! { field: 1 }, only, filter: field_is },
    }
}

/// Of what has this value: by time.
fn of_field(holds: Holds, field: &str, value: &str) -> Wanted {
    let by = if holds == Holds::Readings { "start" } else { "lastSeen" };
    let filter = format!("{}: {}, {}", quoted(field), quoted(value), since(by));
    Wanted { keys: doc! { by: 1 }, only: doc! { field: value }, filter }
}

fn since(field: &str) -> String {
    format!("{field}: {{ $gte: ISODate({}) }}", quoted(SINCE))
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// What an index says of itself: numbers, flags, texts and documents of these.
fn json(document: &Document) -> Value {
    let value = |value: &Bson| match value {
        Bson::Int32(number) => Value::from(*number),
        Bson::Boolean(flag) => Value::from(*flag),
        Bson::Document(document) => json(document),
        other => Value::from(other.as_str().unwrap_or_default()),
    };
    Value::Object(document.iter().map(|(name, of)| (name.clone(), value(of))).collect())
}

impl Wanted {
    fn is(&self, found: &IndexModel) -> bool {
        let only = found.options.as_ref().and_then(|options| options.partial_filter_expression.clone());
        found.keys.keys().eq(self.keys.keys()) && only.as_ref() == Some(&self.only)
    }

    fn model(&self, name: &str) -> IndexModel {
        let options =
            IndexOptions::builder().name(name.to_owned()).partial_filter_expression(self.only.clone()).build();
        IndexModel::builder().keys(self.keys.clone()).options(options).build()
    }

    fn shown(&self, database: &str, collection: &str, name: &str, is_ready: bool) -> DeclaredIndex {
        DeclaredIndex {
            database: database.to_owned(),
            collection: collection.to_owned(),
            name: name.to_owned(),
            keys: json(&self.keys).to_string(),
            only: json(&self.only).to_string(),
            query: format!("db.getCollection({}).find({{ {} }})", quoted(collection), self.filter),
            is_ready,
        }
    }
}

impl MongoStore {
    fn wanted_of(&self, database: &str) -> [(Collection<RawDocumentBuf>, WantedHere); 4] {
        let Collections { buckets, overflow, days, sensors, .. } = Collections::of(&self.mongo, database);
        let of = |holds| wanted(holds, self.options.indexes.of(database));
        let readings = of(Holds::Readings);
        [(buckets, readings.clone()), (overflow, readings.clone()), (days, readings), (sensors, of(Holds::Sensors))]
    }

    pub(super) async fn shown_indexes(&self, database: &str) -> Result<Vec<DeclaredIndex>, StorageError> {
        let mut shown = Vec::new();
        for (collection, wanted) in self.wanted_of(database) {
            let found = self.owned(&collection).await?;
            for (name, index) in &wanted {
                let is_there = found.get(name).is_some_and(|found| index.is(found));
                let is_ready = is_there && self.is_usable(&collection, name, &index.only).await?;
                shown.push(index.shown(database, collection.name(), name, is_ready));
            }
        }
        Ok(shown)
    }

    /// Whether queries can use an index: it is listed from the beginning of its build on.
    async fn is_usable(
        &self,
        collection: &Collection<RawDocumentBuf>,
        name: &str,
        only: &Document,
    ) -> Result<bool, StorageError> {
        const BAD_VALUE: i32 = 2;
        let (collection, only, name) = (collection.clone(), only.clone(), name.to_owned());
        let find = async move {
            match collection.find_one(only).projection(doc! { "_id": 1 }).hint(Hint::Name(name)).await {
                Ok(_) => Ok(true),
                Err(error) if is_command(&error, BAD_VALUE) => Ok(false),
                Err(error) => Err(classify(&error)),
            }
        };
        self.read(find).await
    }

    /// Makes what is missing and drops what is not declared; returns how many indexes it made and dropped.
    pub(super) async fn settled_indexes(&self, database: &str) -> Result<u64, StorageError> {
        let mut changed = 0;
        for (collection, wanted) in self.wanted_of(database) {
            let found = self.owned(&collection).await?;
            let stale = found.iter().filter(|(name, found)| wanted.get(*name).is_none_or(|wanted| !wanted.is(found)));
            for (name, _) in stale {
                let (from, name) = (collection.clone(), name.clone());
                tracing::info!(
                    collection = from.name(),
                    index = name,
                    "dropping an index that is not declared any more"
                );
                // It takes as long as it takes: no other command waits for it.
                let dropped = tokio::spawn(async move { from.drop_index(name).await });
                ended(dropped).await?;
                changed += 1;
            }
            for (name, index) in
                wanted.iter().filter(|(name, wanted)| !found.get(*name).is_some_and(|found| wanted.is(found)))
            {
                let (of, model) = (collection.clone(), index.model(name));
                tracing::info!(collection = of.name(), index = name, "making an index that is declared");
                let made = tokio::spawn(async move { of.create_index(model).await.map(drop) });
                ended(made).await?;
                changed += 1;
            }
        }
        Ok(changed)
    }

    /// The declared indexes that a collection has.
    async fn owned(
        &self,
        collection: &Collection<RawDocumentBuf>,
    ) -> Result<BTreeMap<String, IndexModel>, StorageError> {
        let collection = collection.clone();
        let listed = async move {
            let mut listed = match collection.list_indexes().await {
                Ok(listed) => listed,
                Err(error) if is_no_collection(&error) => return Ok(BTreeMap::new()),
                Err(error) => return Err(classify(&error)),
            };
            let mut owned = BTreeMap::new();
            while listed.advance().await.map_err(|e| classify(&e))? {
                let found = listed.deserialize_current().map_err(|e| classify(&e))?;
                let name = found.options.as_ref().and_then(|options| options.name.clone());
                if let Some(name) = name.filter(|name| name.starts_with(OWNED)) {
                    owned.insert(name, found);
                }
            }
            Ok(owned)
        };
        self.read(listed).await
    }
}

fn is_command(error: &Error, code: i32) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Command(command) if command.code == code)
}

/// Waits for a command that runs as a task: the driver must not be interrupted.
async fn ended(task: tokio::task::JoinHandle<Result<(), Error>>) -> Result<(), StorageError> {
    let ended = task.await.map_err(|failed| StorageError::Unknown { detail: failed.to_string() })?;
    ended.map_err(|error| classify(&error))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_collection_has_what_its_documents_can_be_found_by() {
        let rules = [
            IndexOf::Copy("a.b".into()),
            IndexOf::Kind { name: "press".into(), measurement: Some("machine".into()) },
            IndexOf::Kind { name: "spare".into(), measurement: None },
        ];
        let names = |holds| wanted(holds, rules.iter()).into_keys().collect::<Vec<_>>();
        assert_eq!(names(Holds::Readings), ["hourglass.kind.press", "hourglass.meta.a.b"]);
        let of_sensors =
            ["hourglass.kind.press", "hourglass.meta.a.b", "hourglass.named.press", "hourglass.named.spare"];
        assert_eq!(names(Holds::Sensors), of_sensors);
        let all = wanted(Holds::Readings, rules.iter());
        let shown = all["hourglass.meta.a.b"].shown("d", "d.buckets", "hourglass.meta.a.b", true);
        assert_eq!(
            (&*shown.keys, &*shown.only),
            (r#"{"meta.a%2Eb":1,"start":1}"#, r#"{"meta.a%2Eb":{"$exists":true}}"#)
        );
        let query = r#"db.getCollection("d.buckets").find({ "meta.a%2Eb": "VALUE", start: { $gte: ISODate("2026-01-15T00:00:00Z") } })"#;
        assert_eq!(shown.query, query);
        // Of another measurement, it is another index.
        let other = [IndexOf::Kind { name: "press".into(), measurement: Some("mill".into()) }];
        let found = all["hourglass.kind.press"].model("hourglass.kind.press");
        assert!(all["hourglass.kind.press"].is(&found));
        assert!(!wanted(Holds::Readings, other.iter())["hourglass.kind.press"].is(&found));
    }
}
