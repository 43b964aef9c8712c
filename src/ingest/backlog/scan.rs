//! Looks, once at the start, what the records are about that are still to be read back. Until it is through, anything
//! may be among them.

use std::sync::Arc;
use std::time::Duration;

use super::{Backlog, Named};
use crate::ingest::catalog::Catalog;
use crate::ingest::deletion::{self, KIND_DELETION};
use crate::ingest::progress::Progress;
use crate::ingest::record::{self, RecordError};
use crate::log::{Log, ReadError, Reader, Record, Sequence};

/// Bytes of records that are looked at before the thread is given back.
const LOT_BYTES: usize = 2 << 20;
/// And how many of them.
const LOT: usize = 1024;
/// How long after the log could not be read it is read again.
const RETRY: Duration = Duration::from_secs(1);

/// The scan of the records up to the last at the start.
pub struct BacklogScan {
    /// What it fills.
    pub backlog: Arc<Backlog>,
    /// Where the records are.
    pub log: Arc<Log>,
    /// Tells when it is of no use any more.
    pub progress: Arc<Progress>,
    /// Told when lists of sensors made before may lack some.
    pub catalog: Arc<Catalog>,
    /// The last record that was there at the start.
    pub last: Sequence,
}

/// Why a scan does not go on.
enum Failure {
    Read(ReadError),
    Record(RecordError),
}

impl BacklogScan {
    /// Runs until all is noted, or given to the shards meanwhile. Where a record is of another version anything
    /// counts as not given, as before the scan: nothing behind such a record is.
    pub async fn run(self) {
        let started = std::time::Instant::now();
        let mut reader = self.log.reader(self.backlog.given() + 1);
        let is_of_use = || self.backlog.given() < self.last && !self.progress.is_live();
        let has_backlog = is_of_use();
        while reader.position() <= self.last && is_of_use() {
            let (backlog, catalog, last) = (self.backlog.clone(), self.catalog.clone(), self.last);
            let scanned = tokio::task::spawn_blocking(move || scan_lot(reader, &backlog, &catalog, last)).await;
            let (back, failure) = match scanned {
                Ok(scanned) => scanned,
                Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
            };
            reader = back;
            match failure {
                Ok(true) => {}
                Ok(false) => break,
                Err(Failure::Record(error)) => {
                    tracing::warn!(%error, "the log's backlog cannot be looked through; queries wait for all of it");
                    return;
                }
                Err(Failure::Read(error)) => {
                    tracing::warn!(%error, "the log cannot be read at present; it is tried again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
        self.backlog.scanned();
        if has_backlog {
            let seconds = started.elapsed().as_secs_f64();
            tracing::info!(last = self.last, seconds, "it is known what the log's backlog is about");
        }
    }
}

/// Notes some records; whether there may be more.
fn scan_lot(
    mut reader: Reader,
    backlog: &Backlog,
    catalog: &Catalog,
    last: Sequence,
) -> (Reader, Result<bool, Failure>) {
    let (mut bytes, mut records) = (0, 0);
    while bytes < LOT_BYTES && records < LOT {
        let record = match reader.next() {
            Ok(Some(record)) if record.sequence <= last => record,
            Ok(_) => return (reader, Ok(false)),
            Err(error) => return (reader, Err(Failure::Read(error))),
        };
        (bytes, records) = (bytes + record.payload.len(), records + 1);
        if record.sequence > backlog.given()
            && let Err(error) = note(&record, backlog, catalog)
        {
            return (reader, Err(Failure::Record(error)));
        }
    }
    (reader, Ok(true))
}

fn note(record: &Record, backlog: &Backlog, catalog: &Catalog) -> Result<(), RecordError> {
    if record.kind == KIND_DELETION {
        let deletion = deletion::decode(record.kind, &record.payload)?;
        backlog.note_deletion(&deletion.database, record.sequence);
        return Ok(());
    }
    let outline = record::outline(record.kind, &record.payload)?;
    let mut noting = backlog.noting(&outline.database, record.sequence);
    for sensor in outline.sensors {
        let whose = Arc::new(sensor.sensor);
        for hours in sensor.hours {
            noting.sensor(&whose.key, hours, Named::Record(&sensor.fields), || whose.clone());
        }
    }
    if noting.finish() {
        catalog.note_news();
    }
    Ok(())
}
