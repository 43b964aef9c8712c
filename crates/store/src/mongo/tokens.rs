//! Tokens in the collection `tokens`, which all instances share. `_id` is the token's name, and the caller defines the other
//! fields.

use std::collections::HashMap;

use bson::{Document, RawDocumentBuf, doc};
use mongodb::Collection;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::MongoStore;
use super::outcome::{classify, is_duplicate_key};
use super::reads::Query;
use crate::bucket::{Result, StorageError};

const TOKENS: &str = "tokens";
/// The field with the time of a token's last use, in seconds since the epoch. It is not a field of the token itself.
const USED: &str = "used";

impl MongoStore {
    fn tokens_collection(&self) -> Collection<Document> {
        self.mongo.collection(TOKENS)
    }

    /// Reads all tokens. Skips unreadable ones, which then grant no access and do not hide the others.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn read_tokens<T: DeserializeOwned + Send + 'static>(&self) -> Result<Vec<T>> {
        let collection = self.tokens_collection();
        let read = async move {
            let mut cursor = collection.find(doc! {}).sort(doc! { "_id": 1 }).await.map_err(|e| classify(&e))?;
            let mut found = Vec::new();
            while cursor.advance().await.map_err(|e| classify(&e))? {
                let stored = cursor.deserialize_current().map_err(|e| classify(&e))?;
                match bson::deserialize_from_document::<T>(stored) {
                    Ok(token) => found.push(token),
                    Err(error) => tracing::debug!(%error, "unreadable document in collection tokens; skipped"),
                }
            }
            Ok(found)
        };
        self.read(read).await
    }

    /// Writes a token by compare-and-set. `replaces` is the expected rev, or `None` for a new token. Returns false after a
    /// conflict.
    ///
    /// # Errors
    /// If the store does not answer, or refuses.
    pub async fn put_token<T: Serialize>(&self, name: &str, token: &T, replaces: Option<i64>) -> Result<bool> {
        let unwritable = |e: bson::error::Error| StorageError::Refused(e.to_string());
        let mut stored = doc! { "_id": name };
        stored.extend(bson::serialize_to_document(token).map_err(unwritable)?);
        let collection = self.tokens_collection();
        let write = async move {
            let Some(rev) = replaces else {
                return match collection.insert_one(stored).await {
                    Ok(_) => Ok(true),
                    Err(error) if is_duplicate_key(&error) => Ok(false),
                    Err(error) => Err(classify(&error)),
                };
            };
            let filter = doc! { "_id": stored.get_str("_id").unwrap_or_default(), "rev": rev };
            // Replace the token but keep the last use.
            let kept = doc! { (USED): format!("${USED}") };
            let replaced = doc! { "$replaceWith": { "$mergeObjects": [{ "$literal": stored }, kept] } };
            let written = collection.update_one(filter, vec![replaced]).await.map_err(|e| classify(&e))?;
            Ok(written.matched_count == 1)
        };
        self.run(&self.writes, write).await?
    }

    /// Reads the time of each token's last use, by name.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn token_uses(&self) -> Result<HashMap<String, i64>> {
        let query = Query::new(doc! { (USED): { "$exists": true } }).project(doc! { (USED): 1 });
        let found = self.find(&self.tokens_collection().clone_with_type(), query).await?;
        let used = |stored: &RawDocumentBuf| Some((stored.get_str("_id").ok()?.to_owned(), stored.get_i64(USED).ok()?));
        Ok(found.iter().filter_map(used).collect())
    }

    /// Notes uses of tokens in one command. Does not recreate removed tokens.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn note_token_uses(&self, uses: &[(String, i64)]) -> Result<()> {
        let update = |(name, last): &(String, i64)| doc! { "q": { "_id": name }, "u": { "$max": { (USED): *last } } };
        let updates: Vec<Document> = uses.iter().map(update).collect();
        let command = doc! { "update": TOKENS, "updates": updates, "ordered": false };
        let mongo = self.mongo.clone();
        let noted = async move { mongo.run_command(command).await.map(drop).map_err(|e| classify(&e)) };
        self.run(&self.writes, noted).await?
    }
}
