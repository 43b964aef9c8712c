//! Reads the records of one segment file one after the other, a chunk at a time, and finds the
//! next one behind damage. Says of bytes that hold no record whether a write that was cut short
//! leaves such. Knows nothing of other segments.

use std::io;

use super::Sequence;
use super::disk::{DiskFile, read_padded};
use super::format::{HEADER_BYTES, Head, RECORD_BYTES};

/// How much is read at once. Bigger chunks did not replay faster.
const CHUNK_BYTES: u64 = 256 << 10;
/// What a disk writes wholly or not at all. Disks of 4096 bytes, and the kernel, which a kill stops
/// between two pages, write several at once.
const SECTOR_BYTES: u64 = 512;
/// So many zeros at a sector's border are no chance: a value of 0.0 makes ten.
const UNWRITTEN_BYTES: usize = 16;

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
    sure: u64,
}

/// What stands at a place of the segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    /// A whole record.
    Record(Found),
    /// A record whose payload is damaged, or bytes without a head up to the next head or to the end.
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
    /// Where a record ought to stand, a sector was never written: a write that was cut short leaves
    /// such bytes, and a changed byte does not.
    pub(super) lacks_sector: bool,
}

impl Scanner {
    /// Reads from the first record to the end, which need not be the file's; what the file lacks up
    /// to there counts as zeros.
    pub(super) fn new(file: Box<dyn DiskFile>, segment: u64, first: Sequence, end: u64) -> Self {
        let start = HEADER_BYTES;
        Self {
            file,
            segment,
            next: first,
            offset: start,
            end,
            buffer: Vec::new(),
            buffer_at: start,
            hole: None,
            sure: start,
        }
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

    /// Up to here all was synced, as the heads seen so far prove, also those of damaged records: a
    /// group is written after the sync of all before it.
    pub(super) fn sure(&self) -> u64 {
        self.sure
    }

    /// What stands next, or `None` at the end. After an error the same place is tried again.
    pub(super) fn next(&mut self) -> io::Result<Option<Item>> {
        while self.offset + RECORD_BYTES <= self.end {
            self.fill(RECORD_BYTES)?;
            let Some(head) = self.head() else {
                self.skip(8);
                continue;
            };
            if let Some(hole) = self.hole.take() {
                return Ok(Some(Item::Hole(hole)));
            }
            self.fill(head.size())?;
            return Ok(Some(self.take(head)));
        }
        if self.offset < self.end {
            self.fill(self.end - self.offset)?;
            self.skip(self.end - self.offset);
        }
        Ok(self.hole.take().map(Item::Hole))
    }

    /// What the head says that stands here, and the place is behind it.
    fn take(&mut self, head: Head) -> Item {
        let (offset, end) = (self.offset, self.offset + head.size());
        let item = if head.fits(self.stored(&head)) {
            Item::Record(Found { offset, head })
        } else {
            let record = self.ahead(RECORD_BYTES + u64::from(head.stored_bytes));
            let lacks_sector = lacks_sector(offset, record, UNWRITTEN_BYTES);
            Item::Hole(Hole { start: offset, end, written_end: end, lacks_sector })
        };
        (self.offset, self.next) = (end, head.sequence + 1);
        self.sure = self.sure.max(head.group);
        item
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

    /// No head stands here, so the place is that much further.
    fn skip(&mut self, length: u64) {
        let start = self.offset;
        let is_written = self.ahead(length).iter().any(|byte| *byte != 0);
        if self.hole.is_none() {
            // Here a head would stand, had anything been written. No part of a head is all zeros.
            let place = self.ahead(RECORD_BYTES.min(self.end - start));
            let lacks_sector = lacks_sector(start, place, 1);
            self.hole = Some(Hole { start, end: start, written_end: start, lacks_sector });
        }
        self.offset += length;
        if let Some(hole) = &mut self.hole {
            hole.end = self.offset;
            if is_written {
                hole.written_end = self.offset;
            }
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

/// Whether a sector holds nothing but zeros of the bytes, which stand at that place of the file, and
/// at least so many of them.
fn lacks_sector(at: u64, mut bytes: &[u8], least: usize) -> bool {
    let mut length = (SECTOR_BYTES - at % SECTOR_BYTES) as usize;
    while !bytes.is_empty() {
        let (part, rest) = bytes.split_at(length.min(bytes.len()));
        if part.len() >= least && part.iter().all(|byte| *byte == 0) {
            return true;
        }
        (bytes, length) = (rest, SECTOR_BYTES as usize);
    }
    false
}
