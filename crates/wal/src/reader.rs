//! Reading records in WAL order, across segments and in chunks, also while the writer appends. Unreadable bytes are
//! registered as damage and skipped.

use std::io;
use std::sync::Arc;

use super::Sequence;
use super::damage::Damage;
use super::error::DiskError;
use super::scan::{Hole, ScanItem, ScannedRecord, SegmentScanner};
use super::shared::{Segment, WalShared};

/// One record of the WAL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The sequence: unique, and higher than those of all earlier records. There may be gaps.
    pub sequence: Sequence,
    /// The kind that the appender gave it.
    pub kind: u8,
    /// The appended bytes, unchanged.
    pub payload: Vec<u8>,
}

/// A reader of a WAL from a given sequence on. It keeps one chunk, or the largest record so far, in memory.
pub struct WalReader {
    shared: Arc<WalShared>,
    next: Sequence,
    current: Option<(Segment, SegmentScanner)>,
}

impl WalReader {
    pub(super) fn new(shared: Arc<WalShared>, start: Sequence) -> Self {
        Self { shared, next: start, current: None }
    }

    /// Returns the next durable record, or `None` if there is none yet. Every durable record from the start position on
    /// is returned exactly once, in WAL order, except truncated and damaged ones; damage is registered. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// [`DiskError`] if the disk cannot be read. The reader keeps its position, so the call can be repeated.
    #[expect(clippy::should_implement_trait, reason = "after None there may be more records, and an error may pass")]
    pub fn next(&mut self) -> Result<Option<Record>, DiskError> {
        loop {
            let Some((segment, mut scanner)) = self.take_current()? else { return Ok(None) };
            let item = scanner.next();
            let (segment, scanner) = self.current.insert((segment, scanner));
            let failed = |error| failure(&segment.name, error);
            match item.map_err(failed)? {
                Some(ScanItem::Record(found)) if found.head.sequence < self.next => {}
                Some(ScanItem::Record(found)) => {
                    self.next = found.head.sequence + 1;
                    if let Some(record) = record(scanner, &found) {
                        return Ok(Some(record));
                    }
                    let start = found.offset;
                    let end = found.offset + found.head.size();
                    self.register_damage(&Hole { start, end, written_end: end, lacks_sector: false });
                }
                Some(ScanItem::Hole(hole)) => self.register_damage(&hole),
                None if self.advance() => {}
                None => return Ok(None),
            }
        }
    }

    /// The lower bound of the next record's sequence.
    #[must_use]
    pub fn position(&self) -> Sequence {
        self.next
    }

    /// Takes the segment and the scanner to read from; `None` if there are no more durable records.
    fn take_current(&mut self) -> Result<Option<(Segment, SegmentScanner)>, DiskError> {
        while self.current.is_none() {
            let found = self.shared.lock().segments.iter().find(|segment| segment.last >= self.next).cloned();
            let Some(segment) = found else { return Ok(None) };
            match self.shared.disk.open(&segment.name) {
                Ok(file) => {
                    let scanner = SegmentScanner::new(file, segment.id, segment.first, segment.end);
                    self.current = Some((segment, scanner));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.skip_missing(&segment),
                Err(error) => return Err(failure(&segment.name, error)),
            }
        }
        Ok(self.current.take())
    }

    /// Skips a segment whose file is missing. It counts as damage unless it was truncated.
    fn skip_missing(&mut self, segment: &Segment) {
        let (last, truncated) = {
            let state = self.shared.lock();
            let listed = state.segments.iter().find(|other| other.id == segment.id);
            (listed.map(|listed| listed.last), state.truncated)
        };
        if last.is_some_and(|last| last > truncated) {
            let name = segment.name.clone();
            let bytes = segment.bytes;
            self.shared.damage.add(Damage::of_segment(name, bytes, None));
        }
        self.next = self.next.max(last.unwrap_or(segment.last) + 1);
    }

    /// Moves on at the end of the known durable records. Returns false if there are no more, in this segment or a later
    /// one.
    fn advance(&mut self) -> bool {
        let Some((segment, scanner)) = &mut self.current else { return false };
        let state = self.shared.lock();
        let listed = state.segments.iter().find(|other| other.id == segment.id);
        if let Some(listed) = listed.filter(|listed| listed.end > segment.end) {
            scanner.extend(listed.end);
            *segment = listed.clone();
            return true;
        }
        // Continue even if the last record of the segment is damaged.
        self.next = self.next.max(segment.last + 1);
        if state.segments.back().is_some_and(|last| last.id == segment.id) {
            return false;
        }
        drop(state);
        self.current = None;
        true
    }

    fn register_damage(&self, hole: &Hole) {
        if let Some((segment, scanner)) = &self.current {
            let Segment { name, synced_end, .. } = segment;
            self.shared.damage.add_hole(&*self.shared.disk, scanner.file(), name, *synced_end, hole);
        }
    }
}

fn failure(segment: &str, error: io::Error) -> DiskError {
    DiskError { attempt: format!("reading segment {segment}"), error }
}

fn record(scanner: &SegmentScanner, found: &ScannedRecord) -> Option<Record> {
    let payload = found.head.payload(scanner.record_bytes(found))?;
    Some(Record { sequence: found.head.sequence, kind: found.head.kind, payload })
}
