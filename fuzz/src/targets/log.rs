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
    let sample = &samples()[usize::from(*first) % SAMPLE_COUNT];
    let disk = copy_disk(&sample.disk);
    let mut is_foreign = false;
    let mut has_copy = false;
    for change in rest.chunks(8).take(8) {
        match apply_change(&disk, change) {
            Effect::Damage => {}
            Effect::Foreign => is_foreign = true,
            Effect::Copied => has_copy = true,
        }
    }
    let damaged = copy_disk(&disk);
    let (wal, recovery) = match Wal::open(disk.clone(), options(sample.compress)) {
        Ok(opened) => opened,
        // A WAL with segments of another WAL is refused as a whole.
        Err(WalOpenError::Mixed { .. }) if is_foreign => return,
        Err(error) => panic!("{error}"),
    };
    let found = read_all(&wal);
    let mut written = sample.records.iter();
    for record in found.iter().filter(|_| !is_foreign) {
        let (known, _) = written.find(|(known, _)| known.sequence == record.sequence).expect("one written, in order");
        assert_eq!(record, known, "a record that differs from the written one");
    }
    for (record, range) in sample.records.iter().filter(|_| !is_foreign && !has_copy) {
        let lost = record.sequence > recovery.truncated && !found.contains(record);
        assert!(!lost || !is_whole(&sample.disk, &damaged, range), "{} of {range:?} is lost", record.sequence);
        assert!(
            !lost || !has_trace(&sample.disk, &damaged, range) || is_reported(&wal, range),
            "{range:?} is not reported"
        );
    }
    let next = append(&wal, 9, b"afterwards");
    let last = sample.records.iter().map(|(record, _)| record.sequence).max().unwrap_or_default();
    // If the last file is missing, only a clock could determine the next sequence, and this test has none.
    let remaining = file_names(&damaged);
    let is_last_missing = sample
        .records
        .iter()
        .max_by_key(|(record, _)| record.sequence)
        .is_some_and(|(_, range)| !remaining.contains(&range.file));
    assert!(
        is_foreign || recovery.log != sample.wal_id || is_last_missing || next > last,
        "{next} may have been used: {last} was"
    );
    assert_eq!(read_all(&wal).last().map(|record| &*record.payload), Some(&b"afterwards"[..]));
}

/// A written WAL, with the ranges of its records.
struct Sample {
    disk: MemoryDisk,
    compress: bool,
    wal_id: u64,
    records: Vec<(Record, ByteRange)>,
}

/// A range of bytes of a file.
#[derive(Debug, Clone)]
struct ByteRange {
    file: String,
    start: usize,
    bytes: usize,
}

const SAMPLE_COUNT: usize = 6;

/// WALs with short and long records, compressed or not; one is partly truncated, one was reopened in between.
fn samples() -> &'static [Sample] {
    static SAMPLES: OnceLock<Vec<Sample>> = OnceLock::new();
    SAMPLES.get_or_init(|| (0..SAMPLE_COUNT).map(create_sample).collect())
}

fn options(compress: bool) -> WalOptions {
    WalOptions { segment_bytes: 16 << 10, budget_bytes: 1 << 20, compress, ..WalOptions::new("fuzz") }
}

fn create_sample(number: usize) -> Sample {
    let disk = MemoryDisk::default();
    let compress = number.is_multiple_of(2);
    let mut written = Vec::new();
    let mut id = 0;
    for half in 0..2 {
        let (wal, recovery) = Wal::open(disk.clone(), options(compress)).expect("a WAL in memory");
        id = recovery.log;
        for count in 0..=6 * (1 + number / 2) {
            let payload = payload(number * 100 + half * 50 + count, [40, 900, 5000][(number + count) % 3]);
            written.push(Record { sequence: append(&wal, 1, &payload), kind: 1, payload });
        }
        if number == 3 && half == 0 {
            wal.truncate(written[2].sequence).expect("memory");
        }
        wal.close();
    }
    let ranges: Vec<(u64, ByteRange)> = file_names(&disk).iter().flat_map(|name| record_ranges(&disk, name)).collect();
    let with_range = |record: Record| {
        let (_, range) = ranges.iter().find(|(sequence, _)| *sequence == record.sequence)?;
        Some((record, range.clone()))
    };
    // Truncated records may be gone.
    let records: Vec<_> = written.into_iter().filter_map(with_range).collect();
    assert!(records.len() > 8, "a WAL of records");
    Sample { disk, compress, wal_id: id, records }
}

/// Returns the ranges of the records in an undamaged segment.
fn record_ranges(disk: &MemoryDisk, name: &str) -> Vec<(u64, ByteRange)> {
    let content = read_file(disk, name);
    let mut start = HEADER;
    let mut ranges = Vec::new();
    while is_segment(name)
        && let Some(head) = content.get(start..start + HEAD)
    {
        let payload = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let sequence = head[8..16].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        if sequence == 0 {
            break;
        }
        let bytes = HEAD + payload.next_multiple_of(8);
        ranges.push((sequence, ByteRange { file: name.to_owned(), start, bytes }));
        start += bytes;
    }
    ranges
}

fn is_segment(name: &str) -> bool {
    name.ends_with(".segment")
}

fn payload(seed: usize, bytes: usize) -> Vec<u8> {
    let mut random = crate::random::Random::new(seed as u64);
    (0..bytes).map(|at| if at % 4 == 0 { random.next() as u8 } else { (at / 64) as u8 }).collect()
}

