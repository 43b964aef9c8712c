//! Tokens in the collection `tokens`, visible to all instances and in `mongosh`; `_id` is a token's name.

use async_trait::async_trait;
use bson::{Document, doc};
use mongodb::Collection;
use mongodb::error::Error;
use serde::{Deserialize, Serialize};

use super::MongoStore;
use super::outcome::{classify, is_duplicate_key};
use crate::access::{Token, TokenStore, TokenStoreError};
use crate::bucket::StorageError;

#[derive(Serialize, Deserialize)]
struct TokenDocument {
    #[serde(rename = "_id")]
    id: String,
    #[serde(flatten)]
    token: Token,
}

impl MongoStore {
    fn tokens_collection(&self) -> Collection<TokenDocument> {
        self.mongo.collection("tokens")
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
    Ok(collection.replace_one(filter, stored).await?.matched_count == 1)
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
}
