//! Opening a WAL: reads and checks the files, then repairs them. Only segments whose end is not recorded in a later
//! header are scanned, normally the last one. Older segments are verified when they are read.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::damage::{Damage, DamageRegister};
use super::disk::{Disk, DiskFile, read_padded};
use super::error::{DiskError, WalOpenError, disk_error};
use super::format::{
    HEADER_BYTES, NoHeader, PreviousSegment, RECORD_BYTES, STORE_BYTES_MAX, SegmentHeader, opening_id,
    parse_segment_name,
};
use super::scan::{Hole, ScanItem, SegmentScanner};
use super::shared::{Segment, WalShared, WalState};
use super::writer::Ids;
use super::{Recovery, Sequence, WalOptions, checkpoint, headless, next_segment, quarantine};

/// The number of sequences skipped at every start. If the disk lost records that it reported as synced, their sequences
/// are not reused. So a component that remembers "flushed up to this sequence" never skips a record that is not stored.
pub(super) const GAP: Sequence = 1 << 20;

/// A WAL that was opened, before its first write.
pub(super) struct OpenedWal {
    pub(super) shared: Arc<WalShared>,
    pub(super) next: Sequence,
    pub(super) recovery: Recovery,
    /// The names and sizes of segments with a damaged header.
    pub(super) headless: Vec<(String, u64)>,
}

/// A segment with a valid header.
pub(super) struct SegmentFile {
    name: String,
    header: SegmentHeader,
    file: Box<dyn DiskFile>,
    bytes: u64,
}

/// The segment files in the folder.
pub(super) struct Inventory {
    /// Sorted by first sequence.
    pub(super) segments: Vec<SegmentFile>,
    /// The names and sizes of segments with a damaged header.
    pub(super) headless: Vec<(String, u64)>,
    /// At least the first sequence in every segment's file name.
    next: Sequence,
}

/// A segment, and the result of reading it if it was read.
pub(super) struct InspectedSegment {
    pub(super) segment: Segment,
    pub(super) store: String,
    /// Id of the opening that wrote it.
    opening: u64,
    pub(super) read: Option<Tail>,
}

pub(super) struct Tail {
    end: u64,
    last: Option<Sequence>,
    /// The start of the last group with a record head, possibly after `end`. Everything before it was synced.
    synced_end: u64,
    /// The holes before and after `end`.
    pub(super) holes: Vec<Hole>,
    next: Sequence,
    file: Box<dyn DiskFile>,
}

impl Tail {
    /// A sequence above those of all its records, including ones whose heads are damaged.
    fn sequence_bound(&self) -> Sequence {
        let bytes: u64 = self.holes.iter().map(|hole| hole.end - hole.start).sum();
        self.next.saturating_add(bytes / RECORD_BYTES)
    }
}

/// Checks the folder, then repairs it. If the check fails, nothing was changed.
pub(super) fn open(disk: Arc<dyn Disk>, options: WalOptions, ids: &mut Ids) -> Result<OpenedWal, WalOpenError> {
    check(&options)?;
    let inventory = take_inventory(&*disk)?;
    let log = inventory.log()?.unwrap_or_else(&mut *ids);
    let truncated = checkpoint::read(&*disk, log).map_err(disk_error("reading the checkpoint"))?;
    let lacks_segment = inventory.lacks_segment();
    let lost = inventory.headless;
    let mut next = inventory.next.max(truncated + 1);
    for (name, _) in &lost {
        next = next.max(headless::sequence_bound(&*disk, name, parse_segment_name(name).unwrap_or(0)));
    }
    let mut classified = classify(inventory.segments)?;
    for classified in &classified {
        let last = classified.segment.last;
        if last > truncated && classified.store != options.store {
            let found = classified.store.clone();
            let wanted = options.store.clone();
            return Err(WalOpenError::OtherStore { found, wanted, last });
        }
        next = next.max(last + 1).max(classified.read.as_ref().map_or(0, Tail::sequence_bound));
    }
    for half in [checkpoint::HALF, next_segment::NAME] {
        checkpoint::remove_if_there(&*disk, half).map_err(disk_error("removing an unfinished file"))?;
    }
    let damage = DamageRegister::default();
    if let Some(segment) = lacks_segment {
        damage.add(Damage::of_segment(segment, 0, None));
    }
    for classified in &mut classified {
        classified.tidy(&*disk, &damage)?;
    }
    let is_new = classified.is_empty() && next == 1;
    let mut openings: Vec<(u64, Sequence)> = Vec::new();
    for classified in &classified {
        match openings.last_mut().filter(|(opening, _)| *opening == classified.opening) {
            Some((_, last)) => *last = classified.segment.last,
            None => openings.push((classified.opening, classified.segment.last)),
        }
    }
    let segments: VecDeque<Segment> = classified.into_iter().map(|classified| classified.segment).collect();
    let last = segments.back().map_or(0, |segment| segment.last);
    let opening = opening_id(log, (ids() as u32).max(1));
    let recovery = Recovery { log, opening, openings, last, truncated, damage: damage.list(), unwritable: None };
    let state = WalState { segments, durable: last, resolved: last, truncated, ..WalState::default() };
    let shared = Arc::new(WalShared::new(disk, options, log, opening, state, damage));
    Ok(OpenedWal { shared, next: if is_new { next } else { next + GAP }, recovery, headless: lost })
}

