//! What can be known of a segment that lost both copies of its header: which sequences its records may
//! have had. The heads of its records tell, whose crc gives the segment's id away to whoever has one.

use std::io;

use super::Sequence;
use super::disk::{Disk, DiskFile, read_padded};
use super::format::{HEADER_BYTES, RECORD_BYTES, segment_of};
use super::scan::{Item, Scanner};

/// More than the most bytes of a segment hold.
pub(super) const RECORDS_MAX: Sequence = (1 << 30) / RECORD_BYTES;

/// A sequence above all that the segment may have used, from its first one, which its name tells.
pub(super) fn above(disk: &dyn Disk, name: &str, first: Sequence) -> Sequence {
    // Where not even this can be read, sequences may have followed each other; those that are stamps lie below what the
    // clock gives out next (`Options::least`).
    let told = disk.open(name).and_then(|file| told_by_records(file, first));
    told.unwrap_or(None).unwrap_or(first).max(first.saturating_add(RECORDS_MAX))
}

/// One above the last sequence, when the first record is whole and is the one that the name tells, or
/// another one confirms it: a changed byte must not use up all sequences that there are.
fn told_by_records(file: Box<dyn DiskFile>, first: Sequence) -> io::Result<Option<Sequence>> {
    let (mut head, bytes) = ([0; RECORD_BYTES as usize], file.size()?);
    read_padded(&*file, &mut head, HEADER_BYTES)?;
    let mut scanner = Scanner::new(file, segment_of(&head), first, bytes);
    let (mut records, mut is_first) = (0, false);
    while let Some(item) = scanner.next()? {
        if let Item::Record(found) = item {
            records += 1;
            is_first |= found.offset == HEADER_BYTES && found.head.sequence == first;
        }
    }
    Ok((is_first || records > 1).then(|| scanner.next_sequence()))
}
