//! Dead letters: readings and metadata that the store will never accept. A side file keeps them with the reason, so
//! that an operator can inspect, correct and resend them.

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::blocking;
use crate::bucket::packed::UnpackedRows;
use crate::bucket::{Meta, StorageError};
use crate::buffer::memtable::Load;
use crate::catalog::Database;
use crate::clock::now_ns;
use crate::reading::stamp::SETTLED;
use crate::reading::time::write_rfc3339;
use crate::side_file::{SideFile, SideFileLimits};
use crate::wire::line_protocol::write_line;

const LIMITS: SideFileLimits = SideFileLimits { segment_bytes: 64 << 20, keep_bytes: None };

/// The reason for readings of a WAL that was silent while the floor moved past them. The store has other values at
/// their timestamps, which may be later.
pub const SET_ASIDE: &str = "set aside: this instance was silent for longer than wal.horizon and the store has other values; \
     compare before you resend";

/// A record of the side file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeadLetter {
    Readings(ReadingsLetter),
    Metadata(MetadataLetter),
    /// Ids of records that were resent or dismissed.
    Done(Vec<u64>),
}

/// Readings of one sensor and hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadingsLetter {
    pub database: String,
    pub readings: u64,
    /// The time at which the record was written, in RFC 3339.
    pub kept: String,
    pub reason: String,
    /// Line protocol with timestamps in nanoseconds.
    pub lines: String,
}

/// A change of a sensor's metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataLetter {
    pub database: String,
    pub sensor: String,
    /// The changed values; null removes a name.
    pub meta: Map<String, Value>,
    /// True if the change replaces all older metadata.
    pub replaces: bool,
    /// The time at which the record was written, in RFC 3339.
    pub kept: String,
    pub reason: String,
}

/// The numbers of dead letters that were not resent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutstandingLetters {
    /// The number of readings by database.
    pub by_database: BTreeMap<String, u64>,
    /// The number of metadata changes.
    pub metadata: u64,
}

impl OutstandingLetters {
    /// Returns the number of readings of all databases.
    #[must_use]
    pub fn readings(&self) -> u64 {
        self.by_database.values().sum()
    }

    /// Describes the number of readings of each database.
    #[must_use]
    pub fn describe(&self) -> String {
        let describe = |(database, readings): (&String, &u64)| format!("{readings} readings of database {database:?}");
        let parts: Vec<String> = self.by_database.iter().map(describe).collect();
        parts.join(", ")
    }
}

/// The first ids and sizes of the segments, which change with every write.
type FileVersion = Vec<(u64, u64)>;

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    file: Mutex<SideFile<DeadLetter>>,
    /// The last count, with the version of the file.
    counted: Mutex<Option<(FileVersion, OutstandingLetters)>>,
}

/// The side file of dead letters, created on first use. Several processes may use it.
#[derive(Debug, Clone)]
pub struct DeadLetters(Arc<Shared>);

