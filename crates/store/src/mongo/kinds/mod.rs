//! Kinds of sensors in MongoDB: validators and unique indexes that hold other writers, too. hourglass has acknowledged what
//! it writes, so a document that they refuse is marked and exempt:
//!
//! ```text
//! exempt: true                      in pages and sensors: the document violates the schema of its kind
//! duplicate: { serial: true }       in sensors: another sensor of the kind has the value at this metadata path
//! ```

pub mod schema;
pub mod unique;

use bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::options::IndexOptions;
use mongodb::{Collection, Database, IndexModel};

use super::MongoStore;
use super::declared::{create, join};
use super::outcome::{Rule, broken_rules, classify};
use super::reads::Query;
use super::setup::{self, Collections, restore_validator};
use crate::bucket::store::Extent;
use crate::bucket::{KindRules, Result, StorageError};

/// The mark of documents that violate the schema of their kind.
pub const EXEMPT: &str = "exempt";
/// The mark of sensors with a value of another sensor.
pub const DUPLICATE: &str = "duplicate";
/// Maximum number of marked documents per collection that one run of the job examines.
const MARKED_MAX: usize = 1000;
/// Maximum number of marked documents per collection that the job's note names.
const LISTED_MAX: usize = 10;
/// Maximum number of rules that one write can violate.
pub const RULES_MAX: usize = 8;

impl Rule {
    /// Returns the field that marks a document which violates the rule.
    pub fn mark(&self) -> String {
        match self {
            Self::Schema => EXEMPT.to_owned(),
            Self::Unique(field) => duplicate_field(field),
        }
    }
}

/// Returns the mark of a metadata field such as `meta.serial`.
fn duplicate_field(field: &str) -> String {
    format!("{DUPLICATE}{}", field.strip_prefix("meta").unwrap_or(field))
}

/// Adds marks to a new document.
pub fn with_marks(document: &RawDocumentBuf, rules: &[Rule]) -> RawDocumentBuf {
    let mut marked = Document::try_from(&**document).unwrap_or_default();
    for rule in rules {
        let mark = rule.mark();
        put_mark(&mut marked, &mark);
    }
    RawDocumentBuf::try_from(&marked).unwrap_or_else(|_| document.clone())
}

fn put_mark(document: &mut Document, path: &str) {
    let Some((name, rest)) = path.split_once('.') else {
        document.insert(path, true);
        return;
    };
    let inner = document.entry(name.to_owned()).or_insert_with(|| Bson::Document(Document::new()));
    if let Bson::Document(inner) = inner {
        put_mark(inner, rest);
    }
}

/// Returns the condition for marked documents.
fn is_marked(mark: &str) -> Document {
    if mark == EXEMPT {
        doc! { mark: true }
    } else {
        doc! { mark: { "$exists": true } }
    }
}

/// Marks a stored document that breaks a rule. Returns false if it already has the mark.
pub async fn mark(mongo: &Database, collection: &str, id: &str, rule: &Rule) -> bool {
    let update = doc! { "q": { "_id": id }, "u": { "$set": { rule.mark(): true } } };
    let command = doc! {
        "update": collection, "updates": [update], "writeConcern": { "w": "majority", "j": true },
    };
    match mongo.run_command(command).await {
        Ok(reply) => {
            let number = |name: &str| reply.get_i32(name).unwrap_or_default();
            number("n") == 0 || number("nModified") > 0
        }
        // The next attempt to write the document reports the error, or marks it.
        Err(_) => true,
    }
}

/// Returns true if documents of a collection can be marked.
pub fn is_checked(kinds: &KindRules, collection: &str) -> bool {
    let checked = [".buckets", ".overflow", ".sensors"];
    kinds.have_checks() && checked.iter().any(|suffix| collection.ends_with(suffix))
}

