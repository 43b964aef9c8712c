//! Changed bytes and truncated files: no record is invented, and only damaged records are lost.

use std::collections::BTreeMap;
use std::ops::Range;

use super::history::payload;
use super::simulated::{Cut, Simulated};
use super::{append, open, read_all, small};
use crate::disk::Disk;
use crate::format::{HEADER_BYTES, SegmentHeader};
use crate::scan::{ScanItem, SegmentScanner};
use crate::{Counts, Record, Verdict, Wal, WalOpenError, WalOptions};

/// A closed WAL of a few records in several segments, with its checkpoint.
struct Sample {
    disk: Simulated,
    records: Vec<Record>,
    /// Per segment: the byte range and sequence of each record.
    places: BTreeMap<String, Vec<(Range<usize>, u64)>>,
    truncated: u64,
}

fn options() -> WalOptions {
    WalOptions { segment_bytes: 8 << 10, budget_bytes: 1 << 20, ..small() }
}

fn sample(compress: bool) -> Sample {
    let disk = Simulated::new(3);
    let options = WalOptions { compress, ..options() };
    let (log, _) = open(&disk, options.clone()).unwrap();
    for number in 1..=14 {
        let mut bytes = payload(number, 130 * number as usize);
        bytes.extend(b"the same words over and over ".repeat(5));
        append(&log, &bytes).unwrap();
    }
    log.truncate(2).unwrap();
    log.close();
    // Opened on a copy: it would add an empty segment to this disk, and this test is about full ones.
    let (log, _) = open(&disk.fork(), options).unwrap();
    let records = read_all(&log, 3);
    assert_eq!(records.len(), 12);
    assert!(disk.segments().len() >= 3);
    let places = disk.segments().into_iter().map(|name| (name.clone(), places(&disk, &name))).collect();
    Sample { disk, records, places, truncated: 2 }
}

fn places(disk: &Simulated, name: &str) -> Vec<(Range<usize>, u64)> {
    let bytes = disk.bytes(name);
    let header = SegmentHeader::decode(&bytes[..HEADER_BYTES as usize]).unwrap();
    let mut scanner = SegmentScanner::new(disk.open(name).unwrap(), header.segment, header.first, bytes.len() as u64);
    let mut places = Vec::new();
    while let Some(item) = scanner.next().unwrap() {
        if let ScanItem::Record(found) = item {
            let start = found.offset as usize;
            places.push((start..start + found.head.size() as usize, found.head.sequence));
        }
    }
    places
}

impl Sample {
    /// Opens the WAL after a change and checks its records: all records that were not hit, and none outside the sample.
    fn check(&self, disk: &Simulated, story: &str, was_hit: impl Fn(u64) -> bool) -> Wal {
        let (log, _) = open(disk, options()).unwrap_or_else(|error| panic!("{story}: {error}"));
        let found = read_all(&log, self.truncated + 1);
        let mut rest = self.records.iter();
        for record in found.iter().filter(|record| record.payload != b"afterwards") {
            assert!(rest.any(|sample| sample == record), "{story}: {} was not written like this", record.sequence);
        }
        for record in self.records.iter().filter(|record| !was_hit(record.sequence)) {
            assert!(found.contains(record), "{story}: {} is lost", record.sequence);
        }
        append(&log, b"afterwards").unwrap();
        assert_eq!(read_all(&log, self.truncated + 1).last().unwrap().payload, b"afterwards", "{story}");
        log
    }

    fn hits(&self, name: &str, bytes: &Range<usize>) -> Vec<u64> {
        let places = self.places.get(name).into_iter().flatten();
        let hit = places.filter(|(place, _)| place.start < bytes.end && bytes.start < place.end);
        hit.map(|(_, sequence)| *sequence).collect()
    }

    fn files(&self) -> Vec<String> {
        self.disk.names().into_iter().filter(|name| name != "lock").collect()
    }
}

