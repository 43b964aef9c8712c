//! Bytes behind the last whole record: bytes that may have been acked raise an alarm, an interrupted write does not.

use std::ops::Range;

use super::history::payload;
use super::simulated::{Cut, Simulated};
use super::{append, open, read_all, small};
use crate::disk::Disk;
use crate::format::{EncodedPayload, HEADER_BYTES, RecordHead, SegmentHeader, segment_name};
use crate::{Damage, Sequence, Verdict, Wal, inspect};

/// A WAL killed after records of these sizes were acked, each in a group of its own, and the byte ranges of the records
/// in its one segment.
fn killed(sizes: &[usize]) -> (Simulated, String, Vec<Range<usize>>) {
    let disk = Simulated::new(5);
    let (log, _) = open(&disk, small()).unwrap();
    for (number, size) in sizes.iter().enumerate() {
        append(&log, &payload(number as u64 + 1, *size)).unwrap();
    }
    drop(log);
    disk.kill();
    let name = disk.segments().remove(0);
    let bytes = disk.bytes(&name);
    let mut start = HEADER_BYTES as usize;
    let header = SegmentHeader::decode(&bytes[..start]).unwrap();
    let places = sizes.iter().map(|_| {
        let head = RecordHead::decode(header.segment, &bytes[start..]).unwrap();
        start += head.size() as usize;
        start - head.size() as usize..start
    });
    (disk.clone(), name, places.collect())
}

/// Opens the WAL, which holds the first `whole` records only. Checks that `inspect` reported the same before, and that
/// quarantine has an exact copy of all damage.
fn opened(disk: &Simulated, name: &str, whole: usize, story: &str) -> (Wal, Vec<Damage>) {
    let before = disk.bytes(name);
    let looked = inspect(disk).unwrap();
    let (log, recovery) = open(disk, small()).unwrap();
    assert_eq!(read_all(&log, 1).len(), whole, "{story}");
    assert_eq!((looked.records, looked.last), (whole as u64, recovery.last), "{story}");
    let seen = |damage: &Damage| (damage.offset, damage.bytes, damage.verdict);
    assert!(looked.damage.iter().map(seen).eq(recovery.damage.iter().map(seen)), "{story}: {looked:?}");
    for damage in &recovery.damage {
        let kept = disk.bytes(&format!("quarantine/{}", damage.kept_as.as_ref().unwrap()));
        assert_eq!(kept, before[damage.offset as usize..][..damage.bytes as usize], "{story}");
    }
    (log, recovery.damage)
}

/// Regression: four requests were acked, the process was killed, and one byte of the last record flipped. The reading
/// was lost with no copy in quarantine, no metric and no health problem.
#[test]
fn a_changed_last_record_is_in_doubt_and_quarantined() {
    let (disk, name, places) = killed(&[70, 300, 90, 700]);
    let last = places[3].clone();
    for at in last.start..last.start + 32 + 700 {
        let disk = disk.fork();
        let story = format!("byte {at} of {last:?}");
        disk.rot(&name, |bytes| bytes[at] ^= 1 << (at % 8));
        let (log, damage) = opened(&disk, &name, 3, &story);
        let [damage] = &damage[..] else { panic!("{story}: {damage:?}") };
        assert_eq!((damage.offset, damage.verdict), (last.start as u64, Verdict::InDoubt), "{story}");
        assert!((last.len() as u64 - 8..=last.len() as u64).contains(&damage.bytes), "{story}: {damage:?}");
        assert_eq!(log.stats().found.in_doubt, 1, "{story}");
        assert!(append(&log, b"afterwards").unwrap() > 4, "{story}");
    }
}

/// The same with one byte in each of the last two records: the fourth record's head proves that the third had been
/// synced, although the fourth itself is lost.
#[test]
fn a_later_head_proves_that_earlier_bytes_were_synced() {
    let (disk, name, places) = killed(&[70, 300, 90, 200]);
    disk.rot(&name, |bytes| places[2..].iter().for_each(|place| bytes[place.start + 40] ^= 1));
    let (log, damage) = opened(&disk, &name, 2, "the last two");
    let found: Vec<_> = damage.iter().map(|damage| (damage.offset as usize, damage.verdict)).collect();
    assert_eq!(found, [(places[2].start, Verdict::Damaged), (places[3].start, Verdict::InDoubt)]);
    let counts = log.stats().found;
    assert_eq!((counts.damaged, counts.in_doubt, counts.torn), (1, 1, 0));
    assert_eq!((counts.damaged_bytes as usize, counts.in_doubt_bytes as usize), (places[2].len(), places[3].len()));
    // The copies stay in quarantine, and records acked from now on survive.
    append(&log, b"afterwards").unwrap();
    drop(log);
    disk.cut(Cut::Lost);
    let (log, _) = open(&disk, small()).unwrap();
    assert_eq!(read_all(&log, 1).len(), 3);
    assert_eq!(disk.names().iter().filter(|name| name.starts_with("quarantine/")).count(), 2);
}

