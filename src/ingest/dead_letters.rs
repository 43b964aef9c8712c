//! Readings that the store will never take: kept in a file as line protocol, each lot under a
//! comment with the reason, so that they can be looked at, mended and sent again.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::catalog::Database;
use super::unflushed::Load;
use crate::bucket::StorageError;
use crate::bucket::packed::Unpacked;
use crate::wire::line_protocol::write_line;

/// The dead-letter file; made when it is first needed.
#[derive(Debug, Clone)]
pub struct DeadLetters {
    path: PathBuf,
    file: Arc<Mutex<Option<File>>>,
}

impl DeadLetters {
    /// Kept in this file.
    pub fn new(path: PathBuf) -> Self {
        Self { path, file: Arc::default() }
    }

    /// Keeps a bucket's readings, durably.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub async fn keep(&self, database: &Database, load: &Load, error: &StorageError) -> io::Result<()> {
        let names = &load.known.fields().names;
        let mut text = String::new();
        let reason = error.to_string().replace(['\n', '\r'], " ");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# database {:?}, {} readings: {reason}", database.name, load.rows.len());
        let mut rows = Unpacked::default();
        rows.unpack_in_time_order([&*load.rows]);
        for row in rows.rows(names) {
            let fields = row.cells.iter().map(|(field, value)| (&*row.names[usize::from(*field)], value));
            write_line(&mut text, &load.known.sensor.key, fields, row.time);
        }
        let keeper = self.clone();
        let kept = tokio::task::spawn_blocking(move || keeper.append(text.as_bytes())).await;
        kept.unwrap_or_else(|panicked| Err(io::Error::other(panicked)))?;
        let (sensor, hour) = (&load.known.sensor.key, load.hour.start_ns());
        tracing::error!(%sensor, hour, readings = load.rows.len(), %error, file = %self.path.display(),
            "the store refuses a page for good; its new readings are kept in the dead-letter file");
        Ok(())
    }

    fn append(&self, text: &[u8]) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_none() {
            let opened = OpenOptions::new().create(true).append(true).open(&self.path)?;
            if let Some(folder) = self.path.parent() {
                File::open(folder)?.sync_all()?;
            }
            *file = Some(opened);
        }
        let Some(open) = file.as_mut() else { return Ok(()) };
        let written = open.write_all(text).and_then(|()| open.sync_data());
        if written.is_err() {
            // Never synced again on a descriptor that failed.
            *file = None;
        }
        written
    }
}
