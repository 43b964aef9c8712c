//! A look at a log that changes nothing: no lock, no write, no new segment. Also while another
//! process has the log open, when it shows some moment between the call and its return.

use std::io;

use super::damage::{Damage, Verdict};
use super::disk::Disk;
use super::error::OpenError;
use super::open::{attempted, judge, take_inventory};
use super::scan::{Hole, Item, Scanner};
use super::shared::Segment;
use super::{Sequence, checkpoint};

/// How often a look is begun anew because a segment was given back under it, or its tail changed.
const ATTEMPTS_MAX: usize = 20;

/// What is in a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspected {
    /// Which store the newest segment feeds; `None` for a log without segments.
    pub store: Option<String>,
    /// Up to here nothing is needed any more, as the checkpoint says.
    pub released: Sequence,
    /// The last whole record, or 0.
    pub last: Sequence,
    /// Whole records behind the released ones.
    pub records: u64,
    /// Bytes of them in the segments.
    pub bytes: u64,
    /// Places among them and behind the last one that hold no record though something was written
    /// there, and segments without a header. Nothing is put into quarantine.
    pub damage: Vec<Damage>,
}

/// Reads all of the log that is not released.
///
/// # Errors
/// As [`Log::open`](super::Log::open), but for what only whoever writes must refuse.
pub fn inspect(disk: &impl Disk) -> Result<Inspected, OpenError> {
    let mut tail_before = Vec::new();
    for _ in 1..ATTEMPTS_MAX {
        match look(disk) {
            Err(OpenError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
            // What a writer is at work on looks like a damaged tail, and is gone at the next look.
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

/// What is in the log, and what lies behind its last record.
fn look(disk: &dyn Disk) -> Result<(Inspected, Vec<Damage>), OpenError> {
    let inventory = take_inventory(disk)?;
    let Some(log) = inventory.log()? else {
        let damage = headless(inventory.headless);
        return Ok((Inspected { damage, ..Inspected::default() }, Vec::new()));
    };
    let released = checkpoint::read(disk, log).map_err(attempted("reading the checkpoint"))?;
    let lacks_segment = inventory.lacks_segment();
    let mut damage = headless(inventory.headless);
    damage.extend(lacks_segment.map(|segment| Damage::of_segment(segment, 0, None)));
    let judged = judge(inventory.headed)?;
    let (mut inspected, mut tail) = (Inspected { released, ..Inspected::default() }, Vec::new());
    for judged in judged {
        tail.extend(judged.tail_damage());
        inspected.last = inspected.last.max(judged.segment.last);
        inspected.store = Some(judged.store);
        if judged.segment.last > released {
            let reading = || format!("reading segment {}", judged.segment.name);
            let counted = inspected.count(disk, &judged.segment, &mut damage);
            counted.map_err(|error| OpenError::Io { attempt: reading(), error })?;
        }
    }
    inspected.damage = damage;
    Ok((inspected, tail))
}

impl Inspected {
    fn count(&mut self, disk: &dyn Disk, segment: &Segment, damage: &mut Vec<Damage>) -> io::Result<()> {
        let mut scanner = Scanner::new(disk.open(&segment.name)?, segment.id, segment.first, segment.end);
        while let Some(item) = scanner.next()? {
            match item {
                Item::Record(found) if found.head.sequence > self.released => {
                    self.records += 1;
                    self.bytes += found.head.size();
                }
                Item::Record(_) => {}
                Item::Hole(hole) => damage.push(place(segment, &hole)),
            }
        }
        Ok(())
    }
}

fn place(segment: &Segment, hole: &Hole) -> Damage {
    let (name, verdict) = (segment.name.clone(), Verdict::of(hole, segment.sure));
    Damage { segment: name, offset: hole.start, bytes: hole.end - hole.start, verdict, kept_as: None }
}

fn headless(segments: Vec<(String, u64)>) -> Vec<Damage> {
    segments.into_iter().map(|(name, bytes)| Damage::of_segment(name, bytes, None)).collect()
}