fn append(wal: &Wal, kind: u8, payload: &[u8]) -> u64 {
    let (done, durable) = mpsc::channel();
    wal.append(0, kind, payload.to_vec(), move |sequence| drop(done.send(sequence))).expect("room in the queue");
    durable.recv().expect("a callback").expect("memory takes it")
}

fn read_all(wal: &Wal) -> Vec<Record> {
    let mut reader = wal.reader(1);
    let mut records = Vec::new();
    while let Some(record) = reader.next().expect("memory can be read") {
        records.push(record);
    }
    records
}

/// Returns true if the bytes of a record and at least one half of its file's header are unchanged. The file may have
/// another name.
fn is_whole(before: &MemoryDisk, after: &MemoryDisk, range: &ByteRange) -> bool {
    let old = read_file(before, &range.file);
    let bytes = range.start..range.start + range.bytes;
    file_names(after).iter().filter(|name| is_segment(name)).any(|name| {
        let new = read_file(after, name);
        let half = |start: usize| {
            new.get(start..start + HEADER / 2).is_some_and(|half| *half == old[start..start + HEADER / 2])
        };
        new.get(bytes.clone()) == Some(&old[bytes.clone()]) && (half(0) || half(HEADER / 2))
    })
}

/// Returns true if the file has its own name and header, and some byte of the record is still in its range: in the
/// head, or in the payload after a partly preserved head.
fn has_trace(before: &MemoryDisk, after: &MemoryDisk, range: &ByteRange) -> bool {
    let old = read_file(before, &range.file);
    let new = read_file(after, &range.file);
    let is_same = |range: std::ops::Range<usize>| new.get(range.clone()).is_some_and(|part| *part == old[range]);
    let has_header = is_same(0..HEADER / 2) || is_same(HEADER / 2..HEADER);
    has_header && new.get(range.start..range.start + 8).is_some_and(|part| part.iter().any(|byte| *byte != 0))
}

/// Returns true if the WAL reports damage that covers the beginning of a record, or its whole segment.
fn is_reported(wal: &Wal, range: &ByteRange) -> bool {
    let covers = |offset: u64, bytes: u64| (offset..offset + bytes).contains(&(range.start as u64));
    wal.damage()
        .iter()
        .any(|damage| damage.segment == range.file && (damage.offset == 0 || covers(damage.offset, damage.bytes)))
}

/// The records that a change can destroy.
enum Effect {
    /// The records whose bytes it changed.
    Damage,
    /// Possibly others too, because a misplaced copy of a record can hide the records after it.
    Copied,
    /// Any records, because the change added a file of another WAL.
    Foreign,
}

fn apply_change(disk: &MemoryDisk, change: &[u8]) -> Effect {
    let byte = |index: usize| change.get(index).copied().unwrap_or_default();
    let number = |index: usize| usize::from(u16::from_le_bytes([byte(index), byte(index + 1)]));
    let names = file_names(disk);
    if names.is_empty() {
        return Effect::Damage;
    }
    let name = &names[usize::from(byte(1)) % names.len()];
    let mut content = read_file(disk, name);
    let offset = number(2) % content.len().max(1);
    let length = number(4) % 600;
    let end = content.len().min(offset + length);
    let mut kind = Effect::Damage;
    match byte(0) % 9 {
        0 if !content.is_empty() => content[offset] ^= 1 << (byte(6) % 8),
        1 => content.truncate(offset),
        // A torn write leaves zeros, or bytes from elsewhere.
        2 => content[offset..end].fill(0),
        3 => {
            let to = content.len().saturating_sub(end - offset.min(end)) / 2;
            content.copy_within(offset.min(end)..end, to);
            kind = Effect::Copied;
        }
        4 => content.extend(std::iter::repeat_n(byte(6), length)),
        // Swaps two files, or overwrites one by the other.
        which @ 5..=6 => {
            let other = &names[usize::from(byte(6)) % names.len()];
            let other_bytes = read_file(disk, other);
            write_file(disk, other, &content);
            match which {
                5 => content = other_bytes,
                _ => kind = Effect::Copied,
            }
        }
        7 => {
            let _ = disk.remove(name);
            return kind;
        }
        8 => {
            let others = &samples()[usize::from(byte(6)) % SAMPLE_COUNT].disk;
            let theirs = file_names(others);
            content = read_file(others, &theirs[usize::from(byte(7)) % theirs.len()]);
            kind = Effect::Foreign;
        }
        _ => {}
    }
    write_file(disk, name, &content);
    kind
}

fn file_names(disk: &MemoryDisk) -> Vec<String> {
    disk.list().expect("memory")
}

fn read_file(disk: &MemoryDisk, name: &str) -> Vec<u8> {
    let Ok(file) = disk.open(name) else { return Vec::new() };
    let mut bytes = vec![0; usize::try_from(file.size().expect("memory")).unwrap_or_default()];
    let mut offset = 0;
    while offset < bytes.len() {
        offset += file.read_at(&mut bytes[offset..], offset as u64).expect("memory");
    }
    bytes
}

fn write_file(disk: &MemoryDisk, name: &str, bytes: &[u8]) {
    let _ = disk.remove(name);
    disk.create(name).and_then(|file| file.write_at(bytes, 0)).expect("memory");
}

fn copy_disk(disk: &MemoryDisk) -> MemoryDisk {
    let copy = MemoryDisk::default();
    for name in file_names(disk) {
        write_file(&copy, &name, &read_file(disk, &name));
    }
    copy
}
