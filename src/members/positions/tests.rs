//! Tests of truncation, waiting writes, lagging shards, and the balance of the ledger under random orders of events.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::wal_positions::signed;
use super::*;
use crate::bucket::{MergeCounts, StorageError};
use crate::wal::Sequence;

type Answer = Result<(), StorageError>;

impl WalPositions {
    /// Logs a request that can be dispatched.
    fn logged(self: &Arc<Self>, logged: LoggedRequest) -> Option<RequestGuards> {
        self.note_logged(logged, || true)
    }
}

fn logged(sequence: Sequence) -> LoggedRequest {
    LoggedRequest { sequence, readings: 1, memory: 10, received: i64::try_from(sequence).expect("small") * 100 }
}

/// Positions of an empty WAL, with an unlimited budget.
fn roomy() -> Arc<WalPositions> {
    WalPositions::new(0, 0, usize::MAX)
}

/// Logs `count` requests and returns their guards.
fn pending_acks(positions: &Arc<WalPositions>, count: Sequence) -> Vec<Option<RequestGuards>> {
    (1..=count).map(|sequence| positions.logged(logged(sequence))).collect()
}

fn refusal() -> StorageError {
    StorageError::Refused("never".to_owned())
}

fn waiter(positions: &WalPositions, sequence: Sequence) -> oneshot::Receiver<Answer> {
    let (waiter, answer) = oneshot::channel();
    positions.wait_for(sequence, waiter);
    answer
}

#[test]
fn records_before_the_oldest_pin_can_be_truncated() {
    let positions = roomy();
    let mut pending_acks = pending_acks(&positions, 5);
    assert!(pending_acks.iter().all(Option::is_some), "they are dispatched at once");
    assert_eq!(positions.truncatable(), 0);
    for (done, truncatable) in [(2, 0), (4, 0), (1, 2), (3, 4), (5, 5)] {
        pending_acks[done - 1] = None;
        assert_eq!(positions.truncatable(), truncatable, "{done} is done");
    }
    let late = positions.logged(logged(9));
    assert_eq!(positions.truncatable(), 8, "sequences may have gaps");
    drop(late);
    assert_eq!(positions.truncatable(), 9);
}

#[test]
fn a_pin_keeps_its_record_beyond_the_flush() {
    let positions = roomy();
    let mut pending_acks = pending_acks(&positions, 2);
    let pending_ack = pending_acks[0].take().expect("tracked");
    let pin = pending_ack.pending_ack.pin();
    let another = pending_ack.pending_ack.pin();
    drop(pending_ack);
    pending_acks.clear();
    assert_eq!((positions.lag().oldest, positions.lag().unflushed_bytes), (None, 0), "everything is flushed");
    assert!(positions.wait_until_flushed(2).now_or_never().is_some());
    drop(pin);
    assert_eq!(positions.truncatable(), 0);
    drop(another);
    assert_eq!(positions.truncatable(), 2);
}

/// Regression: readings that a shard dropped because it panicked, or stopped while the store was away, counted as
/// stored.
#[tokio::test]
async fn the_wal_keeps_unstored_readings_of_an_ended_shard() {
    let positions = roomy();
    let mut pending_acks = pending_acks(&positions, 4);
    let before = waiter(&positions, 3);
    pending_acks[0] = None;
    // As in a shard, the readings are parameters, and the seal is dropped before them.
    async fn run(positions: Arc<WalPositions>, _readings: Vec<Option<RequestGuards>>) {
        let _seal = SealAtEnd::new(&positions);
        tokio::task::yield_now().await;
        panic!("a shard fails on purpose");
    }
    assert!(tokio::spawn(run(positions.clone(), pending_acks)).await.is_err());
    assert_eq!(positions.lag().oldest, None, "all pending acks are gone");
    assert_eq!(positions.truncatable(), 1, "but only the first was stored");
    assert!(before.await.is_err(), "a waiting write is not acked");
    assert!(waiter(&positions, 4).await.is_err(), "nor is a later one");
    assert!(positions.wait_until_flushed(4).now_or_never().is_none());
    drop(positions.logged(logged(5)));
    assert_eq!(positions.truncatable(), 1);
}

#[test]
fn a_shard_that_stored_everything_seals_nothing() {
    let positions = roomy();
    let seal = SealAtEnd::new(&positions);
    drop(pending_acks(&positions, 2));
    seal.disarm();
    assert_eq!(positions.truncatable(), 2);
}

