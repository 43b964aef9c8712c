//! Limits the rate of log messages about a sender's rejections. A sender is a token at an address.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Maximum number of distinct senders. Further ones count as one sender until others are forgotten.
pub const SENDERS_MAX: usize = 1024;
/// Time without rejections after which a sender can be forgotten.
const IDLE_MAX: Duration = Duration::from_secs(120);
/// Minimum time between two log messages about one sender.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// The senders with rejections.
#[derive(Debug, Default)]
pub struct RejectionSenders(HashMap<String, RejectionSender>);

#[derive(Debug)]
struct RejectionSender {
    /// The time of the last log message.
    warned_at: Option<Instant>,
    /// The number of rejections since then.
    unreported: u64,
    /// The time of the last rejection.
    last_seen: Instant,
}

/// Returns the key of a sender. It is unique, because names of tokens have no line breaks.
pub fn sender_key(token: Option<&str>, network: &str) -> String {
    format!("{}\n{network}", token.unwrap_or_default())
}

impl RejectionSenders {
    /// Counts rejections. If a log message is due, returns the number of rejections since the previous one.
    pub fn note(&mut self, key: &str, count: u64, now: Instant) -> Option<u64> {
        let key = if self.0.contains_key(key) { key } else { self.new_key(key, now) };
        let sender =
            self.0.entry(key.to_owned()).or_insert(RejectionSender { warned_at: None, unreported: 0, last_seen: now });
        sender.last_seen = now;
        sender.unreported += count;
        let is_due = sender.warned_at.is_none_or(|warned_at| now.saturating_duration_since(warned_at) >= WARN_INTERVAL);
        is_due.then(|| {
            sender.warned_at = Some(now);
            std::mem::take(&mut sender.unreported)
        })
    }

    /// Returns the key for a new sender: its own if there is room, or else the shared one.
    fn new_key<'k>(&mut self, key: &'k str, now: Instant) -> &'k str {
        if self.0.len() >= SENDERS_MAX {
            self.0.retain(|_, sender| now.saturating_duration_since(sender.last_seen) < IDLE_MAX);
        }
        if self.0.len() >= SENDERS_MAX { "" } else { key }
    }
}
