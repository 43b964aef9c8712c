//! `hourglass token`: creates, lists, rotates and revokes the tokens of the service with the same settings. The service
//! can keep running.

use std::sync::Arc;

use crate::access::{Audit, ChangedToken, Quota, Scopes, Token, TokenChange, TokenFile, TokenStore};
use crate::app::tokens::token_event;
use crate::clock::now_seconds;
use crate::config::Settings;
use crate::ingest::plain;

/// Prints all tokens, one per line.
pub async fn list_tokens(settings: &Settings) -> anyhow::Result<()> {
    crate::app::data_folder::must_exist(settings)?;
    let store = token_store(settings).await?;
    let uses = store.uses().await?;
    for token in store.tokens().await? {
        let used = uses.get(&token.name).copied();
        let token = Token { expires: token.ends(settings.max_lifetime()), ..token };
        println!("{}", plain(&describe(&token, used, now_seconds()), usize::MAX));
    }
    Ok(())
}

/// Applies a change. `add` and `rotate` print only the text of the new token to stdout.
pub async fn tokens(settings: &Settings, change: TokenChange) -> anyhow::Result<()> {
    let directory = &settings.server.data_dir;
    // Only a new token may create the folder. With MongoDB, any change creates it for the audit trail.
    if settings.store.uri.is_embedded() && !matches!(change, TokenChange::Create(_)) {
        crate::app::data_folder::must_exist(settings)?;
    } else {
        crate::app::data_folder::make_private(directory)?;
    }
    let store = token_store(settings).await?;
    let ChangedToken { token, action, text } = change.apply(&*store, settings.max_lifetime(), now_seconds()).await?;
    Audit::new(directory, settings.audit.max_bytes as u64).note(&token_event(action, &token));
    match text {
        Some(text) => println!("{text}"),
        None => eprintln!("hourglass: the token {:?} is {action}; running services notice within seconds", token.name),
    }
    Ok(())
}

/// Opens the tokens of the service with these settings.
pub async fn token_store(settings: &Settings) -> anyhow::Result<Arc<dyn TokenStore>> {
    if settings.store.uri.is_embedded() {
        return Ok(Arc::new(TokenFile::primary(&settings.server.data_dir)));
    }
    Ok(crate::app::open::open_mongo(settings).await?)
}

/// Formats a token as one line: its name, its state, the times of its creation and last use (to the minute), its rights
/// and quotas, and the public id of its secret.
fn describe(token: &Token, used: Option<i64>, now: i64) -> String {
    let time =
        |seconds: i64| jiff::Timestamp::from_second(seconds).map_or_else(|_| "?".to_owned(), |time| time.to_string());
    let state = match (token.revoked, token.expires) {
        (Some(revoked), _) => format!("revoked {}", time(revoked)),
        (None, Some(expires)) if now >= expires => format!("expired {}", time(expires)),
        (None, Some(expires)) => format!("until {}", time(expires)),
        (None, None) => "valid".to_owned(),
    };
    let Scopes { write, read, admin, metrics, pins, ingest } = &token.scopes;
    let used = used.map_or_else(|| "never used".to_owned(), |used| format!("used {}", time(used)));
    let mut parts = vec![format!("{:24} {state:32} created {}  {used:25}", token.name, time(token.created))];
    for (what, globs) in [("write", write), ("read", read), ("admin", admin)] {
        if !globs.is_empty() {
            parts.push(format!("{what} {}", globs.join(",")));
        }
    }
    parts.extend(metrics.then(|| "metrics".to_owned()));
    parts.extend(ingest.iter().map(|scope| format!("ingest {} into {}", scope.mapping, scope.database)));
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
