//! Tests of the WAL's guarantees, on a disk that fails, reports false success, and loses unsynced bytes.
//!
//! * `simulated`: a disk in memory with power cuts and failing operations;
//! * `history`: appends records, remembers the acked ones, and checks that the WAL has them;
//! * the rest: one file per kind of failure.

mod damage;
mod faults;
mod golden;
mod history;
mod inspect;
mod limits;
mod model;
mod plain;
mod real_disk;
mod rest;
mod simulated;
mod tail;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Record, Recovery, Sequence, Wal, WalOpenError, WalOptions};
use simulated::Simulated;

/// Options with small segments and short retries.
fn small() -> WalOptions {
    WalOptions {
        segment_bytes: 16 << 10,
        budget_bytes: 4 << 20,
        retry: Duration::from_millis(1),
        quiet: Duration::ZERO,
        compress: false,
        ..WalOptions::new("embedded")
    }
}

/// Opens a WAL whose segment ids are consecutive, starting from a number that no earlier opening used.
fn open(disk: &Simulated, options: WalOptions) -> Result<(Wal, Recovery), WalOpenError> {
    let ids = AtomicU64::new(disk.operations() << 20 | disk.openings() << 8);
    let next = move || ids.fetch_add(1, Ordering::Relaxed) + 1;
    Wal::open_with(Arc::new(disk.clone()), options, Box::new(next))
}

/// All records that are readable now.
fn read_all(log: &Wal, from: Sequence) -> Vec<Record> {
    let mut reader = log.reader(from);
    std::iter::from_fn(|| reader.next().unwrap()).collect()
}

/// Appends and waits for the outcome.
fn append(log: &Wal, payload: &[u8]) -> Result<Sequence, super::AppendError> {
    let (sender, outcomes) = std::sync::mpsc::channel();
    log.append(0, 1, payload.to_vec(), move |result| sender.send(result).unwrap())?;
    outcomes.recv().unwrap()
}

/// Waits until the condition holds; fails the test after 20 s.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_micros(200));
    }
}
