//! Opening a log: what is on the disk is judged, then put in order. Only segments whose end no later
//! header tells are read, which is the last one; older ones are verified when they are read.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::damage::{Damage, Register, Verdict};
use super::disk::{Disk, DiskFile, read_padded};
use super::error::OpenError;
use super::format::{
    HEADER_BYTES, Header, NoHeader, Previous, RECORD_BYTES, STORE_BYTES_MAX, opening_of, parse_segment_name,
};
use super::scan::{Hole, Item, Scanner};
use super::shared::{Plan, Segment, Shared, State};
use super::stats::Stats;
use super::writer::Ids;
use super::{Options, Recovery, Sequence, checkpoint, fresh, headless, quarantine};

/// How many sequences are left out at every start. Should the disk have lost records it had called
/// synced, none of their sequences is ever given to another record, so that whoever remembers "up
/// to this sequence it is in the store" never passes over a record that is not.
pub(super) const GAP: Sequence = 1 << 20;

/// A log that was opened, and is not written to yet.
pub(super) struct Opened {
    pub(super) shared: Arc<Shared>,
    /// The sequence of the next record.
    pub(super) next: Sequence,
    pub(super) recovery: Recovery,
    /// Names and bytes of segments whose header is damaged.
    pub(super) headless: Vec<(String, u64)>,
}

/// A segment with a header.
pub(super) struct Headed {
    name: String,
    header: Header,
    file: Box<dyn DiskFile>,
    bytes: u64,
}

/// What is in the folder.
pub(super) struct Inventory {
    /// By first sequence.
    pub(super) headed: Vec<Headed>,
    /// Names and bytes of segments whose header is damaged.
    pub(super) headless: Vec<(String, u64)>,
    /// Above every first sequence that a name tells.
    next: Sequence,
}

/// A segment, and what was found by reading it, if it was read.
pub(super) struct Judged {
    pub(super) segment: Segment,
    pub(super) store: String,
    /// The opening that wrote it.
    opening: u64,
    pub(super) read: Option<Tail>,
}

pub(super) struct Tail {
    end: u64,
    last: Option<Sequence>,
    /// Where the last group begins of which a head is left, perhaps behind the end. All before it was synced.
    sure: u64,
    /// Before the end and behind it.
    pub(super) holes: Vec<Hole>,
    next: Sequence,
    file: Box<dyn DiskFile>,
}

impl Tail {
    /// A sequence above all that its records had, also of those whose heads are damaged.
    fn above(&self) -> Sequence {
        let bytes: u64 = self.holes.iter().map(|hole| hole.end - hole.start).sum();
        self.next.saturating_add(bytes / RECORD_BYTES)
    }
}

/// Judges the folder, then puts it in order. Nothing is changed before the last error that judging
/// may give.
pub(super) fn open(disk: Arc<dyn Disk>, options: Options, ids: &mut Ids) -> Result<Opened, OpenError> {
    check(&options)?;
    let inventory = take_inventory(&*disk)?;
    let log = inventory.log()?.unwrap_or_else(&mut *ids);
    let released = checkpoint::read(&*disk, log).map_err(attempted("reading the checkpoint"))?;
    let lacks_segment = inventory.lacks_segment();
    let (lost, mut next) = (inventory.headless, inventory.next.max(released + 1));
    for (name, _) in &lost {
        next = next.max(headless::above(&*disk, name, parse_segment_name(name).unwrap_or(0)));
    }
    let mut judged = judge(inventory.headed)?;
    for judged in &judged {
        let last = judged.segment.last;
        if last > released && judged.store != options.store {
            let (found, wanted) = (judged.store.clone(), options.store.clone());
            return Err(OpenError::OtherStore { found, wanted, last });
        }
        next = next.max(last + 1).max(judged.read.as_ref().map_or(0, Tail::above));
    }
    for half in [checkpoint::HALF, fresh::NAME] {
        checkpoint::remove_if_there(&*disk, half).map_err(attempted("removing what an earlier process left"))?;
    }
    let damage = Register::default();
    if let Some(segment) = lacks_segment {
        damage.add(Damage::of_segment(segment, 0, None));
    }
    for judged in &mut judged {
        judged.tidy(&*disk, &damage)?;
    }
    let is_new = judged.is_empty() && next == 1;
    let mut openings: Vec<(u64, Sequence)> = Vec::new();
    for judged in &judged {
        match openings.last_mut().filter(|(opening, _)| *opening == judged.opening) {
            Some((_, last)) => *last = judged.segment.last,
            None => openings.push((judged.opening, judged.segment.last)),
        }
    }
    let segments: VecDeque<Segment> = judged.into_iter().map(|judged| judged.segment).collect();
    let last = segments.back().map_or(0, |segment| segment.last);
    let opening = opening_of(log, (ids() as u32).max(1));
    let recovery = Recovery { log, opening, openings, last, released, damage: damage.list(), unwritable: None };
    let state = State::new(segments, last, released);
    let shared = Arc::new(Shared::new(disk, options, (log, opening), state, damage));
    Ok(Opened { shared, next: if is_new { next } else { next + GAP }, recovery, headless: lost })
}