#[test]
fn flipping_any_byte_loses_at_most_its_record() {
    for compress in [false, true] {
        let sample = sample(compress);
        for name in sample.files() {
            for at in 0..sample.disk.bytes(&name).len() {
                let disk = sample.disk.fork();
                disk.rot(&name, |bytes| bytes[at] ^= 1 << (at % 8));
                let hits = sample.hits(&name, &(at..at + 1));
                let log = sample.check(&disk, &format!("{name} at {at}"), |sequence| hits.contains(&sequence));
                assert!(log.damage().len() <= 1);
            }
        }
    }
}

#[test]
fn flipping_many_bytes_loses_only_their_records() {
    let sample = sample(false);
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for _ in 0..3000 {
        let disk = sample.disk.fork();
        let mut hits = Vec::new();
        for _ in 0..1 + random(4) {
            let files = sample.disk.segments();
            let name = &files[random(files.len())];
            let length = sample.disk.bytes(name).len() - HEADER_BYTES as usize;
            let start = HEADER_BYTES as usize + random(length);
            let range = start..(start + 1 + random(600)).min(length + HEADER_BYTES as usize);
            hits.extend(sample.hits(name, &range));
            disk.rot(name, |bytes| bytes[range].iter_mut().for_each(|byte| *byte = random(256) as u8));
        }
        sample.check(&disk, "bursts", |sequence| hits.contains(&sequence));
    }
}

#[test]
fn truncating_any_file_invents_no_record() {
    let sample = sample(false);
    for name in sample.files() {
        let length = sample.disk.bytes(&name).len();
        for at in 0..length {
            let disk = sample.disk.fork();
            disk.rot(&name, |bytes| bytes.truncate(at));
            // Without the header, the records of a segment cannot be recognized.
            let gone = if at < HEADER_BYTES as usize / 2 { 0..length } else { at..length };
            let hits = sample.hits(&name, &gone);
            sample.check(&disk, &format!("{name} cut at {at}"), |sequence| hits.contains(&sequence));
        }
    }
}

#[test]
fn damage_in_the_middle_is_counted_once_and_its_bytes_are_kept() {
    let sample = sample(false);
    let disk = sample.disk.fork();
    let (name, places) = sample.places.iter().find(|(_, places)| places.len() >= 3).unwrap();
    let (place, sequence) = places[1].clone();
    disk.rot(name, |bytes| bytes[place.start + 40] ^= 4);
    let damaged = disk.bytes(name)[place.clone()].to_vec();
    for opening in 0..2 {
        let log = sample.check(&disk, "the middle", |hit| hit == sequence);
        read_all(&log, 0);
        let damage = log.damage();
        assert_eq!(damage.len(), 1, "opening {opening}");
        assert_eq!((damage[0].offset, damage[0].bytes), (place.start as u64, damaged.len() as u64));
        assert_eq!(damage[0].verdict, Verdict::Damaged);
        let counted = Counts { damaged: 1, damaged_bytes: damaged.len() as u64, ..Counts::default() };
        assert_eq!(log.stats().found, counted);
        let kept = format!("quarantine/{}", damage[0].kept_as.as_ref().unwrap());
        assert_eq!(disk.bytes(&kept), damaged);
        drop(log);
        disk.cut(Cut::Lost);
        assert_eq!(disk.names().iter().filter(|name| name.starts_with("quarantine/")).count(), 1);
    }
}

#[test]
fn a_segment_without_a_header_is_quarantined() {
    let sample = sample(false);
    for name in sample.disk.segments() {
        let disk = sample.disk.fork();
        disk.rot(&name, |bytes| bytes[..HEADER_BYTES as usize].fill(0xff));
        let bytes = disk.bytes(&name);
        let hits = sample.hits(&name, &(0..bytes.len()));
        let log = sample.check(&disk, &name, |sequence| hits.contains(&sequence));
        assert_eq!(log.damage().len(), 1);
        assert_eq!(disk.bytes(&format!("quarantine/{name}")), bytes);
        assert!(log.durable() > 14, "no sequence is given again");
    }
}

