//! Reads the records of one segment file in order, in chunks, and finds the next record after damage. For bytes without
//! a record, it detects whether an interrupted write can have left them.

use std::io;

use super::Sequence;
use super::disk::{DiskFile, read_padded};
use super::format::{HEADER_BYTES, RECORD_BYTES, RecordHead};

/// The size of a read in bytes. Larger chunks did not replay faster.
const CHUNK_BYTES: u64 = 256 << 10;
/// The unit that a disk writes entirely or not at all. Disks with sectors of 4096 bytes write several at once, as does
/// the kernel, which a kill can stop between two pages.
const SECTOR_BYTES: u64 = 512;
/// The number of zeros at a sector's edge that indicates an unwritten sector. A value of 0.0 has ten zeros.
const UNWRITTEN_BYTES: usize = 16;

pub(super) struct SegmentScanner {
    file: Box<dyn DiskFile>,
    segment: u64,
    /// The next record has at least this sequence.
    next: Sequence,
    offset: u64,
    end: u64,
    buffer: Vec<u8>,
    /// The file offset of the buffer's first byte.
    buffer_offset: u64,
    hole: Option<Hole>,
    synced_end: u64,
}

/// The item at an offset of the segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScanItem {
    /// A complete record.
    Record(ScannedRecord),
    /// A record whose payload is damaged, or bytes without a record head up to the next head or the end.
    Hole(Hole),
}

/// A complete record. Its bytes stay in the scanner's buffer until the scanner moves on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScannedRecord {
    pub(super) offset: u64,
    pub(super) head: RecordHead,
}

/// Bytes without a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) start: u64,
    pub(super) end: u64,
    /// The end of the nonzero bytes.
    pub(super) written_end: u64,
    /// True if a sector within the expected record was never written. An interrupted write leaves such a sector, but a
    /// changed byte does not.
    pub(super) lacks_sector: bool,
}

impl SegmentScanner {
    /// A scanner from the first record to `end`, which may differ from the end of the file. Bytes after the end of the
    /// file count as zeros.
    pub(super) fn new(file: Box<dyn DiskFile>, segment: u64, first: Sequence, end: u64) -> Self {
        let start = HEADER_BYTES;
        Self {
            file,
            segment,
            next: first,
            offset: start,
            end,
            buffer: Vec::new(),
            buffer_offset: start,
            hole: None,
            synced_end: start,
        }
    }

    /// Moves the end forward after the writer has synced more.
    pub(super) fn extend(&mut self, end: u64) {
        // The buffer was never filled past the old end, so it has no stale bytes.
        self.end = self.end.max(end);
    }

    /// The highest sequence seen plus one, including records whose payload is damaged.
    pub(super) fn next_sequence(&self) -> Sequence {
        self.next
    }

    /// The offset before which everything was synced, according to the heads so far, including those of damaged
    /// records. A group is written only after everything before it was synced.
    pub(super) fn synced_end(&self) -> u64 {
        self.synced_end
    }

    /// Returns the next item, or `None` at the end. After an error, the next call tries the same offset again.
    pub(super) fn next(&mut self) -> io::Result<Option<ScanItem>> {
        while self.offset + RECORD_BYTES <= self.end {
            self.fill(RECORD_BYTES)?;
            let Some(head) = self.head() else {
                self.skip(8);
                continue;
            };
            if let Some(hole) = self.hole.take() {
                return Ok(Some(ScanItem::Hole(hole)));
            }
            self.fill(head.size())?;
            return Ok(Some(self.take(head)));
        }
        if self.offset < self.end {
            self.fill(self.end - self.offset)?;
            self.skip(self.end - self.offset);
        }
        Ok(self.hole.take().map(ScanItem::Hole))
    }

    /// Returns the record at the current offset, or a hole if its payload is damaged, and moves after it.
    fn take(&mut self, head: RecordHead) -> ScanItem {
        let offset = self.offset;
        let end = offset + head.size();
        let item = if head.matches_crc(self.stored_bytes(&head)) {
            ScanItem::Record(ScannedRecord { offset, head })
        } else {
            let record = self.peek(RECORD_BYTES + u64::from(head.stored_bytes));
            let lacks_sector = lacks_sector(offset, record, UNWRITTEN_BYTES);
            ScanItem::Hole(Hole { start: offset, end, written_end: end, lacks_sector })
        };
        self.offset = end;
        self.next = head.sequence + 1;
        self.synced_end = self.synced_end.max(head.group);
        item
    }

    /// The stored bytes of the last found record.
    pub(super) fn record_bytes(&self, found: &ScannedRecord) -> &[u8] {
        let start = (found.offset - self.buffer_offset + RECORD_BYTES) as usize;
        &self.buffer[start..start + found.head.stored_bytes as usize]
    }

    /// The file, to copy damaged bytes from.
    pub(super) fn file(&self) -> &dyn DiskFile {
        &*self.file
    }

    pub(super) fn into_file(self) -> Box<dyn DiskFile> {
        self.file
    }

    fn head(&self) -> Option<RecordHead> {
        let head = RecordHead::decode(self.segment, self.peek(RECORD_BYTES))?;
        let fits = self.offset + head.size() <= self.end && head.group <= self.offset;
        (fits && head.sequence >= self.next && head.sequence < Sequence::MAX).then_some(head)
    }

    fn stored_bytes(&self, head: &RecordHead) -> &[u8] {
        &self.peek(head.size())[RECORD_BYTES as usize..][..head.stored_bytes as usize]
    }

    /// The bytes from the current offset on, which must have been filled.
    fn peek(&self, length: u64) -> &[u8] {
        let start = (self.offset - self.buffer_offset) as usize;
        &self.buffer[start..start + length as usize]
    }

    /// Skips bytes without a record head, and adds them to the current hole.
    fn skip(&mut self, length: u64) {
        let start = self.offset;
        let is_written = self.peek(length).iter().any(|byte| *byte != 0);
        if self.hole.is_none() {
            // If anything had been written, it would begin with a record head. No sector's part of a head is all zeros.
            let head = self.peek(RECORD_BYTES.min(self.end - start));
            let lacks_sector = lacks_sector(start, head, 1);
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

    /// Fills the buffer with at least `length` bytes from the current offset on.
    fn fill(&mut self, length: u64) -> io::Result<()> {
        let end = self.offset + length;
        if self.offset >= self.buffer_offset && end <= self.buffer_offset + self.buffer.len() as u64 {
            return Ok(());
        }
        let wanted = length.max(CHUNK_BYTES).min(self.end - self.offset);
        self.buffer.clear();
        self.buffer.resize(wanted as usize, 0);
        self.buffer_offset = self.offset;
        read_padded(&*self.file, &mut self.buffer, self.offset).inspect_err(|_| self.buffer.clear())
    }
}

/// Returns true if the part of any sector in these bytes is all zeros and has at least `length_min` bytes. `offset` is
/// the file offset of the bytes.
fn lacks_sector(offset: u64, mut bytes: &[u8], length_min: usize) -> bool {
    let mut length = (SECTOR_BYTES - offset % SECTOR_BYTES) as usize;
    while !bytes.is_empty() {
        let (part, rest) = bytes.split_at(length.min(bytes.len()));
        if part.len() >= length_min && part.iter().all(|byte| *byte == 0) {
            return true;
        }
        bytes = rest;
        length = SECTOR_BYTES as usize;
    }
    false
}
