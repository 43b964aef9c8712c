//! Limits how often the log tells of a sender's rejections. A sender is a token at an address.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Maximum number of senders that are told apart; further ones count as one until others are silent.
pub const SENDERS_MAX: usize = 1024;
/// A sender without rejections for so long is forgotten where room is needed.
const SILENT: Duration = Duration::from_secs(120);
/// Shortest time between two log messages about one sender.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// The senders with rejections.
#[derive(Debug, Default)]
pub struct Senders(HashMap<String, Sender>);

#[derive(Debug)]
struct Sender {
    warned: Option<Instant>,
    /// Rejections since then.
    since: u64,
    seen: Instant,
}

/// The key of a sender. No token's name has a line break.
pub fn sender_key(token: Option<&str>, network: &str) -> String {
    format!("{}\n{network}", token.unwrap_or_default())
}

impl Senders {
    /// Counts rejections; returns how many there were since the last log message, if there is to be one.
    pub fn note(&mut self, key: &str, count: u64, now: Instant) -> Option<u64> {
        let key = if self.0.contains_key(key) { key } else { self.room_for(key, now) };
        let sender = self.0.entry(key.to_owned()).or_insert(Sender { warned: None, since: 0, seen: now });
        sender.seen = now;
        sender.since += count;
        let is_due = sender.warned.is_none_or(|warned| now.saturating_duration_since(warned) >= WARN_INTERVAL);
        is_due.then(|| {
            sender.warned = Some(now);
            std::mem::take(&mut sender.since)
        })
    }

    /// The key under which a new sender is known: its own where there is room.
    fn room_for<'k>(&mut self, key: &'k str, now: Instant) -> &'k str {
        if self.0.len() >= SENDERS_MAX {
            self.0.retain(|_, sender| now.saturating_duration_since(sender.seen) < SILENT);
        }
        if self.0.len() >= SENDERS_MAX { "" } else { key }
    }
}
