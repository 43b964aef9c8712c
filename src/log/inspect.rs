//! A look at a log that changes nothing: no lock, no write, no new segment. Also while another
//! process has the log open, when it shows some moment between the call and its return.

use std::io;

use super::damage::Damage;
use super::disk::Disk;
use super::error::OpenError;
use super::open::{attempted, judge, take_inventory};
use super::scan::{Hole, Item, Scanner};
use super::shared::Segment;
use super::{Sequence, checkpoint};

/// How often a look is begun anew because a segment was given back under it.
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
    /// Places among them that hold no record though records stand behind them, and segments without
    /// a header. Nothing is put into quarantine.
    pub damage: Vec<Damage>,
}

/// Reads all of the log that is not released.
///
/// # Errors
/// As [`Log::open`](super::Log::open), but for what only whoever writes must refuse.
pub fn inspect(disk: &impl Disk) -> Result<Inspected, OpenError> {
    let mut attempt = 1;
    loop {
        match look(disk) {
            Err(OpenError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS_MAX => {
                attempt += 1;
            }
            looked => return looked,
        }
    }
}

fn look(disk: &dyn Disk) -> Result<Inspected, OpenError> {
    let inventory = take_inventory(disk)?;
    let Some(log) = inventory.log()? else {
        return Ok(Inspected { damage: headless(inventory.headless), ..Inspected::default() });
    };
    let released = checkpoint::read(disk, log).map_err(attempted("reading the checkpoint"))?;
    let lacks_segment = inventory.lacks_segment();
    let mut damage = headless(inventory.headless);
    damage.extend(lacks_segment.map(|segment| whole_segment(segment, 0)));
    let judged = judge(inventory.headed)?;
    let mut inspected = Inspected { released, ..Inspected::default() };
    for judged in judged {
        inspected.last = inspected.last.max(judged.segment.last);
        inspected.store = Some(judged.store);
        if judged.segment.last > released {
            let reading = || format!("reading segment {}", judged.segment.name);
            let counted = inspected.count(disk, &judged.segment, &mut damage);
            counted.map_err(|error| OpenError::Io { attempt: reading(), error })?;
        }
    }
    inspected.damage = damage;
    Ok(inspected)
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
    let torn = hole.start >= segment.sure;
    Damage { bytes: hole.end - hole.start, torn, ..whole_segment(segment.name.clone(), hole.start) }
}

fn headless(segments: Vec<(String, u64)>) -> Vec<Damage> {
    segments.into_iter().map(|(name, bytes)| Damage { bytes, ..whole_segment(name, 0) }).collect()
}

fn whole_segment(segment: String, offset: u64) -> Damage {
    Damage { segment, offset, bytes: 0, torn: false, kept_as: None }
}