#[test]
fn records_after_the_truncated_ones_are_read_back_at_the_start() {
    let positions = WalPositions::new(5, 7, usize::MAX);
    assert!(!positions.is_live());
    assert_eq!(positions.truncatable(), 5);
    assert_eq!(positions.wait_until_behind().now_or_never(), Some(6));
    let pending_ack = positions.read_back(logged(6), true);
    assert_eq!((positions.truncatable(), positions.wait_until_behind().now_or_never()), (5, Some(7)));
    drop(pending_ack);
    assert_eq!(positions.truncatable(), 6);
    assert!(!positions.try_go_live(7), "7 is not dispatched");
    drop(positions.read_back(logged(7), true));
    assert!(positions.try_go_live(8));
    assert_eq!(positions.wait_until_behind().now_or_never(), None);
    assert!(WalPositions::new(7, 7, 1).is_live(), "nothing must be read back");
}

#[test]
fn records_that_the_reader_skips_need_no_dispatch() {
    let positions = WalPositions::new(0, 9, usize::MAX);
    drop(positions.read_back(logged(3), true));
    assert!(positions.try_go_live(10));
    assert_eq!(positions.truncatable(), 9);
    assert!(positions.wait_until_flushed(9).now_or_never().is_some());
}

#[test]
fn the_lag_is_that_of_the_oldest_unflushed_request() {
    let positions = roomy();
    let mut pending_acks = pending_acks(&positions, 3);
    assert_eq!((positions.lag().oldest, positions.lag().unflushed_bytes), (Some(100), 30));
    pending_acks[1] = None;
    assert_eq!((positions.lag().oldest, positions.lag().unflushed_bytes), (Some(100), 20));
    pending_acks[0] = None;
    assert_eq!((positions.lag().oldest, positions.lag().unflushed_bytes), (Some(300), 10));
}

#[test]
fn a_waiting_write_is_answered_with_its_last_reading() {
    let positions = roomy();
    let mut answer = waiter(&positions, 1);
    let guards = positions.logged(logged(1)).expect("tracked");
    assert!(guards.pending_ack.is_urgent());
    assert!(!positions.logged(logged(2)).expect("tracked").pending_ack.is_urgent(), "nobody waits for that one");
    let other_shards = guards.clone();
    drop(guards);
    assert_eq!(answer.try_recv(), Err(TryRecvError::Empty), "a reading is left");
    drop(other_shards);
    assert_eq!(answer.try_recv(), Ok(Ok(())));
}

#[test]
fn a_waiting_write_gets_the_error_of_the_store() {
    let positions = roomy();
    let mut refused = waiter(&positions, 1);
    let mut kept = waiter(&positions, 2);
    let mut pending_acks = pending_acks(&positions, 2);
    pending_acks[0].as_ref().expect("tracked").pending_ack.refuse(&refusal());
    assert_eq!(refused.try_recv(), Err(TryRecvError::Empty), "its other readings are on their way");
    pending_acks[1] = None;
    assert_eq!(kept.try_recv(), Ok(Ok(())));
    pending_acks.clear();
    assert_eq!(refused.try_recv(), Ok(Err(refusal())));
    assert_eq!(positions.truncatable(), 2, "refused readings are dead letters");
}

#[test]
fn a_write_can_start_to_wait_after_its_dispatch() {
    let positions = roomy();
    let guards = positions.logged(logged(1)).expect("tracked");
    assert!(!guards.pending_ack.is_urgent() && positions.due() == 0);
    let mut answer = waiter(&positions, 1);
    assert_eq!(positions.due(), 1, "it is due at once");
    assert_eq!(answer.try_recv(), Err(TryRecvError::Empty));
    drop(guards);
    assert_eq!(answer.try_recv(), Ok(Ok(())));
    assert_eq!(waiter(&positions, 1).try_recv(), Ok(Ok(())), "it is in the store by now");
}

#[test]
fn a_write_can_stop_waiting() {
    let positions = roomy();
    let mut forgotten = waiter(&positions, 1);
    let mut other = waiter(&positions, 2);
    let pending_acks = pending_acks(&positions, 2);
    positions.forget(1);
    assert_eq!(forgotten.try_recv(), Err(TryRecvError::Closed));
    drop(pending_acks);
    assert_eq!(other.try_recv(), Ok(Ok(())));
}

