//! Rejected lines, whole, so that they can be fixed and replayed: in a folder of segments, bounded in bytes and age. A line is
//! no promise: its sender was told that it was rejected, and a crash may lose the last seconds of them. That one was replayed is
//! synced.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lock;
use super::segments::{Entry, Segments};
use crate::clock::now_ns;

/// Most bytes of lines that wait for being written.
const WAITING_BYTES: usize = 1 << 20;
/// Bytes of a line beside its texts.
const FIXED_BYTES: usize = 256;

/// Where the lines are, and how many.
#[derive(Debug, Clone)]
pub struct LineOptions {
    pub folder: PathBuf,
    /// On disk; zero keeps none.
    pub max_bytes: u64,
    pub keep: Duration,
}

/// The sender's token, as it was: names are unique as long as nobody edits the stored tokens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SenderToken {
    pub name: String,
    /// In seconds since the epoch.
    pub created: i64,
}

/// A rejected line, whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptLine {
    /// Rises from line to line.
    pub id: u64,
    /// When its request was received, in nanoseconds since the epoch.
    pub received: i64,
    /// With its retention policy.
    pub database: String,
    /// `None` where no token was required.
    pub token: Option<SenderToken>,
    /// As `rejections.addresses` shows it.
    pub address: Option<String>,
    /// In its request, from 1.
    pub number: usize,
    /// As sent: line protocol, or JSON if it begins with a brace.
    pub text: String,
    /// The only field that was rejected: the others are stored.
    pub field: Option<String>,
    /// The timestamp it has if the text names none.
    pub time: Option<i64>,
    /// The unit of its timestamp.
    pub precision: String,
    /// Whether the sender declared that unit.
    pub declared: bool,
    pub code: String,
    pub reason: String,
}

impl KeptLine {
    /// The time that the line stands for if its text has none: that of its receipt. Undated readings that were accepted have
    /// times from there on, so this one is before, one nanosecond for each line.
    #[must_use]
    pub fn undated_time(&self) -> i64 {
        self.time.unwrap_or_else(|| self.received.saturating_sub(i64::try_from(self.number).unwrap_or(i64::MAX)))
    }

    fn bytes(&self) -> usize {
        FIXED_BYTES + self.text.len() + self.reason.len()
    }
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<KeptLine>,
    bytes: usize,
    /// Of the last line.
    id: u64,
}

/// All of them. Whatever reads or writes the disk blocks.
#[derive(Debug)]
pub struct KeptLines {
    keep_ns: i64,
    is_on: bool,
    waiting: Mutex<Waiting>,
    disk: Mutex<Segments>,
}

impl KeptLines {
    /// With what the folder has from before.
    pub fn open(options: &LineOptions) -> Self {
        let is_on = options.max_bytes > 0;
        let (disk, id) = Segments::open(options);
        let waiting = Mutex::new(Waiting { id, ..Waiting::default() });
        let keep_ns = i64::try_from(options.keep.as_nanos()).unwrap_or(i64::MAX);
        Self { keep_ns, is_on, waiting, disk: Mutex::new(disk) }
    }

    /// Takes lines, which get their ids. Those beyond what may wait are left out.
    pub fn add(&self, lines: impl Iterator<Item = KeptLine>) {
        if !self.is_on {
            return;
        }
        let mut waiting = lock(&self.waiting);
        for mut line in lines {
            if waiting.bytes + line.bytes() > WAITING_BYTES {
                return;
            }
            line.id = u64::try_from(line.received).unwrap_or_default().max(waiting.id + 1);
            waiting.id = line.id;
            waiting.bytes += line.bytes();
            waiting.lines.push(line);
        }
    }

    /// Writes the lines that wait, and drops what is too old or too much.
    ///
    /// # Errors
    /// When the folder cannot be written: these lines are lost.
    pub fn save(&self) -> io::Result<()> {
        let mut disk = lock(&self.disk);
        let lines = {
            let mut waiting = lock(&self.waiting);
            waiting.bytes = 0;
            std::mem::take(&mut waiting.lines)
        };
        disk.expire(now_ns().saturating_sub(self.keep_ns))?;
        lines.into_iter().try_for_each(|line| disk.add(line))?;
        disk.flush()
    }

    /// The lines after an id that are wanted and were not replayed, oldest first, and whether there are more. At most so many
    /// lines and bytes; at least one, if there is one.
    ///
    /// # Errors
    /// When the folder cannot be read or written.
    pub fn read(
        &self,
        after: u64,
        wanted: impl Fn(&KeptLine) -> bool,
        (count_max, bytes_max): (usize, usize),
    ) -> io::Result<(Vec<KeptLine>, bool)> {
        let (mut lines, mut bytes, mut more) = (Vec::new(), 0, false);
        self.each(|line| {
            if line.id <= after || !wanted(&line) {
                return true;
            }
            bytes += line.text.len();
            more = !lines.is_empty() && (lines.len() >= count_max || bytes > bytes_max);
            if !more {
                lines.push(line);
            }
            !more
        })?;
        Ok((lines, more))
    }

    /// Calls with the lines that were not replayed, oldest first, until one is the last that is wanted.
    ///
    /// # Errors
    /// When the folder cannot be read or written.
    pub fn each(&self, mut take: impl FnMut(KeptLine) -> bool) -> io::Result<()> {
        self.save()?;
        let disk = lock(&self.disk);
        let mut done: HashSet<u64> = HashSet::new();
        disk.each(|entry| {
            if let Entry::Done(ids) = entry {
                done.extend(ids);
            }
            true
        })?;
        let since = now_ns().saturating_sub(self.keep_ns);
        disk.each(|entry| match entry {
            Entry::Line(line) if line.received >= since && !done.contains(&line.id) => take(*line),
            _ => true,
        })
    }

    /// Notes that lines were replayed: on return that is on disk.
    ///
    /// # Errors
    /// When it cannot be written. The lines can then be replayed once more, which stores the same readings again.
    pub fn mark_done(&self, ids: Vec<u64>) -> io::Result<()> {
        lock(&self.disk).mark_done(ids)
    }

    /// Removes the lines of a database.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn forget(&self, database: &str) -> io::Result<()> {
        let mut disk = lock(&self.disk);
        {
            let mut waiting = lock(&self.waiting);
            waiting.lines.retain(|line| line.database != database);
            waiting.bytes = waiting.lines.iter().map(KeptLine::bytes).sum();
        }
        disk.rewrite(|line| line.database != database)
    }
}
