//! The last rejected lines and readings, so that a sender's owner sees them: what was sent, by whom, and why it was
//! rejected. Sampled per request and per sender, bounded in number, bytes and age, and written to a file off the request
//! path. Also warns in the log, about each sender now and then.

mod file;
mod kept;
mod lines;
mod segments;
mod senders;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::VecDeque;
use std::fmt::Write;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::kept::Kept;
pub use self::kept::{KeptRejection, is_json, measurement_of};
pub use self::lines::{KeptLine, KeptLines, LineOptions, SenderToken};
use self::senders::{Senders, Turn, sender_key};
use super::admission::validate::{Rejected, RejectedLine};
use crate::access::{Caller, steers};
use crate::clock::now_ns;
use crate::config::ShownAddresses;
use crate::reading::{Precision, Rejection};

/// How often changes are written to the file: so much a crash may lose.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);
/// Most rejections that are kept of one request: the first of each code.
const CODES_MAX: usize = 4;
/// Most characters of a rejected line, and of a reason.
const TEXT_CHARS: usize = 256;
/// The same in a log message, which stays under 500 bytes.
const LOG_CHARS: usize = 100;

/// The config section `[rejections]`.
#[derive(Debug, Clone)]
pub struct RejectionOptions {
    pub file: PathBuf,
    /// Zero keeps none.
    pub max_count: usize,
    pub max_bytes: usize,
    pub keep: Duration,
    pub addresses: ShownAddresses,
    /// The whole lines, for replays.
    pub lines: LineOptions,
}

/// Who sent what was rejected, and where to.
#[derive(Debug, Clone, Copy)]
pub struct RejectedBy<'a> {
    pub database: &'a str,
    pub by: &'a Caller,
    pub address: Option<IpAddr>,
    /// In nanoseconds since the epoch.
    pub received: i64,
    /// The unit of timestamps, and whether the sender declared it.
    pub precision: (Precision, bool),
}

#[derive(Debug)]
pub struct Rejections {
    options: RejectionOptions,
    lines: Arc<KeptLines>,
    /// Held while lines are replayed: nobody marks what another one is about to.
    replaying: tokio::sync::Mutex<()>,
    senders: Mutex<Senders>,
    kept: Mutex<Kept>,
    /// Whether the file lacks something.
    changed: AtomicBool,
    /// Held while the file is written.
    saving: tokio::sync::Mutex<()>,
    /// Whether the last write of the file failed.
    failing: AtomicBool,
}

impl Rejections {
    /// With what the file has from before.
    pub fn open(options: RejectionOptions) -> Self {
        let mut kept = Kept::new(&options);
        for rejection in file::read(&options.file, options.max_bytes) {
            let sender = sender_key(rejection.token.as_deref(), rejection.address.as_deref().unwrap_or_default());
            kept.push(sender.into(), rejection);
        }
        let (senders, kept) = (Mutex::default(), Mutex::new(kept));
        let lines = Arc::new(KeptLines::open(&options.lines));
        Self {
            options,
            lines,
            replaying: tokio::sync::Mutex::default(),
            senders,
            kept,
            changed: AtomicBool::new(false),
            saving: tokio::sync::Mutex::default(),
            failing: AtomicBool::new(false),
        }
    }

    /// Takes note of what one request had rejected, at the cost of a lock or two per request.
    pub fn note(&self, sender: RejectedBy<'_>, rejected: &Rejected) {
        if rejected.count == 0 {
            return;
        }
        let network = sender.address.map(|address| network(address).to_string()).unwrap_or_default();
        let key = sender_key(sender.token(), &network);
        let Turn { sender: key, keep, warn } = lock(&self.senders).note(&key, rejected.count as u64, Instant::now());
        if keep && self.options.max_count > 0 {
            let samples = samples(sender, rejected, self.options.addresses);
            let mut kept = lock(&self.kept);
            samples.into_iter().for_each(|rejection| kept.push(key.clone(), rejection));
            self.changed.store(true, Ordering::Relaxed);
        }
        if let (Some(count), Some(first)) = (warn, rejected.told.first()) {
            let RejectedBy { database, by, address, .. } = sender;
            let (token, address) = (by.name(), address.and_then(|address| shown(address, self.options.addresses)));
            let (line, reason) = told(first);
            let [database, line, reason] = [database, &*line, &*reason].map(|text| plain(text, LOG_CHARS));
            // What is wrong comes first, and nothing is escaped: people read this at a terminal.
            tracing::warn!(%reason, %line, count, database, token, address, "readings were rejected");
        }
    }