#[tokio::test]
async fn over_the_budget_requests_stay_in_the_wal_until_all_are_dispatched() {
    let positions = WalPositions::new(0, 0, 100);
    let request = |sequence, memory| LoggedRequest { memory, ..logged(sequence) };
    let first = positions.logged(request(1, 1000)).expect("a request alone is dispatched");
    drop(first);
    let first = positions.logged(request(2, 60)).expect("tracked");
    let second = positions.logged(request(3, 40)).expect("just within the budget");
    assert!(positions.is_live() && positions.logged(request(4, 1)).is_none());
    assert!(!positions.is_live(), "the shards are behind");
    assert_eq!(positions.wait_until_behind().now_or_never(), Some(4));
    assert!(positions.logged(request(5, 1)).is_none(), "nothing overtakes what is behind");
    assert_eq!(positions.wait_for_room().now_or_never(), None);
    drop(second);
    assert!(positions.wait_for_room().now_or_never().is_some());
    assert!(!positions.try_go_live(4), "4 and 5 are not dispatched");
    let third = positions.read_back(request(4, 1), false);
    assert!(!positions.try_go_live(5), "5 is not dispatched");
    let fourth = positions.read_back(request(5, 1), false);
    assert!(positions.try_go_live(6) && positions.is_live());
    assert!(positions.logged(request(6, 1)).is_some());
    drop((first, third, fourth));
    let Ledger { accepted, replayed, .. } = positions.lag().ledger;
    assert_eq!((accepted, replayed), (6, 0), "accepted readings are not counted again when they are read back");
}

#[test]
fn a_record_that_is_read_back_before_its_callback_is_dispatched_once() {
    let positions = WalPositions::new(0, 1, usize::MAX);
    drop(positions.read_back(logged(1), true));
    let ahead = positions.read_back(logged(2), false);
    assert!(positions.try_go_live(3));
    assert!(positions.logged(logged(2)).is_none());
    assert!(positions.is_live());
    drop(ahead);
    let ledger = positions.lag().ledger;
    assert_eq!((ledger.accepted, ledger.replayed, ledger.pending), (1, 1, 2));
}

#[test]
fn a_flush_waits_for_earlier_records_only() {
    let positions = roomy();
    let mut pending_acks = pending_acks(&positions, 2);
    assert_eq!((positions.make_due(), positions.due()), (2, 2));
    pending_acks.push(positions.logged(logged(3)));
    assert_eq!(positions.due(), 2, "later records are not due");
    assert_eq!(positions.wait_until_flushed(2).now_or_never(), None);
    pending_acks[1] = None;
    assert_eq!(positions.wait_until_flushed(2).now_or_never(), None);
    pending_acks[0] = None;
    assert!(positions.wait_until_flushed(2).now_or_never().is_some());
    assert_eq!(positions.wait_until_flushed(3).now_or_never(), None);
    assert_eq!((positions.make_due(), positions.make_due(), positions.due()), (3, 3, 3));
}

#[test]
fn a_flush_waits_for_records_that_are_not_dispatched() {
    let positions = WalPositions::new(0, 2, usize::MAX);
    let through = positions.make_due();
    assert_eq!((through, positions.wait_until_flushed(through).now_or_never()), (2, None));
    drop(positions.read_back(logged(1), true));
    assert_eq!(positions.wait_until_flushed(through).now_or_never(), None);
    let last = positions.read_back(logged(2), true);
    assert_eq!(positions.wait_until_flushed(through).now_or_never(), None);
    drop(last);
    assert!(positions.wait_until_flushed(through).now_or_never().is_some(), "although it is not live yet");
}

#[tokio::test]
async fn waiting_tasks_wake_up() {
    let positions = WalPositions::new(0, 0, 100);
    let pending_ack = positions.logged(LoggedRequest { memory: 100, ..logged(1) }).expect("tracked");
    let shared = positions.clone();
    let flushed = tokio::spawn(async move { shared.wait_until_flushed(1).await });
    let shared = positions.clone();
    let room = tokio::spawn(async move { shared.wait_for_room().await });
    let shared = positions.clone();
    let behind = tokio::spawn(async move { shared.wait_until_behind().await });
    tokio::task::yield_now().await;
    assert!(!flushed.is_finished() && !room.is_finished() && !behind.is_finished());
    assert!(positions.logged(logged(2)).is_none());
    assert_eq!(behind.await.expect("no panic"), 2);
    drop(pending_ack);
    flushed.await.expect("no panic");
    room.await.expect("no panic");
}

#[test]
fn memory_and_wal_cause_pressure_independently() {
    let positions = WalPositions::new(0, 0, 100);
    let half = positions.logged(LoggedRequest { memory: 50, ..logged(1) });
    assert!(!positions.is_pressed());
    let more = positions.logged(LoggedRequest { memory: 1, ..logged(2) });
    assert!(positions.is_pressed() && !positions.is_wal_pressed());
    drop(more);
    assert!(!positions.is_pressed());
    positions.note_wal_pressure(true);
    assert!(positions.is_pressed() && positions.is_wal_pressed());
    drop(half);
    positions.note_wal_pressure(false);
    assert!(!positions.is_pressed());
}

