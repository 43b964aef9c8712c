//! Which rejections of a sender are kept, and when the log tells of it: a sender is a token at an address. Whoever sends
//! only bad lines costs little, and fills neither the list nor the log.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most senders that are told apart; further ones count as one until others are silent.
pub const SENDERS_MAX: usize = 1024;
/// A sender without rejections for so long is forgotten where room is needed.
const SILENT: Duration = Duration::from_secs(120);
/// Requests of one sender that are kept at once, and after that the time per request.
const BURST: u32 = 10;
const PER_REQUEST: Duration = Duration::from_secs(1);
/// Shortest time between two log messages about one sender.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// The senders with rejections.
#[derive(Debug, Default)]
pub struct Senders(HashMap<Arc<str>, Sender>);

/// What is known of a sender.
#[derive(Debug)]
struct Sender {
    /// When as many requests as were kept would have been due at [`PER_REQUEST`].
    due: Instant,
    warned: Option<Instant>,
    /// Rejections since then.
    since: u64,
    seen: Instant,
}

/// What is to be done about a request's rejections.
#[derive(Debug)]
pub struct Turn {
    /// The sender's key, or the one of those that are not told apart.
    pub sender: Arc<str>,
    pub keep: bool,
    /// How many were rejected since the last log message, if there is to be one.
    pub warn: Option<u64>,
}

/// The key of a sender. No token's name has a line break.
pub fn sender_key(token: Option<&str>, network: &str) -> String {
    format!("{}\n{network}", token.unwrap_or_default())
}

/// The token's part of a key.
pub fn token_of(key: &str) -> &str {
    key.split('\n').next().unwrap_or_default()
}

impl Senders {
    /// Counts a request with so many rejections.
    pub fn note(&mut self, key: &str, count: u64, now: Instant) -> Turn {
        let known = self.0.get_key_value(key).map(|(key, _)| key.clone());
        let key = known.unwrap_or_else(|| self.room_for(key, now));
        let sender = self.0.entry(key.clone()).or_insert(Sender { due: now, warned: None, since: 0, seen: now });
        sender.seen = now;
        sender.since += count;
        let keep = sender.due.saturating_duration_since(now) < BURST * PER_REQUEST;
        if keep {
            sender.due = sender.due.max(now) + PER_REQUEST;
        }
        let is_due = sender.warned.is_none_or(|warned| now.saturating_duration_since(warned) >= WARN_INTERVAL);
        let warn = is_due.then(|| {
            sender.warned = Some(now);
            std::mem::take(&mut sender.since)
        });
        Turn { sender: key, keep, warn }
    }

    /// The key under which a new sender is known: its own where there is room.
    fn room_for(&mut self, key: &str, now: Instant) -> Arc<str> {
        if self.0.len() >= SENDERS_MAX {
            self.0.retain(|_, sender| now.saturating_duration_since(sender.seen) < SILENT);
        }
        if self.0.len() >= SENDERS_MAX { "".into() } else { key.into() }
    }
}
