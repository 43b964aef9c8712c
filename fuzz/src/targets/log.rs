//! Recovery of the WAL from damaged files of the real writer. It must not panic or invent records. Every undamaged
//! record must be present and in order, every damaged record that left a trace must be reported, and new records must
//! get new sequences.

use std::sync::{OnceLock, mpsc};

use hourglass::wal::{Disk, Record, Wal, WalOpenError, WalOptions};
use hourglass_benches::MemoryDisk;

// The format is documented in `crates/wal/src/format.rs`; this is a second implementation.
/// Bytes of a segment's header, which contains two copies of the same data.
const HEADER: usize = 4096;
/// Bytes of a record's head. The length of the payload is at offset 4, the sequence at offset 8.
const HEAD: usize = 32;

/// The first byte selects a WAL; then follow changes of eight bytes each.
///
/// # Panics
/// If recovery does not return the undamaged part of the WAL.
pub fn check(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let sample = &samples()[usize::from(*first) % SAMPLES];
    let disk = fork(&sample.disk);
    let mut foreign = false;
    let mut copied = false;
    for change in rest.chunks(8).take(8) {
        match apply(&disk, change) {
            Kind::Damage => {}
            Kind::Foreign => foreign = true,
            Kind::Copied => copied = true,
        }
    }
    let damaged = fork(&disk);
    let (log, recovery) = match Wal::open(disk.clone(), options(sample.compress)) {
        Ok(opened) => opened,
        // A WAL with segments of another WAL is refused as a whole.
        Err(WalOpenError::Mixed { .. }) if foreign => return,
        Err(error) => panic!("{error}"),
    };
    let found = all(&log);
    let mut written = sample.records.iter();
    for record in found.iter().filter(|_| !foreign) {
        let (known, _) = written.find(|(known, _)| known.sequence == record.sequence).expect("one written, in order");
        assert_eq!(record, known, "a record that was never written so");
    }
    for (record, place) in sample.records.iter().filter(|_| !foreign && !copied) {
        let lost = record.sequence > recovery.truncated && !found.contains(record);
        assert!(!lost || !is_whole(&sample.disk, &damaged, place), "{} of {place:?} is lost", record.sequence);
        assert!(
            !lost || !leaves_a_trace(&sample.disk, &damaged, place) || is_reported(&log, place),
            "{place:?} is not reported"
        );
    }
    let next = append(&log, 9, b"afterwards");
    let last = sample.records.iter().map(|(record, _)| record.sequence).max().unwrap_or_default();
    // If the last file is missing, only a clock could determine the next sequence, and this test has none.
    let kept = names(&damaged);
    let is_gone = sample
        .records
        .iter()
        .max_by_key(|(record, _)| record.sequence)
        .is_some_and(|(_, place)| !kept.contains(&place.file));
    assert!(foreign || recovery.log != sample.log || is_gone || next > last, "{next} may have been used: {last} was");
    assert_eq!(all(&log).last().map(|record| &*record.payload), Some(&b"afterwards"[..]));
}

/// A written WAL, with the places of its records.
struct Sample {
    disk: MemoryDisk,
    compress: bool,
    log: u64,
    records: Vec<(Record, Place)>,
}

/// A range of bytes of a file.
#[derive(Debug, Clone)]
struct Place {
    file: String,
    start: usize,
    bytes: usize,
}

const SAMPLES: usize = 6;

/// WALs with short and long records, compressed or not; one is partly truncated, one was reopened in between.
fn samples() -> &'static [Sample] {
    static SAMPLES_MADE: OnceLock<Vec<Sample>> = OnceLock::new();
    SAMPLES_MADE.get_or_init(|| (0..SAMPLES).map(sample).collect())
}

fn options(compress: bool) -> WalOptions {
    WalOptions { segment_bytes: 16 << 10, budget_bytes: 1 << 20, compress, ..WalOptions::new("fuzz") }
}

fn sample(number: usize) -> Sample {
    let disk = MemoryDisk::default();
    let compress = number.is_multiple_of(2);
    let mut written = Vec::new();
    let mut id = 0;
    for half in 0..2 {
        let (log, recovery) = Wal::open(disk.clone(), options(compress)).expect("a log in memory");
        id = recovery.log;
        for count in 0..=6 * (1 + number / 2) {
            let payload = payload(number * 100 + half * 50 + count, [40, 900, 5000][(number + count) % 3]);
            written.push(Record { sequence: append(&log, 1, &payload), kind: 1, payload });
        }
        if number == 3 && half == 0 {
            log.truncate(written[2].sequence).expect("memory");
        }
        log.close();
    }
    let places: Vec<(u64, Place)> = names(&disk).iter().flat_map(|name| places(&disk, name)).collect();
    let placed = |record: Record| {
        let (_, place) = places.iter().find(|(sequence, _)| *sequence == record.sequence)?;
        Some((record, place.clone()))
    };
    // Truncated records may be gone.
    let records: Vec<_> = written.into_iter().filter_map(placed).collect();
    assert!(records.len() > 8, "a log of records");
    Sample { disk, compress, log: id, records }
}

/// Returns the places of the records in an undamaged segment.
fn places(disk: &MemoryDisk, name: &str) -> Vec<(u64, Place)> {
    let held = bytes(disk, name);
    let mut start = HEADER;
    let mut places = Vec::new();
    while is_segment(name)
        && let Some(head) = held.get(start..start + HEAD)
    {
        let payload = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let sequence = head[8..16].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        if sequence == 0 {
            break;
        }
        let bytes = HEAD + payload.next_multiple_of(8);
        places.push((sequence, Place { file: name.to_owned(), start, bytes }));
        start += bytes;
    }
    places
}