fn check(options: &WalOptions) -> Result<(), WalOpenError> {
    let wrong = |option, value, bounds: String| Err(WalOpenError::Options { option, value, bounds });
    let WalOptions { segment_bytes, budget_bytes, queue_records, store, .. } = options;
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
        return wrong("the length of the store's name", store.len() as u64, format!("at most {STORE_BYTES_MAX}"));
    }
    Ok(())
}

pub(super) fn take_inventory(disk: &dyn Disk) -> Result<Inventory, WalOpenError> {
    let mut inventory = Inventory { segments: Vec::new(), headless: Vec::new(), next: 1 };
    for name in disk.list().map_err(disk_error("listing the WAL's folder"))? {
        let Some(first) = parse_segment_name(&name) else { continue };
        inventory.next = inventory.next.max(first);
        let failed = |error| DiskError { attempt: format!("reading the header of {name}"), error };
        let file = disk.open(&name).map_err(failed)?;
        let bytes = file.size().map_err(failed)?;
        let mut block = vec![0; HEADER_BYTES as usize];
        read_padded(&*file, &mut block, 0).map_err(failed)?;
        match SegmentHeader::decode(&block) {
            Ok(header) => inventory.segments.push(SegmentFile { name, header, file, bytes }),
            Err(NoHeader::Newer { version }) => return Err(WalOpenError::Newer { segment: name, version }),
            Err(NoHeader::Damaged) => inventory.headless.push((name, bytes)),
        }
    }
    inventory.segments.sort_by_key(|segment| segment.header.first);
    Ok(inventory)
}

impl Inventory {
    /// Id of the WAL that all segments belong to; `None` without segments.
    pub(super) fn log(&self) -> Result<Option<u64>, WalOpenError> {
        let Some(newest) = self.segments.last() else { return Ok(None) };
        let log = newest.header.log;
        match self.segments.iter().find(|segment| segment.header.log != log) {
            Some(other) => Err(WalOpenError::Mixed(other.name.clone())),
            None => Ok(Some(log)),
        }
    }

    /// The first segment whose predecessor is missing, if there is one. Segments before the oldest one do not count,
    /// because truncation removes them.
    pub(super) fn lacks_segment(&self) -> Option<String> {
        let is_there = |id| self.segments.iter().any(|segment| segment.header.segment == id);
        let mut younger = self.segments.iter().skip(1);
        let orphan =
            younger.find(|segment| segment.header.previous.is_some_and(|previous| !is_there(previous.segment)));
        orphan.filter(|_| self.headless.is_empty()).map(|segment| segment.name.clone())
    }
}