/// A power cut leaves each sector of a write written or not; the write was not acked.
#[test]
fn an_interrupted_write_is_torn() {
    let (disk, name, places) = killed(&[70, 300, 3000]);
    let last = places[2].clone();
    let sectors: Vec<Range<usize>> = (last.start / 512..last.end.div_ceil(512))
        .map(|sector| (sector * 512).max(last.start)..(sector * 512 + 512).min(last.end))
        .collect();
    assert!(sectors.len() >= 6 && sectors.iter().all(|sector| sector.len() >= 24), "{sectors:?}");
    for lost in 1..(1_u32 << sectors.len()) - 1 {
        let disk = disk.fork();
        let story = format!("sectors {lost:b} of {last:?}");
        disk.rot(&name, |bytes| {
            let lost = sectors.iter().enumerate().filter(|(number, _)| lost >> number & 1 == 1);
            lost.for_each(|(_, sector)| bytes[sector.clone()].fill(0));
        });
        let (log, damage) = opened(&disk, &name, 2, &story);
        assert_eq!(damage.iter().map(|damage| damage.verdict).collect::<Vec<_>>(), [Verdict::Torn], "{story}");
        assert_eq!((log.stats().found.in_doubt, log.stats().found.damaged), (0, 0), "{story}");
    }
}

#[test]
fn zeros_after_the_last_record_are_not_damage() {
    let (disk, name, places) = killed(&[70, 300]);
    disk.rot(&name, |bytes| bytes[places[1].clone()].fill(0));
    let (log, damage) = opened(&disk, &name, 1, "zeros");
    assert_eq!((damage, log.stats().found.torn), (Vec::new(), 0));
}

/// Bytes that may have been acked must not be cut off if they could not be copied to quarantine.
#[test]
fn bytes_that_cannot_be_quarantined_stay() {
    let (disk, name, places) = killed(&[70, 300]);
    disk.rot(&name, |bytes| bytes[places[1].start + 50] ^= 1);
    let before = disk.bytes(&name)[places[1].clone()].to_vec();
    disk.set_capacity(disk.used(|other| other == name));
    let (_log, recovery) = open(&disk, small()).unwrap();
    assert_eq!(recovery.damage.iter().map(|damage| damage.kept_as.is_some()).collect::<Vec<_>>(), [false]);
    assert_eq!(disk.bytes(&name)[places[1].clone()], before);
}

/// Regression: the newest segment lost both copies of its header and was moved to quarantine. If it was the only one,
/// or spanned more than a million sequences, its sequences were reused.
#[test]
fn the_sequences_of_a_segment_without_a_header_are_not_reused() {
    for sequences in [vec![1, 2, 3], vec![1, 1 << 24], vec![1, 5, 1 << 44], vec![1 << 45]] {
        let disk = Simulated::new(1);
        write_segment(&disk, &sequences);
        let last = *sequences.last().unwrap();
        let whole = disk.fork();
        assert_eq!(open(&whole, small()).unwrap().1.last, last, "the segment is one of ours");
        disk.rot(&segment_name(sequences[0]), |bytes| bytes[..HEADER_BYTES as usize].fill(0));
        let (log, recovery) = open(&disk, small()).unwrap();
        assert_eq!(recovery.damage.len(), 1);
        let next = append(&log, b"afterwards").unwrap();
        assert!(next > last, "{next} after {sequences:?}");
        assert!(next < last + (1 << 30), "{next} after {sequences:?}");
    }
}

/// Regression: the segment without a header was moved to quarantine before its successor existed. If the start failed
/// then, the next start knew nothing of its sequences.
#[test]
fn a_segment_without_a_header_stays_until_a_newer_one_exists() {
    let disk = Simulated::new(1);
    write_segment(&disk, &[1, 5, 1 << 44]);
    disk.rot(&segment_name(1), |bytes| bytes[..HEADER_BYTES as usize].fill(0));
    disk.set_capacity(disk.used(|_| true));
    let (log, recovery) = open(&disk, small()).unwrap();
    assert!(recovery.unwritable.is_some() && recovery.damage.len() == 1, "{recovery:?}");
    drop(log);
    disk.kill();
    disk.set_capacity(usize::MAX);
    let (log, recovery) = open(&disk, small()).unwrap();
    assert_eq!(recovery.damage.iter().map(|damage| damage.kept_as.is_some()).collect::<Vec<_>>(), [true]);
    assert!(append(&log, b"afterwards").unwrap() > 1 << 44);
}

/// One changed byte in a head that nothing confirms must not use up all sequences.
#[test]
fn a_changed_sequence_in_a_segment_without_a_header_is_ignored() {
    let disk = Simulated::new(1);
    write_segment(&disk, &[7, 8]);
    disk.rot(&segment_name(7), |bytes| {
        bytes[..HEADER_BYTES as usize].fill(0);
        bytes[HEADER_BYTES as usize + 15] ^= 0x40;
    });
    let (log, _) = open(&disk, small()).unwrap();
    assert!((9..1 << 30).contains(&append(&log, b"afterwards").unwrap()));
}

/// Writes a segment with records of these sequences, each in a group of its own.
fn write_segment(disk: &Simulated, sequences: &[Sequence]) {
    let segment = 0x1234_5678_9abc_def0;
    let first = sequences[0];
    let header = SegmentHeader { log: 77, opening: 1, segment, first, previous: None, store: "embedded".to_owned() };
    let mut bytes = header.encode();
    for sequence in sequences {
        let group = bytes.len() as u64;
        EncodedPayload::new(1, payload(*sequence, 100), false).encode(segment, *sequence, group, &mut bytes);
    }
    let file = disk.create(&segment_name(first)).unwrap();
    file.write_at(&bytes, 0).unwrap();
    file.set_len(16 << 10).unwrap();
    file.sync().unwrap();
    disk.sync_dir().unwrap();
}