fn is_segment(name: &str) -> bool {
    name.ends_with(".segment")
}

fn payload(seed: usize, bytes: usize) -> Vec<u8> {
    let mut random = crate::random::Random::new(seed as u64);
    (0..bytes).map(|at| if at % 4 == 0 { random.next() as u8 } else { (at / 64) as u8 }).collect()
}

fn append(log: &Wal, kind: u8, payload: &[u8]) -> u64 {
    let (done, durable) = mpsc::channel();
    log.append(0, kind, payload.to_vec(), move |sequence| drop(done.send(sequence))).expect("room in the queue");
    durable.recv().expect("a callback").expect("memory takes it")
}

fn all(log: &Wal) -> Vec<Record> {
    let mut reader = log.reader(1);
    let mut records = Vec::new();
    while let Some(record) = reader.next().expect("memory can be read") {
        records.push(record);
    }
    records
}

/// Returns true if the bytes of a record and at least one half of its file's header are unchanged. The file may have
/// another name.
fn is_whole(before: &MemoryDisk, after: &MemoryDisk, place: &Place) -> bool {
    let old = bytes(before, &place.file);
    let range = place.start..place.start + place.bytes;
    names(after).iter().filter(|name| is_segment(name)).any(|name| {
        let new = bytes(after, name);
        let half = |at: usize| new.get(at..at + HEADER / 2).is_some_and(|half| *half == old[at..at + HEADER / 2]);
        new.get(range.clone()) == Some(&old[range.clone()]) && (half(0) || half(HEADER / 2))
    })
}

/// Returns true if the file has its own name and header, and some byte of the record is still in its place: in the
/// head, or in the payload after a partly preserved head.
fn leaves_a_trace(before: &MemoryDisk, after: &MemoryDisk, place: &Place) -> bool {
    let old = bytes(before, &place.file);
    let new = bytes(after, &place.file);
    let is_same = |range: std::ops::Range<usize>| new.get(range.clone()).is_some_and(|part| *part == old[range]);
    let has_header = is_same(0..HEADER / 2) || is_same(HEADER / 2..HEADER);
    has_header && new.get(place.start..place.start + 8).is_some_and(|part| part.iter().any(|byte| *byte != 0))
}

/// Returns true if the WAL reports damage that covers the beginning of a record, or its whole segment.
fn is_reported(log: &Wal, place: &Place) -> bool {
    let covers = |offset: u64, bytes: u64| (offset..offset + bytes).contains(&(place.start as u64));
    log.damage()
        .iter()
        .any(|damage| damage.segment == place.file && (damage.offset == 0 || covers(damage.offset, damage.bytes)))
}

/// The records that a change can destroy.
enum Kind {
    /// The records whose bytes it changed.
    Damage,
    /// Possibly others too, because a misplaced copy of a record can hide the records after it.
    Copied,
    /// Any records, because the change added a file of another WAL.
    Foreign,
}

fn apply(disk: &MemoryDisk, change: &[u8]) -> Kind {
    let byte = |at: usize| change.get(at).copied().unwrap_or_default();
    let number = |at: usize| usize::from(u16::from_le_bytes([byte(at), byte(at + 1)]));
    let names = names(disk);
    if names.is_empty() {
        return Kind::Damage;
    }
    let name = &names[usize::from(byte(1)) % names.len()];
    let mut held = bytes(disk, name);
    let at = number(2) % held.len().max(1);
    let length = number(4) % 600;
    let end = held.len().min(at + length);
    let mut kind = Kind::Damage;
    match byte(0) % 9 {
        0 if !held.is_empty() => held[at] ^= 1 << (byte(6) % 8),
        1 => held.truncate(at),
        // A torn write leaves zeros, or bytes from elsewhere.
        2 => held[at..end].fill(0),
        3 => {
            let to = held.len().saturating_sub(end - at.min(end)) / 2;
            held.copy_within(at.min(end)..end, to);
            kind = Kind::Copied;
        }
        4 => held.extend(std::iter::repeat_n(byte(6), length)),
        // Swaps two files, or overwrites one by the other.
        which @ 5..=6 => {
            let other = &names[usize::from(byte(6)) % names.len()];
            let other_bytes = bytes(disk, other);
            put(disk, other, &held);
            match which {
                5 => held = other_bytes,
                _ => kind = Kind::Copied,
            }
        }
        7 => {
            let _ = disk.remove(name);
            return kind;
        }
        8 => {
            let others = &samples()[usize::from(byte(6)) % SAMPLES].disk;
            let theirs = self::names(others);
            held = bytes(others, &theirs[usize::from(byte(7)) % theirs.len()]);
            kind = Kind::Foreign;
        }
        _ => {}
    }
    put(disk, name, &held);
    kind
}

fn names(disk: &MemoryDisk) -> Vec<String> {
    disk.list().expect("memory")
}

fn bytes(disk: &MemoryDisk, name: &str) -> Vec<u8> {
    let Ok(file) = disk.open(name) else { return Vec::new() };
    let mut bytes = vec![0; usize::try_from(file.size().expect("memory")).unwrap_or_default()];
    let mut at = 0;
    while at < bytes.len() {
        at += file.read_at(&mut bytes[at..], at as u64).expect("memory");
    }
    bytes
}

fn put(disk: &MemoryDisk, name: &str, bytes: &[u8]) {
    let _ = disk.remove(name);
    disk.create(name).and_then(|file| file.write_at(bytes, 0)).expect("memory");
}

fn fork(disk: &MemoryDisk) -> MemoryDisk {
    let copy = MemoryDisk::default();
    for name in names(disk) {
        put(&copy, &name, &bytes(disk, &name));
    }
    copy
}
