//! The scan of the WAL at the start. It notes the sensors and hours of all records that will be replayed. Until it is
//! complete, the backlog may concern any sensor.

use std::sync::Arc;

use super::{Backlog, NotedFields};
use crate::buffer::dispatch::{Chunk, Dispatch, RETRY_DELAY, await_chunk, read_chunk};
use crate::buffer::record::deletion::{self, KIND_DELETION};
use crate::buffer::record::meta::{self, KIND_META};
use crate::buffer::record::{self, RecordError};
use crate::catalog::Catalog;
use crate::wal::{Record, Sequence, Wal};

/// Scans the records up to `last`, until all are noted or dispatched. Stops at a record that this version cannot read,
/// where the replay stops too. The backlog then counts as unscanned.
pub async fn scan(dispatch: Arc<Dispatch>, log: Arc<Wal>, last: Sequence) {
    let started = std::time::Instant::now();
    let mut reader = log.reader(dispatch.backlog.last_dispatched() + 1);
    let has_backlog = || dispatch.backlog.last_dispatched() < last && !dispatch.positions.is_live();
    let had_backlog = has_backlog();
    while reader.position() <= last && has_backlog() {
        let shared = dispatch.clone();
        let Chunk { reader: next, records } = await_chunk(read_chunk(reader, move |record| {
            let Dispatch { backlog, catalog, .. } = &*shared;
            let is_pending = (backlog.last_dispatched() + 1..=last).contains(&record.sequence);
            if is_pending { note(record, backlog, catalog) } else { Ok(()) }
        }))
        .await;
        reader = next;
        match records {
            Ok(chunk) if chunk.is_empty() => break,
            Ok(chunk) => {
                if let Some(error) = chunk.into_iter().find_map(|(_, noted)| noted.err()) {
                    tracing::warn!(%error, "cannot read ahead in the WAL; queries for any sensor wait until the replay ends");
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "WAL read failed; retrying");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
    dispatch.backlog.note_scanned();
    if had_backlog {
        let seconds = started.elapsed().as_secs_f64();
        tracing::info!(last, seconds, "WAL backlog scanned");
    }
}

/// Notes the sensors and hours of a record.
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
    let mut note = backlog.begin_note(&outline.database, record.sequence);
    for outlined in outline.sensors {
        let sensor = Arc::new(outlined.sensor);
        for hours in outlined.hours {
            note.add_sensor(&sensor.key, hours, NotedFields::Scanned(&outlined.fields), || sensor.clone());
        }
    }
    if note.finish() {
        catalog.note_news();
    }
    Ok(())
}
