//! Dead letters: readings that the store will never accept. A file keeps them as line protocol, each chunk under a
//! comment with the reason, so that people can look at them, correct them and send them again.

mod file;
mod locked;
mod metadata;
mod sent;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

pub use self::file::{Chunk, ChunkHead, Chunks, parts};
pub use self::sent::{Marks, Sending};

use self::locked::open_locked;

use crate::bucket::packed::Unpacked;
use crate::bucket::{Meta, StorageError};
use crate::clock::now_ns;
use crate::ingest::catalog::Database;
use crate::ingest::memtable::Load;
use crate::wire::line_protocol::write_line;

/// Why readings go to the dead-letter file.
#[derive(Debug, thiserror::Error)]
pub enum DeadLetterReason {
    /// The store will never accept their page.
    #[error(transparent)]
    Refused(StorageError),
    /// They came back after the floor had moved past them, and the store has other values at their timestamps, which may
    /// be later.
    #[error(
        "set aside: this instance was silent for longer than wal.horizon and the store has other values; compare before \
         you resend"
    )]
    SetAside,
}

/// The dead-letter file; created on first use.
#[derive(Debug, Clone)]
pub struct DeadLetters {
    path: PathBuf,
    counted: Arc<Mutex<Option<(FileVersion, Outstanding)>>>,
}

/// Readings in the file that were not sent again, by database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outstanding(pub BTreeMap<String, u64>);

impl Outstanding {
    /// The total of all databases.
    #[must_use]
    pub fn readings(&self) -> u64 {
        self.0.values().sum()
    }

    /// Text for people: how many readings of which database.
    #[must_use]
    pub fn described(&self) -> String {
        let each: Vec<String> =
            self.0.iter().map(|(database, readings)| format!("{readings} readings of database {database:?}")).collect();
        each.join(", ")
    }
}

/// Inode, length and time of the dead-letter file and of the file of marks: a change shows that either was written.
type FileVersion = [Option<(u64, u64, SystemTime)>; 2];

fn seen(path: &Path) -> Option<(u64, u64, SystemTime)> {
    let meta = fs::metadata(path).ok()?;
    Some((meta.ino(), meta.len(), meta.modified().ok()?))
}

impl DeadLetters {
    pub fn new(path: PathBuf) -> Self {
        Self { path, counted: Arc::default() }
    }

    /// Appends a bucket's readings, durably.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub async fn keep(&self, database: &Database, load: &Load, error: &StorageError) -> io::Result<()> {
        self.keep_some(database, load, |_| true, &DeadLetterReason::Refused(error.clone())).await
    }

    /// Like [`DeadLetters::keep`], for readings whose places in time order are `wanted`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub async fn keep_some(
        &self,
        database: &Database,
        load: &Load,
        wanted: impl Fn(usize) -> bool,
        reason: &DeadLetterReason,
    ) -> io::Result<()> {
        let names = &load.known.fields().names;
        let mut lines = String::new();
        let mut rows = Unpacked::default();
        rows.unpack_in_time_order([&*load.rows]);
        let mut kept = 0;
        for (_, row) in rows.rows(names).enumerate().filter(|(place, _)| wanted(*place)) {
            kept += 1;
            let fields = row.cells.iter().map(|(field, value)| (&*row.names[usize::from(*field)], value));
            write_line(&mut lines, &load.known.sensor.key, fields, row.time);
        }
        let size = (kept, lines.len());
        let text = ChunkHead::line(&database.name, size, now_ns(), &reason.to_string()) + &lines;
        append_beside(self.path.clone(), text).await?;
        let (sensor, hour) = (&load.known.sensor.key, load.hour.start_ns());
        tracing::error!(%sensor, hour, readings = kept, error = %reason, file = %self.path.display(),
            "readings cannot be stored; written to the dead-letter file");
        Ok(())
    }

    /// Appends a change of a sensor's metadata, durably, to the file beside that of readings.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub async fn keep_meta(&self, database: &str, sensor: &str, change: &Meta, error: &StorageError) -> io::Result<()> {
        let path = metadata::path_beside(&self.path);
        append_beside(path.clone(), metadata::line(database, sensor, change, now_ns(), &error.to_string())).await?;
        tracing::error!(%sensor, %error, file = %path.display(),
            "metadata cannot be stored; written to the file of metadata beside the dead letters");
        Ok(())
    }

    /// How many changes of metadata could not be stored and are still in their file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn metadata(&self) -> io::Result<u64> {
        let path = metadata::path_beside(&self.path);
        let counted = tokio::task::spawn_blocking(move || metadata::count(&path)).await;
        counted.unwrap_or_else(|panicked| Err(io::Error::other(panicked)))
    }

    /// Readings in the file that were not sent again. Reads the file only if it has changed.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn outstanding(&self) -> io::Result<Outstanding> {
        let counter = self.clone();
        let counted = tokio::task::spawn_blocking(move || counter.count()).await;
        counted.unwrap_or_else(|panicked| Err(io::Error::other(panicked)))
    }

    fn count(&self) -> io::Result<Outstanding> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let now = [seen(&self.path), seen(&sent::path_of_marks(&self.path))];
        if let Some((_, outstanding)) = counted.as_ref().filter(|(before, _)| *before == now) {
            return Ok(outstanding.clone());
        }
        let mut outstanding = Outstanding::default();
        let marks = Marks::read(&self.path)?;
        if let Some(mut chunks) = Chunks::open(&self.path, 0)? {
            while let Some(chunk) = chunks.next(0)? {
                if !marks.has(&chunk) {
                    *outstanding.0.entry(chunk.head.database).or_default() += chunk.head.readings;
                }
            }
        }
        *counted = Some((now, outstanding.clone()));
        Ok(outstanding)
    }

    /// Chunks from an offset on that were not sent again, at most `chunks_max` of them, and where the next one begins.
    /// `bounds` limits the bytes of lines of each chunk and of all together.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn page(
        &self,
        offset: u64,
        chunks_max: usize,
        bounds: (usize, usize),
    ) -> io::Result<(Vec<Chunk>, Option<u64>)> {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || page(&path, offset, chunks_max, bounds)).await;
        read.unwrap_or_else(|panicked| Err(io::Error::other(panicked)))
    }
}

async fn append_beside(path: PathBuf, text: String) -> io::Result<()> {
    let appended = tokio::task::spawn_blocking(move || append(&path, text.as_bytes())).await;
    appended.unwrap_or_else(|panicked| Err(io::Error::other(panicked)))
}

/// Opens the file each time: a resend may have renamed it, and after a failed sync a descriptor must not be synced
/// again.
fn append(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = open_locked(path)?;
    if file.metadata()?.len() == 0 {
        if let Some(folder) = path.parent() {
            File::open(folder)?.sync_all()?;
        }
    } else {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(format!("\n{}\n", file::CUT_OFF).as_bytes())?;
        }
    }
    file.write_all(text).and_then(|()| file.sync_data())
}

fn page(
    path: &Path,
    offset: u64,
    chunks_max: usize,
    (each, together): (usize, usize),
) -> io::Result<(Vec<Chunk>, Option<u64>)> {
    let marks = Marks::read(path)?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    let Some(mut chunks) = Chunks::open(path, offset)? else { return Ok((found, None)) };
    while let Some(chunk) = chunks.next(each)? {
        if marks.has(&chunk) {
            continue;
        }
        if found.len() == chunks_max || bytes > together {
            return Ok((found, Some(chunk.offset)));
        }
        bytes += chunk.lines.len() + chunk.head.reason.len();
        found.push(chunk);
    }
    Ok((found, None))
}
