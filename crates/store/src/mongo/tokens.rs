//! Tokens in the collection `tokens`, visible to all instances and in `mongosh`; `_id` is a token's name. What a token is, only
//! its reader knows.

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
/// The field of a token's last use, in seconds since the epoch, which is no part of the token.
const USED: &str = "used";

impl MongoStore {
    fn tokens_collection(&self) -> Collection<Document> {
        self.mongo.collection(TOKENS)
    }

    /// Reads all readable tokens; an unreadable one is skipped, so it neither grants access nor hides the others.
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

    /// Writes a token by compare-and-set; false if another writer was faster.
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
            // Everything but the last use, which is no part of the token, is replaced.
            let kept = doc! { (USED): format!("${USED}") };
            let replaced = doc! { "$replaceWith": { "$mergeObjects": [{ "$literal": stored }, kept] } };
            let written = collection.update_one(filter, vec![replaced]).await.map_err(|e| classify(&e))?;
            Ok(written.matched_count == 1)
        };
        self.run(&self.writes, write).await?
    }

    /// Reads when each token was last used, by name.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn token_uses(&self) -> Result<HashMap<String, i64>> {
        let query = Query::of(doc! { (USED): { "$exists": true } }).sending(doc! { (USED): 1 });
        let found = self.find(&self.tokens_collection().clone_with_type(), query).await?;
        let used = |stored: &RawDocumentBuf| Some((stored.get_str("_id").ok()?.to_owned(), stored.get_i64(USED).ok()?));
        Ok(found.iter().filter_map(used).collect())
    }

    /// Notes uses with one command. A token that was removed meanwhile stays so.
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