/// A small random number generator (Marsaglia, xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A dispatched request that is not completely stored.
struct OpenRequest {
    pending_ack: Arc<PendingAck>,
    /// The number of readings that are not in the ledger yet.
    readings: u64,
}

#[test]
fn the_ledger_balances_in_any_order_of_events() {
    for seed in 1..=50 {
        let mut random = Random(seed << 32 | 0x9E37_79B9);
        let replay = random.below(5);
        let positions = WalPositions::new(0, replay, 200);
        let mut next: Sequence = replay;
        let mut to_read: Vec<LoggedRequest> = (1..=replay).map(logged).collect();
        let mut under_way: Vec<OpenRequest> = Vec::new();
        let mut waiting = Vec::new();
        let mut expected = Ledger::default();
        let check = |positions: &WalPositions, expected: &Ledger, step: i32| {
            let Ledger { accepted, replayed, stored, duplicate, overwritten, deleted, dead_lettered, pending } =
                positions.lag().ledger;
            let done = stored + duplicate + overwritten + deleted + dead_lettered;
            assert_eq!(signed(accepted + replayed), signed(done) + pending, "seed {seed}, step {step}");
            assert_eq!(positions.lag().ledger, *expected, "seed {seed}, step {step}");
        };
        for step in 0..400 {
            match random.below(if step < 300 { 8 } else { 4 }) {
                // A flush stores some readings of any request.
                0..4 if !under_way.is_empty() => {
                    let place = usize::try_from(random.below(under_way.len() as u64)).expect("an index");
                    let completed = 1 + random.below(under_way[place].readings);
                    account(&positions, &mut expected, &under_way[place].pending_ack, completed, &mut random);
                    under_way[place].readings -= completed;
                    if under_way[place].readings == 0 {
                        under_way.swap_remove(place);
                    }
                }
                // Dispatch reads a record, or goes live after the last one.
                0..6 => {
                    if to_read.is_empty() {
                        positions.try_go_live(next + 1);
                    } else {
                        let read = to_read.remove(0);
                        let is_replayed = read.sequence <= replay;
                        if is_replayed {
                            expected.replayed += read.readings;
                            expected.pending += signed(read.readings);
                        }
                        let pending_ack = positions.read_back(read, is_replayed).pending_ack;
                        under_way.push(OpenRequest { pending_ack, readings: read.readings });
                    }
                }
                // A request is logged. Every other one waits for the store.
                _ => {
                    next += 1;
                    let readings = 1 + random.below(9);
                    if random.below(2) == 0 {
                        waiting.push(waiter(&positions, next));
                    }
                    let request = LoggedRequest { readings, ..logged(next) };
                    match positions.logged(request) {
                        Some(guards) => under_way.push(OpenRequest { pending_ack: guards.pending_ack, readings }),
                        None => to_read.push(request),
                    }
                    expected.accepted += readings;
                    expected.pending += signed(readings);
                }
            }
            check(&positions, &expected, step);
        }
        while !to_read.is_empty() {
            let read = to_read.remove(0);
            drop(positions.read_back(read, false));
        }
        let left: u64 = under_way.iter().map(|request| request.readings).sum();
        assert!(expected.pending >= signed(left), "seed {seed}");
        drop(under_way);
        assert!(waiting.iter_mut().all(|answer| answer.try_recv().is_ok()), "seed {seed}: every waiter was answered");
        assert_eq!(positions.truncatable(), next, "seed {seed}: nothing is pinned");
        assert_eq!(positions.lag().unflushed_bytes, 0, "seed {seed}");
    }
}

/// Stores some readings of a request in a random way, or refuses them.
fn account(positions: &WalPositions, expected: &mut Ledger, pending_ack: &PendingAck, count: u64, random: &mut Random) {
    expected.pending -= signed(count);
    if random.below(8) == 0 {
        pending_ack.refuse(&refusal());
        positions.count_dead_lettered(count);
        expected.dead_lettered += count;
        return;
    }
    let new = random.below(count + 1);
    let duplicate = random.below(count - new + 1);
    let overwritten = count - new - duplicate;
    positions.count_stored(MergeCounts { new, duplicate, overwritten, late: new / 2, set_aside: 0 });
    expected.stored += new;
    expected.duplicate += duplicate;
    expected.overwritten += overwritten;
}
