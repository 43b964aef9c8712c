//! Keeps rejected lines with their sender and reason, so that operators can find and fix them. Lines are written to
//! disk outside of the request path. Also logs a warning about each sender, at a limited rate.

mod lines;
mod senders;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod text;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub use self::lines::{KeptLine, KeptLines};
use self::senders::{RejectionSenders, sender_key};
use self::text::{REASON_CHARS, hidden};
pub use self::text::{plain, without_tokens};
use super::admission::validate::RejectionSummary;
use crate::access::Caller;
use crate::blocking;
use crate::config::{RejectionsSettings, ShownAddresses};
use crate::ingest::Arrival;

/// The interval at which lines are written to disk. A crash may lose the lines of one interval.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of characters of a line or reason in a log message, which stays under 500 bytes.
const LOG_CHARS: usize = 100;

/// The rejected lines of all requests.
#[derive(Debug)]
pub struct Rejections {
    folder: PathBuf,
    addresses: ShownAddresses,
    lines: Arc<KeptLines>,
    senders: Mutex<RejectionSenders>,
    /// True if the last write to disk failed.
    failing: AtomicBool,
}

impl Rejections {
    /// Opens the folder of rejected lines.
    pub fn open(folder: PathBuf, settings: &RejectionsSettings) -> Self {
        let lines = Arc::new(KeptLines::open(folder.clone(), settings));
        let addresses = settings.addresses;
        Self { folder, addresses, lines, senders: Mutex::default(), failing: AtomicBool::new(false) }
    }

    /// Keeps the rejected lines of one request, and logs a warning if one is due.
    pub fn note(&self, arrival: &Arrival<'_>, rejected: &mut RejectionSummary) {
        if rejected.count == 0 {
            return;
        }
        let Arrival { database, caller, address, received, precision, mapping, topic, .. } = *arrival;
        let network = address.map(|address| network(address).to_string()).unwrap_or_default();
        let address = address.and_then(|address| format_address(address, self.addresses));
        let token = match caller {
            Caller::Anybody => None,
            Caller::Holder(_) => Some(caller.name()),
        };
        let warning = self.senders.lock().note(&sender_key(token, &network), rejected.count as u64, Instant::now());
        if let (Some(count), Some(first)) = (warning, rejected.reported.first()) {
            let line = plain(&hidden(&first.text), LOG_CHARS);
            let reason = plain(&without_tokens(&first.reason.to_string()), LOG_CHARS);
            // Log the reason first and nothing in escaped form, because people read this at a terminal.
            let database = plain(database, LOG_CHARS);
            tracing::warn!(%reason, %line, count, database, token = caller.name(), address, "readings were rejected");
        }
        self.lines.add(std::mem::take(&mut rejected.kept_lines).into_iter().map(|line| KeptLine {
            received,
            database: database.to_owned(),
            token: token.map(str::to_owned),
            address: address.clone(),
            number: line.number,
            column: line.column,
            text: hidden(&line.text),
            field: line.field.map(String::from),
            time: line.time,
            precision: precision.name().to_owned(),
            code: line.code.to_owned(),
            reason: plain(&without_tokens(&line.reason), REASON_CHARS),
            mapping: mapping.map(str::to_owned),
            topic: topic.map(without_tokens),
        }));
    }

    /// Returns the kept lines.
    #[must_use]
    pub fn lines(&self) -> &Arc<KeptLines> {
        &self.lines
    }

    /// Removes the lines of a database.
    pub async fn forget(&self, database: &str) {
        let lines = self.lines.clone();
        let database = database.to_owned();
        let removed = blocking::spawn(move || lines.remove(|_, line| line.database == database).map(drop));
        self.note_written(removed.await);
    }

    /// Writes new lines to disk at intervals, for ever.
    pub async fn keep_saving(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SAVE_INTERVAL).await;
            self.save().await;
        }
    }

    /// Writes new lines to disk.
    pub async fn save(&self) {
        let lines = self.lines.clone();
        self.note_written(blocking::spawn(move || lines.save()).await);
    }

    /// Makes the lines of earlier requests durable.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn sync(&self) -> std::io::Result<()> {
        let lines = self.lines.clone();
        blocking::spawn(move || lines.sync()).await.map_err(std::io::Error::other)?
    }

    /// Logs a failed write, unless the previous one failed too.
    fn note_written(&self, written: Result<std::io::Result<()>, tokio::task::JoinError>) {
        let Ok(Err(error)) = written else {
            self.failing.store(false, Ordering::Relaxed);
            return;
        };
        if !self.failing.swap(true, Ordering::Relaxed) {
            let path = self.folder.display();
            tracing::warn!(%path, %error, "cannot write rejected lines; they are lost");
        }
    }
}

/// Returns the /64 network of an IPv6 address, all of whose addresses usually belong to one owner, or the IPv4 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(std::net::Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        address @ IpAddr::V4(_) => address,
    }
}

/// Formats an address as `rejections.addresses` prescribes.
fn format_address(address: IpAddr, addresses: ShownAddresses) -> Option<String> {
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
