//! What can be truncated, who is answered and when, when the shards fall behind, and that the ledger balances whatever
//! happens in whatever order.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::wal_positions::signed;
use super::*;
use crate::bucket::{Applied, StorageError};
use crate::wal::Sequence;

type Answer = Result<(), StorageError>;

impl WalPositions {
    /// Logs a request that may be dispatched.
    fn logged(self: &Arc<Self>, logged: LoggedRequest) -> Option<Tracked> {
        self.logged_if(logged, || true)
    }
}

fn logged(sequence: Sequence) -> LoggedRequest {
    LoggedRequest { sequence, readings: 1, memory: 10, received: i64::try_from(sequence).expect("small") * 100 }
}

/// Room for everything, and nothing logged yet.
fn roomy() -> Arc<WalPositions> {
    WalPositions::new(0, 0, usize::MAX)
}

/// The guards of the first `count` requests.
fn pending_acks(positions: &Arc<WalPositions>, count: Sequence) -> Vec<Option<Tracked>> {
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
fn only_what_comes_before_the_oldest_hold_is_released() {
    let positions = roomy();
    let mut pending_acks = pending_acks(&positions, 5);
    assert!(pending_acks.iter().all(Option::is_some), "they go to the shards at once");
    assert_eq!(positions.truncatable(), 0);
    for (done, truncatable) in [(2, 0), (4, 0), (1, 2), (3, 4), (5, 5)] {
        pending_acks[done - 1] = None;
        assert_eq!(positions.truncatable(), truncatable, "{done} is done");
    }
    let late = positions.logged(logged(9));
    assert_eq!(positions.truncatable(), 8, "sequences may be left out");
    drop(late);
    assert_eq!(positions.truncatable(), 9);
}

#[test]
fn a_hold_keeps_its_record_beyond_the_flush() {
    let positions = roomy();
    let mut pending_acks = pending_acks(&positions, 2);
    let pending_ack = pending_acks[0].take().expect("tracked");
    let pin = pending_ack.0.pin();
    let another = pending_ack.0.pin();
    drop(pending_ack);
    pending_acks.clear();
    assert_eq!((positions.lag().oldest, positions.lag().unflushed_bytes), (None, 0), "all is flushed");
    assert!(positions.flushed(2).now_or_never().is_some());
    drop(pin);
    assert_eq!(positions.truncatable(), 0);
    drop(another);
    assert_eq!(positions.truncatable(), 2);
}

/// Regression: readings that a shard dropped when it panicked, or stopped while the store was away, counted as stored.
#[tokio::test]
async fn what_is_let_go_by_a_shard_that_ends_unstored_is_kept_in_the_log() {
    let positions = roomy();
    let mut pending_acks = pending_acks(&positions, 4);
    let before = waiter(&positions, 3);
    pending_acks[0] = None;
    // Like a shard: the readings are parameters, and the seal is dropped before them.
    async fn run(positions: Arc<WalPositions>, _readings: Vec<Option<Tracked>>) {
        let _seal = SealAtEnd::new(&positions);
        tokio::task::yield_now().await;
        panic!("a shard fails on purpose");
    }
    assert!(tokio::spawn(run(positions.clone(), pending_acks)).await.is_err());
    assert_eq!(positions.lag().oldest, None, "all pending acks are gone");
    assert_eq!(positions.truncatable(), 1, "but only the first was stored");
    assert!(before.await.is_err(), "a waiter is not told that it is stored");
    assert!(waiter(&positions, 4).await.is_err(), "and neither is a later one");
    assert!(positions.flushed(4).now_or_never().is_none());
    drop(positions.logged(logged(5)));
    assert_eq!(positions.truncatable(), 1);
}

#[test]
fn a_shard_that_brought_everything_to_the_store_seals_nothing() {
    let positions = roomy();
    let seal = SealAtEnd::new(&positions);
    drop(pending_acks(&positions, 2));
    seal.disarm();
    assert_eq!(positions.truncatable(), 2);
}

#[test]
fn what_was_released_before_the_start_stays_released_and_the_rest_is_read_back() {
    let positions = WalPositions::new(5, 7, usize::MAX);
    assert!(!positions.is_live());
    assert_eq!(positions.truncatable(), 5);
    assert_eq!(positions.behind().now_or_never(), Some(6));
    let pending_ack = positions.read_back(logged(6), true);
    assert_eq!((positions.truncatable(), positions.behind().now_or_never()), (5, Some(7)));
    drop(pending_ack);
    assert_eq!(positions.truncatable(), 6);
    assert!(!positions.try_go_live(7), "7 is not dispatched");
    drop(positions.read_back(logged(7), true));
    assert!(positions.try_go_live(8));
    assert_eq!(positions.behind().now_or_never(), None);
    assert!(WalPositions::new(7, 7, 1).is_live(), "nothing is to be read back");
}

#[test]
fn what_the_reader_passes_over_needs_no_feeding() {
    let positions = WalPositions::new(0, 9, usize::MAX);
    drop(positions.read_back(logged(3), true));
    assert!(positions.try_go_live(10));
    assert_eq!(positions.truncatable(), 9);
    assert!(positions.flushed(9).now_or_never().is_some());
}

#[test]
fn the_oldest_unflushed_request_tells_how_far_behind_the_store_is() {
    let positions = roomy();
    let mut pending_acks = pending_acks(&positions, 3);
    assert_eq!((positions.lag().oldest, positions.lag().unflushed_bytes), (Some(100), 30));
    pending_acks[1] = None;
    assert_eq!((positions.lag().oldest, positions.lag().unflushed_bytes), (Some(100), 20));
    pending_acks[0] = None;
    assert_eq!((positions.lag().oldest, positions.lag().unflushed_bytes), (Some(300), 10));
}

#[test]
fn who_waits_for_the_store_is_told_once_with_the_last_reading() {
    let positions = roomy();
    let mut answer = waiter(&positions, 1);
    let pending_ack = positions.logged(logged(1)).expect("tracked");
    assert!(pending_ack.0.is_urgent());
    assert!(!positions.logged(logged(2)).expect("tracked").0.is_urgent(), "nobody waits for that one");
    let other_shards = pending_ack.clone();
    drop(pending_ack);
    assert_eq!(answer.try_recv(), Err(TryRecvError::Empty), "a reading is left");
    drop(other_shards);
    assert_eq!(answer.try_recv(), Ok(Ok(())));
}

#[test]
fn who_waits_for_what_the_store_refuses_is_told_why() {
    let positions = roomy();
    let (mut refused, mut kept) = (waiter(&positions, 1), waiter(&positions, 2));
    let mut pending_acks = pending_acks(&positions, 2);
    pending_acks[0].as_ref().expect("tracked").0.refuse(&refusal());
    assert_eq!(refused.try_recv(), Err(TryRecvError::Empty), "its other readings are on their way");
    pending_acks[1] = None;
    assert_eq!(kept.try_recv(), Ok(Ok(())));
    pending_acks.clear();
    assert_eq!(refused.try_recv(), Ok(Err(refusal())));
    assert_eq!(positions.truncatable(), 2, "what is refused is kept elsewhere");
}

#[test]
fn who_comes_late_to_wait_is_served_all_the_same() {
    let positions = roomy();
    let pending_ack = positions.logged(logged(1)).expect("tracked");
    assert!(!pending_ack.0.is_urgent() && positions.due() == 0);
    let mut answer = waiter(&positions, 1);
    assert_eq!(positions.due(), 1, "it is due at once");
    assert_eq!(answer.try_recv(), Err(TryRecvError::Empty));
    drop(pending_ack);
    assert_eq!(answer.try_recv(), Ok(Ok(())));
    assert_eq!(waiter(&positions, 1).try_recv(), Ok(Ok(())), "it is in the store by now");
}

#[test]
fn who_gave_up_waiting_is_forgotten() {
    let positions = roomy();
    let (mut gone, mut stays) = (waiter(&positions, 1), waiter(&positions, 2));
    let pending_acks = pending_acks(&positions, 2);
    positions.forget(1);
    assert_eq!(gone.try_recv(), Err(TryRecvError::Closed));
    drop(pending_acks);
    assert_eq!(stays.try_recv(), Ok(Ok(())));
}

#[test]
fn over_the_budget_the_log_alone_keeps_what_comes_until_all_of_it_is_fed() {
    let positions = WalPositions::new(0, 0, 100);
    let of = |sequence, memory| LoggedRequest { memory, ..logged(sequence) };
    let first = positions.logged(of(1, 1000)).expect("a request alone is dispatched");
    drop(first);
    let first = positions.logged(of(2, 60)).expect("tracked");
    let second = positions.logged(of(3, 40)).expect("just within the budget");
    assert!(positions.is_live() && positions.logged(of(4, 1)).is_none());
    assert!(!positions.is_live(), "the shards are behind");
    assert_eq!(positions.behind().now_or_never(), Some(4));
    assert!(positions.logged(of(5, 1)).is_none(), "nothing overtakes what is behind");
    assert_eq!(positions.room().now_or_never(), None);
    drop(second);
    assert!(positions.room().now_or_never().is_some());
    assert!(!positions.try_go_live(4), "4 and 5 are not dispatched");
    let third = positions.read_back(of(4, 1), false);
    assert!(!positions.try_go_live(5), "5 is not dispatched");
    let fourth = positions.read_back(of(5, 1), false);
    assert!(positions.try_go_live(6) && positions.is_live());
    assert!(positions.logged(of(6, 1)).is_some());
    drop((first, third, fourth));
    let Ledger { accepted, replayed, .. } = positions.lag().ledger;
    assert_eq!((accepted, replayed), (6, 0), "what was accepted is not counted again when it is read back");
}

#[test]
fn a_record_that_the_feeder_saw_before_its_callback_ran_is_fed_once() {
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
fn a_flush_waits_for_what_was_logged_before_it_and_for_nothing_else() {
    let positions = roomy();
    let mut pending_acks = pending_acks(&positions, 2);
    assert_eq!((positions.make_due(), positions.due()), (2, 2));
    pending_acks.push(positions.logged(logged(3)));
    assert_eq!(positions.due(), 2, "what comes later is not due");
    assert_eq!(positions.flushed(2).now_or_never(), None);
    pending_acks[1] = None;
    assert_eq!(positions.flushed(2).now_or_never(), None);
    pending_acks[0] = None;
    assert!(positions.flushed(2).now_or_never().is_some());
    assert_eq!(positions.flushed(3).now_or_never(), None);
    assert_eq!((positions.make_due(), positions.make_due(), positions.due()), (3, 3, 3));
}

#[test]
fn a_flush_waits_for_what_is_not_even_fed() {
    let positions = WalPositions::new(0, 2, usize::MAX);
    let through = positions.make_due();
    assert_eq!((through, positions.flushed(through).now_or_never()), (2, None));
    drop(positions.read_back(logged(1), true));
    assert_eq!(positions.flushed(through).now_or_never(), None);
    let last = positions.read_back(logged(2), true);
    assert_eq!(positions.flushed(through).now_or_never(), None);
    drop(last);
    assert!(positions.flushed(through).now_or_never().is_some(), "although it is not live yet");
}

#[tokio::test]
async fn who_waits_wakes_up_when_it_is_time() {
    let positions = WalPositions::new(0, 0, 100);
    let pending_ack = positions.logged(LoggedRequest { memory: 100, ..logged(1) }).expect("tracked");
    let (flushes, rooms) = (positions.clone(), positions.clone());
    let flushed = tokio::spawn(async move { flushes.flushed(1).await });
    let room = tokio::spawn(async move { rooms.room().await });
    let behinds = positions.clone();
    let behind = tokio::spawn(async move { behinds.behind().await });
    tokio::task::yield_now().await;
    assert!(!flushed.is_finished() && !room.is_finished() && !behind.is_finished());
    assert!(positions.logged(logged(2)).is_none());
    assert_eq!(behind.await.expect("no panic"), 2);
    drop(pending_ack);
    flushed.await.expect("no panic");
    room.await.expect("no panic");
}

#[test]
fn memory_and_the_log_press_each_by_itself() {
    let positions = WalPositions::new(0, 0, 100);
    let half = positions.logged(LoggedRequest { memory: 50, ..logged(1) });
    assert!(!positions.is_pressed());
    let more = positions.logged(LoggedRequest { memory: 1, ..logged(2) });
    assert!(positions.is_pressed() && !positions.is_wal_pressed());
    drop(more);
    assert!(!positions.is_pressed());
    positions.press_wal(true);
    assert!(positions.is_pressed() && positions.is_wal_pressed());
    drop(half);
    positions.press_wal(false);
    assert!(!positions.is_pressed());
}

/// A small generator (Marsaglia, xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A request under way, with how many of its readings are not accounted for.
struct OnItsWay {
    pending_ack: Arc<PendingAck>,
    left: u64,
}

#[test]
fn the_account_holds_whatever_happens_in_whatever_order() {
    for seed in 1..=50 {
        let mut random = Random(seed << 32 | 0x9E37_79B9);
        let replay = random.below(5);
        let positions = WalPositions::new(0, replay, 200);
        let (mut next, mut to_read): (Sequence, Vec<LoggedRequest>) = (replay, (1..=replay).map(logged).collect());
        let (mut under_way, mut waiting, mut expected): (Vec<OnItsWay>, _, _) =
            (Vec::new(), Vec::new(), Ledger::default());
        let check = |positions: &WalPositions, expected: &Ledger, what: &str| {
            let Ledger { accepted, replayed, stored, duplicate, overwritten, deleted, dead_lettered, pending } =
                positions.lag().ledger;
            let gone = stored + duplicate + overwritten + deleted + dead_lettered;
            assert_eq!(signed(accepted + replayed), signed(gone) + pending, "seed {seed}: {what}");
            assert_eq!(positions.lag().ledger, *expected, "seed {seed}: {what}");
        };
        for step in 0..400 {
            match random.below(if step < 300 { 8 } else { 4 }) {
                // A flush completes, in part, wherever it is.
                0..4 if !under_way.is_empty() => {
                    let place = usize::try_from(random.below(under_way.len() as u64)).expect("an index");
                    let completed = 1 + random.below(under_way[place].left);
                    account(&positions, &mut expected, &under_way[place].pending_ack, completed, &mut random);
                    under_way[place].left -= completed;
                    if under_way[place].left == 0 {
                        under_way.swap_remove(place);
                    }
                }
                // Dispatch reads on, and goes live when it has read everything.
                0..6 => {
                    if to_read.is_empty() {
                        positions.try_go_live(next + 1);
                    } else {
                        let read = to_read.remove(0);
                        let replayed = read.sequence <= replay;
                        expected.replayed += if replayed { read.readings } else { 0 };
                        expected.pending += if replayed { signed(read.readings) } else { 0 };
                        under_way
                            .push(OnItsWay { pending_ack: positions.read_back(read, replayed).0, left: read.readings });
                    }
                }
                // A request is logged, and half of them are waited for.
                _ => {
                    next += 1;
                    let readings = 1 + random.below(9);
                    if random.below(2) == 0 {
                        waiting.push(waiter(&positions, next));
                    }
                    let request = LoggedRequest { readings, ..logged(next) };
                    match positions.logged(request) {
                        Some((pending_ack, _)) => under_way.push(OnItsWay { pending_ack, left: readings }),
                        None => to_read.push(request),
                    }
                    expected.accepted += readings;
                    expected.pending += signed(readings);
                }
            }
            check(&positions, &expected, "a step");
        }
        while !to_read.is_empty() {
            let read = to_read.remove(0);
            drop(positions.read_back(read, false));
        }
        let left: u64 = under_way.iter().map(|one| one.left).sum();
        assert!(expected.pending >= signed(left), "seed {seed}");
        drop(under_way);
        assert!(waiting.iter_mut().all(|answer| answer.try_recv().is_ok()), "seed {seed}: every waiter was answered");
        assert_eq!(positions.truncatable(), next, "seed {seed}: nothing is pinned");
        assert_eq!(positions.lag().unflushed_bytes, 0, "seed {seed}");
    }
}

/// Stores some of a request's readings in one of the possible ways, or refuses them.
fn account(positions: &WalPositions, expected: &mut Ledger, pending_ack: &PendingAck, count: u64, random: &mut Random) {
    expected.pending -= signed(count);
    if random.below(8) == 0 {
        pending_ack.refuse(&refusal());
        positions.dead_lettered(count);
        expected.dead_lettered += count;
        return;
    }
    let new = random.below(count + 1);
    let duplicate = random.below(count - new + 1);
    let overwritten = count - new - duplicate;
    positions.stored(Applied { new, duplicate, overwritten, late: new / 2, set_aside: 0 });
    expected.stored += new;
    expected.duplicate += duplicate;
    expected.overwritten += overwritten;
}
