//! A scan, once at the start, of what the records are about that are still to be replayed. Until it is complete, the
//! backlog may be about anything.

use std::sync::Arc;

use super::{Backlog, Named};
use crate::buffer::dispatch::{Dispatch, RETRY, read_chunk};
use crate::buffer::record::deletion::{self, KIND_DELETION};
use crate::buffer::record::meta::{self, KIND_META};
use crate::buffer::record::{self, RecordError};
use crate::catalog::Catalog;
use crate::wal::{Record, Sequence, Wal};

/// Scans the records up to the last one at the start, until all are noted or dispatched. At a record that this version cannot
/// read it stops, and the backlog stays as unknown as before the scan, because replay stops there too.
pub async fn scan(dispatch: Arc<Dispatch>, log: Arc<Wal>, last: Sequence) {
    let started = std::time::Instant::now();
    let mut reader = log.reader(dispatch.backlog.given() + 1);
    // Once the shards have caught up, the scan is useless.
    let is_of_use = || dispatch.backlog.given() < last && !dispatch.positions.is_live();
    let has_backlog = is_of_use();
    while reader.position() <= last && is_of_use() {
        let (back, chunk) = read_chunk(reader).await;
        reader = back;
        let chunk = match chunk {
            Ok(chunk) if chunk.is_empty() => break,
            Ok(chunk) => chunk,
            Err(error) => {
                tracing::warn!(%error, "WAL read failed; retrying");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        let noting = dispatch.clone();
        let noted = tokio::task::spawn_blocking(move || {
            let Dispatch { backlog, catalog, .. } = &*noting;
            let mut unnoted = chunk.iter().filter(|record| (backlog.given() + 1..=last).contains(&record.sequence));
            unnoted.try_for_each(|record| note(record, backlog, catalog))
        });
        match noted.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot read ahead in the WAL; queries for any sensor wait until the replay ends");
                return;
            }
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
    dispatch.backlog.scanned();
    if has_backlog {
        let seconds = started.elapsed().as_secs_f64();
        tracing::info!(last, seconds, "WAL backlog scanned");
    }
}

fn note(record: &Record, backlog: &Backlog, catalog: &Catalog) -> Result<(), RecordError> {
    if record.kind == KIND_DELETION {
        let deletion = deletion::decode(record.kind, &record.payload)?;
        backlog.note_change(&deletion.database, record.sequence);
        return Ok(());
    }
    if record.kind == KIND_META {
        let meta = meta::decode(record.kind, &record.payload)?;
        backlog.note_change(&meta.database, record.sequence);
        return Ok(());
    }
    let outline = record::outline::outline(record.kind, &record.payload)?;
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
