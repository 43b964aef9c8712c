//! Reads the records of one segment file one after the other, a chunk at a time, and finds the
//! next one behind damage. Knows nothing of other segments.

use std::io;

use super::Sequence;
use super::disk::{DiskFile, read_padded};
use super::format::{HEADER_BYTES, Head, RECORD_BYTES};

/// How much is read at once. Bigger chunks did not replay faster.
const CHUNK_BYTES: u64 = 256 << 10;

/// Reads one segment.
pub(super) struct Scanner {
    file: Box<dyn DiskFile>,
    segment: u64,
    /// What is sought next has at least this sequence.
    next: Sequence,
    offset: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Where in the file the buffer begins.
    buffer_at: u64,
    hole: Option<Hole>,
}

/// What stands at a place of the segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    /// A whole record.
    Record(Found),
    /// Bytes that hold no record, up to the next record or to the end.
    Hole(Hole),
}

/// A whole record; its bytes are the scanner's until it goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) offset: u64,
    pub(super) head: Head,
}

/// Bytes that hold no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) start: u64,
    pub(super) end: u64,
    /// From here on there are only zeros.
    pub(super) written_end: u64,
}

impl Scanner {
    /// Reads from the first record to the end, which need not be the file's; what the file lacks up
    /// to there counts as zeros.
    pub(super) fn new(file: Box<dyn DiskFile>, segment: u64, first: Sequence, end: u64) -> Self {
        let start = HEADER_BYTES;
        Self { file, segment, next: first, offset: start, end, buffer: Vec::new(), buffer_at: start, hole: None }
    }

    /// Moves the end: the writer has synced more. Never back.
    pub(super) fn extend(&mut self, end: u64) {
        // The buffer never reads past the end, so it holds nothing older than the sync.
        self.end = self.end.max(end);
    }

    /// The highest sequence seen plus one, also from records whose payload is damaged.
    pub(super) fn next_sequence(&self) -> Sequence {
        self.next
    }

    /// What stands next, or `None` at the end. After an error the same place is tried again.
    pub(super) fn next(&mut self) -> io::Result<Option<Item>> {
        while self.offset + RECORD_BYTES <= self.end {
            self.fill(RECORD_BYTES)?;
            let Some(head) = self.head() else {
                let bytes = self.ahead(8);
                let written = bytes.iter().any(|byte| *byte != 0);
                self.skip(8, written);
                continue;
            };
            self.fill(head.size())?;
            if head.fits(self.stored(&head)) {
                if let Some(hole) = self.hole.take() {
                    return Ok(Some(Item::Hole(hole)));
                }
                let offset = self.offset;
                self.offset += head.size();
                self.next = head.sequence + 1;
                return Ok(Some(Item::Record(Found { offset, head })));
            }
            self.next = head.sequence + 1;
            self.skip(head.size(), true);
        }
        if self.offset < self.end {
            self.fill(self.end - self.offset)?;
            let rest = self.ahead(self.end - self.offset);
            let (length, written) = (rest.len() as u64, rest.iter().any(|byte| *byte != 0));
            self.skip(length, written);
        }
        Ok(self.hole.take().map(Item::Hole))
    }

    /// The stored bytes of the record that was just found.
    pub(super) fn stored_of(&self, found: &Found) -> &[u8] {
        let start = (found.offset - self.buffer_at + RECORD_BYTES) as usize;
        &self.buffer[start..start + found.head.stored_bytes as usize]
    }

    /// The file, to copy damage from.
    pub(super) fn file(&self) -> &dyn DiskFile {
        &*self.file
    }

    /// The file, for its own sake.
    pub(super) fn into_file(self) -> Box<dyn DiskFile> {
        self.file
    }

    fn head(&self) -> Option<Head> {
        let head = Head::decode(self.segment, self.ahead(RECORD_BYTES))?;
        let fits = self.offset + head.size() <= self.end && head.group <= self.offset;
        (fits && head.sequence >= self.next && head.sequence < Sequence::MAX).then_some(head)
    }

    fn stored(&self, head: &Head) -> &[u8] {
        &self.ahead(head.size())[RECORD_BYTES as usize..][..head.stored_bytes as usize]
    }

    /// Bytes from the present place on, which must have been filled.
    fn ahead(&self, length: u64) -> &[u8] {
        let start = (self.offset - self.buffer_at) as usize;
        &self.buffer[start..start + length as usize]
    }

    fn skip(&mut self, length: u64, written: bool) {
        let hole = self.hole.get_or_insert(Hole { start: self.offset, end: self.offset, written_end: self.offset });
        self.offset += length;
        hole.end = self.offset;
        if written {
            hole.written_end = self.offset;
        }
    }

    /// The buffer holds that many bytes from the present place on.
    fn fill(&mut self, length: u64) -> io::Result<()> {
        let until = self.offset + length;
        if self.offset >= self.buffer_at && until <= self.buffer_at + self.buffer.len() as u64 {
            return Ok(());
        }
        let wanted = length.max(CHUNK_BYTES).min(self.end - self.offset);
        self.buffer.clear();
        self.buffer.resize(wanted as usize, 0);
        self.buffer_at = self.offset;
        read_padded(&*self.file, &mut self.buffer, self.offset).inspect_err(|_| self.buffer.clear())
    }
}
