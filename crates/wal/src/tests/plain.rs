//! Behaviour of a WAL when nothing fails.

use std::sync::mpsc;

use super::history::payload;
use super::simulated::{Cut, Simulated};
use super::{append, open, read_all, small};
use crate::{AppendError, WalOptions};

#[test]
fn records_that_wait_during_a_sync_share_the_next_one() {
    let disk = Simulated::new(1);
    let (log, _) = open(&disk, WalOptions { segment_bytes: 1 << 20, ..small() }).unwrap();
    let (open_gate, gate) = mpsc::channel::<()>();
    let (sender, outcomes) = mpsc::channel();
    let (entered, has_entered) = mpsc::channel();
    let before = (disk.syncs(), log.stats().syncs);
    log.append(0, 1, vec![0; 8], move |_| {
        entered.send(()).unwrap();
        let _ = gate.recv();
    })
    .unwrap();
    has_entered.recv().unwrap();
    for _ in 0..40 {
        let sender = sender.clone();
        log.append(0, 1, vec![0; 8], move |result| sender.send(result.unwrap()).unwrap()).unwrap();
    }
    drop((open_gate, sender));
    assert_eq!(outcomes.iter().collect::<Vec<_>>(), (2..=41).collect::<Vec<_>>());
    log.close();
    assert_eq!(disk.syncs() - before.0, 2);
    assert_eq!(before.1, 0);
}

#[test]
fn callbacks_run_after_the_bytes_are_durable() {
    let disk = Simulated::new(1);
    let (log, _) = open(&disk, small()).unwrap();
    let (sender, outcomes) = mpsc::channel();
    for number in 0..30 {
        let sender = sender.clone();
        let disk = disk.clone();
        // In the callback, a power cut of a copy of the disk.
        let done = move |result: Result<u64, AppendError>| {
            let after = disk.fork();
            after.cut(Cut::Lost);
            sender.send((result.unwrap(), after)).unwrap();
        };
        log.append(0, 1, payload(number, 900), done).unwrap();
    }
    drop(sender);
    for (sequence, after) in outcomes.iter().take(30) {
        let (log, _) = open(&after, small()).unwrap();
        assert!(read_all(&log, 1).iter().any(|record| record.sequence == sequence), "{sequence} was acked too early");
    }
}

#[test]
fn readers_see_durable_records_in_the_callback() {
    let (log, _) = open(&Simulated::new(1), small()).unwrap();
    let mut reader = log.reader(1);
    assert_eq!(reader.next().unwrap(), None);
    for number in 1..60 {
        let sequence = append(&log, &payload(number, 800)).unwrap();
        let record = reader.next().unwrap().unwrap();
        assert_eq!((record.sequence, record.payload), (sequence, payload(number, 800)));
        assert_eq!(reader.next().unwrap(), None);
        assert_eq!(log.durable(), sequence);
    }
    assert!(log.segments() > 3);
    let mut later = log.reader(33);
    assert_eq!(later.next().unwrap().unwrap().sequence, 33);
    assert_eq!(later.position(), 34);
    // A reader that starts too late skips truncated records.
    let mut late = log.reader(1);
    log.truncate(50).unwrap();
    assert!(late.next().unwrap().unwrap().sequence > 33);
    assert_eq!(later.next().unwrap().unwrap().sequence, 34, "a file that is open stays readable");
}

#[test]
fn compressed_records_round_trip_and_are_smaller() {
    for compress in [false, true] {
        let disk = Simulated::new(1);
        let options = WalOptions { compress, ..small() };
        let (log, _) = open(&disk, options.clone()).unwrap();
        let words = b"climate,room=lab,sensor=s1 temp=22.1 ".repeat(60);
        let payloads = [words.clone(), payload(1, 500), Vec::new(), vec![0], vec![9; 9000]];
        for payload in &payloads {
            append(&log, payload).unwrap();
        }
        let saves = log.stats().appended_bytes < words.len() as u64;
        assert_eq!(saves, compress);
        log.close();
        let (log, _) = open(&disk, small()).unwrap();
        assert_eq!(read_all(&log, 1).into_iter().map(|record| record.payload).collect::<Vec<_>>(), payloads);
    }
}

#[test]
fn a_panic_in_a_callback_does_not_end_the_log() {
    let (log, _) = open(&Simulated::new(1), small()).unwrap();
    log.append(0, 1, b"one".to_vec(), |_| panic!("a callback's own trouble, on purpose")).unwrap();
    append(&log, b"two").unwrap();
    assert_eq!(read_all(&log, 1).len(), 2);
}

#[test]
fn closing_writes_queued_records() {
    let disk = Simulated::new(1);
    let (log, _) = open(&disk, small()).unwrap();
    let (sender, outcomes) = mpsc::channel();
    for number in 0..50 {
        let sender = sender.clone();
        log.append(0, 1, payload(number, 300), move |result| sender.send(result.is_ok()).unwrap()).unwrap();
    }
    log.close();
    drop(sender);
    assert_eq!(outcomes.iter().filter(|ok| *ok).count(), 50);
    disk.cut(Cut::Lost);
    let (log, _) = open(&disk, small()).unwrap();
    assert_eq!(read_all(&log, 1).len(), 50);
}

#[test]
fn truncation_is_durable_and_removes_the_oldest_segments_first() {
    let disk = Simulated::new(1);
    let (log, _) = open(&disk, small()).unwrap();
    for number in 1..=60 {
        append(&log, &payload(number, 900)).unwrap();
    }
    let before = disk.segments();
    log.truncate(30).unwrap();
    let after = disk.segments();
    assert!(after.len() < before.len() && before.ends_with(&after));
    let kept = read_all(&log, 1);
    assert!(kept[0].sequence <= 31 && kept.last().unwrap().sequence == 60);
    log.truncate(7).unwrap();
    assert_eq!(log.truncated(), 30);
    disk.cut(Cut::Lost);
    drop(log);
    let (_, recovery) = open(&disk, small()).unwrap();
    assert_eq!((recovery.truncated, recovery.last), (30, 60));
}

#[test]
fn opening_alone_does_not_grow_a_log() {
    let disk = Simulated::new(1);
    let (log, first) = open(&disk, small()).unwrap();
    append(&log, b"one").unwrap();
    log.close();
    for _ in 0..20 {
        let (log, recovery) = open(&disk, small()).unwrap();
        assert_eq!((recovery.log, recovery.last), (first.log, 1));
        log.truncate(1).unwrap();
        log.close();
    }
    assert_eq!(disk.segments().len(), 1);
}
