//! Segments that lost both copies of their header: computes a bound for the sequences of their records. The crc of an
//! intact record head reveals the segment id, with which the other heads can be found.

use std::io;

use super::Sequence;
use super::disk::{Disk, DiskFile, read_padded};
use super::format::{HEADER_BYTES, RECORD_BYTES, solve_segment_id};
use super::scan::{ScanItem, SegmentScanner};

/// Upper bound on the number of records in a segment.
pub(super) const RECORDS_MAX: Sequence = (1 << 30) / RECORD_BYTES;

/// A sequence above all sequences that the segment may have used. `first` is the sequence in its file name.
pub(super) fn sequence_bound(disk: &dyn Disk, name: &str, first: Sequence) -> Sequence {
    // If the heads cannot be read either, assume consecutive sequences. Sequences that are stamps are below the clock's
    // next stamp anyway (`WalOptions::least`).
    let found = disk.open(name).and_then(|file| last_sequence_bound(file, first));
    found.unwrap_or(None).unwrap_or(first).max(first.saturating_add(RECORDS_MAX))
}

/// The last sequence plus one. `None` unless the first record is complete and has the sequence in the file name, or a
/// second record confirms the segment id. Otherwise one changed byte could use up all sequences.
fn last_sequence_bound(file: Box<dyn DiskFile>, first: Sequence) -> io::Result<Option<Sequence>> {
    let mut head = [0; RECORD_BYTES as usize];
    let bytes = file.size()?;
    read_padded(&*file, &mut head, HEADER_BYTES)?;
    let mut scanner = SegmentScanner::new(file, solve_segment_id(&head), first, bytes);
    let mut records = 0;
    let mut is_first = false;
    while let Some(item) = scanner.next()? {
        if let ScanItem::Record(found) = item {
            records += 1;
            is_first |= found.offset == HEADER_BYTES && found.head.sequence == first;
        }
    }
    Ok((is_first || records > 1).then(|| scanner.next_sequence()))
}
