//! Readings that the store will never take: kept in a file as line protocol, each lot under a
//! comment with the reason, so that they can be looked at, mended and sent again.

mod file;
mod sent;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

pub use self::file::{Head, Lot, Lots, parts};
pub use self::sent::{Marks, Sending};

use super::catalog::Database;
use super::unflushed::Load;
use crate::bucket::StorageError;
use crate::bucket::packed::Unpacked;
use crate::clock::now_ns;
use crate::wire::line_protocol::write_line;

/// The dead-letter file; made when it is first needed.
#[derive(Debug, Clone)]
pub struct DeadLetters {
    path: PathBuf,
    counted: Arc<Mutex<Option<(Seen, Outstanding)>>>,
}

/// What the file holds that was not sent again: readings by database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outstanding(pub BTreeMap<String, u64>);

impl Outstanding {
    /// Those of all databases.
    #[must_use]
    pub fn readings(&self) -> u64 {
        self.0.values().sum()
    }

    /// Which databases have how many, for people.
    #[must_use]
    pub fn described(&self) -> String {
        let each: Vec<String> =
            self.0.iter().map(|(database, readings)| format!("{readings} readings of database {database:?}")).collect();
        each.join(", ")
    }
}

/// By what a change of file or marks is seen: inode, length, time.
type Seen = [Option<(u64, u64, SystemTime)>; 2];

fn seen(path: &Path) -> Option<(u64, u64, SystemTime)> {
    let meta = fs::metadata(path).ok()?;
    Some((meta.ino(), meta.len(), meta.modified().ok()?))
}

impl DeadLetters {
    /// Kept in this file.
    pub fn new(path: PathBuf) -> Self {
        Self { path, counted: Arc::default() }
    }

    /// Keeps a bucket's readings, durably.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub async fn keep(&self, database: &Database, load: &Load, error: &StorageError) -> io::Result<()> {
        self.keep_some(database, load, |_| true, error).await
    }

    /// As [`DeadLetters::keep`], for the readings at these places in time order.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub async fn keep_some(
        &self,
        database: &Database,
        load: &Load,
        wanted: impl Fn(usize) -> bool,
        error: &StorageError,
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
        let text = Head::line(&database.name, size, now_ns(), &error.to_string()) + &lines;
        let keeper = self.clone();
        let appended = tokio::task::spawn_blocking(move || keeper.append(text.as_bytes())).await;
        appended.unwrap_or_else(|panicked| Err(io::Error::other(panicked)))?;
        let (sensor, hour) = (&load.known.sensor.key, load.hour.start_ns());
        tracing::error!(%sensor, hour, readings = kept, %error, file = %self.path.display(),
            "readings that cannot be stored are kept in the dead-letter file");
        Ok(())
    }

    /// Opens the file anew each time: whoever sends them again may have put it aside, and nothing is synced again on a
    /// descriptor that failed.
    fn append(&self, text: &[u8]) -> io::Result<()> {
        let mut file = open_locked(&self.path)?;
        if file.metadata()?.len() == 0 {
            if let Some(folder) = self.path.parent() {
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

    /// What the file holds that was not sent again. Read anew only when it has changed.
    ///
    /// # Errors
    /// The file cannot be read.
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
        if let Some(mut lots) = Lots::open(&self.path, 0)? {
            while let Some(lot) = lots.next(0)? {
                if !marks.has(&lot) {
                    *outstanding.0.entry(lot.head.database).or_default() += lot.head.readings;
                }
            }
        }
        *counted = Some((now, outstanding.clone()));
        Ok(outstanding)
    }

    /// At most so many lots from an offset on that were not sent again, with at most so many bytes of lines each and
    /// together; and where the next begin.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn page(
        &self,
        offset: u64,
        lots_max: usize,
        bounds: (usize, usize),
    ) -> io::Result<(Vec<Lot>, Option<u64>)> {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || page(&path, offset, lots_max, bounds)).await;
        read.unwrap_or_else(|panicked| Err(io::Error::other(panicked)))
    }
}

fn page(
    path: &Path,
    offset: u64,
    lots_max: usize,
    (each, together): (usize, usize),
) -> io::Result<(Vec<Lot>, Option<u64>)> {
    let marks = Marks::read(path)?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    let Some(mut lots) = Lots::open(path, offset)? else { return Ok((found, None)) };
    while let Some(lot) = lots.next(each)? {
        if marks.has(&lot) {
            continue;
        }
        if found.len() == lots_max || bytes > together {
            return Ok((found, Some(lot.offset)));
        }
        bytes += lot.lines.len() + lot.head.reason.len();
        found.push(lot);
    }
    Ok((found, None))
}

/// The file, made when it is missing, with its lock: nobody adds to it nor puts it aside meanwhile.
fn open_locked(path: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        file.lock()?;
        // It may have gone under another name before the lock was there.
        if fs::metadata(path).is_ok_and(|meta| file.metadata().is_ok_and(|open| open.ino() == meta.ino())) {
            return Ok(file);
        }
    }
}