/// Determines where each segment ends.
pub(super) fn classify(files: Vec<SegmentFile>) -> Result<Vec<InspectedSegment>, WalOpenError> {
    let recorded: Vec<PreviousSegment> = files.iter().filter_map(|file| file.header.previous).collect();
    let mut classified: Vec<InspectedSegment> = Vec::with_capacity(files.len());
    for SegmentFile { name, header, file, bytes } in files {
        let previous_last = header.previous.map(|previous| previous.last);
        let previous_last = previous_last.max(classified.last().map(|older| older.segment.last)).unwrap_or(0);
        let id = header.segment;
        let first = header.first;
        let store = header.store;
        let opening = header.opening;
        let mut segment =
            Segment { id, name, first, last: previous_last, end: HEADER_BYTES, synced_end: HEADER_BYTES, bytes };
        let mut read = None;
        if let Some(known) = recorded.iter().find(|previous| previous.segment == id) {
            segment.end = known.end;
            segment.synced_end = known.synced_end;
            segment.last = known.last;
        } else {
            let tail = read_tail(file, &segment).map_err(disk_error(format!("reading segment {}", segment.name)))?;
            segment.end = tail.end;
            segment.synced_end = tail.synced_end.min(tail.end);
            segment.last = tail.last.unwrap_or(previous_last);
            read = Some(tail);
        }
        classified.push(InspectedSegment { segment, store, opening, read });
    }
    Ok(classified)
}

/// Reads a whole segment to find its end.
fn read_tail(file: Box<dyn DiskFile>, segment: &Segment) -> io::Result<Tail> {
    let mut scanner = SegmentScanner::new(file, segment.id, segment.first, segment.bytes);
    let mut end = HEADER_BYTES;
    let mut last = None;
    let mut holes: Vec<Hole> = Vec::new();
    while let Some(item) = scanner.next()? {
        match item {
            ScanItem::Hole(hole) => holes.push(hole),
            ScanItem::Record(found) => {
                end = found.offset + found.head.size();
                last = Some(found.head.sequence);
            }
        }
    }
    // Zeros after the last record are preallocated space.
    holes.retain(|hole| hole.start < end || hole.written_end > hole.start);
    for hole in holes.iter_mut().filter(|hole| hole.start >= end) {
        hole.end = hole.written_end;
    }
    Ok(Tail {
        end,
        last,
        synced_end: scanner.synced_end(),
        holes,
        next: scanner.next_sequence(),
        file: scanner.into_file(),
    })
}

impl InspectedSegment {
    /// Registers damage, cuts the tail, and syncs the file. After a kill, the bytes that were read may be in the page
    /// cache only.
    fn tidy(&mut self, disk: &dyn Disk, damage: &DamageRegister) -> Result<(), DiskError> {
        let Some(tail) = self.read.take() else { return Ok(()) };
        let mut is_kept = true;
        for hole in &tail.holes {
            is_kept &= damage.add_hole(disk, &*tail.file, &self.segment.name, tail.synced_end, hole);
        }
        // The cut only saves space, because the next segment's header records the end of this one. Bytes that could not
        // be copied to quarantine stay here until the segment is truncated.
        if is_kept && self.segment.bytes > tail.end && tail.file.set_len(tail.end).is_ok() {
            self.segment.bytes = tail.end;
        }
        tail.file.sync().map_err(disk_error(format!("syncing segment {}", self.segment.name)))
    }

    /// The damage after the last record, which [`InspectedSegment::tidy`] would register. Used by the inspection.
    pub(super) fn tail_damage(&self) -> Vec<Damage> {
        let tail = self.read.iter().flat_map(|tail| tail.holes.iter().map(move |hole| (tail, hole)));
        let behind = tail.filter(|(tail, hole)| hole.start >= tail.end);
        behind.map(|(tail, hole)| Damage::of_hole(&self.segment.name, tail.synced_end, hole)).collect()
    }
}

/// Moves segments without a header to quarantine. They stay in place while there is no newer segment: their names keep
/// their sequences from being reused.
pub(super) fn put_away(shared: &WalShared, headless: Vec<(String, u64)>) {
    let has_newer = shared.lock().unwritable.is_none();
    for (segment, bytes) in headless {
        let kept_as = if has_newer { quarantine::put_away(&*shared.disk, &segment).ok() } else { None };
        shared.damage.add(Damage::of_segment(segment, bytes, kept_as));
    }
}
