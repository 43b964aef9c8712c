//! What the log promises, on a disk that fails, lies and forgets.
//!
//! * `simulated`: the disk in memory, with what a power cut and a failing device do;
//! * `history`: appends, remembers what was acked, and checks what a log must still hold;
//! * the rest: one file per kind of trouble.

mod damage;
mod faults;
mod golden;
mod history;
mod inspect;
mod limits;
mod model;
mod plain;
mod real_disk;
mod simulated;
mod tail;
mod teeth;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Log, OpenError, Options, Record, Recovery, Sequence};
use simulated::Simulated;

/// Small segments and no waiting.
fn small() -> Options {
    Options {
        segment_bytes: 16 << 10,
        budget_bytes: 4 << 20,
        retry: Duration::from_millis(1),
        compress: false,
        ..Options::new("embedded")
    }
}

/// Opens a log whose segment ids are a count, from a number that no earlier opening used.
fn open(disk: &Simulated, options: Options) -> Result<(Log, Recovery), OpenError> {
    let ids = AtomicU64::new(disk.operations() << 20 | disk.openings() << 8);
    let next = move || ids.fetch_add(1, Ordering::Relaxed) + 1;
    Log::open_with(Arc::new(disk.clone()), options, Box::new(next))
}

/// All records that are there now.
fn read_all(log: &Log, from: Sequence) -> Vec<Record> {
    let mut reader = log.reader(from);
    std::iter::from_fn(|| reader.next().unwrap()).collect()
}

/// Appends and waits for the outcome.
fn append(log: &Log, payload: &[u8]) -> Result<Sequence, super::AppendError> {
    let (tell, told) = std::sync::mpsc::channel();
    log.append(1, payload.to_vec(), move |result| tell.send(result).unwrap())?;
    told.recv().unwrap()
}

/// Waits until it is so; a wait that is too long fails the test.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_micros(200));
    }
}