impl State {
    fn new(segments: VecDeque<Segment>, durable: Sequence, released: Sequence) -> Self {
        Self {
            segments,
            durable,
            told: durable,
            above: 0,
            released,
            waiting: VecDeque::new(),
            unresolved_bytes: 0,
            unresolved: 0,
            closed: false,
            writer_sleeps: false,
            unwritable: None,
            cramped: None,
            plan: Plan::default(),
            stats: Stats::default(),
        }
    }
}

fn check(options: &Options) -> Result<(), OpenError> {
    let wrong = |option, value, bounds: String| Err(OpenError::Options { option, value, bounds });
    let Options { segment_bytes, budget_bytes, queue_records, store, .. } = options;
    if !(2 * HEADER_BYTES..=1 << 30).contains(segment_bytes) || segment_bytes % HEADER_BYTES != 0 {
        return wrong("segment_bytes", *segment_bytes, "a multiple of 4096 from 8192 to 1073741824".into());
    }
    if *budget_bytes < 2 * segment_bytes {
        return wrong("budget_bytes", *budget_bytes, "at least two segments".into());
    }
    if *queue_records == 0 {
        return wrong("queue_records", 0, "at least 1".into());
    }
    if store.len() > STORE_BYTES_MAX {
        return wrong("the length of store", store.len() as u64, format!("at most {STORE_BYTES_MAX}"));
    }
    Ok(())
}

pub(super) fn take_inventory(disk: &dyn Disk) -> Result<Inventory, OpenError> {
    let mut inventory = Inventory { headed: Vec::new(), headless: Vec::new(), next: 1 };
    for name in disk.list().map_err(attempted("listing the log's folder"))? {
        let Some(first) = parse_segment_name(&name) else { continue };
        inventory.next = inventory.next.max(first);
        let reading = || format!("reading the header of {name}");
        let file = disk.open(&name).map_err(|error| OpenError::Io { attempt: reading(), error })?;
        let bytes = file.size().map_err(|error| OpenError::Io { attempt: reading(), error })?;
        let mut block = vec![0; HEADER_BYTES as usize];
        read_padded(&*file, &mut block, 0).map_err(|error| OpenError::Io { attempt: reading(), error })?;
        match Header::decode(&block) {
            Ok(header) => inventory.headed.push(Headed { name, header, file, bytes }),
            Err(NoHeader::Newer { version }) => return Err(OpenError::Newer { segment: name, version }),
            Err(NoHeader::Damaged) => inventory.headless.push((name, bytes)),
        }
    }
    inventory.headed.sort_by_key(|headed| headed.header.first);
    Ok(inventory)
}

impl Inventory {
    /// The one log that all segments belong to, if there is a segment.
    pub(super) fn log(&self) -> Result<Option<u64>, OpenError> {
        let Some(newest) = self.headed.last() else { return Ok(None) };
        let log = newest.header.log;
        match self.headed.iter().find(|headed| headed.header.log != log) {
            Some(other) => Err(OpenError::Mixed { segment: other.name.clone() }),
            None => Ok(Some(log)),
        }
    }

    /// The segment before which one is missing without a trace, if there is one. The oldest ones go
    /// missing when they are released.
    pub(super) fn lacks_segment(&self) -> Option<String> {
        let is_there = |id| self.headed.iter().any(|headed| headed.header.segment == id);
        let mut younger = self.headed.iter().skip(1);
        let orphan = younger.find(|headed| headed.header.previous.is_some_and(|previous| !is_there(previous.segment)));
        orphan.filter(|_| self.headless.is_empty()).map(|headed| headed.name.clone())
    }
}