impl DeadLetters {
    /// Opens the dead letters of a folder.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        let file = Mutex::new(SideFile::new(folder.clone(), LIMITS));
        Self(Arc::new(Shared { folder, file, counted: Mutex::default() }))
    }

    /// Durably appends the readings of a bucket whose indices in time order are `wanted`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub async fn keep(
        &self,
        database: &Database,
        load: &Load,
        wanted: impl Fn(usize) -> bool,
        reason: &str,
    ) -> io::Result<()> {
        let names = &load.known.fields().names;
        let mut lines = String::new();
        let mut rows = UnpackedRows::default();
        rows.unpack_in_time_order([&*load.rows]);
        let mut readings = 0;
        for (_, row) in rows.rows(names).enumerate().filter(|(index, _)| wanted(*index)) {
            readings += 1;
            let fields = row.cells.iter().map(|(field, value)| (&*row.names[usize::from(*field)], value));
            write_line(&mut lines, &load.known.sensor.key, fields, row.time);
        }
        let database = database.name.to_string();
        let letter = ReadingsLetter { database, readings, kept: now(), reason: reason.to_owned(), lines };
        self.append(DeadLetter::Readings(letter)).await?;
        let sensor = &load.known.sensor.key;
        let hour = load.hour.start_ns();
        tracing::error!(%sensor, hour, readings, error = %reason, folder = %self.0.folder.display(),
            "cannot store readings; they are dead letters now");
        Ok(())
    }

    /// Durably appends a metadata change of a sensor.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub async fn keep_meta(&self, database: &str, sensor: &str, change: &Meta, error: &StorageError) -> io::Result<()> {
        let value = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
        let values =
            change.entries().map(|(name, entry)| (name.to_owned(), entry.value.as_deref().map_or(Value::Null, value)));
        self.append(DeadLetter::Metadata(MetadataLetter {
            database: database.to_owned(),
            sensor: sensor.to_owned(),
            meta: values.collect(),
            replaces: change.replaced_before() != SETTLED,
            kept: now(),
            reason: error.to_string(),
        }))
        .await?;
        tracing::error!(%sensor, %error, folder = %self.0.folder.display(),
            "cannot store metadata; it is a dead letter now");
        Ok(())
    }

    async fn append(&self, letter: DeadLetter) -> io::Result<()> {
        self.in_background(move |letters| letters.write(&letter)).await
    }

    /// Runs work on a blocking thread.
    async fn in_background<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let letters = self.clone();
        let done = blocking::spawn(move || work(&letters)).await;
        done.unwrap_or_else(|panicked| Err(io::Error::other(panicked)))
    }

    /// Counts the dead letters that were not resent. Reads the file only if it has changed.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn outstanding(&self) -> io::Result<OutstandingLetters> {
        self.in_background(Self::count).await
    }

    fn count(&self) -> io::Result<OutstandingLetters> {
        let mut counted = self.0.counted.lock();
        let version: FileVersion =
            self.0.file.lock().segments()?.iter().map(|segment| (segment.first_id, segment.bytes)).collect();
        if let Some((_, outstanding)) = counted.as_ref().filter(|(before, _)| *before == version) {
            return Ok(outstanding.clone());
        }
        let mut outstanding = OutstandingLetters::default();
        self.read(0, |_, letter| {
            match letter {
                DeadLetter::Readings(letter) => {
                    *outstanding.by_database.entry(letter.database).or_default() += letter.readings;
                }
                DeadLetter::Metadata(_) => outstanding.metadata += 1,
                DeadLetter::Done(_) => {}
            }
            ControlFlow::Continue(())
        })?;
        *counted = Some((version, outstanding.clone()));
        Ok(outstanding)
    }

    /// Returns at most `count_max` dead letters after an id that were not resent, of about `bytes_max` bytes, and true
    /// if there are more.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn page(
        &self,
        after: u64,
        count_max: usize,
        bytes_max: usize,
    ) -> io::Result<(Vec<(u64, DeadLetter)>, bool)> {
        self.in_background(move |letters| {
            let mut found = Vec::new();
            let mut bytes = 0;
            let mut has_more = false;
            letters.read(after, |id, letter| {
                has_more = found.len() == count_max || bytes > bytes_max;
                if has_more {
                    return ControlFlow::Break(());
                }
                if let DeadLetter::Readings(letter) = &letter {
                    bytes += letter.lines.len() + letter.reason.len();
                }
                found.push((id, letter));
                ControlFlow::Continue(())
            })?;
            Ok((found, has_more))
        })
        .await
    }

    /// Passes each dead letter after an id that was not resent to `take`, oldest first. Returns the number of damaged
    /// or incomplete lines in the file. Blocks.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(&self, after_id: u64, mut take: impl FnMut(u64, DeadLetter) -> ControlFlow<()>) -> io::Result<u64> {
        let file = self.0.file.lock();
        let mut done: HashSet<u64> = HashSet::new();
        let damaged = file.read(0, |_, _, letter| {
            if let DeadLetter::Done(ids) = letter {
                done.extend(ids);
            }
            ControlFlow::Continue(())
        })?;
        file.read(after_id, |_, id, letter| match letter {
            DeadLetter::Done(_) => ControlFlow::Continue(()),
            _ if done.contains(&id) => ControlFlow::Continue(()),
            letter => take(id, letter),
        })?;
        Ok(damaged)
    }

    /// Durably notes that dead letters were resent. Blocks.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn mark_done(&self, ids: Vec<u64>) -> io::Result<()> {
        self.write(&DeadLetter::Done(ids))
    }

    /// Removes the file if everything in it was resent. Blocks.
    ///
    /// # Errors
    /// If the file cannot be read or removed.
    pub fn remove_done(&self) -> io::Result<()> {
        let _locked = self.lock_file()?;
        let mut is_left = false;
        let damaged = self.read(0, |_, _| {
            is_left = true;
            ControlFlow::Break(())
        })?;
        if !is_left && damaged == 0 {
            self.0.file.lock().retain(|_, _| false)?;
        }
        Ok(())
    }

    /// Locks the right to resend dead letters, which one process has at a time.
    ///
    /// # Errors
    /// `WouldBlock` if another process has it, and other I/O errors.
    pub fn begin_sending(&self) -> io::Result<File> {
        let file = self.open("sending")?;
        file.try_lock()?;
        Ok(file)
    }

    fn write(&self, letter: &DeadLetter) -> io::Result<()> {
        let _locked = self.lock_file()?;
        let mut file = self.0.file.lock();
        file.append(std::slice::from_ref(letter))?;
        file.sync()
    }

    /// Locks out other processes, so that none removes the file while another one appends.
    fn lock_file(&self) -> io::Result<File> {
        let file = self.open("lock")?;
        file.lock()?;
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0.folder)?;
        OpenOptions::new().create(true).append(true).mode(0o600).open(self.0.folder.join(name))
    }
}

fn now() -> String {
    let mut text = String::new();
    write_rfc3339(&mut text, now_ns());
    text
}

/// Splits line protocol into parts of about `bytes` bytes, at the ends of readings. Strings may contain line ends.
#[must_use]
pub fn parts(lines: &[u8], bytes: usize) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut is_quoted = false;
    let mut is_escaped = false;
    let mut is_field = false;
    for (index, byte) in lines.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            // Before the fields a quote is an ordinary character.
            b' ' if !is_quoted => is_field = true,
            b'"' if is_field => is_quoted = !is_quoted,
            b'\n' if !is_quoted => {
                is_field = false;
                if index + 1 - start >= bytes {
                    parts.push(&lines[start..=index]);
                    start = index + 1;
                }
            }
            _ => {}
        }
    }
    if start < lines.len() {
        parts.push(&lines[start..]);
    }
    parts
}
