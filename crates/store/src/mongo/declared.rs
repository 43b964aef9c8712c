//! Indexes that the configuration declares. They are created in the background, and dropped once they are no longer
//! declared. Their names share a prefix, and no other index is touched.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Document, RawDocumentBuf, doc};
use mongodb::error::Error;
use mongodb::options::IndexOptions;
use mongodb::{Collection, IndexModel};

use super::MongoStore;
use super::indexes;
use super::kinds::unique::{UNIQUE_PREFIX, counted_sensors};
use super::outcome::{DUPLICATE_KEY, classify, has_code};
use super::setup::{self, Collections};
use crate::bucket::store::SettledIndexes;
use crate::bucket::{KindRule, KindRules, Result, StorageError};
use crate::document::{SENSOR_KIND, copy_field};

/// The name prefix of declared indexes.
const OWNED_PREFIX: &str = "hourglass.";

/// The definition of a declared index.
#[derive(Debug, Clone, PartialEq)]
struct DeclaredIndex {
    keys: Document,
    /// The partial filter: the documents that are indexed. `None` for a text index, which has all.
    filter: Option<Document>,
    is_unique: bool,
}

/// The declared indexes of one collection, by name.
type DeclaredIndexes = BTreeMap<String, DeclaredIndex>;

/// The content of a collection, which decides on its indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Readings,
    Sensors,
}

fn index_models<'a>(
    content: Content,
    copies: impl Iterator<Item = &'a str>,
    kinds: impl Iterator<Item = &'a str>,
) -> DeclaredIndexes {
    let of_copies = copies.map(|name| (format!("{OWNED_PREFIX}meta.{name}"), meta_index(content, name)));
    let of_kinds = kinds.map(|name| (format!("{OWNED_PREFIX}kind.{name}"), kind_index(content, name)));
    of_copies.chain(of_kinds).collect()
}

/// Returns the index of documents with a metadata name, by its value and then by time.
fn meta_index(content: Content, name: &str) -> DeclaredIndex {
    let field = copy_field(name);
    let filter = doc! { &field: { "$exists": true } };
    match content {
        Content::Readings => DeclaredIndex::new(doc! { field: 1, "start": 1 }, filter),
        Content::Sensors => DeclaredIndex::new(doc! { field: 1 }, filter),
    }
}

/// Returns the text index over metadata of sensors. A collection can have only one.
fn text_index(paths: &[String]) -> Option<(String, DeclaredIndex)> {
    let keys: Document = paths.iter().map(|path| (copy_field(path), "text".into())).collect();
    (!keys.is_empty()).then(|| (format!("{OWNED_PREFIX}text"), DeclaredIndex { keys, filter: None, is_unique: false }))
}

/// Returns the index of documents of a kind, by time.
fn kind_index(content: Content, name: &str) -> DeclaredIndex {
    let time = if content == Content::Readings { "start" } else { "lastSeen" };
    DeclaredIndex::new(doc! { time: 1 }, doc! { SENSOR_KIND: name })
}

/// Returns the indexes of `unique` metadata. They refuse nothing if the kind only warns.
fn unique_indexes(kinds: &KindRules) -> DeclaredIndexes {
    let of_kind = |rule: &KindRule| {
        let KindRule { name, checks, .. } = rule.clone();
        checks.unique.into_iter().map(move |path| {
            let index = DeclaredIndex::new(doc! { copy_field(&path): 1 }, counted_sensors(&name, &path));
            (format!("{UNIQUE_PREFIX}{name}.{path}"), DeclaredIndex { is_unique: checks.rejects, ..index })
        })
    };
    kinds.all().flat_map(of_kind).collect()
}

impl DeclaredIndex {
    fn new(keys: Document, filter: Document) -> Self {
        Self { keys, filter: Some(filter), is_unique: false }
    }

    fn matches(&self, found: &IndexModel) -> bool {
        let options = found.options.as_ref();
        // The stored keys of a text index do not name its fields.
        if let Some(weights) = options.and_then(|options| options.weights.as_ref()) {
            return weights.keys().collect::<BTreeSet<_>>() == self.keys.keys().collect();
        }
        let filter = options.and_then(|options| options.partial_filter_expression.as_ref());
        let is_unique = options.is_some_and(|options| options.unique == Some(true));
        found.keys.keys().eq(self.keys.keys()) && filter == self.filter.as_ref() && is_unique == self.is_unique
    }

    fn model(&self, name: &str) -> IndexModel {
        // Names of devices are words of no language.
        let language = self.filter.is_none().then(|| "none".to_owned());
        let options = IndexOptions::builder()
            .name(name.to_owned())
            .default_language(language)
            .partial_filter_expression(self.filter.clone())
            .unique(self.is_unique.then_some(true))
            .build();
        IndexModel::builder().keys(self.keys.clone()).options(options).build()
    }
}

impl MongoStore {
    fn declared_indexes(&self, database: &str) -> [(Collection<RawDocumentBuf>, DeclaredIndexes); 4] {
        let Collections { buckets, overflow, days, sensors, .. } = Collections::new(&self.mongo, database);
        let [readings, mut of_sensors] = [Content::Readings, Content::Sensors]
            .map(|content| index_models(content, self.options.copies.indexed(database), self.options.kinds.indexed()));
        of_sensors.extend(text_index(&self.options.text));
        of_sensors.extend(unique_indexes(&self.options.kinds));
        [(buckets, readings.clone()), (overflow, readings.clone()), (days, readings), (sensors, of_sensors)]
    }

