//! Reads records back in log order, across segments, a chunk at a time, also while the writer appends. Bytes it cannot
//! read are registered as damage and skipped.

use std::io;
use std::sync::Arc;

use super::Sequence;
use super::damage::Damage;
use super::error::DiskError;
use super::scan::{Hole, ScanItem, ScannedRecord, SegmentScanner};
use super::shared::{Segment, WalShared};

/// One record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Unique, and higher than those of all earlier records. There may be gaps.
    pub sequence: Sequence,
    /// The kind that the appender gave it.
    pub kind: u8,
    /// The appended bytes, unchanged.
    pub payload: Vec<u8>,
}

/// Reads a log from some sequence on. Holds one chunk, or the largest record found, in memory.
pub struct WalReader {
    shared: Arc<WalShared>,
    next: Sequence,
    at: Option<(Segment, SegmentScanner)>,
}

impl WalReader {
    pub(super) fn new(shared: Arc<WalShared>, from: Sequence) -> Self {
        Self { shared, next: from, at: None }
    }

    /// The next durable record, or `None` when there is none at present; there may be one later. Every durable record
    /// from the start on is returned exactly once, in log order, except those truncated meanwhile and damaged ones,
    /// which are registered. Blocks on the disk.
    ///
    /// # Errors
    /// The disk cannot be read. The reader keeps its position; the call may be repeated.
    #[expect(clippy::should_implement_trait, reason = "after None there may be more records, and an error may pass")]
    pub fn next(&mut self) -> Result<Option<Record>, DiskError> {
        loop {
            let Some((segment, mut scanner)) = self.take_place()? else { return Ok(None) };
            let item = scanner.next();
            let (segment, scanner) = self.at.insert((segment, scanner));
            let failed = |error| failure(&segment.name, error);
            match item.map_err(failed)? {
                Some(ScanItem::Record(found)) if found.head.sequence < self.next => {}
                Some(ScanItem::Record(found)) => {
                    self.next = found.head.sequence + 1;
                    if let Some(record) = record(scanner, &found) {
                        return Ok(Some(record));
                    }
                    let (start, end) = (found.offset, found.offset + found.head.size());
                    self.damaged(&Hole { start, end, written_end: end, lacks_sector: false });
                }
                Some(ScanItem::Hole(hole)) => self.damaged(&hole),
                None if self.go_on() => {}
                None => return Ok(None),
            }
        }
    }

    /// The next record has at least this sequence.
    #[must_use]
    pub fn position(&self) -> Sequence {
        self.next
    }

    /// Takes the segment and scanner to read from; `None` when nothing more is durable.
    fn take_place(&mut self) -> Result<Option<(Segment, SegmentScanner)>, DiskError> {
        while self.at.is_none() {
            let found = self.shared.lock().segments.iter().find(|segment| segment.last >= self.next).cloned();
            let Some(segment) = found else { return Ok(None) };
            match self.shared.disk.open(&segment.name) {
                Ok(file) => {
                    let scanner = SegmentScanner::new(file, segment.id, segment.first, segment.end);
                    self.at = Some((segment, scanner));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.is_gone(&segment),
                Err(error) => return Err(failure(&segment.name, error)),
            }
        }
        Ok(self.at.take())
    }

    /// Skips a segment whose file is missing: a truncated one silently, any other one as damage.
    fn is_gone(&mut self, segment: &Segment) {
        let (last, truncated) = {
            let state = self.shared.lock();
            let listed = state.segments.iter().find(|other| other.id == segment.id);
            (listed.map(|listed| listed.last), state.truncated)
        };
        if last.is_some_and(|last| last > truncated) {
            let (name, bytes) = (segment.name.clone(), segment.bytes);
            self.shared.damage.add(Damage::of_segment(name, bytes, None));
        }
        self.next = self.next.max(last.unwrap_or(segment.last) + 1);
    }

    /// At the end of what was durable: whether there is more by now, in this segment or a later one.
    fn go_on(&mut self) -> bool {
        let Some((segment, scanner)) = &mut self.at else { return false };
        let state = self.shared.lock();
        let listed = state.segments.iter().find(|other| other.id == segment.id);
        if let Some(listed) = listed.filter(|listed| listed.end > segment.end) {
            scanner.extend(listed.end);
            *segment = listed.clone();
            return true;
        }
        // A damaged last record must not keep the reader here.
        self.next = self.next.max(segment.last + 1);
        if state.segments.back().is_some_and(|last| last.id == segment.id) {
            return false;
        }
        drop(state);
        self.at = None;
        true
    }

    fn damaged(&self, hole: &Hole) {
        if let Some((segment, scanner)) = &self.at {
            let Segment { name, sure, .. } = segment;
            self.shared.damage.hole(&*self.shared.disk, scanner.file(), name, *sure, hole);
        }
    }
}

fn failure(segment: &str, error: io::Error) -> DiskError {
    DiskError { attempt: format!("reading segment {segment}"), error }
}

fn record(scanner: &SegmentScanner, found: &ScannedRecord) -> Option<Record> {
    let payload = found.head.payload(scanner.stored_of(found))?;
    Some(Record { sequence: found.head.sequence, kind: found.head.kind, payload })
}
