//! `hourglass token`: creates, lists, rotates and revokes tokens where the service with the same settings reads them,
//! also while it runs.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};

use crate::access::{Audit, Quota, Scopes, Secret, Token, TokenChange, TokenFile, TokenStore};
use crate::app::tokens::{changed, new_token};
use crate::clock::now_seconds;
use crate::config::Settings;
use crate::reading::duration::show_duration;
use crate::telemetry::logs;

/// Applies the change. A new token's text is the only thing that `create` and `rotate` print to stdout.
#[must_use]
pub fn tokens(settings: &Settings, change: TokenChange) -> ExitCode {
    logs::start("warn", &settings.telemetry);
    let done = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = done.context("starting threads").and_then(|runtime| runtime.block_on(apply(settings, change)));
    crate::app::ended(done)
}

async fn apply(settings: &Settings, change: TokenChange) -> anyhow::Result<()> {
    let directory = &settings.server.data_dir;
    // Only a new token may make the folder; a change of one in MongoDB makes it for the audit trail.
    match change {
        TokenChange::Create { .. } => crate::app::file_modes::make_private(directory)?,
        TokenChange::List => crate::app::data_folder::must_exist(settings)?,
        _ if settings.store.uri.is_embedded() => crate::app::data_folder::must_exist(settings)?,
        _ => crate::app::file_modes::make_private(directory)?,
    }
    let store: Arc<dyn TokenStore> = match settings.store.uri.is_embedded() {
        true => Arc::new(TokenFile::own(directory)),
        false => crate::app::open::open_mongo(settings).await?,
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
