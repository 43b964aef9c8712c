//! WAL records from the call of `append` to the callback: compression, checksum, queue, writer thread. The disk is in
//! memory, so the cost of a sync is excluded.

use std::sync::mpsc;

use divan::Bencher;
use divan::counter::ItemsCount;
use hourglass::wal::{Wal, WalOptions};
use hourglass_benches::{Fleet, MemoryDisk, path};

/// An arbitrary kind of record.
const KIND: u8 = 1;

/// Writes and awaits each record alone. The argument is the number of readings per record.
#[divan::bench(args = [1, 100, 5_000])]
fn append_one(bencher: Bencher<'_, '_>, readings: usize) {
    let record = path::record(&Fleet::new(1000).body(readings));
    let log = log();
    bencher.counter(ItemsCount::new(readings)).with_inputs(|| record.clone()).bench_local_values(|record| {
        let (done, durable) = mpsc::channel();
        log.append(0, KIND, record, move |sequence| drop(done.send(sequence))).expect("room in the queue");
        durable.recv()
    });
}

/// Lets all records wait for the callback of another one, so that they share one write and one sync. The argument is
/// the number of readings per record.
#[divan::bench(args = [1, 100])]
fn append_64_together(bencher: Bencher<'_, '_>, readings: usize) {
    let record = path::record(&Fleet::new(1000).body(readings));
    let log = log();
    let inputs = || {
        let (held, holding) = mpsc::channel();
        let (let_go, wait) = mpsc::channel::<()>();
        let hold = move |_| {
            let _ = held.send(());
            // Blocks until the other end is dropped.
            let _ = wait.recv();
        };
        log.append(0, KIND, vec![0], hold).expect("room in the queue");
        holding.recv().expect("the callback runs");
        (let_go, vec![record.clone(); 64])
    };
    bencher.counter(ItemsCount::new(64 * readings)).with_inputs(inputs).bench_local_values(|(let_go, records)| {
        let (done, durable) = mpsc::channel();
        for record in records {
            let done = done.clone();
            log.append(0, KIND, record, move |sequence| drop(done.send(sequence))).expect("room in the queue");
        }
        drop((done, let_go));
        durable.iter().count()
    });
}

fn log() -> Wal {
    let options = WalOptions { budget_bytes: 100 << 30, ..WalOptions::new("bench") };
    Wal::open(MemoryDisk::default(), options).expect("a log in memory").0
}
