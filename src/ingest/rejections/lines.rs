//! Rejected lines on disk, bounded in bytes and age. They are kept without any guarantee: the sender knows that they
//! were rejected, and a crash may lose the lines of the last seconds. A sender that is told nothing has them synced.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::clock::now_ns;
use crate::config::RejectionsSettings;
use crate::side_file::{SideFile, SideFileLimits};

/// Maximum bytes of lines that wait to be written.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Bytes of a line in addition to its text and reason.
const FIXED_BYTES: usize = 256;
/// Number of segments that share the bytes.
const SEGMENTS: u64 = 8;
/// Maximum bytes of a segment, which is read as a whole when lines are removed.
const SEGMENT_BYTES: u64 = 4 << 20;

/// A rejected line or reading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptLine {
    /// The time of receipt of its request, in nanoseconds since the epoch.
    pub received: i64,
    /// The database, with its retention policy.
    pub database: String,
    /// The name of the sender's token. `None` if no token was required.
    pub token: Option<String>,
    /// The sender's address, as `rejections.addresses` allows.
    pub address: Option<String>,
    /// The line in its request, from 1.
    pub number: usize,
    /// The column, from 1; 0 for the whole line.
    pub column: usize,
    /// The line as sent, in line protocol or JSON.
    pub text: String,
    /// The rejected field, if the others are stored.
    pub field: Option<String>,
    /// The timestamp of the stored fields of the line.
    pub time: Option<i64>,
    /// The unit of its timestamp.
    pub precision: String,
    /// The label of a [`crate::reading::Reason`].
    pub code: String,
    pub reason: String,
    /// The mapping of a device's message. Without it, the text would be read as another format when it is sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping: Option<String>,
    /// The topic of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
}

impl KeptLine {
    fn bytes(&self) -> usize {
        FIXED_BYTES + self.text.len() + self.reason.len() + self.topic.as_ref().map_or(0, String::len)
    }

    fn token(&self) -> &str {
        self.token.as_deref().unwrap_or_default()
    }
}

/// Lines that are not written yet.
#[derive(Debug, Default)]
struct WaitingLines {
    lines: Vec<KeptLine>,
    bytes: usize,
    by_token: HashMap<String, usize>,
}

#[derive(Debug)]
struct Disk {
    file: SideFile<KeptLine>,
    /// Bytes of lines by segment and token.
    held: HashMap<(u64, String), u64>,
}

/// All rejected lines. Methods that read or write the disk block.
#[derive(Debug)]
pub struct KeptLines {
    max_bytes: u64,
    keep: std::time::Duration,
    waiting: Mutex<WaitingLines>,
    disk: Mutex<Disk>,
}

impl KeptLines {
    /// Opens the folder of lines.
    pub fn open(folder: PathBuf, settings: &RejectionsSettings) -> Self {
        let max_bytes = settings.max_bytes as u64;
        let segment_bytes = (max_bytes / SEGMENTS).min(SEGMENT_BYTES);
        let keep_bytes = Some(max_bytes.saturating_sub(2 * segment_bytes));
        let file = SideFile::new(folder.clone(), SideFileLimits { segment_bytes, keep_bytes });
        let mut disk = Disk { file, held: HashMap::new() };
        if let Err(error) = disk.count() {
            let path = folder.display();
            tracing::warn!(%path, %error, "cannot read rejected lines; unreadable ones are left out");
        }
        Self { max_bytes, keep: settings.keep, waiting: Mutex::default(), disk: Mutex::new(disk) }
    }

    /// Queues lines of one sender. The lines of one token fill at most half of the queue.
    pub fn add(&self, lines: impl Iterator<Item = KeptLine>) {
        if self.max_bytes == 0 {
            return;
        }
        let mut waiting = self.waiting.lock();
        for line in lines {
            let bytes = line.bytes();
            let held = waiting.by_token.get(line.token()).copied().unwrap_or_default();
            if waiting.bytes + bytes > WAITING_BYTES_MAX || held + bytes > WAITING_BYTES_MAX / 2 {
                return;
            }
            waiting.bytes += bytes;
            *waiting.by_token.entry(line.token().to_owned()).or_default() += bytes;
            waiting.lines.push(line);
        }
    }

    /// Writes the queued lines, and removes segments that are too old.
    ///
    /// # Errors
    /// If the folder cannot be written. The queued lines are lost then.
    pub fn save(&self) -> io::Result<()> {
        let mut disk = self.disk.lock();
        let lines = std::mem::take(&mut *self.waiting.lock()).lines;
        disk.file.expire(SystemTime::now() - self.keep)?;
        // Append in small parts, so that a segment does not grow far beyond its limit.
        lines.chunks(16).try_for_each(|part| disk.append(part, self.max_bytes / 2))
    }

    /// Writes the queued lines, and makes them durable.
    ///
    /// # Errors
    /// If the disk fails. The lines may be lost then.
    pub fn sync(&self) -> io::Result<()> {
        self.save()?;
        self.disk.lock().file.sync()
    }

    /// Calls `take` for each line with an id above `after_id`, oldest first, until it breaks.
    ///
    /// # Errors
    /// If the folder cannot be read or written.
    pub fn read(&self, after_id: u64, mut take: impl FnMut(u64, KeptLine) -> ControlFlow<()>) -> io::Result<()> {
        self.save()?;
        let keep = i64::try_from(self.keep.as_nanos()).unwrap_or(i64::MAX);
        let since = now_ns().saturating_sub(keep);
        let read = |_: &_, id, line: KeptLine| {
            if line.received < since { ControlFlow::Continue(()) } else { take(id, line) }
        };
        self.disk.lock().file.read(after_id, read).map(drop)
    }

    /// Removes the lines for which `is_removed` returns true. Returns their number.
    ///
    /// # Errors
    /// If the folder cannot be read or written.
    pub fn remove(&self, is_removed: impl Fn(u64, &KeptLine) -> bool) -> io::Result<u64> {
        self.save()?;
        let mut disk = self.disk.lock();
        let removed = disk.file.retain(|id, line| !is_removed(id, line))?;
        disk.count()?;
        Ok(removed)
    }
}

impl Disk {
    /// Appends lines, except those of tokens that have reached their share of the bytes.
    fn append(&mut self, lines: &[KeptLine], share: u64) -> io::Result<()> {
        let mut added: Vec<KeptLine> = Vec::new();
        let mut bytes: HashMap<&str, u64> = HashMap::new();
        for line in lines {
            let held = self.held.iter().filter(|((_, token), _)| token == line.token()).map(|(_, bytes)| bytes);
            let token_bytes = bytes.entry(line.token()).or_insert_with(|| held.sum());
            if *token_bytes < share {
                *token_bytes += line.bytes() as u64;
                added.push(line.clone());
            }
        }
        if added.is_empty() {
            return Ok(());
        }
        let segment = self.file.append(&added)?;
        for line in &added {
            *self.held.entry((segment, line.token().to_owned())).or_default() += line.bytes() as u64;
        }
        let first = self.file.segments()?.first().map_or(0, |segment| segment.first_id);
        self.held.retain(|(segment, _), _| *segment >= first);
        Ok(())
    }

    /// Counts the bytes by segment and token from the files.
    fn count(&mut self) -> io::Result<()> {
        self.held.clear();
        let held = &mut self.held;
        let note = |segment: &crate::side_file::Segment, _, line: KeptLine| {
            *held.entry((segment.first_id, line.token().to_owned())).or_default() += line.bytes() as u64;
            ControlFlow::Continue(())
        };
        self.file.read(0, note).map(drop)
    }
}
