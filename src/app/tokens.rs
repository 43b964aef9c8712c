//! `hourglass token`: creates, lists, rotates and revokes tokens where the service with the same settings reads them,
//! also while it runs. Also opens the tokens for that service.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};

use super::first_token::SecretFile;
use crate::access::{
    Audit, Event, Mode, OsUser, Quota, Scopes, Secret, Token, TokenChange, TokenFile, TokenRegistry, TokenStore,
    TokenStoreError,
};
use crate::clock::now_seconds;
use crate::config::{AuthRequired, Settings};
use crate::reading::duration::show_duration;
use crate::store::MongoStore;
use crate::telemetry::logs;

/// Applies the change. A new token's text is the only thing that `create` and `rotate` print to stdout.
#[must_use]
pub fn tokens(settings: &Settings, change: TokenChange) -> ExitCode {
    logs::start("warn", &settings.telemetry);
    let done = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = done.context("starting threads").and_then(|runtime| runtime.block_on(apply(settings, change)));
    super::ended(done)
}

async fn apply(settings: &Settings, change: TokenChange) -> anyhow::Result<()> {
    let directory = &settings.server.data_dir;
    // Only a new token may make the folder; a change of one in MongoDB makes it for the audit trail.
    match change {
        TokenChange::Create { .. } => super::file_modes::make_private(directory)?,
        TokenChange::List => super::data_folder::must_exist(settings)?,
        _ if settings.store.uri.is_embedded() => super::data_folder::must_exist(settings)?,
        _ => super::file_modes::make_private(directory)?,
    }
    let store: Arc<dyn TokenStore> = match settings.store.uri.is_embedded() {
        true => Arc::new(TokenFile::own(directory)),
        false => super::open_mongo(settings).await?,
    };
    let (tokens, now) = (store.tokens().await?, now_seconds());
    let Changed { token, replaces, action, shown } = match change {
        TokenChange::List => {
            let uses = store.uses().await?;
            for token in &tokens {
                let ends = token.ends(settings.max_lifetime());
                let shown = Token { expires: ends, ..token.clone() };
                println!("{}", described(&shown, uses.get(&token.name).copied(), now));
            }
            return Ok(());
        }
        TokenChange::Create { name, scopes, certificates, quota, expires_in } => {
            ends_in_time(settings, expires_in)?;
            let expires = expires_in.map(|seconds| now.saturating_add(seconds));
            let before = tokens.iter().find(|token| token.name == name);
            are_free(&tokens, &name, &certificates)?;
            let (token, text) = new_token(&name, scopes, quota, expires)?;
            created(before, (Token { certificates, ..token }, text))?
        }
        TokenChange::Bind { name, certificates } => {
            are_free(&tokens, &name, &certificates)?;
            let token = find(&tokens, &name)?;
            let (replaces, rev) = (Some(token.rev), token.rev + 1);
            Changed { token: Token { certificates, rev, ..token }, replaces, action: "bound", shown: None }
        }
        TokenChange::Revoke { name } => revoked(find(&tokens, &name)?, now),
        TokenChange::Rotate { name, keep } => rotated(find(&tokens, &name)?, now, keep)?,
    };
    if !store.put(&token, replaces).await? {
        bail!("the token {:?} was changed by another process meanwhile: list the tokens and try again", token.name);
    }
    Audit::new(directory, settings.audit.max_bytes as u64).note(&changed(action, &token));
    match shown {
        Some(text) => println!("{text}"),
        None => eprintln!("hourglass: the token {:?} is {action}; running services notice within seconds", token.name),
    }
    Ok(())
}

/// The event of a change by this process.
fn changed<'a>(action: &'static str, token: &'a Token) -> Event<'a> {
    let Token { name, scopes, quota, expires, .. } = token;
    Event::Token { action, name, scopes, quota, expires: *expires, user: OsUser::current(), by: None, address: None }
}

/// A token to write.
struct Changed {
    token: Token,
    /// The `rev` of the token that it replaces.
    replaces: Option<i64>,
    /// For messages and the audit log.
    action: &'static str,
    /// The token's text with its new secret, to be shown once.
    shown: Option<String>,
}

fn find(tokens: &[Token], name: &str) -> anyhow::Result<Token> {
    let found = tokens.iter().find(|token| token.name == *name && token.revoked.is_none());
    found.cloned().with_context(|| format!("there is no token named {name:?}: `hourglass token list` lists all tokens"))
}

