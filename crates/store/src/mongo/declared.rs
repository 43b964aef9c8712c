//! Indexes that the configuration declares: made in the background, and dropped once they are not declared any more. Their names
//! begin with a prefix of their own, and no other index is ever touched.

use std::collections::BTreeMap;

use bson::{Document, RawDocumentBuf, doc};
use mongodb::error::Error;
use mongodb::options::IndexOptions;
use mongodb::{Collection, IndexModel};

use super::MongoStore;
use super::indexes;
use super::outcome::classify;
use super::setup::Collections;
use crate::bucket::declared::IndexTarget;
use crate::bucket::{Result, StorageError};
use crate::names::key;

/// What the name of each index begins with that is declared, and of no other one.
const OWNED: &str = "hourglass.";
/// An index as it is to be.
#[derive(Debug, Clone, PartialEq)]
struct Wanted {
    keys: Document,
    /// Which documents it has.
    only: Document,
}

/// The indexes of one collection by their names.
type WantedHere = BTreeMap<String, Wanted>;

/// Which indexes a collection is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    Readings,
    Sensors,
}

fn wanted<'a>(holds: Holds, rules: impl Iterator<Item = &'a IndexTarget>) -> WantedHere {
    let mut all = WantedHere::new();
    for rule in rules {
        match rule {
            IndexTarget::Copy(name) => drop(all.insert(format!("{OWNED}meta.{name}"), of_copy(holds, name))),
            IndexTarget::Kind { name, measurement } => {
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
    match holds {
        Holds::Readings => Wanted { keys: doc! { field: 1, "start": 1 }, only },
        Holds::Sensors => Wanted { keys: doc! { field: 1 }, only },
    }
}

/// Of what has this value: by time.
fn of_field(holds: Holds, field: &str, value: &str) -> Wanted {
    let by = if holds == Holds::Readings { "start" } else { "lastSeen" };
    Wanted { keys: doc! { by: 1 }, only: doc! { field: value } }
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
}

impl MongoStore {
    fn wanted_of(&self, database: &str) -> [(Collection<RawDocumentBuf>, WantedHere); 4] {
        let Collections { buckets, overflow, days, sensors, .. } = Collections::of(&self.mongo, database);
        let of = |holds| wanted(holds, self.options.indexes.of(database));
        let readings = of(Holds::Readings);
        [(buckets, readings.clone()), (overflow, readings.clone()), (days, readings), (sensors, of(Holds::Sensors))]
    }

    /// Makes what is missing and drops what is not declared; returns how many indexes it made and dropped.
    pub(super) async fn settled_indexes(&self, database: &str) -> Result<u64> {
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
    async fn owned(&self, collection: &Collection<RawDocumentBuf>) -> Result<BTreeMap<String, IndexModel>> {
        let collection = collection.clone();
        let listed = async move { indexes::list(&collection).await.map_err(|e| classify(&e)) };
        let owned = |found: IndexModel| {
            let name = found.options.as_ref()?.name.clone().filter(|name| name.starts_with(OWNED))?;
            Some((name, found))
        };
        Ok(self.read(listed).await?.into_iter().filter_map(owned).collect())
    }
}

/// Waits for a command that runs as a task: the driver must not be interrupted.
async fn ended(task: tokio::task::JoinHandle<Result<(), Error>>) -> Result<()> {
    let ended = task.await.map_err(|failed| StorageError::Unknown(failed.to_string()))?;
    ended.map_err(|error| classify(&error))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_collection_has_what_its_documents_can_be_found_by() {
        let rules = [
            IndexTarget::Copy("a.b".into()),
            IndexTarget::Kind { name: "press".into(), measurement: Some("machine".into()) },
            IndexTarget::Kind { name: "spare".into(), measurement: None },
        ];
        let names = |holds| wanted(holds, rules.iter()).into_keys().collect::<Vec<_>>();
        assert_eq!(names(Holds::Readings), ["hourglass.kind.press", "hourglass.meta.a.b"]);
        let of_sensors =
            ["hourglass.kind.press", "hourglass.meta.a.b", "hourglass.named.press", "hourglass.named.spare"];
        assert_eq!(names(Holds::Sensors), of_sensors);
        let all = wanted(Holds::Readings, rules.iter());
        let index = &all["hourglass.meta.a.b"];
        assert_eq!(index.keys, doc! { "meta.a%2Eb": 1, "start": 1 });
        assert_eq!(index.only, doc! { "meta.a%2Eb": { "$exists": true } });
        // Of another measurement, it is another index.
        let other = [IndexTarget::Kind { name: "press".into(), measurement: Some("mill".into()) }];
        let found = all["hourglass.kind.press"].model("hourglass.kind.press");
        assert!(all["hourglass.kind.press"].is(&found));
        assert!(!wanted(Holds::Readings, other.iter())["hourglass.kind.press"].is(&found));
    }
}
