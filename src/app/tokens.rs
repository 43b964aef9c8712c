//! Opens the tokens of a service, and creates the first one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use super::data_folder::absolute;
use super::first_token::SecretFile;
use super::not_started::NotStarted;
use crate::access::{Audit, Event, Mode, NewToken, OsUser, Scopes, Token, TokenFile, TokenRegistry, TokenStoreError};
use crate::clock::now_seconds;
use crate::config::{AuthRequired, Settings};
use crate::store::MongoStore;

/// The first token, if this start created it.
pub(crate) enum FirstToken {
    /// The text of the token, which is shown once.
    Shown(String),
    /// The file with the token.
    InFile(PathBuf),
}

impl FirstToken {
    /// Returns a shell word for the token: its text, or a command that prints it.
    pub(crate) fn in_shell(&self) -> String {
        match self {
            Self::Shown(text) => text.clone(),
            Self::InFile(path) => format!("$(cat {})", path.display()),
        }
    }
}

/// Creates the first token, unless another process does at the same time.
async fn make_first(settings: &Settings, registry: &TokenRegistry) -> anyhow::Result<Option<FirstToken>> {
    let scopes = Scopes { admin: vec!["*".to_owned()], ..Scopes::default() };
    let new = NewToken { name: "first".to_owned(), scopes, expires_in: settings.max_lifetime(), ..NewToken::default() };
    let (token, text) = new.generate(now_seconds()).context("asking for random bytes")?;
    let path = Some(&settings.auth.first_token_file).filter(|path| !path.as_os_str().is_empty());
    let file = path.map(|path| SecretFile::open(path)).transpose()?;
    let (token, text) = match &file {
        Some(file) => (Token { secrets: vec![file.secret.clone()], ..token }, file.text.clone()),
        None => (token, text),
    };
    if !registry.make_first(&token).await.context("creating the first token")? {
        if let (Some(file), Some(path)) = (&file, path) {
            file.discard(path);
        }
        return Ok(None);
    }
    Audit::new(&settings.server.data_dir, settings.audit.max_bytes as u64).note(&token_event("created", &token));
    Ok(Some(match path {
        Some(path) => FirstToken::InFile(absolute(path)),
        None => FirstToken::Shown(text),
    }))
}

/// Maximum age of cached tokens while MongoDB cannot be read, because tokens may have been revoked since.
const CACHE_MAX_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Opens the tokens of a service. Returns the first token too, if this call created it.
pub(crate) async fn open(
    settings: &Settings,
    mongo: Option<Arc<MongoStore>>,
) -> anyhow::Result<(Arc<TokenRegistry>, Option<FirstToken>)> {
    let directory = &settings.server.data_dir;
    let needed = settings.exposed_address().is_some() || settings.auth.required == AuthRequired::Always;
    // A configured first token means that the service must not be open, even if the token cannot be created now.
    let mode = if needed || settings.makes_first_token() { Mode::Always } else { Mode::OnceThereIsAToken };
    let registry = match mongo {
        Some(mongo) => TokenRegistry::from_store(mongo, TokenFile::cache(directory), mode, CACHE_MAX_AGE),
        None => TokenRegistry::from_file(TokenFile::primary(directory), mode),
    };
    let registry = registry.limit_lifetime(settings.max_lifetime());
    let loaded = registry.load().await;
    match &loaded {
        Ok(()) => {}
        // An unreadable file may have tokens, so it must not open the service to everybody.
        Err(error @ TokenStoreError::Unreadable { .. }) => {
            return Err(error.clone()).context("reading the tokens");
        }
        Err(error) if needed => return Err(error.clone()).context("tokens are required, but cannot be read"),
        // MongoDB is unavailable and its tokens are not cached yet, so there may be some.
        Err(error) => tracing::warn!(
            %error,
            "the tokens cannot be read yet; requests are answered with 503 until they can be read"
        ),
    }
    let mut first = None;
    if settings.makes_first_token() && loaded.is_ok() && registry.is_empty() {
        first = make_first(settings, &registry).await?;
    }
    if needed && !registry.has_live(now_seconds()) && first.is_none() {
        return Err(NotStarted::config(format!(
            "tokens are required, because other machines can reach {} or because of auth.required, and there is no valid \
             token. Create one first: hourglass token add --name first --admin '*'{}",
            settings.front(),
            if settings.store.uri.is_embedded() { " (with the same --data-dir)" } else { " (with the same --store)" },
        ))
        .into());
    }
    Ok((Arc::new(registry), first))
}

/// Returns the audit event of a token change by this process.
pub(crate) fn token_event<'a>(action: &'static str, token: &'a Token) -> Event<'a> {
    let Token { name, scopes, quota, expires, .. } = token;
    Event::Token { action, name, scopes, quota, expires: *expires, user: OsUser::current(), by: None, address: None }
}