/// Finds out where each segment ends.
pub(super) fn judge(headed: Vec<Headed>) -> Result<Vec<Judged>, OpenError> {
    let told: Vec<Previous> = headed.iter().filter_map(|headed| headed.header.previous).collect();
    let mut judged: Vec<Judged> = Vec::with_capacity(headed.len());
    for Headed { name, header, file, bytes } in headed {
        let before = header.previous.map(|previous| previous.last);
        let before = before.max(judged.last().map(|older| older.segment.last)).unwrap_or(0);
        let (id, first, store, opening) = (header.segment, header.first, header.store, header.opening);
        let mut segment = Segment { id, name, first, last: before, end: HEADER_BYTES, sure: HEADER_BYTES, bytes };
        let mut read = None;
        if let Some(known) = told.iter().find(|previous| previous.segment == id) {
            (segment.end, segment.sure, segment.last) = (known.end, known.sure, known.last);
        } else {
            let tail = read_tail(file, &segment).map_err(|error| {
                let attempt = format!("reading segment {}", segment.name);
                OpenError::Io { attempt, error }
            })?;
            (segment.end, segment.sure) = (tail.end, tail.sure.min(tail.end));
            segment.last = tail.last.unwrap_or(before);
            read = Some(tail);
        }
        judged.push(Judged { segment, store, opening, read });
    }
    Ok(judged)
}

/// Reads a whole segment whose end is not known.
fn read_tail(file: Box<dyn DiskFile>, segment: &Segment) -> io::Result<Tail> {
    let mut scanner = Scanner::new(file, segment.id, segment.first, segment.bytes);
    let (mut end, mut last) = (HEADER_BYTES, None);
    let mut holes: Vec<Hole> = Vec::new();
    while let Some(item) = scanner.next()? {
        match item {
            Item::Hole(hole) => holes.push(hole),
            Item::Record(found) => {
                end = found.offset + found.head.size();
                last = Some(found.head.sequence);
            }
        }
    }
    // Behind the last record zeros are room that was never used.
    holes.retain(|hole| hole.start < end || hole.written_end > hole.start);
    for hole in holes.iter_mut().filter(|hole| hole.start >= end) {
        hole.end = hole.written_end;
    }
    Ok(Tail { end, last, sure: scanner.sure(), holes, next: scanner.next_sequence(), file: scanner.into_file() })
}

impl Judged {
    /// Damage is registered, the tail is cut, and what was read is synced: a process that was killed
    /// may have left it in memory only.
    fn tidy(&mut self, disk: &dyn Disk, damage: &Register) -> Result<(), OpenError> {
        let Some(tail) = self.read.take() else { return Ok(()) };
        let mut is_kept = true;
        for hole in &tail.holes {
            is_kept &= damage.hole(disk, &*tail.file, &self.segment.name, tail.sure, hole);
        }
        // The cut only saves room: the next segment's header tells where this one ends. What found no
        // place in quarantine stays where it is as long as the segment does.
        if is_kept && self.segment.bytes > tail.end && tail.file.set_len(tail.end).is_ok() {
            self.segment.bytes = tail.end;
        }
        let attempt = || format!("syncing segment {}", self.segment.name);
        tail.file.sync().map_err(|error| OpenError::Io { attempt: attempt(), error })
    }

    /// What [`Judged::tidy`] would register, in a log that is only looked at.
    pub(super) fn tail_damage(&self) -> Vec<Damage> {
        let tail = self.read.iter().flat_map(|tail| tail.holes.iter().map(move |hole| (tail, hole)));
        let behind = tail.filter(|(tail, hole)| hole.start >= tail.end);
        let damage = behind.map(|(tail, hole)| Damage {
            segment: self.segment.name.clone(),
            offset: hole.start,
            bytes: hole.end - hole.start,
            verdict: Verdict::of(hole, tail.sure),
            kept_as: None,
        });
        damage.collect()
    }
}

/// Segments without a header are in quarantine. They stay where they are while no newer segment is
/// there: their names keep their sequences from being used again.
pub(super) fn put_away(shared: &Shared, headless: Vec<(String, u64)>) {
    let has_newer = shared.lock().unwritable.is_none();
    for (segment, bytes) in headless {
        let kept_as = if has_newer { quarantine::put_away(&*shared.disk, &segment).ok() } else { None };
        shared.damage.add(Damage::of_segment(segment, bytes, kept_as));
    }
}

pub(super) fn attempted(attempt: &str) -> impl FnOnce(io::Error) -> OpenError {
    move |error| OpenError::Io { attempt: attempt.to_owned(), error }
}
