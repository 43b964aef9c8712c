//! Tokens in a file of the data folder. With the embedded store, the file has the tokens themselves; with MongoDB, a
//! copy of the last known ones. A change replaces the file by a rename, so that a reader sees the old or the new
//! content. Changes of the tokens themselves hold a lock.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::token::{Token, TokenStore, TokenStoreError};
use crate::blocking;
use crate::files;

const FORMAT: u32 = 1;

/// A JSON file of tokens.
#[derive(Debug, Clone)]
pub struct TokenFile {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct TokensFile {
    format: u32,
    tokens: Vec<Token>,
}

impl TokenFile {
    /// Returns the file for the tokens of a service with the embedded store.
    #[must_use]
    pub fn primary(data_dir: &Path) -> Self {
        Self { path: data_dir.join("tokens.json") }
    }

    /// Returns the file for the last known tokens of a service with tokens in MongoDB.
    #[must_use]
    pub fn cache(data_dir: &Path) -> Self {
        Self { path: data_dir.join("tokens.cache.json") }
    }

    /// Reads all tokens. Returns `None` if there is no file.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a token file.
    pub fn read(&self) -> Result<Option<Vec<Token>>, TokenStoreError> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.unreadable(error)),
        };
        let content: TokensFile = serde_json::from_slice(&text).map_err(|error| self.unreadable(error))?;
        if content.format != FORMAT {
            return Err(self.unreadable(format!("format {}, but only {FORMAT} is supported", content.format)));
        }
        Ok(Some(content.tokens))
    }

    /// Returns the modification time and the length, to detect changes.
    #[must_use]
    pub fn file_version(&self) -> Option<(SystemTime, u64)> {
        let meta = fs::metadata(&self.path).ok()?;
        Some((meta.modified().ok()?, meta.len()))
    }

    /// Returns the time at which the tokens were last known to be current, in seconds since the epoch.
    #[must_use]
    pub fn read_at(&self) -> Option<i64> {
        let since = self.file_version()?.0.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        i64::try_from(since.as_secs()).ok()
    }

    /// Notes that the tokens are still current. A failure is ignored, because older tokens are safe: they expire
    /// earlier.
    pub fn mark_read(&self) {
        if let Ok(file) = OpenOptions::new().write(true).open(&self.path) {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Replaces all tokens, durably.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, tokens: &[Token]) -> io::Result<()> {
        let content = TokensFile { format: FORMAT, tokens: tokens.to_vec() };
        let mut text = serde_json::to_vec_pretty(&content)?;
        text.push(b'\n');
        files::replace(&self.path, &text, true)
    }

    fn uses_path(&self) -> PathBuf {
        self.path.with_file_name("tokens.used.json")
    }

    /// Reads the last uses by the token's name. An unreadable file counts as empty, and is replaced.
    fn read_uses(&self) -> HashMap<String, i64> {
        let text = fs::read(self.uses_path()).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Merges later uses into the file. The file is not synced, so a power cut may bring back older times.
    fn write_uses(&self, later: &[(String, i64)]) -> Result<(), TokenStoreError> {
        let tokens = self.read()?.unwrap_or_default();
        let mut uses = self.read_uses();
        uses.retain(|name, _| tokens.iter().any(|token| token.name == *name));
        for (name, last) in later {
            let known = uses.entry(name.clone()).or_default();
            *known = (*known).max(*last);
        }
        let path = self.uses_path();
        let away = |error: io::Error| TokenStoreError::Away { detail: format!("{}: {error}", path.display()) };
        let ordered: BTreeMap<String, i64> = uses.into_iter().collect();
        files::replace(&path, &serde_json::to_vec(&ordered).unwrap_or_default(), false).map_err(away)
    }

    fn unreadable(&self, detail: impl ToString) -> TokenStoreError {
        TokenStoreError::Unreadable { place: self.path.display().to_string(), detail: detail.to_string() }
    }

    fn put_now(&self, token: &Token, replaces: Option<i64>) -> Result<bool, TokenStoreError> {
        let away = |error: io::Error| TokenStoreError::Away { detail: format!("{}: {error}", self.path.display()) };
        let folder = self.path.parent().unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(away)?;
        let lock = self.path.with_extension("lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(lock).map_err(away)?;
        lock.lock().map_err(away)?;
        let mut tokens = self.read()?.unwrap_or_default();
        let index = tokens.iter().position(|known| known.name == token.name);
        if index.map(|index| tokens[index].rev) != replaces {
            return Ok(false);
        }
        match index {
            Some(index) => tokens[index] = token.clone(),
            None => tokens.push(token.clone()),
        }
        tokens.sort_by(|a, b| a.name.cmp(&b.name));
        self.write(&tokens).map_err(away)?;
        Ok(true)
    }
}

#[async_trait]
impl TokenStore for TokenFile {
    async fn tokens(&self) -> Result<Vec<Token>, TokenStoreError> {
        Ok(self.read()?.unwrap_or_default())
    }

    async fn put(&self, token: &Token, replaces: Option<i64>) -> Result<bool, TokenStoreError> {
        let file = self.clone();
        let token = token.clone();
        let written = blocking::spawn(move || file.put_now(&token, replaces)).await;
        written.unwrap_or_else(|ended| Err(TokenStoreError::Away { detail: ended.to_string() }))
    }

    async fn uses(&self) -> Result<HashMap<String, i64>, TokenStoreError> {
        Ok(self.read_uses())
    }

    async fn note_uses(&self, uses: &[(String, i64)]) -> Result<(), TokenStoreError> {
        let file = self.clone();
        let uses = uses.to_vec();
        let written = blocking::spawn(move || file.write_uses(&uses)).await;
        written.unwrap_or_else(|ended| Err(TokenStoreError::Away { detail: ended.to_string() }))
    }
}
