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
    let wal = open_wal();
    bencher.counter(ItemsCount::new(readings)).with_inputs(|| record.clone()).bench_local_values(|record| {
        let (done, durable) = mpsc::channel();
        wal.append(0, KIND, record, move |sequence| drop(done.send(sequence))).expect("room in the queue");
        durable.recv()
    });
}

/// Lets all records wait for the callback of another one, so that they share one write and one sync. The argument is
/// the number of readings per record.
#[divan::bench(args = [1, 100])]
fn append_64_together(bencher: Bencher<'_, '_>, readings: usize) {
    let record = path::record(&Fleet::new(1000).body(readings));
    let wal = open_wal();
    let inputs = || {
        let (entered, has_entered) = mpsc::channel();
        let (release, wait) = mpsc::channel::<()>();
        let hold = move |_| {
            let _ = entered.send(());
            // Blocks until the other end is dropped.
            let _ = wait.recv();
        };
        wal.append(0, KIND, vec![0], hold).expect("room in the queue");
        has_entered.recv().expect("the callback runs");
        (release, vec![record.clone(); 64])
    };
    bencher.counter(ItemsCount::new(64 * readings)).with_inputs(inputs).bench_local_values(|(release, records)| {
        let (done, durable) = mpsc::channel();
        for record in records {
            let done = done.clone();
            wal.append(0, KIND, record, move |sequence| drop(done.send(sequence))).expect("room in the queue");
        }
        drop((done, release));
        durable.iter().count()
    });
}

fn open_wal() -> Wal {
    let options = WalOptions { budget_bytes: 100 << 30, ..WalOptions::new("bench") };
    Wal::open(MemoryDisk::default(), options).expect("a WAL in memory").0
}
