//! Inspection of a WAL: the counts match the records of a reader, and nothing changes.

use std::thread;

use super::history::payload;
use super::simulated::Simulated;
use super::{append, open, read_all, small};
use crate::format::HEADER_BYTES;
use crate::{Folder, Verdict, Wal, WalContents, WalOptions, inspect};

fn filled(disk: &Simulated, records: u64) -> Wal {
    let (log, _) = open(disk, small()).unwrap();
    for number in 1..=records {
        append(&log, &payload(number, 900)).unwrap();
    }
    log
}

fn everything(disk: &Simulated) -> Vec<(String, Vec<u8>)> {
    disk.names().into_iter().map(|name| (name.clone(), disk.bytes(&name))).collect()
}

#[test]
fn an_inspection_counts_the_readable_records_and_changes_nothing() {
    let disk = Simulated::new(1);
    let log = filled(&disk, 60);
    log.truncate(33).unwrap();
    log.close();
    let before = everything(&disk);
    let syncs = disk.syncs();
    let openings = disk.openings();
    let found = inspect(&disk).unwrap();
    assert_eq!((found.store.as_deref(), found.truncated, found.last), (Some("embedded"), 33, 60));
    assert_eq!((found.records, found.damage.len()), (27, 0));
    assert!((27 * 900..27 * 1000).contains(&found.bytes), "{}", found.bytes);
    assert!(everything(&disk) == before, "bytes changed");
    assert_eq!((disk.syncs(), disk.openings()), (syncs, openings), "no sync and no lock");
    let (log, _) = open(&disk, small()).unwrap();
    assert_eq!(read_all(&log, 34).len(), 27);
    log.truncate(60).unwrap();
    drop(log);
    let empty = inspect(&disk).unwrap();
    assert_eq!((empty.truncated, empty.last, empty.records, empty.bytes), (60, 60, 0, 0));
}

#[test]
fn a_folder_without_a_log_is_an_empty_log() {
    assert_eq!(inspect(&Simulated::new(1)).unwrap(), WalContents::default());
}

#[test]
fn an_inspection_reports_damage_and_leaves_it_in_place() {
    let disk = Simulated::new(1);
    filled(&disk, 60).close();
    let first = disk.segments().remove(0);
    // A byte of the first record's payload, and the header of another segment.
    disk.rot(&first, |bytes| bytes[HEADER_BYTES as usize + 100] ^= 1);
    let second = disk.segments().remove(1);
    disk.rot(&second, |bytes| bytes[..HEADER_BYTES as usize].fill(7));
    let before = everything(&disk);
    let found = inspect(&disk).unwrap();
    let damaged: Vec<(&str, bool)> = found.damage.iter().map(|d| (&*d.segment, d.kept_as.is_some())).collect();
    assert_eq!(damaged, [(&*second, false), (&*first, false)]);
    assert!(everything(&disk) == before, "bytes changed");
    let (log, _) = open(&disk, small()).unwrap();
    assert_eq!(found.records, read_all(&log, 1).len() as u64, "what can be read is counted");
}

#[test]
fn a_tail_torn_by_a_kill_is_not_damage() {
    let disk = Simulated::new(1);
    filled(&disk, 5).close();
    let last = disk.segments().pop().unwrap();
    let all = inspect(&disk).unwrap();
    disk.rot(&last, |bytes| {
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        bytes[(end - 600).next_multiple_of(512)..].fill(0);
    });
    let found = inspect(&disk).unwrap();
    assert_eq!((all.records, found.records, found.last), (5, 4, 4));
    assert_eq!(found.damage.iter().map(|damage| damage.verdict).collect::<Vec<_>>(), [Verdict::Torn]);
    let (log, recovery) = open(&disk, small()).unwrap();
    let found_damage = &found.damage[0];
    let kept = &recovery.damage[0];
    assert_eq!(
        (found_damage.offset, found_damage.bytes, found_damage.verdict),
        (kept.offset, kept.bytes, kept.verdict)
    );
    assert_eq!((log.stats().found.in_doubt, log.stats().found.torn), (0, 1));
}

#[test]
fn an_open_log_can_be_inspected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let (log, _) = Wal::open(Folder::new(&path).unwrap(), WalOptions { segment_bytes: 16 << 10, ..small() }).unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 1..=600 {
                let sequence = append(&log, &payload(number, 500)).unwrap();
                if number % 50 == 0 {
                    log.truncate(sequence - 20).unwrap();
                }
            }
        });
        let mut before = 0;
        while !writer.is_finished() {
            let durable = log.durable();
            let found = inspect(&Folder::read_only(&path)).unwrap();
            assert!(found.last >= durable.max(before), "{} was durable, {found:?}", durable);
            assert!(found.records <= found.last - found.truncated, "{found:?}");
            assert_eq!(found.damage, []);
            before = found.last;
        }
    });
    let found = inspect(&Folder::read_only(&path)).unwrap();
    assert_eq!((found.truncated, found.last, found.records), (580, 600, 20));
}