    /// Keeps a request's rejected lines whole, once it is known what became of the others. Lines that may hold a token are
    /// left out.
    pub fn keep_lines(&self, sender: RejectedBy<'_>, whole: Vec<RejectedLine>) {
        if whole.is_empty() {
            return;
        }
        let token = sender.by.token().map(|token| SenderToken { name: token.name.clone(), created: token.created });
        let address = sender.address.and_then(|address| shown(address, self.options.addresses));
        let (precision, declared) = sender.precision;
        let harmless = whole.into_iter().filter(|line| hides_no_token(&line.text));
        self.lines.add(harmless.map(|line| KeptLine {
            id: 0,
            received: sender.received,
            database: sender.database.to_owned(),
            token: token.clone(),
            address: address.clone(),
            number: line.number,
            text: line.text.into(),
            field: line.field.map(String::from),
            time: line.time,
            precision: precision.name().to_owned(),
            declared,
            code: line.code.to_owned(),
            reason: plain(&line.reason, TEXT_CHARS),
        }));
    }

    /// The whole lines.
    #[must_use]
    pub fn lines(&self) -> &Arc<KeptLines> {
        &self.lines
    }

    /// Waits until nobody else replays lines.
    pub async fn replay_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.replaying.lock().await
    }

    /// Counts lines that were replayed, so that the list tells which of its rejections are fixed.
    pub fn note_replayed<'a>(&self, lines: impl Iterator<Item = &'a KeptLine>) {
        if lock(&self.kept).count_replayed(lines) {
            self.changed.store(true, Ordering::Relaxed);
        }
    }

    /// The newest of those that are wanted.
    #[must_use]
    pub fn list(&self, is_wanted: impl Fn(&KeptRejection) -> bool, limit: usize) -> Vec<Arc<KeptRejection>> {
        let mut kept = lock(&self.kept);
        kept.expire(now_ns());
        kept.newest(is_wanted, limit)
    }

    /// The newest of the whole lines that are wanted, shortened as those of [`Rejections::list`], of which they may be. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be read or written.
    pub fn list_lines(&self, is_wanted: impl Fn(&KeptLine) -> bool, limit: usize) -> io::Result<Vec<KeptRejection>> {
        let mut newest: VecDeque<KeptRejection> = VecDeque::new();
        self.lines.each(|line| {
            if is_wanted(&line) {
                newest.push_back(of_line(line));
            }
            if newest.len() > limit {
                newest.pop_front();
            }
            true
        })?;
        Ok(newest.into_iter().rev().collect())
    }

    /// Forgets those of a database.
    pub async fn forget(&self, database: &str) {
        let (lines, name) = (self.lines.clone(), database.to_owned());
        self.noted(tokio::task::spawn_blocking(move || lines.forget(&name)).await);
        if lock(&self.kept).forget(database) {
            self.changed.store(true, Ordering::Relaxed);
        }
    }

    /// Writes the file again and again.
    pub async fn keep_saving(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SAVE_INTERVAL).await;
            self.save().await;
        }
    }

    /// Writes the file, if it lacks something. It is replaced as a whole, so a crash leaves the one before.
    pub async fn save(&self) {
        let _saving = self.saving.lock().await;
        let lines = self.lines.clone();
        self.noted(tokio::task::spawn_blocking(move || lines.save()).await);
        let expired = lock(&self.kept).expire(now_ns());
        if !self.changed.swap(false, Ordering::Relaxed) && !expired {
            return;
        }
        let mut all = lock(&self.kept).newest(|_| true, usize::MAX);
        all.reverse();
        let path = self.options.file.clone();
        if !self.noted(tokio::task::spawn_blocking(move || file::write(&path, &all)).await) {
            self.changed.store(true, Ordering::Relaxed);
        }
    }

    /// Logs the first of several failures to write; whether it was written.
    fn noted(&self, written: Result<std::io::Result<()>, tokio::task::JoinError>) -> bool {
        let Ok(Err(error)) = written else {
            self.failing.store(false, Ordering::Relaxed);
            return true;
        };
        if !self.failing.swap(true, Ordering::Relaxed) {
            let path = self.options.file.display();
            tracing::warn!(%path, %error, "rejections cannot be written; a restart loses them");
        }
        false
    }
}

