//! Inspects a log without changing anything: no lock, no write, no new segment. Works while another process has the log
//! open; it then shows the log at some moment between the call and its return.

use std::io;

use super::damage::Damage;
use super::disk::Disk;
use super::error::{WalOpenError, attempted};
use super::open::{classify, take_inventory};
use super::scan::{ScanItem, SegmentScanner};
use super::shared::Segment;
use super::{Sequence, checkpoint};

/// How often the inspection starts over because a segment was truncated meanwhile, or the tail changed.
const ATTEMPTS_MAX: usize = 20;

/// The contents of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspected {
    /// The store that the newest segment's records are flushed to; `None` for a log without segments.
    pub store: Option<String>,
    /// Position up to which the log is truncated, according to the checkpoint.
    pub truncated: Sequence,
    /// Sequence of the last whole record, or 0.
    pub last: Sequence,
    /// Whole records behind the truncated ones.
    pub records: u64,
    /// Bytes of these records in the segments.
    pub bytes: u64,
    /// Places among and behind these records that were written but hold no record, and segments without a header.
    /// Nothing is copied to quarantine.
    pub damage: Vec<Damage>,
}

/// Reads everything in the log that is not truncated.
///
/// # Errors
/// As [`Wal::open`](super::Wal::open), except for what only a writer must refuse.
pub fn inspect(disk: &impl Disk) -> Result<Inspected, WalOpenError> {
    let mut tail_before = Vec::new();
    for _ in 1..ATTEMPTS_MAX {
        match look(disk) {
            Err(WalOpenError::Io(failed)) if failed.error.kind() == io::ErrorKind::NotFound => {}
            // A write in progress looks like a damaged tail, and is gone at the next attempt.
            Ok((_, tail)) if tail != tail_before => tail_before = tail,
            looked => return looked.map(with_tail),
        }
    }
    look(disk).map(with_tail)
}

fn with_tail((mut inspected, tail): (Inspected, Vec<Damage>)) -> Inspected {
    inspected.damage.extend(tail);
    inspected
}

/// The contents of the log, and the damage behind its last record.
fn look(disk: &dyn Disk) -> Result<(Inspected, Vec<Damage>), WalOpenError> {
    let inventory = take_inventory(disk)?;
    let Some(log) = inventory.log()? else {
        let damage = headless(inventory.headless);
        return Ok((Inspected { damage, ..Inspected::default() }, Vec::new()));
    };
    let truncated = checkpoint::read(disk, log).map_err(attempted("reading the checkpoint"))?;
    let lacks_segment = inventory.lacks_segment();
    let mut damage = headless(inventory.headless);
    damage.extend(lacks_segment.map(|segment| Damage::of_segment(segment, 0, None)));
    let classified = classify(inventory.headed)?;
    let (mut inspected, mut tail) = (Inspected { truncated, ..Inspected::default() }, Vec::new());
    for classified in classified {
        tail.extend(classified.tail_damage());
        inspected.last = inspected.last.max(classified.segment.last);
        inspected.store = Some(classified.store);
        if classified.segment.last > truncated {
            let counted = inspected.count(disk, &classified.segment, &mut damage);
            counted.map_err(attempted(format!("reading segment {}", classified.segment.name)))?;
        }
    }
    inspected.damage = damage;
    Ok((inspected, tail))
}

impl Inspected {
    fn count(&mut self, disk: &dyn Disk, segment: &Segment, damage: &mut Vec<Damage>) -> io::Result<()> {
        let mut scanner = SegmentScanner::new(disk.open(&segment.name)?, segment.id, segment.first, segment.end);
        while let Some(item) = scanner.next()? {
            match item {
                ScanItem::Record(found) if found.head.sequence > self.truncated => {
                    self.records += 1;
                    self.bytes += found.head.size();
                }
                ScanItem::Record(_) => {}
                ScanItem::Hole(hole) => damage.push(Damage::of_hole(&segment.name, segment.sure, &hole)),
            }
        }
        Ok(())
    }
}

fn headless(segments: Vec<(String, u64)>) -> Vec<Damage> {
    segments.into_iter().map(|(name, bytes)| Damage::of_segment(name, bytes, None)).collect()
}
