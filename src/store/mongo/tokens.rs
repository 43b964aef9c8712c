//! Tokens in the collection `tokens`, visible to all instances and in `mongosh`; `_id` is a token's name.

use std::collections::HashMap;

use async_trait::async_trait;
use bson::{Document, doc};
use mongodb::error::Error;
use mongodb::{Collection, Database};
use serde::{Deserialize, Serialize};

use super::MongoStore;
use super::outcome::{classify, is_duplicate_key};
use crate::access::{Token, TokenStore, TokenStoreError};
use crate::bucket::StorageError;

const TOKENS: &str = "tokens";
/// The field of a token's last use, in seconds since the epoch, which is no part of [`Token`].
const USED: &str = "used";

#[derive(Serialize, Deserialize)]
struct TokenDocument {
    #[serde(rename = "_id")]
    id: String,
    #[serde(flatten)]
    token: Token,
}

impl MongoStore {
    fn tokens_collection(&self) -> Collection<TokenDocument> {
        self.mongo.collection(TOKENS)
    }
}

fn away(error: &StorageError) -> TokenStoreError {
    TokenStoreError::Away { detail: error.to_string() }
}

/// All readable tokens; an unreadable one is skipped, so it neither grants access nor hides the others.
async fn all(collection: Collection<Document>) -> Result<Vec<Token>, Error> {
    let mut cursor = collection.find(doc! {}).sort(doc! { "_id": 1 }).await?;
    let mut found = Vec::new();
    while cursor.advance().await? {
        match bson::deserialize_from_document::<TokenDocument>(cursor.deserialize_current()?) {
            Ok(stored) => found.push(stored.token),
            Err(error) => tracing::debug!(%error, "unreadable document in collection tokens; skipped"),
        }
    }
    Ok(found)
}

/// Writes a token by compare-and-set; false if another writer was faster.
async fn put(
    collection: Collection<TokenDocument>,
    stored: TokenDocument,
    replaces: Option<i64>,
) -> Result<bool, Error> {
    let Some(rev) = replaces else {
        return match collection.insert_one(stored).await {
            Ok(_) => Ok(true),
            Err(error) if is_duplicate_key(&error) => Ok(false),
            Err(error) => Err(error),
        };
    };
    let filter = doc! { "_id": &stored.id, "rev": rev };
    // Everything but the last use, which is no part of the token, is replaced.
    let stored = bson::serialize_to_document(&stored)?;
    let kept = doc! { (USED): format!("${USED}") };
    let replaced = doc! { "$replaceWith": { "$mergeObjects": [{ "$literal": stored }, kept] } };
    Ok(collection.update_one(filter, vec![replaced]).await?.matched_count == 1)
}

/// When each token was last used, by name.
async fn uses(collection: Collection<Document>) -> Result<HashMap<String, i64>, Error> {
    let mut cursor = collection.find(doc! { (USED): { "$exists": true } }).projection(doc! { (USED): 1 }).await?;
    let mut found = HashMap::new();
    while cursor.advance().await? {
        let stored = cursor.deserialize_current()?;
        if let (Ok(name), Ok(last)) = (stored.get_str("_id"), stored.get_i64(USED)) {
            found.insert(name.to_owned(), last);
        }
    }
    Ok(found)
}

/// One command for all of them. A token that was removed meanwhile stays so.
async fn note_uses(database: Database, uses: Vec<(String, i64)>) -> Result<(), Error> {
    let update = |(name, last): (String, i64)| doc! { "q": { "_id": name }, "u": { "$max": { (USED): last } } };
    let updates: Vec<Document> = uses.into_iter().map(update).collect();
    database.run_command(doc! { "update": TOKENS, "updates": updates, "ordered": false }).await.map(drop)
}

#[async_trait]
impl TokenStore for MongoStore {
    async fn tokens(&self) -> Result<Vec<Token>, TokenStoreError> {
        let collection = self.tokens_collection().clone_with_type();
        let read = self.read(async move { all(collection).await.map_err(|e| classify(&e)) }).await;
        read.map_err(|error| away(&error))
    }

    async fn put(&self, token: &Token, replaces: Option<i64>) -> Result<bool, TokenStoreError> {
        let (collection, stored) =
            (self.tokens_collection(), TokenDocument { id: token.name.clone(), token: token.clone() });
        let written = self.run(&self.writes, async move { put(collection, stored, replaces).await }).await;
        let written = written.and_then(|written| written.map_err(|e| classify(&e)));
        written.map_err(|error| away(&error))
    }

    async fn uses(&self) -> Result<HashMap<String, i64>, TokenStoreError> {
        let collection = self.tokens_collection().clone_with_type();
        let read = self.read(async move { uses(collection).await.map_err(|e| classify(&e)) }).await;
        read.map_err(|error| away(&error))
    }

    async fn note_uses(&self, uses: &[(String, i64)]) -> Result<(), TokenStoreError> {
        let (database, uses) = (self.mongo.clone(), uses.to_vec());
        let written = self.run(&self.writes, async move { note_uses(database, uses).await }).await;
        written.and_then(|written| written.map_err(|e| classify(&e))).map_err(|error| away(&error))
    }
}