    /// Creates missing indexes and drops undeclared ones.
    pub(super) async fn update_declared_indexes(&self, database: &str) -> Result<SettledIndexes> {
        let mut settled = SettledIndexes::default();
        let Collections { buckets, overflow, days, .. } = Collections::new(&self.mongo, database);
        for collection in [buckets, overflow, days] {
            let by_measurement = setup::by_measurement();
            if !indexes::exists(&collection, &by_measurement).await? {
                join(tokio::spawn(async move { indexes::create(&collection, &by_measurement).await })).await?;
                settled.changed += 1;
            }
        }
        for (collection, declared) in self.declared_indexes(database) {
            self.update_indexes(&collection, &declared, OWNED_PREFIX, &mut settled).await?;
        }
        Ok(settled)
    }

    /// As [`MongoStore::update_declared_indexes`], for the indexes of `unique` metadata only.
    pub(super) async fn settle_unique_indexes(&self, database: &str) -> Result<()> {
        let sensors = Collections::new(&self.mongo, database).sensors;
        let declared = unique_indexes(&self.options.kinds);
        self.update_indexes(&sensors, &declared, UNIQUE_PREFIX, &mut SettledIndexes::default()).await
    }

    /// Updates the indexes of a collection whose names have this prefix. One that the server refuses does not stop the
    /// others.
    async fn update_indexes(
        &self,
        collection: &Collection<RawDocumentBuf>,
        declared: &DeclaredIndexes,
        prefix: &str,
        settled: &mut SettledIndexes,
    ) -> Result<()> {
        let stored = self.owned_indexes(collection, prefix).await?;
        let is_declared = |name: &str, found: &IndexModel| declared.get(name).is_some_and(|index| index.matches(found));
        for (name, _) in stored.iter().filter(|(name, found)| !is_declared(name, found)) {
            tracing::info!(collection = collection.name(), index = name, "dropping an undeclared index");
            let name = name.clone();
            let target = collection.clone();
            // Not under the limit of concurrent commands, because this can take long.
            join(tokio::spawn(async move { target.drop_index(name).await })).await?;
            settled.changed += 1;
        }
        let is_stored = |name: &str, index: &DeclaredIndex| stored.get(name).is_some_and(|found| index.matches(found));
        for (name, index) in declared.iter().filter(|(name, index)| !is_stored(name, index)) {
            tracing::info!(collection = collection.name(), index = name, "creating a declared index");
            let mut created = create(collection, index.model(name)).await?;
            let is_shared = created.as_ref().is_err_and(|error| has_code(error, &[DUPLICATE_KEY]));
            if let (true, Some(counted), Some(field)) = (is_shared, &index.filter, index.keys.keys().next()) {
                self.mark_duplicates(collection, counted, field).await?;
                created = create(collection, index.model(name)).await?;
            }
            match created.map_err(|error| classify(&error)) {
                Ok(()) => settled.changed += 1,
                // A foreign index is in its way, or the collection is sharded by another field than a unique index has.
                Err(StorageError::Database(detail)) => {
                    settled.refused.push(format!("index {name} of {}: {detail}", collection.name()));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Lists the stored indexes with a name prefix.
    pub(super) async fn owned_indexes(
        &self,
        collection: &Collection<RawDocumentBuf>,
        prefix: &str,
    ) -> Result<BTreeMap<String, IndexModel>> {
        let collection = collection.clone();
        let listed = async move { indexes::list(&collection).await.map_err(|e| classify(&e)) };
        let owned = |found: IndexModel| {
            let name = found.options.as_ref()?.name.clone().filter(|name| name.starts_with(prefix))?;
            Some((name, found))
        };
        Ok(self.read(listed).await?.into_iter().filter_map(owned).collect())
    }
}

/// Creates an index. Can take long, so it is not under the limit of concurrent commands.
pub(super) async fn create(
    collection: &Collection<RawDocumentBuf>,
    model: IndexModel,
) -> Result<std::result::Result<(), Error>> {
    let collection = collection.clone();
    let created = tokio::spawn(async move { collection.create_index(model).await.map(drop) });
    created.await.map_err(|failed| StorageError::Unknown(failed.to_string()))
}

/// Waits for a command that runs as a task, because dropping a driver's future would break its connection.
pub(super) async fn join(task: tokio::task::JoinHandle<Result<(), Error>>) -> Result<()> {
    let ended = task.await.map_err(|failed| StorageError::Unknown(failed.to_string()))?;
    ended.map_err(|error| classify(&error))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn indexes_follow_from_names_and_content() {
        let models = |content| index_models(content, ["a.b"].into_iter(), ["press", "spare"].into_iter());
        let all = models(Content::Readings);
        let names = ["hourglass.kind.press", "hourglass.kind.spare", "hourglass.meta.a.b"];
        assert_eq!(all.keys().collect::<Vec<_>>(), names);
        assert_eq!(models(Content::Sensors).into_keys().collect::<Vec<_>>(), names);
        let index = &all["hourglass.meta.a.b"];
        assert_eq!(index.keys, doc! { "meta.a.b": 1, "start": 1 });
        assert_eq!(index.filter, Some(doc! { "meta.a.b": { "$exists": true } }));
        let found = all["hourglass.kind.press"].model("hourglass.kind.press");
        assert!(all["hourglass.kind.press"].matches(&found));
        assert!(!all["hourglass.kind.spare"].matches(&found));
        assert!(!models(Content::Sensors)["hourglass.kind.press"].matches(&found), "by another time");
    }
}