impl MongoStore {
    /// Sets the validators of a database that an earlier configuration left behind.
    pub(super) async fn settle_validators(&self, database: &str) -> Result<()> {
        self.refuse_newer_database(database).await?;
        let mongo = self.mongo.clone();
        let database = database.to_owned();
        let kinds = self.options.kinds.clone();
        join(tokio::spawn(async move {
            for (collection, validator) in setup::kind_validators(&mongo, &database, &kinds) {
                restore_validator(&mongo, collection.name(), validator).await?;
            }
            Ok(())
        }))
        .await
    }

    /// Removes these marks of documents that conform by now. Returns the `_id`s of some that do not.
    pub(super) async fn settle_marks(&self, database: &str, marks: &[&str]) -> Result<Vec<String>> {
        let mut left = Vec::new();
        let Collections { buckets, overflow, sensors, .. } = Collections::new(&self.mongo, database);
        for (collection, mark) in
            [(sensors.clone(), EXEMPT), (sensors, DUPLICATE), (buckets, EXEMPT), (overflow, EXEMPT)]
        {
            if marks.contains(&mark) && self.has_mark_index(&collection, mark).await? {
                left.extend(self.unmark_some(&collection, mark).await?);
            }
        }
        Ok(left)
    }

    /// Creates the index of marked documents if it is missing and there are kinds. Returns true if it exists. It is empty
    /// as long as nothing is marked.
    async fn has_mark_index(&self, collection: &Collection<RawDocumentBuf>, mark: &'static str) -> Result<bool> {
        let is_found = self.owned_indexes(collection, mark).await?.contains_key(mark);
        if is_found || !self.options.kinds.have_checks() {
            return Ok(is_found);
        }
        let options = IndexOptions::builder().name(mark.to_owned()).partial_filter_expression(is_marked(mark)).build();
        let model = IndexModel::builder().keys(doc! { mark: 1, "_id": 1 }).options(options).build();
        create(collection, model).await?.map_err(|error| classify(&error))?;
        Ok(true)
    }

    /// Unmarks the next documents of a collection as far as the server lets it.
    async fn unmark_some(&self, collection: &Collection<RawDocumentBuf>, mark: &'static str) -> Result<Vec<String>> {
        let cursor = format!("{mark} {}", collection.name());
        let last = self.unmarked.lock().remove(&cursor).unwrap_or_default();
        let mut filter = is_marked(mark);
        filter.insert("_id", doc! { "$gt": last });
        let query = Query::new(filter).sort(doc! { "_id": 1 }).project(doc! { "_id": 1 }).hint(mark);
        let found = self.find(collection, query.limit(Extent::pages(MARKED_MAX))).await?;
        let ids: Vec<&str> = found.iter().filter_map(|document| document.get_str("_id").ok()).collect();
        let Some(last) = ids.last() else { return Ok(Vec::new()) };
        if ids.len() >= MARKED_MAX {
            self.unmarked.lock().insert(cursor, (*last).to_owned());
        }
        let statement = |id: &&str| doc! { "q": { "_id": *id }, "u": { "$unset": { mark: 1 } } };
        let reply = self.run_statements(collection, ids.iter().map(statement).collect()).await?;
        let left = broken_rules(&reply).into_iter().take(LISTED_MAX);
        Ok(left.filter_map(|(index, _)| ids.get(index)).map(|id| (*id).to_owned()).collect())
    }

    /// Runs unordered updates of a collection. Returns the reply, which can have errors of single statements.
    pub(super) async fn run_statements(
        &self,
        collection: &Collection<RawDocumentBuf>,
        updates: Vec<Document>,
    ) -> Result<Document> {
        let command = doc! {
            "update": collection.name(), "updates": updates, "ordered": false,
            "writeConcern": { "w": "majority", "j": true },
        };
        let mongo = self.mongo.clone();
        let run = async move { mongo.run_command(command).await };
        let reply = self.run_write(setup::prefix(collection), run).await?.map_err(|e| classify(&e))?;
        self.client.note_reply(&reply);
        if reply.contains_key("writeConcernError") {
            return Err(StorageError::Unknown("a change is not durable yet".to_owned()));
        }
        Ok(reply)
    }
}