#[test]
fn foreign_records_after_the_tail_are_ignored() {
    let disk = Simulated::new(1);
    let (log, _) = open(&disk, options()).unwrap();
    append(&log, b"the last one").unwrap();
    log.close();
    let earlier = disk.fork();
    let (log, _) = open(&disk, options()).unwrap();
    append(&log, b"from another time").unwrap();
    log.close();
    let own = disk.segments().remove(0);
    let other = disk.segments().remove(1);
    let end = places(&earlier, &own)[0].0.end;
    // A record with a higher sequence, as a recycled block might hold, and a copy of one of the segment's own records.
    for from in [&other, &own] {
        let strange = disk.bytes(from)[places(&disk, from)[0].0.clone()].to_vec();
        let grafted = earlier.fork();
        grafted.rot(&own, |bytes| bytes[end..end + strange.len()].copy_from_slice(&strange));
        let (log, recovery) = open(&grafted, options()).unwrap();
        assert_eq!(recovery.last, 1);
        let [damage] = &recovery.damage[..] else { panic!("{:?}", recovery.damage) };
        assert_eq!((damage.offset, damage.verdict), (end as u64, Verdict::InDoubt));
        assert!(damage.bytes <= strange.len() as u64 && damage.kept_as.is_some());
        assert_eq!(read_all(&log, 1).len(), 1);
    }
}

#[test]
fn a_missing_segment_is_reported() {
    let sample = sample(false);
    let disk = sample.disk.fork();
    let name = disk.segments().remove(1);
    disk.remove(&name).unwrap();
    let hits = sample.hits(&name, &(0..usize::MAX));
    let log = sample.check(&disk, "missing", |sequence| hits.contains(&sequence));
    assert_eq!(log.damage().len(), 1);
}

#[test]
fn a_damaged_checkpoint_only_causes_more_replay() {
    let sample = sample(false);
    let disk = sample.disk.fork();
    disk.rot("checkpoint", |bytes| bytes[16] ^= 0xff);
    let (log, recovery) = open(&disk, options()).unwrap();
    assert_eq!(recovery.truncated, 0);
    assert_eq!(read_all(&log, 1)[..2].iter().map(|record| record.sequence).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_newer_format_is_rejected_unchanged() {
    let sample = sample(false);
    let disk = sample.disk.fork();
    let name = disk.segments().pop().unwrap();
    disk.rot(&name, |bytes| {
        for copy in bytes[..HEADER_BYTES as usize].chunks_exact_mut(2048) {
            copy[8] = 2;
            let crc = crc32c::crc32c(&copy[..2044]);
            copy[2044..].copy_from_slice(&crc.to_le_bytes());
        }
    });
    let before = disk.bytes(&name);
    let error = open(&disk, options()).err().unwrap();
    assert!(matches!(&error, WalOpenError::Newer { version: 2, segment } if *segment == name), "{error}");
    assert_eq!(disk.bytes(&name), before);
    assert_eq!(disk.names(), sample.disk.names());
}

#[test]
fn a_foreign_segment_is_rejected_unchanged() {
    let sample = sample(false);
    let other = Simulated::new(9);
    // Ids derive from the number of operations: one more makes them differ.
    other.list().unwrap();
    let (log, _) = open(&other, options()).unwrap();
    append(&log, b"other").unwrap();
    log.close();
    let disk = sample.disk.fork();
    let name = &other.segments()[0];
    let file = disk.create("0000000000000000.segment").unwrap();
    file.write_at(&other.bytes(name), 0).unwrap();
    let mixed = open(&disk, options()).err().unwrap();
    assert!(matches!(&mixed, WalOpenError::Mixed(_)), "{mixed}");
}
