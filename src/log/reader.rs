//! Reads records back in log order, across segments and a chunk at a time, also while the writer
//! appends. What it cannot read it registers as damage and passes over.

use std::io;
use std::sync::Arc;

use super::Sequence;
use super::damage::Damage;
use super::error::ReadError;
use super::scan::{Found, Hole, Item, Scanner};
use super::shared::{Segment, Shared};

/// One record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Unique, and higher than those of all earlier records. Sequences may be left out.
    pub sequence: Sequence,
    /// What the caller said it is.
    pub kind: u8,
    /// What was appended, byte for byte.
    pub payload: Vec<u8>,
}

/// Reads a log from some sequence on. Holds one chunk, or the largest record met, in memory.
pub struct Reader {
    shared: Arc<Shared>,
    next: Sequence,
    at: Option<(Segment, Scanner)>,
}

impl Reader {
    pub(super) fn new(shared: Arc<Shared>, from: Sequence) -> Self {
        Self { shared, next: from, at: None }
    }

    /// The next durable record, or `None` when there is none at present; there may be later. Every
    /// durable record from the start on is given exactly once, in log order, but for those that
    /// were released meanwhile and those that are damaged, which are registered. Blocks on the disk.
    ///
    /// # Errors
    /// The disk cannot be read. The reader stays where it is and may be asked again.
    #[expect(clippy::should_implement_trait, reason = "an end that may move, and errors that may pass")]
    pub fn next(&mut self) -> Result<Option<Record>, ReadError> {
        loop {
            let Some((segment, mut scanner)) = self.take_place()? else { return Ok(None) };
            let item = scanner.next();
            let (segment, scanner) = self.at.insert((segment, scanner));
            let failed = |error| ReadError { segment: segment.name.clone(), error };
            match item.map_err(failed)? {
                Some(Item::Record(found)) if found.head.sequence < self.next => {}
                Some(Item::Record(found)) => {
                    self.next = found.head.sequence + 1;
                    if let Some(record) = record(scanner, &found) {
                        return Ok(Some(record));
                    }
                    let (start, end) = (found.offset, found.offset + found.head.size());
                    self.damaged(&Hole { start, end, written_end: end, lacks_sector: false });
                }
                Some(Item::Hole(hole)) => self.damaged(&hole),
                None if self.go_on() => {}
                None => return Ok(None),
            }
        }
    }

    /// The sequence from which on records are still to come.
    #[must_use]
    pub fn position(&self) -> Sequence {
        self.next
    }

    /// Where to read, out of its place; `None` when nothing more is durable.
    fn take_place(&mut self) -> Result<Option<(Segment, Scanner)>, ReadError> {
        while self.at.is_none() {
            let found = self.shared.lock().segments.iter().find(|segment| segment.last >= self.next).cloned();
            let Some(segment) = found else { return Ok(None) };
            match self.shared.disk.open(&segment.name) {
                Ok(file) => {
                    let scanner = Scanner::new(file, segment.id, segment.first, segment.end);
                    self.at = Some((segment, scanner));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.is_gone(&segment),
                Err(error) => return Err(ReadError { segment: segment.name, error }),
            }
        }
        Ok(self.at.take())
    }

    /// A segment that was released just now is passed over; one that ought to be there is damage.
    fn is_gone(&mut self, segment: &Segment) {
        let (last, released) = {
            let state = self.shared.lock();
            let listed = state.segments.iter().find(|other| other.id == segment.id);
            (listed.map(|listed| listed.last), state.released)
        };
        if last.is_some_and(|last| last > released) {
            let (name, bytes) = (segment.name.clone(), segment.bytes);
            self.shared.damage.add(Damage::of_segment(name, bytes, None));
        }
        self.next = self.next.max(last.unwrap_or(segment.last) + 1);
    }

    /// At the end of what was durable: whether more is by now, here or in a later segment.
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

fn record(scanner: &Scanner, found: &Found) -> Option<Record> {
    let payload = found.head.payload(scanner.stored_of(found))?;
    Some(Record { sequence: found.head.sequence, kind: found.head.kind, payload })
}
