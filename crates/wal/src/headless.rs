//! A segment that lost both copies of its header: which sequences its records may have had. The record heads show it:
//! the crc of an intact head reveals a segment id, with which the other heads can be found.

use std::io;

use super::Sequence;
use super::disk::{Disk, DiskFile, read_padded};
use super::format::{HEADER_BYTES, RECORD_BYTES, segment_of};
use super::scan::{ScanItem, SegmentScanner};

/// Upper bound on the number of records in a segment.
pub(super) const RECORDS_MAX: Sequence = (1 << 30) / RECORD_BYTES;

/// A sequence above all that the segment may have used; `first` is its first one, from its file name.
pub(super) fn above(disk: &dyn Disk, name: &str, first: Sequence) -> Sequence {
    // If the heads cannot be read either, this assumes consecutive sequences. Sequences that are stamps are covered
    // anyway: they lie below the clock's next one (`WalOptions::least`).
    let told = disk.open(name).and_then(|file| told_by_records(file, first));
    told.unwrap_or(None).unwrap_or(first).max(first.saturating_add(RECORDS_MAX))
}

/// One above the last sequence. Believed only if the first record is whole and has the sequence in the file name, or a
/// second record confirms it: one changed byte must not use up all sequences.
fn told_by_records(file: Box<dyn DiskFile>, first: Sequence) -> io::Result<Option<Sequence>> {
    let (mut head, bytes) = ([0; RECORD_BYTES as usize], file.size()?);
    read_padded(&*file, &mut head, HEADER_BYTES)?;
    let mut scanner = SegmentScanner::new(file, segment_of(&head), first, bytes);
    let (mut records, mut is_first) = (0, false);
    while let Some(item) = scanner.next()? {
        if let ScanItem::Record(found) = item {
            records += 1;
            is_first |= found.offset == HEADER_BYTES && found.head.sequence == first;
        }
    }
    Ok((is_first || records > 1).then(|| scanner.next_sequence()))
}
