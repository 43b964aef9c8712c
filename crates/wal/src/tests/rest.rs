//! The space that a WAL gives up when it is quiet, and when it closes.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::history::payload;
use super::simulated::{Cut, Simulated};
use super::{append, eventually, open, read_all, small};
use crate::{Wal, WalOptions};

/// The smallest segment has 8 KiB.
fn options() -> WalOptions {
    WalOptions { segment_bytes: 128 << 10, quiet: Duration::from_secs(60), ..small() }
}

/// Appends until segments have the full size and the next one is prepared.
fn grow(log: &Wal, disk: &Simulated) -> u64 {
    let mut last = 0;
    while !disk.names().iter().any(|name| name == "fresh") || log.segments() < 6 {
        last = append(log, &payload(last, 3000)).unwrap();
    }
    last
}

/// Regression: after everything was flushed, the WAL kept 128 MiB forever: a segment of the full size and the next one.
#[test]
fn a_quiet_log_gives_up_unneeded_space() {
    let disk = Simulated::new(1);
    let (log, _) = open(&disk, options()).unwrap();
    let last = grow(&log, &disk);
    let now = Instant::now();
    assert!(!log.rest_if_quiet(now), "it is not quiet");
    let later = now + Duration::from_secs(61);
    assert!(log.rest_if_quiet(later));
    log.truncate(last).unwrap();
    let files = || disk.used(|name| name == "fresh" || name.ends_with(".segment")) as u64;
    eventually("a small log", || {
        log.truncate(last).unwrap();
        log.segments() == 1 && files() <= 32 << 10 && log.stats().bytes == files()
    });
    assert!(!log.rest_if_quiet(later + Duration::from_secs(61)), "there is nothing more to give back");
    let next = append(&log, &payload(7, 100 << 10)).unwrap();
    assert_eq!(read_all(&log, last + 1).iter().map(|record| record.sequence).collect::<Vec<_>>(), [next]);
    disk.cut(Cut::Lost);
    drop(log);
    let (log, recovery) = open(&disk, options()).unwrap();
    assert_eq!((recovery.last, recovery.truncated), (next, last));
    assert_eq!(read_all(&log, last + 1).len(), 1);
}

#[test]
fn a_busy_log_keeps_its_segments() {
    let disk = Simulated::new(1);
    let (log, _) = open(&disk, options()).unwrap();
    grow(&log, &disk);
    let began = Instant::now();
    for minute in 1..20 {
        append(&log, &payload(minute, 3000)).unwrap();
        assert!(!log.rest_if_quiet(began + Duration::from_secs(61 * minute)), "{minute}");
    }
}

#[test]
fn appends_during_a_rest_stay_within_the_budget() {
    let disk = Simulated::new(1);
    let options = WalOptions { budget_bytes: 512 << 10, quiet: Duration::ZERO, ..options() };
    let (log, _) = open(&disk, options.clone()).unwrap();
    for round in 0..30 {
        let (sender, outcomes) = mpsc::channel();
        let mut admitted = 0;
        let mut number = 0;
        loop {
            number += 1;
            let sender = sender.clone();
            let done = move |result: Result<u64, _>| sender.send(result.unwrap()).unwrap();
            if log.append(0, 1, payload(number, 100 + 331 * (number as usize % 37)), done).is_err() {
                break;
            }
            admitted += 1;
            log.rest_if_quiet(Instant::now());
        }
        drop(sender);
        let acked: Vec<u64> = outcomes.iter().collect();
        assert_eq!(acked.len(), admitted, "round {round}");
        assert!(disk.used(|name| name.ends_with(".segment")) as u64 <= options.budget_bytes);
        log.truncate(acked.last().copied().unwrap_or(0)).unwrap();
    }
    assert_eq!(log.stats().failed_records, 0);
}

#[test]
fn a_closed_log_leaves_no_preallocated_space() {
    let disk = Simulated::new(1);
    let (log, _) = open(&disk, options()).unwrap();
    let last = grow(&log, &disk);
    log.truncate(last - 1).unwrap();
    log.close();
    let files = disk.used(|name| name == "fresh" || name.ends_with(".segment"));
    assert!(files < 128 << 10, "{files}");
    let (log, _) = open(&disk, options()).unwrap();
    assert_eq!(read_all(&log, last).len(), 1);
}