/// Refuses a token that would live longer than `auth.max_lifetime`.
fn ends_in_time(settings: &Settings, expires_in: Option<i64>) -> anyhow::Result<()> {
    let Some(most) = settings.max_lifetime() else { return Ok(()) };
    if expires_in.is_some_and(|seconds| seconds <= most) {
        return Ok(());
    }
    let most = show_duration(settings.auth.max_lifetime);
    bail!("no token may live longer than {most} (auth.max_lifetime): give it an end with --expires, at most {most}")
}

/// A certificate counts as one token: with two, it would depend on their order what its client may do.
fn are_free(tokens: &[Token], name: &str, certificates: &[String]) -> anyhow::Result<()> {
    let others = || tokens.iter().filter(|token| token.name != *name && token.revoked.is_none());
    for certificate in certificates {
        if let Some(other) = others().find(|token| token.certificates.contains(certificate)) {
            let other = &other.name;
            bail!("{certificate} is bound to the token {other:?}: free it first with `hourglass token bind {other}`");
        }
    }
    Ok(())
}

fn created(before: Option<&Token>, (token, text): (Token, String)) -> anyhow::Result<Changed> {
    let name = &token.name;
    if before.is_some_and(|token| token.revoked.is_none()) {
        bail!("a token named {name:?} exists already: choose another name, or run `hourglass token rotate {name}`");
    }
    let replaces = before.map(|before| before.rev);
    let rev = replaces.map_or(1, |rev| rev + 1);
    Ok(Changed { token: Token { rev, ..token }, replaces, action: "created", shown: Some(text) })
}

fn revoked(token: Token, now: i64) -> Changed {
    let replaces = Some(token.rev);
    let token = token.revoked_at(now);
    Changed { token, replaces, action: "revoked", shown: None }
}

/// Gives the token a new secret; the last secret before it stays valid for `keep` seconds.
fn rotated(mut token: Token, now: i64, keep: i64) -> anyhow::Result<Changed> {
    let (secret, text) = Secret::generate().context("asking for random bytes")?;
    let last = token.secrets.pop().filter(|_| keep > 0);
    let last = last.map(|last| Secret { until: Some(now.saturating_add(keep)), ..last });
    let (secrets, replaces) = (last.into_iter().chain([secret]).collect(), Some(token.rev));
    let token = Token { secrets, rev: token.rev + 1, ..token };
    Ok(Changed { token, replaces, action: "rotated", shown: Some(text) })
}

fn new_token(name: &str, scopes: Scopes, quota: Quota, expires: Option<i64>) -> anyhow::Result<(Token, String)> {
    let (secret, text) = Secret::generate().context("asking for random bytes")?;
    let (name, secrets, created) = (name.to_owned(), vec![secret], now_seconds());
    let certificates = Vec::new();
    Ok((Token { name, secrets, scopes, certificates, quota, created, expires, revoked: None, rev: 1 }, text))
}

/// One line: the token's name, whether it is valid, when it was created and last used (to the minute), its rights and quotas, and the public id of its secret.
fn described(token: &Token, used: Option<i64>, now: i64) -> String {
    let time =
        |seconds: i64| jiff::Timestamp::from_second(seconds).map_or_else(|_| "?".to_owned(), |time| time.to_string());
    let state = match (token.revoked, token.expires) {
        (Some(revoked), _) => format!("revoked {}", time(revoked)),
        (None, Some(expires)) if now >= expires => format!("expired {}", time(expires)),
        (None, Some(expires)) => format!("until {}", time(expires)),
        (None, None) => "valid".to_owned(),
    };
    let Scopes { write, read, admin, metrics, pins } = &token.scopes;
    let used = used.map_or_else(|| "never used".to_owned(), |used| format!("used {}", time(used)));
    let mut parts = vec![format!("{:24} {state:32} created {}  {used:25}", token.name, time(token.created))];
    for (what, globs) in [("write", write), ("read", read), ("admin", admin)] {
        if !globs.is_empty() {
            parts.push(format!("{what} {}", globs.join(",")));
        }
    }
    parts.extend(metrics.then(|| "metrics".to_owned()));
    parts.extend(pins.iter().map(|pin| format!("only {}={}", pin.key, pin.value)));
    let Quota { readings_per_second, new_sensors_per_hour, sensors, databases } = token.quota;
    parts.extend(readings_per_second.map(|rate| format!("{rate}/s")));
    parts.extend(new_sensors_per_hour.map(|rate| format!("{rate} new sensors/h")));
    parts.extend(sensors.map(|count| format!("{count} sensors")));
    parts.extend(databases.map(|count| format!("{count} databases")));
    parts.extend(token.certificates.iter().cloned());
    parts.extend(token.secrets.last().map(|secret| format!("hg_{}_…", secret.id)));
    parts.join("  ")
}

