//! The trash: what deletions by value removed, one file each, until it is too old. Written, and synced, before anything is
//! deleted. A file is line protocol: comments with a head, the extent of each chunk, and the totals; between them the readings
//! of one sensor after the other, with their exact values.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bucket::Readings;
use crate::clock::now_ns;
use crate::reading::{Sensor, Stamp};
use crate::wire::line_protocol::write_line;

/// From which size on a chunk is complete: its bytes, and its readings.
const CHUNK: (usize, usize) = (64 << 10, 1000);
/// How often what is too old is removed.
const CLEANED: Duration = Duration::from_secs(3600);
/// Longest comment that is read.
const COMMENT_BYTES: u64 = 1 << 20;
const FILE: &str = "lp";
/// A file that is being written.
const NEW: &str = "new";

/// Where the trash is and how much it takes.
#[derive(Debug, Clone)]
pub struct TrashOptions {
    pub folder: PathBuf,
    /// `undo.bytes`.
    pub bytes: u64,
    /// `undo.keep`; zero for no trash.
    pub keep: Duration,
}

/// Why readings could not be put into the trash, or found there.
#[derive(Debug, thiserror::Error)]
pub enum TrashError {
    #[error(
        "the trash has no room for what would be deleted, at most {limit} bytes (undo.bytes): nothing was deleted; raise \
         undo.bytes, delete less at a time, or delete without undo (?undo=off)"
    )]
    Full { limit: u64 },
    #[error("the trash in {folder}: {error}")]
    Io { folder: String, error: io::Error },
    #[error("the trash has no deletion {id:?}; GET /api/v1/trash lists those that it has")]
    Unknown { id: String },
    #[error("the trash's file of deletion {id} is damaged after its byte {at}: what comes before was written back")]
    Damaged { id: String, at: u64 },
}

/// What is known of a deletion by value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrashHead {
    /// The mark's stamp.
    pub id: Stamp,
    /// The database that the readings were stored in.
    pub database: String,
    pub statement: String,
    /// The caller's name.
    pub by: String,
    /// In nanoseconds since the epoch.
    pub at: i64,
}

/// A deletion in the trash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrashEntry {
    pub head: TrashHead,
    pub sensors: u64,
    pub readings: u64,
    pub bytes: u64,
}

/// Readings of one sensor, as line protocol in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrashChunk {
    pub sensor: Sensor,
    pub times: Vec<i64>,
    pub lines: Vec<u8>,
}

#[derive(Debug)]
pub struct Trash {
    options: TrashOptions,
}

impl Trash {
    pub fn new(options: TrashOptions) -> Self {
        Self { options }
    }

