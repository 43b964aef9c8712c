//! Tokens in a file of the data directory: with the embedded store the tokens themselves, with MongoDB a copy of the
//! last known ones. A change writes a new file and renames it, so that a reader sees the old or the new file; changes
//! of the tokens themselves hold a lock.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::token::{Token, TokenStore, TokenStoreError};

const FORMAT: u32 = 1;
/// Readable by the owner only: digests cannot be turned back into tokens, but names and scopes are private, too.
const MODE: u32 = 0o600;

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
    /// The tokens of a service with the embedded store.
    #[must_use]
    pub fn own(data_dir: &Path) -> Self {
        Self { path: data_dir.join("tokens.json") }
    }

    /// The last known tokens of a service that keeps its tokens in MongoDB.
    #[must_use]
    pub fn cache(data_dir: &Path) -> Self {
        Self { path: data_dir.join("tokens.cache.json") }
    }

    /// All tokens; `None` if there is no file.
    ///
    /// # Errors
    /// The file cannot be read or is not a token file.
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

    /// Modification time and length, to detect a change.
    #[must_use]
    pub fn written(&self) -> Option<(SystemTime, u64)> {
        let meta = fs::metadata(&self.path).ok()?;
        Some((meta.modified().ok()?, meta.len()))
    }

    /// When the tokens in it were last known to be right, in seconds since the epoch: the file's time.
    #[must_use]
    pub fn read_at(&self) -> Option<i64> {
        let since = self.written()?.0.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        i64::try_from(since.as_secs()).ok()
    }

    /// The tokens in it are still right. A failure makes them seem older, which is safe.
    pub fn mark_read(&self) {
        if let Ok(file) = OpenOptions::new().write(true).open(&self.path) {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Replaces all tokens, durably.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, tokens: &[Token]) -> io::Result<()> {
        let content = TokensFile { format: FORMAT, tokens: tokens.to_vec() };
        let mut text = serde_json::to_vec_pretty(&content)?;
        text.push(b'\n');
        replace_file(&self.path, &text, true)
    }

    /// The file of the tokens' last uses.
    fn uses_path(&self) -> PathBuf {
        self.path.with_file_name("tokens.used.json")
    }

    /// When tokens were last used. A file that cannot be read tells nothing and is replaced.
    fn read_uses(&self) -> HashMap<String, i64> {
        let text = fs::read(self.uses_path()).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Only the service calls this. It is not synced: after a power cut an older time may stand there.
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
        replace_file(&path, &serde_json::to_vec(&ordered).unwrap_or_default(), false).map_err(away)
    }

    fn unreadable(&self, detail: impl ToString) -> TokenStoreError {
        TokenStoreError::Unreadable { place: self.path.display().to_string(), detail: detail.to_string() }
    }

    fn put_now(&self, token: &Token, replaces: Option<i64>) -> Result<bool, TokenStoreError> {
        let away = |error: io::Error| TokenStoreError::Away { detail: format!("{}: {error}", self.path.display()) };
        let folder = self.path.parent().unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(away)?;
        let lock = self.path.with_extension("lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(MODE).open(lock).map_err(away)?;
        lock.lock().map_err(away)?;
        let mut tokens = self.read()?.unwrap_or_default();
        let here = tokens.iter().position(|known| known.name == token.name);
        if here.map(|here| tokens[here].rev) != replaces {
            return Ok(false);
        }
        match here {
            Some(here) => tokens[here] = token.clone(),
            None => tokens.push(token.clone()),
        }
        tokens.sort_by(|a, b| a.name.cmp(&b.name));
        self.write(&tokens).map_err(away)?;
        Ok(true)
    }
}

/// Writes a file for its owner only beside the one at `path`, and renames it: a reader sees the old or the new content. Both
/// are durable if the write is synced.
///
/// # Errors
/// If it cannot be written.
pub fn replace_file(path: &Path, content: &[u8], is_synced: bool) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(&beside)?;
    file.write_all(content)?;
    if !is_synced {
        return fs::rename(&beside, path);
    }
    file.sync_all()?;
    fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[async_trait]
impl TokenStore for TokenFile {
    async fn tokens(&self) -> Result<Vec<Token>, TokenStoreError> {
        Ok(self.read()?.unwrap_or_default())
    }

    async fn put(&self, token: &Token, replaces: Option<i64>) -> Result<bool, TokenStoreError> {
        let (file, token) = (self.clone(), token.clone());
        let written = tokio::task::spawn_blocking(move || file.put_now(&token, replaces)).await;
        written.unwrap_or_else(|ended| Err(TokenStoreError::Away { detail: ended.to_string() }))
    }

    async fn uses(&self) -> Result<HashMap<String, i64>, TokenStoreError> {
        Ok(self.read_uses())
    }

    async fn note_uses(&self, uses: &[(String, i64)]) -> Result<(), TokenStoreError> {
        let (file, uses) = (self.clone(), uses.to_vec());
        let written = tokio::task::spawn_blocking(move || file.write_uses(&uses)).await;
        written.unwrap_or_else(|ended| Err(TokenStoreError::Away { detail: ended.to_string() }))
    }
}