impl RejectedBy<'_> {
    fn token(&self) -> Option<&str> {
        match self.by {
            Caller::Anybody => None,
            Caller::Holder(_) => Some(self.by.name()),
        }
    }
}

/// The first rejection of each code.
fn samples(sender: RejectedBy<'_>, rejected: &Rejected, addresses: ShownAddresses) -> Vec<KeptRejection> {
    let address = sender.address.and_then(|address| shown(address, addresses));
    let mut samples: Vec<KeptRejection> = Vec::new();
    for rejection in &rejected.told {
        let code = rejection.reason.label();
        if samples.len() >= CODES_MAX {
            break;
        }
        if samples.iter().any(|sample| sample.code == code) {
            continue;
        }
        let (text, reason) = told(rejection);
        samples.push(KeptRejection {
            time: sender.received,
            database: sender.database.to_owned(),
            token: sender.token().map(str::to_owned),
            address: address.clone(),
            line: rejection.line,
            column: rejection.column,
            text: plain(&text, TEXT_CHARS),
            reason: plain(&reason, TEXT_CHARS),
            code: code.to_owned(),
            count: rejected.reasons.get(code).copied().unwrap_or(1),
            replayed: 0,
        });
    }
    samples
}

/// A whole line as one of the list.
fn of_line(line: KeptLine) -> KeptRejection {
    let KeptLine { received, database, token, address, number, text, code, reason, .. } = line;
    let text = plain(&text, TEXT_CHARS);
    KeptRejection {
        time: received,
        database,
        token: token.map(|token| token.name),
        address,
        line: number,
        column: 0,
        text,
        reason,
        code,
        count: 1,
        replayed: 0,
    }
}

/// Whether a line can be kept as it is.
fn hides_no_token(text: &str) -> bool {
    without_tokens(text) == text && !begins_with_auth(text)
}

fn begins_with_auth(text: &str) -> bool {
    text.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("auth"))
}

/// The line and the reason, without tokens. An `auth` line that was not the first line over TCP still holds one, and so
/// may any other line.
fn told(rejection: &Rejection) -> (String, String) {
    let (text, reason) = (&rejection.text, without_tokens(&rejection.reason.to_string()));
    (if begins_with_auth(text) { "auth ***".to_owned() } else { without_tokens(text) }, reason)
}

/// The text with `hg_***` for everything that may be a token, or the beginning of one.
fn without_tokens(text: &str) -> String {
    let mut parts = text.split("hg_");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|character: char| character.is_ascii_hexdigit() || character == '_');
        shown.push_str(if rest.len() < part.len() { "hg_***" } else { "hg_" });
        shown.push_str(rest);
    }
    shown
}

/// The text on one line, with what steers a terminal or hides text as `\u{9b}`, cut after so many characters.
pub fn plain(text: &str, chars_max: usize) -> String {
    let mut plain = String::with_capacity(text.len().min(chars_max.saturating_mul(4)));
    for (number, character) in text.chars().enumerate() {
        if number >= chars_max {
            plain.push('…');
            break;
        }
        if steers(character) {
            // Writing to a String cannot fail.
            let _ = write!(plain, "{}", character.escape_unicode());
        } else {
            plain.push(character);
        }
    }
    plain
}

/// Whoever has an IPv6 /64 network has all its addresses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(std::net::Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        address @ IpAddr::V4(_) => address,
    }
}

fn shown(address: IpAddr, addresses: ShownAddresses) -> Option<String> {
    match (addresses, address.to_canonical()) {
        (ShownAddresses::Off, _) => None,
        (ShownAddresses::Full, address) => Some(address.to_string()),
        (ShownAddresses::Masked, IpAddr::V4(address)) => {
            let [a, b, c, _] = address.octets();
            Some(format!("{a}.{b}.{c}.0/24"))
        }
        (ShownAddresses::Masked, address) => Some(format!("{}/64", network(address))),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