/// The first token, if this start created it.
pub(super) enum FirstToken {
    /// Its text, to be shown once.
    Shown(String),
    /// It is in this file.
    InFile(PathBuf),
}

impl FirstToken {
    /// As a shell writes it: the text itself, or a command that prints it.
    pub(super) fn in_shell(&self) -> String {
        match self {
            Self::Shown(text) => text.clone(),
            Self::InFile(path) => format!("$(cat {})", path.display()),
        }
    }
}

/// Creates the first token, unless another process does at the same time.
async fn make_first(settings: &Settings, registry: &TokenRegistry) -> anyhow::Result<Option<FirstToken>> {
    let scopes = Scopes { admin: vec!["*".to_owned()], ..Scopes::default() };
    let expires = settings.max_lifetime().map(|seconds| now_seconds().saturating_add(seconds));
    let (token, text) = new_token("first", scopes, Quota::default(), expires)?;
    let path = Some(&settings.auth.first_token_file).filter(|path| !path.as_os_str().is_empty());
    let file = path.map(|path| SecretFile::open(path)).transpose()?;
    let (token, text) = match &file {
        Some(file) => (Token { secrets: vec![file.secret.clone()], ..token }, file.text.clone()),
        None => (token, text),
    };
    let made = registry.make_first(token.clone(), text).await.context("creating the first token");
    if let (Some(file), Some(path), Ok(None)) = (&file, path, &made) {
        file.discard(path);
    }
    let Some(text) = made? else { return Ok(None) };
    Audit::new(&settings.server.data_dir, settings.audit.max_bytes as u64).note(&changed("created", &token));
    Ok(Some(match path {
        Some(path) => FirstToken::InFile(super::data_folder::absolute(path)),
        None => FirstToken::Shown(text),
    }))
}

/// Maximum age of the last known tokens while MongoDB cannot be read, across restarts, too: later ones may have been revoked.
const CACHE_MAX_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Opens the tokens of a service. Returns the first token too, if this call created it.
pub(super) async fn open(
    settings: &Settings,
    mongo: Option<Arc<MongoStore>>,
) -> anyhow::Result<(Arc<TokenRegistry>, Option<FirstToken>)> {
    let directory = &settings.server.data_dir;
    let needed = settings.exposed().is_some() || settings.auth.required == AuthRequired::Always;
    // Whoever asks for a first token does not want an open service, even if it cannot be created now.
    let mode = if needed || settings.makes_first_token() { Mode::Always } else { Mode::OnceThereIsAToken };
    let registry = match mongo {
        Some(mongo) => TokenRegistry::of_store(mongo, TokenFile::cache(directory), mode, CACHE_MAX_AGE),
        None => TokenRegistry::of_file(TokenFile::own(directory), mode),
    };
    let registry = registry.limit_lifetime(settings.max_lifetime());
    let loaded = registry.load().await;
    match &loaded {
        Ok(()) => {}
        // An unreadable file may contain tokens, so it must not make the service open to everybody.
        Err(error @ TokenStoreError::Unreadable { .. }) => {
            return Err(error.clone()).context("reading the tokens");
        }
        Err(error) if needed => return Err(error.clone()).context("tokens are required, but cannot be read"),
        // MongoDB is unavailable and there is no cache of its tokens yet: there may be some.
        Err(error) => tracing::warn!(
            %error,
            "the tokens cannot be read yet; until they can, requests are answered with 503"
        ),
    }
    let mut first = None;
    if settings.makes_first_token() && loaded.is_ok() && registry.is_empty() {
        first = make_first(settings, &registry).await?;
    }
    if needed && !registry.has_live(now_seconds()) && first.is_none() {
        bail!(
            "tokens are required, because other machines may reach {} or because of auth.required, and there is no valid \
             token. Create one first: hourglass token add --name first --admin '*'{}",
            settings.front(),
            if settings.store.uri.is_embedded() { " (with the same --data-dir)" } else { " (with the same --store)" },
        );
    }
    Ok((Arc::new(registry), first))
}