    /// Whether anything is kept at all.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.options.keep.is_zero()
    }

    fn io(&self) -> impl Fn(io::Error) -> TrashError {
        let folder = self.options.folder.display().to_string();
        move |error| TrashError::Io { folder: folder.clone(), error }
    }

    /// Removes, now and every hour, what is older than `undo.keep`. Runs until it is aborted.
    pub async fn keep_clean(self: Arc<Self>) {
        loop {
            let trash = self.clone();
            let listed = tokio::task::spawn_blocking(move || trash.list().map(drop)).await;
            if let Ok(Err(error)) = listed {
                tracing::warn!(%error, "what is too old could not be removed from the trash; it is tried again in an hour");
            }
            tokio::time::sleep(CLEANED).await;
        }
    }

    /// Removes what an earlier process had begun to keep: its deletion had not begun. Before any is written.
    pub fn drop_unfinished(&self) {
        let removed = || self.files(NEW)?.iter().try_for_each(|left| removed(left).map_err(self.io()));
        if let Err(error) = removed() {
            tracing::warn!(%error, "an unfinished file is left in the trash");
        }
    }

    /// Removes what deletions removed from a database that is dropped.
    pub async fn forget(self: Arc<Self>, database: &str) {
        let database = database.to_owned();
        let forgotten = tokio::task::spawn_blocking(move || {
            let of_it = self.list()?.into_iter().filter(|entry| entry.head.database == database);
            of_it.map(|entry| self.path(entry.head.id)).try_for_each(|path| removed(&path).map_err(self.io()))
        });
        if let Ok(Err(error)) = forgotten.await {
            tracing::warn!(%error, "what was deleted from a dropped database is left in the trash until it is too old");
        }
    }

    fn path(&self, id: Stamp) -> PathBuf {
        self.options.folder.join(format!("{id:016x}.{FILE}"))
    }

    /// Begins to keep what a deletion will remove. Only one is written at a time.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn begin(&self, head: TrashHead) -> Result<TrashWriting, TrashError> {
        let TrashOptions { folder, bytes, .. } = &self.options;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(self.io())?;
        // Of an earlier process, whose deletion had not begun.
        for left in self.files(NEW)? {
            fs::remove_file(left).map_err(self.io())?;
        }
        let held: u64 = self.list()?.iter().map(|entry| entry.bytes).sum();
        let path = folder.join(format!("{:016x}.{NEW}", head.id));
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = BufWriter::new(file.map_err(self.io())?);
        let mut writing = TrashWriting {
            file,
            path,
            left: bytes.saturating_sub(held),
            limit: *bytes,
            sensors: 0,
            readings: 0,
            chunk: None,
        };
        let TrashHead { id, database, statement, by, at } = head;
        let id = format!("{id:016x}");
        writing.comment(&json!({ "id": id, "database": database, "statement": statement, "by": by, "at": at }))?;
        Ok(writing)
    }

    fn files(&self, extension: &str) -> Result<Vec<PathBuf>, TrashError> {
        let entries = match fs::read_dir(&self.options.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.io()(error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(self.io())?.path();
            if path.extension().is_some_and(|of| of == extension) {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// The deletions in the trash, oldest first, after those that are too old have been removed.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn list(&self) -> Result<Vec<TrashEntry>, TrashError> {
        let keep = i64::try_from(self.options.keep.as_nanos()).unwrap_or(i64::MAX);
        let oldest = now_ns().saturating_sub(keep);
        let mut entries = Vec::new();
        for path in self.files(FILE)? {
            let entry = match entry(&path) {
                Ok(Some(entry)) => entry,
                Ok(None) => {
                    tracing::warn!(file = %path.display(), "a file in the trash is damaged; it is left there");
                    continue;
                }
                // Somebody else who lists them has just removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(self.io()(error)),
            };
            if entry.head.at < oldest {
                removed(&path).map_err(self.io())?;
            } else {
                entries.push(entry);
            }
        }
        Ok(entries)
    }

    /// What a deletion removed.
    ///
    /// # Errors
    /// If there is no such deletion, or it cannot be read.
    pub fn open(&self, id: &str) -> Result<(TrashEntry, TrashReading), TrashError> {
        let unknown = || TrashError::Unknown { id: id.chars().take(32).collect() };
        let found = self.list()?.into_iter().find(|entry| format!("{:016x}", entry.head.id) == id);
        let found = found.ok_or_else(unknown)?;
        let path = self.options.folder.join(format!("{id}.{FILE}"));
        let mut reading =
            TrashReading { file: BufReader::new(File::open(path).map_err(self.io())?), at: 0, id: id.to_owned() };
        reading.comment().ok_or_else(unknown)?;
        Ok((found, reading))
    }
}

/// Removes a file, unless it is gone.
fn removed(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The head and the totals of a file; `None` if it is damaged.
fn entry(path: &Path) -> io::Result<Option<TrashEntry>> {
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut first = String::new();
    BufReader::new((&mut file).take(COMMENT_BYTES)).read_line(&mut first)?;
    let mut last = Vec::new();
    file.seek(io::SeekFrom::Start(bytes.saturating_sub(200)))?;
    file.read_to_end(&mut last)?;
    let last = String::from_utf8_lossy(&last).trim_end().rsplit('\n').next().unwrap_or_default().to_owned();
    let of = || {
        let (head, totals) = (parsed(&first)?, parsed(&last)?);
        let text = |name: &str| head[name].as_str().map(str::to_owned);
        let head = TrashHead {
            id: Stamp::from_str_radix(&text("id")?, 16).ok()?,
            database: text("database")?,
            statement: text("statement")?,
            by: text("by")?,
            at: head["at"].as_i64()?,
        };
        Some(TrashEntry { head, sensors: totals["sensors"].as_u64()?, readings: totals["readings"].as_u64()?, bytes })
    };
    Ok(of())
}

fn parsed(comment: &str) -> Option<Value> {
    serde_json::from_str(comment.strip_prefix("# ")?).ok()
}

/// A file of the trash that is being written; removed unless it is finished.
#[derive(Debug)]
pub struct TrashWriting {
    file: BufWriter<File>,
    path: PathBuf,
    /// Bytes that it may still take.
    left: u64,
    limit: u64,
    sensors: u64,
    readings: u64,
    chunk: Option<(Sensor, Vec<i64>, String)>,
}

impl TrashWriting {
    fn put(&mut self, bytes: &[u8]) -> Result<(), TrashError> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or(TrashError::Full { limit: self.limit })?;
        self.file.write_all(bytes).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> TrashError {
        TrashError::Io { folder: self.path.display().to_string(), error }
    }

    fn comment(&mut self, comment: &Value) -> Result<(), TrashError> {
        self.put(format!("# {comment}\n").as_bytes())
    }

    /// Keeps the cells of readings, at these places, that are older than a stamp. Those of one sensor must come one after the
    /// other.
    ///
    /// # Errors
    /// If there is no room, or the file cannot be written.
    pub fn keep(
        &mut self,
        sensor: &Sensor,
        readings: &Readings,
        places: &[usize],
        before: Stamp,
    ) -> Result<(), TrashError> {
        for place in places {
            if self.chunk.as_ref().is_none_or(|(of, ..)| of.key != sensor.key) {
                self.end_chunk()?;
                self.sensors += 1;
                self.chunk = Some((sensor.clone(), Vec::new(), String::new()));
            }
            let Some((_, times, lines)) = &mut self.chunk else { continue };
            let time = readings.times()[*place];
            write_line(
                lines,
                &sensor.key,
                readings.fields_before(*place, before).map(|(name, value)| (&**name, value)),
                time,
            );
            times.push(time);
            self.readings += 1;
            if lines.len() >= CHUNK.0 || times.len() >= CHUNK.1 {
                self.end_chunk()?;
                self.chunk = Some((sensor.clone(), Vec::new(), String::new()));
            }
        }
        Ok(())
    }

    fn end_chunk(&mut self) -> Result<(), TrashError> {
        let Some((sensor, times, lines)) = self.chunk.take() else { return Ok(()) };
        if times.is_empty() {
            return Ok(());
        }
        // The parts of the key: it is ambiguous by itself.
        self.comment(&json!({
            "measurement": sensor.measurement, "tags": sensor.tags, "times": times, "bytes": lines.len(),
        }))?;
        self.put(lines.as_bytes())
    }

    /// Makes it durable; returns how many sensors and readings it has.
    ///
    /// # Errors
    /// If there is no room, or the file cannot be written.
    pub fn finish(mut self) -> Result<(u64, u64), TrashError> {
        self.end_chunk()?;
        let (sensors, readings) = (self.sensors, self.readings);
        self.comment(&json!({ "sensors": sensors, "readings": readings }))?;
        let done = || {
            self.file.flush()?;
            self.file.get_ref().sync_all()?;
            fs::rename(&self.path, self.path.with_extension(FILE))?;
            self.path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
        };
        let mut done = done;
        done().map_err(|error| self.failed(error))?;
        Ok((sensors, readings))
    }
}

impl Drop for TrashWriting {
    fn drop(&mut self) {
        // Gone if it was finished.
        let _ = fs::remove_file(&self.path);
    }
}

/// A file of the trash that is being read.
#[derive(Debug)]
pub struct TrashReading {
    file: BufReader<File>,
    at: u64,
    id: String,
}

impl TrashReading {
    /// Where the next chunk begins.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Goes on where an earlier reading ended; 0 for the first chunk.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn seek(&mut self, at: u64) -> Result<(), TrashError> {
        if at > 0 {
            let sought = self.file.seek(io::SeekFrom::Start(at));
            self.at = sought.map_err(|error| TrashError::Io { folder: self.id.clone(), error })?;
        }
        Ok(())
    }

    fn comment(&mut self) -> Option<Value> {
        let mut text = String::new();
        self.at += (&mut self.file).take(COMMENT_BYTES).read_line(&mut text).ok()? as u64;
        parsed(&text)
    }

    /// The next chunk; `None` at the end.
    ///
    /// # Errors
    /// If the file is damaged there.
    pub fn next_chunk(&mut self) -> Result<Option<TrashChunk>, TrashError> {
        let damaged = TrashError::Damaged { id: self.id.clone(), at: self.at };
        match self.read() {
            Some(chunk) => Ok(chunk),
            None => Err(damaged),
        }
    }

    fn read(&mut self) -> Option<Option<TrashChunk>> {
        let head = self.comment()?;
        let Some(measurement) = head["measurement"].as_str() else {
            return head["readings"].is_u64().then_some(None);
        };
        let tag = |tag: &Value| Some((tag[0].as_str()?.to_owned(), tag[1].as_str()?.to_owned()));
        let tags = head["tags"].as_array()?.iter().map(tag).collect::<Option<Vec<_>>>()?;
        let times = head["times"].as_array()?.iter().map(Value::as_i64).collect::<Option<Vec<_>>>()?;
        let mut lines = vec![0; usize::try_from(head["bytes"].as_u64()?).ok().filter(|bytes| *bytes <= 64 << 20)?];
        self.file.read_exact(&mut lines).ok()?;
        self.at += lines.len() as u64;
        Some(Some(TrashChunk { sensor: Sensor::new(measurement, tags).ok()?, times, lines }))
    }
}

#[cfg(test)]
mod tests;
