//! Tokens in MongoDB.

use std::collections::HashMap;

use async_trait::async_trait;

use super::{Token, TokenStore, TokenStoreError};
use crate::bucket::StorageError;
use crate::store::MongoStore;

fn away(error: StorageError) -> TokenStoreError {
    TokenStoreError::Away { detail: error.to_string() }
}

#[async_trait]
impl TokenStore for MongoStore {
    async fn tokens(&self) -> Result<Vec<Token>, TokenStoreError> {
        self.read_tokens().await.map_err(away)
    }

    async fn put(&self, token: &Token, replaces: Option<i64>) -> Result<bool, TokenStoreError> {
        self.put_token(&token.name, token, replaces).await.map_err(away)
    }

    async fn uses(&self) -> Result<HashMap<String, i64>, TokenStoreError> {
        self.token_uses().await.map_err(away)
    }

    async fn note_uses(&self, uses: &[(String, i64)]) -> Result<(), TokenStoreError> {
        self.note_token_uses(uses).await.map_err(away)
    }
}
