//! Inspection of a WAL without any change: no lock, no write, no new segment. Another process may have the WAL open.
//! The result is then a snapshot from some moment during the call.

use std::io;

use super::damage::Damage;
use super::disk::Disk;
use super::error::{WalOpenError, disk_error};
use super::open::{classify, take_inventory};
use super::scan::{ScanItem, SegmentScanner};
use super::shared::Segment;
use super::{Sequence, checkpoint};

/// Maximum number of attempts. The inspection starts over if a segment was truncated meanwhile, or the tail changed.
const ATTEMPTS_MAX: usize = 20;

/// The contents of a WAL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WalContents {
    /// The store that the newest segment's records are flushed to; `None` for a WAL without segments.
    pub store: Option<String>,
    /// The position up to which the WAL is truncated, according to the checkpoint.
    pub truncated: Sequence,
    /// The sequence of the last complete record, or 0.
    pub last: Sequence,
    /// The number of complete records that are not truncated.
    pub records: u64,
    /// The size of these records in the segments, in bytes.
    pub bytes: u64,
    /// Places among and after these records that were written but have no record, and segments without a header.
    /// Nothing is copied to quarantine.
    pub damage: Vec<Damage>,
}

/// Reads all records of the WAL that are not truncated.
///
/// # Errors
/// As [`Wal::open`](super::Wal::open), except for errors that concern only a writer.
pub fn inspect(disk: &impl Disk) -> Result<WalContents, WalOpenError> {
    let mut tail_before = Vec::new();
    for _ in 1..ATTEMPTS_MAX {
        match look(disk) {
            Err(WalOpenError::Io(failed)) if failed.error.kind() == io::ErrorKind::NotFound => {}
            // A write in progress looks like a damaged tail, and has changed at the next attempt.
            Ok(look) if look.tail != tail_before => tail_before = look.tail,
            result => return result.map(Look::with_tail),
        }
    }
    look(disk).map(Look::with_tail)
}

/// One attempt of an inspection.
struct Look {
    inspected: WalContents,
    /// The damage after the last record.
    tail: Vec<Damage>,
}

impl Look {
    fn with_tail(mut self) -> WalContents {
        self.inspected.damage.extend(self.tail);
        self.inspected
    }
}

fn look(disk: &dyn Disk) -> Result<Look, WalOpenError> {
    let inventory = take_inventory(disk)?;
    let Some(log) = inventory.log()? else {
        let damage = headless(inventory.headless);
        return Ok(Look { inspected: WalContents { damage, ..WalContents::default() }, tail: Vec::new() });
    };
    let truncated = checkpoint::read(disk, log).map_err(disk_error("reading the checkpoint"))?;
    let lacks_segment = inventory.lacks_segment();
    let mut damage = headless(inventory.headless);
    damage.extend(lacks_segment.map(|segment| Damage::of_segment(segment, 0, None)));
    let classified = classify(inventory.segments)?;
    let mut inspected = WalContents { truncated, ..WalContents::default() };
    let mut tail = Vec::new();
    for classified in classified {
        tail.extend(classified.tail_damage());
        inspected.last = inspected.last.max(classified.segment.last);
        inspected.store = Some(classified.store);
        if classified.segment.last > truncated {
            let counted = inspected.count(disk, &classified.segment, &mut damage);
            counted.map_err(disk_error(format!("reading segment {}", classified.segment.name)))?;
        }
    }
    inspected.damage = damage;
    Ok(Look { inspected, tail })
}

impl WalContents {
    fn count(&mut self, disk: &dyn Disk, segment: &Segment, damage: &mut Vec<Damage>) -> io::Result<()> {
        let mut scanner = SegmentScanner::new(disk.open(&segment.name)?, segment.id, segment.first, segment.end);
        while let Some(item) = scanner.next()? {
            match item {
                ScanItem::Record(found) if found.head.sequence > self.truncated => {
                    self.records += 1;
                    self.bytes += found.head.size();
                }
                ScanItem::Record(_) => {}
                ScanItem::Hole(hole) => damage.push(Damage::of_hole(&segment.name, segment.synced_end, &hole)),
            }
        }
        Ok(())
    }
}

fn headless(segments: Vec<(String, u64)>) -> Vec<Damage> {
    segments.into_iter().map(|(name, bytes)| Damage::of_segment(name, bytes, None)).collect()
}
