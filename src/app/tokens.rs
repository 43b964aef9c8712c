//! `hourglass token`: tokens created, listed, rotated and revoked where the service with the same settings finds them,
//! whether it runs or not; and opened for that service.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};

use crate::access::{
    Audit, Event, Mode, Quota, Registry, Scopes, Secret, Token, TokenChange, TokenFile, TokenStore, TokenStoreError,
};
use crate::clock::now_seconds;
use crate::config::{AuthRequired, Settings};
use crate::store::MongoStore;
use crate::telemetry::logs;

/// Does it. What is shown once goes to the standard output, and nothing else with it.
#[must_use]
pub fn tokens(settings: &Settings, change: TokenChange) -> ExitCode {
    logs::start("warn", settings.telemetry.log_format);
    let done = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = done.context("starting threads").and_then(|runtime| runtime.block_on(apply(settings, change)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hourglass: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn apply(settings: &Settings, change: TokenChange) -> anyhow::Result<()> {
    let directory = &settings.server.data_dir;
    std::fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
    let store: Arc<dyn TokenStore> = match settings.store.uri.is_embedded() {
        true => Arc::new(TokenFile::own(directory)),
        false => super::open_mongo(settings).await?,
    };
    let (tokens, now) = (store.tokens().await?, now_seconds());
    let Changed { token, replaces, action, shown } = match change {
        TokenChange::List => {
            tokens.iter().for_each(|token| println!("{}", described(token, now)));
            return Ok(());
        }
        TokenChange::Create { name, scopes, quota, expires_in } => {
            let expires = expires_in.map(|seconds| now.saturating_add(seconds));
            let before = tokens.iter().find(|token| token.name == name);
            created(before, new_token(&name, scopes, quota, expires)?)?
        }
        TokenChange::Revoke { name } => revoked(find(&tokens, &name)?, now),
        TokenChange::Rotate { name, keep } => rotated(find(&tokens, &name)?, now, keep)?,
    };
    if !store.put(&token, replaces).await? {
        bail!("the token {:?} was just changed by somebody else: look at it again", token.name);
    }
    Audit::new(directory).note(&Event::Token { action, name: &token.name });
    match shown {
        Some(text) => println!("{text}"),
        None => eprintln!("hourglass: the token {:?} is {action}; services know within seconds", token.name),
    }
    Ok(())
}

/// A token as it is to be, and the `rev` of the one in whose place it comes.
struct Changed {
    token: Token,
    replaces: Option<i64>,
    /// What was done, for people.
    action: &'static str,
    /// What is shown once.
    shown: Option<String>,
}

fn find(tokens: &[Token], name: &str) -> anyhow::Result<Token> {
    let found = tokens.iter().find(|token| token.name == *name && token.revoked.is_none());
    found.cloned().with_context(|| format!("there is no token named {name:?}: `hourglass token list` names them"))
}

fn created(before: Option<&Token>, (token, text): (Token, String)) -> anyhow::Result<Changed> {
    let name = &token.name;
    if before.is_some_and(|token| token.revoked.is_none()) {
        bail!("there is a token named {name:?} already: choose another name, or `hourglass token rotate {name}`");
    }
    let replaces = before.map(|before| before.rev);
    let rev = replaces.map_or(1, |rev| rev + 1);
    Ok(Changed { token: Token { rev, ..token }, replaces, action: "created", shown: Some(text) })
}

fn revoked(token: Token, now: i64) -> Changed {
    let replaces = Some(token.rev);
    let token = Token { secrets: Vec::new(), revoked: Some(now), rev: token.rev + 1, ..token };
    Changed { token, replaces, action: "revoked", shown: None }
}

/// With another secret; the latest one before it counts for some seconds more.
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
    Ok((Token { name, secrets, scopes, quota, created, expires, revoked: None, rev: 1 }, text))
}

/// A token in a line: its name, whether it counts, what it may do, and what it is known by; never its secret.
fn described(token: &Token, now: i64) -> String {
    let time =
        |seconds: i64| jiff::Timestamp::from_second(seconds).map_or_else(|_| "?".to_owned(), |time| time.to_string());
    let state = match (token.revoked, token.expires) {
        (Some(revoked), _) => format!("revoked {}", time(revoked)),
        (None, Some(expires)) if now >= expires => format!("expired {}", time(expires)),
        (None, Some(expires)) => format!("until {}", time(expires)),
        (None, None) => "live".to_owned(),
    };
    let Scopes { write, read, admin, metrics, pins } = &token.scopes;
    let mut parts = vec![format!("{:24} {state:32} created {}", token.name, time(token.created))];
    for (what, globs) in [("write", write), ("read", read), ("admin", admin)] {
        if !globs.is_empty() {
            parts.push(format!("{what} {}", globs.join(",")));
        }
    }
    parts.extend(metrics.then(|| "metrics".to_owned()));
    parts.extend(pins.iter().map(|pin| format!("only {}={}", pin.key, pin.value)));
    let Quota { readings_per_second, new_sensors_per_hour, sensors } = token.quota;
    parts.extend(readings_per_second.map(|rate| format!("{rate}/s")));
    parts.extend(new_sensors_per_hour.map(|rate| format!("{rate} new sensors/h")));
    parts.extend(sensors.map(|count| format!("{count} sensors")));
    parts.extend(token.secrets.last().map(|secret| format!("hg_{}_…", secret.id)));
    parts.join("  ")
}

/// The tokens of a service, and the text of its first one when that was just made.
pub(super) async fn open(
    settings: &Settings,
    mongo: Option<Arc<MongoStore>>,
) -> anyhow::Result<(Arc<Registry>, Option<String>)> {
    let directory = &settings.server.data_dir;
    let needed = settings.exposed().is_some() || settings.auth.required == AuthRequired::Always;
    let mode = if needed { Mode::Always } else { Mode::OnceThereIsAToken };
    let registry = match mongo {
        Some(mongo) => Registry::of_store(mongo, TokenFile::cache(directory), mode),
        None => Registry::of_file(TokenFile::own(directory), mode),
    };
    let loaded = registry.load().await;
    match &loaded {
        Ok(()) => {}
        // What cannot be read may hold tokens: nobody is let in by that.
        Err(error @ TokenStoreError::Unreadable { .. }) => {
            return Err(error.clone()).context("the tokens are not known");
        }
        Err(error) if needed => return Err(error.clone()).context("tokens are needed at this address"),
        // MongoDB is away at the very first start, and what is at loopback is open until there is a token.
        Err(error) => tracing::warn!(%error, "whether there are tokens is not known yet"),
    }
    let mut first = None;
    if settings.auth.first_token && loaded.is_ok() && registry.is_empty() {
        let scopes = Scopes { admin: vec!["*".to_owned()], ..Scopes::default() };
        let (token, text) = new_token("first", scopes, Quota::default(), None)?;
        first = registry.make_first(token, text).await.context("making the first token")?;
        if first.is_some() {
            Audit::new(directory).note(&Event::Token { action: "created", name: "first" });
        }
    }
    if needed && !registry.has_live(now_seconds()) && first.is_none() {
        bail!(
            "{} lets other machines in, or auth.required says so, and there is no token that counts. Make one first: \
             hourglass token create --name first --admin '*'{}",
            settings.exposed().unwrap_or(settings.server.listen),
            if settings.store.uri.is_embedded() { " (with the same --data-dir)" } else { " (with the same --store)" },
        );
    }
    Ok((Arc::new(registry), first))
}
