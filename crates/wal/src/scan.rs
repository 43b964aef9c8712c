//! Reads the records of one segment file in order, a chunk at a time, and finds the next record behind damage. For
//! bytes that hold no record, it tells whether an interrupted write can have left them. Knows nothing of other
//! segments.

use std::io;

use super::Sequence;
use super::disk::{DiskFile, read_padded};
use super::format::{HEADER_BYTES, RECORD_BYTES, RecordHead};

/// Bytes per read. Larger chunks did not replay faster.
const CHUNK_BYTES: u64 = 256 << 10;
/// What a disk writes wholly or not at all. Disks with sectors of 4096 bytes, and the kernel, which a kill can stop
/// between two pages, write several of these at once.
const SECTOR_BYTES: u64 = 512;
/// This many zeros at a sector's edge are no coincidence: a value of 0.0 makes ten.
const UNWRITTEN_BYTES: usize = 16;

pub(super) struct SegmentScanner {
    file: Box<dyn DiskFile>,
    segment: u64,
    /// The next record has at least this sequence.
    next: Sequence,
    offset: u64,
    end: u64,
    buffer: Vec<u8>,
    /// File offset at which the buffer begins.
    buffer_at: u64,
    hole: Option<Hole>,
    sure: u64,
}

/// What was found at an offset of the segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScanItem {
    /// A whole record.
    Record(ScannedRecord),
    /// A record whose payload is damaged, or bytes without a record head up to the next head or the end.
    Hole(Hole),
}

/// A whole record; its bytes stay in the scanner's buffer until the scanner moves on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScannedRecord {
    pub(super) offset: u64,
    pub(super) head: RecordHead,
}

/// Bytes that hold no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) start: u64,
    pub(super) end: u64,
    /// From this offset on there are only zeros.
    pub(super) written_end: u64,
    /// Where a record should be, a sector was never written: an interrupted write leaves that, a changed byte does not.
    pub(super) lacks_sector: bool,
}

impl SegmentScanner {
    /// Reads from the first record to `end`, which need not be the file's end; bytes past the file's end count as
    /// zeros.
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

    /// Moves the end forward after the writer has synced more.
    pub(super) fn extend(&mut self, end: u64) {
        // The buffer was never filled past the old end, so it holds no bytes from before that sync.
        self.end = self.end.max(end);
    }

    /// The highest sequence seen plus one, including records whose payload is damaged.
    pub(super) fn next_sequence(&self) -> Sequence {
        self.next
    }

    /// Everything before this offset was synced, as the heads seen so far prove, including those of damaged records: a
    /// group is written only after everything before it was synced.
    pub(super) fn sure(&self) -> u64 {
        self.sure
    }

    /// The next item, or `None` at the end. After an error, the next call tries the same offset again.
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

    /// Returns the record at the current offset, or a hole if its payload is damaged, and moves behind it.
    fn take(&mut self, head: RecordHead) -> ScanItem {
        let (offset, end) = (self.offset, self.offset + head.size());
        let item = if head.fits(self.stored(&head)) {
            ScanItem::Record(ScannedRecord { offset, head })
        } else {
            let record = self.ahead(RECORD_BYTES + u64::from(head.stored_bytes));
            let lacks_sector = lacks_sector(offset, record, UNWRITTEN_BYTES);
            ScanItem::Hole(Hole { start: offset, end, written_end: end, lacks_sector })
        };
        (self.offset, self.next) = (end, head.sequence + 1);
        self.sure = self.sure.max(head.group);
        item
    }

    /// Stored bytes of the record that was just found.
    pub(super) fn stored_of(&self, found: &ScannedRecord) -> &[u8] {
        let start = (found.offset - self.buffer_at + RECORD_BYTES) as usize;
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
        let head = RecordHead::decode(self.segment, self.ahead(RECORD_BYTES))?;
        let fits = self.offset + head.size() <= self.end && head.group <= self.offset;
        (fits && head.sequence >= self.next && head.sequence < Sequence::MAX).then_some(head)
    }

    fn stored(&self, head: &RecordHead) -> &[u8] {
        &self.ahead(head.size())[RECORD_BYTES as usize..][..head.stored_bytes as usize]
    }

    /// Bytes from the current offset on, which must have been filled.
    fn ahead(&self, length: u64) -> &[u8] {
        let start = (self.offset - self.buffer_at) as usize;
        &self.buffer[start..start + length as usize]
    }

    /// Moves the offset past bytes without a record head, and adds them to the current hole.
    fn skip(&mut self, length: u64) {
        let start = self.offset;
        let is_written = self.ahead(length).iter().any(|byte| *byte != 0);
        if self.hole.is_none() {
            // A record head would be here if anything had been written. No sector's part of a head is all zeros.
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

    /// Fills the buffer with at least `length` bytes from the current offset on.
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

/// Whether some sector's part of these bytes, which begin at file offset `at`, is all zeros and at least `least` bytes
/// long.
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
