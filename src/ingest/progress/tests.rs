//! What may be released, who is answered and when, when the shards fall behind, and that the
//! account of readings holds whatever happens in whatever order.

use futures_util::FutureExt;
use tokio::sync::oneshot::error::TryRecvError;

use super::*;

type Answer = Result<(), StorageError>;

impl Progress {
    /// A request for which nothing else must be so.
    fn logged(self: &Arc<Self>, logged: Logged) -> Option<Tracked> {
        self.logged_if(logged, || true)
    }
}

fn logged(sequence: Sequence) -> Logged {
    Logged { sequence, readings: 1, memory: 10, received: i64::try_from(sequence).expect("small") * 100 }
}

/// With room for everything and nothing logged yet.
fn roomy() -> Arc<Progress> {
    Progress::new(0, 0, usize::MAX)
}

/// The tickets of the first so many requests.
fn tickets(progress: &Arc<Progress>, count: Sequence) -> Vec<Option<Tracked>> {
    (1..=count).map(|sequence| progress.logged(logged(sequence))).collect()
}

fn refusal() -> StorageError {
    StorageError::Refused { detail: "never".to_owned() }
}

fn waiter(progress: &Progress, sequence: Sequence) -> oneshot::Receiver<Answer> {
    let (waiter, answer) = oneshot::channel();
    progress.wait_for(sequence, waiter);
    answer
}

#[test]
fn only_what_comes_before_the_oldest_hold_is_released() {
    let progress = roomy();
    let mut tickets = tickets(&progress, 5);
    assert!(tickets.iter().all(Option::is_some), "they go to the shards at once");
    assert_eq!(progress.releasable(), 0);
    for (done, releasable) in [(2, 0), (4, 0), (1, 2), (3, 4), (5, 5)] {
        tickets[done - 1] = None;
        assert_eq!(progress.releasable(), releasable, "{done} is done");
    }
    let late = progress.logged(logged(9));
    assert_eq!(progress.releasable(), 8, "sequences may be left out");
    drop(late);
    assert_eq!(progress.releasable(), 9);
}

#[test]
fn a_hold_keeps_its_record_beyond_the_flush() {
    let progress = roomy();
    let mut tickets = tickets(&progress, 2);
    let ticket = tickets[0].take().expect("a ticket");
    let hold = ticket.0.hold();
    let another = ticket.0.hold();
    drop(ticket);
    tickets.clear();
    assert_eq!((progress.lag().oldest, progress.lag().unflushed_bytes), (None, 0), "all is flushed");
    assert!(progress.flushed(2).now_or_never().is_some());
    drop(hold);
    assert_eq!(progress.releasable(), 0);
    drop(another);
    assert_eq!(progress.releasable(), 2);
}

/// What a shard let go when it ended by a panic, or stopped with the store away, once counted as stored.
#[tokio::test]
async fn what_is_let_go_by_a_shard_that_ends_unstored_is_kept_in_the_log() {
    let progress = roomy();
    let mut tickets = tickets(&progress, 4);
    let before = waiter(&progress, 3);
    tickets[0] = None;
    // As a shard runs: the readings are parameters, and the seal is dropped before them.
    async fn run(progress: Arc<Progress>, _readings: Vec<Option<Tracked>>) {
        let _seal = SealAtEnd::new(&progress);
        tokio::task::yield_now().await;
        panic!("a shard's own trouble, on purpose");
    }
    assert!(tokio::spawn(run(progress.clone(), tickets)).await.is_err());
    assert_eq!(progress.lag().oldest, None, "all tickets are gone");
    assert_eq!(progress.releasable(), 1, "but only the first was stored");
    assert!(before.await.is_err(), "who waited is not told that it is stored");
    assert!(waiter(&progress, 4).await.is_err(), "and who comes later is not either");
    assert!(progress.flushed(4).now_or_never().is_none());
    drop(progress.logged(logged(5)));
    assert_eq!(progress.releasable(), 1);
}

#[test]
fn a_shard_that_brought_everything_to_the_store_seals_nothing() {
    let progress = roomy();
    let seal = SealAtEnd::new(&progress);
    drop(tickets(&progress, 2));
    seal.disarm();
    assert_eq!(progress.releasable(), 2);
}

#[test]
fn what_was_released_before_the_start_stays_released_and_the_rest_is_read_back() {
    let progress = Progress::new(5, 7, usize::MAX);
    assert!(!progress.is_live());
    assert_eq!(progress.releasable(), 5);
    assert_eq!(progress.behind().now_or_never(), Some(6));
    let ticket = progress.read_back(logged(6), true);
    assert_eq!((progress.releasable(), progress.behind().now_or_never()), (5, Some(7)));
    drop(ticket);
    assert_eq!(progress.releasable(), 6);
    assert!(!progress.try_go_live(7), "7 is not fed");
    drop(progress.read_back(logged(7), true));
    assert!(progress.try_go_live(8));
    assert_eq!(progress.behind().now_or_never(), None);
    assert!(Progress::new(7, 7, 1).is_live(), "nothing is to be read back");
}

#[test]
fn what_the_reader_passes_over_needs_no_feeding() {
    let progress = Progress::new(0, 9, usize::MAX);
    drop(progress.read_back(logged(3), true));
    assert!(progress.try_go_live(10));
    assert_eq!(progress.releasable(), 9);
    assert!(progress.flushed(9).now_or_never().is_some());
}

#[test]
fn the_oldest_unflushed_request_tells_how_far_behind_the_store_is() {
    let progress = roomy();
    let mut tickets = tickets(&progress, 3);
    assert_eq!((progress.lag().oldest, progress.lag().unflushed_bytes), (Some(100), 30));
    tickets[1] = None;
    assert_eq!((progress.lag().oldest, progress.lag().unflushed_bytes), (Some(100), 20));
    tickets[0] = None;
    assert_eq!((progress.lag().oldest, progress.lag().unflushed_bytes), (Some(300), 10));
}

#[test]
fn who_waits_for_the_store_is_told_once_with_the_last_reading() {
    let progress = roomy();
    let mut answer = waiter(&progress, 1);
    let ticket = progress.logged(logged(1)).expect("a ticket");
    assert!(ticket.0.is_urgent());
    assert!(!progress.logged(logged(2)).expect("a ticket").0.is_urgent(), "nobody waits for that one");
    let other_shards = ticket.clone();
    drop(ticket);
    assert_eq!(answer.try_recv(), Err(TryRecvError::Empty), "a reading is left");
    drop(other_shards);
    assert_eq!(answer.try_recv(), Ok(Ok(())));
}

#[test]
fn who_waits_for_what_the_store_refuses_is_told_why() {
    let progress = roomy();
    let (mut refused, mut kept) = (waiter(&progress, 1), waiter(&progress, 2));
    let mut tickets = tickets(&progress, 2);
    tickets[0].as_ref().expect("a ticket").0.refuse(&refusal());
    assert_eq!(refused.try_recv(), Err(TryRecvError::Empty), "its other readings are on their way");
    tickets[1] = None;
    assert_eq!(kept.try_recv(), Ok(Ok(())));
    tickets.clear();
    assert_eq!(refused.try_recv(), Ok(Err(refusal())));
    assert_eq!(progress.releasable(), 2, "what is refused is kept elsewhere");
}

#[test]
fn who_comes_late_to_wait_is_served_all_the_same() {
    let progress = roomy();
    let ticket = progress.logged(logged(1)).expect("a ticket");
    assert!(!ticket.0.is_urgent() && progress.due() == 0);
    let mut answer = waiter(&progress, 1);
    assert_eq!(progress.due(), 1, "it is due at once");
    assert_eq!(answer.try_recv(), Err(TryRecvError::Empty));
    drop(ticket);
    assert_eq!(answer.try_recv(), Ok(Ok(())));
    assert_eq!(waiter(&progress, 1).try_recv(), Ok(Ok(())), "it is in the store by now");
}

#[test]
fn who_gave_up_waiting_is_forgotten() {
    let progress = roomy();
    let (mut gone, mut stays) = (waiter(&progress, 1), waiter(&progress, 2));
    let tickets = tickets(&progress, 2);
    progress.forget(1);
    assert_eq!(gone.try_recv(), Err(TryRecvError::Closed));
    drop(tickets);
    assert_eq!(stays.try_recv(), Ok(Ok(())));
}

#[test]
fn over_the_budget_the_log_alone_keeps_what_comes_until_all_of_it_is_fed() {
    let progress = Progress::new(0, 0, 100);
    let of = |sequence, memory| Logged { memory, ..logged(sequence) };
    let first = progress.logged(of(1, 1000)).expect("a request alone is fed, whatever it takes");
    drop(first);
    let first = progress.logged(of(2, 60)).expect("a ticket");
    let second = progress.logged(of(3, 40)).expect("just within the budget");
    assert!(progress.is_live() && progress.logged(of(4, 1)).is_none());
    assert!(!progress.is_live(), "the shards are behind");
    assert_eq!(progress.behind().now_or_never(), Some(4));
    assert!(progress.logged(of(5, 1)).is_none(), "nothing overtakes what is behind");
    assert_eq!(progress.room().now_or_never(), None);
    drop(second);
    assert!(progress.room().now_or_never().is_some());
    assert!(!progress.try_go_live(4), "4 and 5 are not fed");
    let third = progress.read_back(of(4, 1), false);
    assert!(!progress.try_go_live(5), "5 is not fed");
    let fourth = progress.read_back(of(5, 1), false);
    assert!(progress.try_go_live(6) && progress.is_live());
    assert!(progress.logged(of(6, 1)).is_some());
    drop((first, third, fourth));
    let Ledger { accepted, replayed, .. } = progress.lag().ledger;
    assert_eq!((accepted, replayed), (6, 0), "what was accepted is not counted again when it is read back");
}

#[test]
fn a_record_that_the_feeder_saw_before_its_callback_ran_is_fed_once() {
    let progress = Progress::new(0, 1, usize::MAX);
    drop(progress.read_back(logged(1), true));
    let ahead = progress.read_back(logged(2), false);
    assert!(progress.try_go_live(3));
    assert!(progress.logged(logged(2)).is_none());
    assert!(progress.is_live());
    drop(ahead);
    let ledger = progress.lag().ledger;
    assert_eq!((ledger.accepted, ledger.replayed, ledger.pending), (1, 1, 2));
}

#[test]
fn a_flush_waits_for_what_was_logged_before_it_and_for_nothing_else() {
    let progress = roomy();
    let mut tickets = tickets(&progress, 2);
    assert_eq!((progress.make_due(), progress.due()), (2, 2));
    tickets.push(progress.logged(logged(3)));
    assert_eq!(progress.due(), 2, "what comes later is not due");
    assert_eq!(progress.flushed(2).now_or_never(), None);
    tickets[1] = None;
    assert_eq!(progress.flushed(2).now_or_never(), None);
    tickets[0] = None;
    assert!(progress.flushed(2).now_or_never().is_some());
    assert_eq!(progress.flushed(3).now_or_never(), None);
    assert_eq!((progress.make_due(), progress.make_due(), progress.due()), (3, 3, 3));
}

#[test]
fn a_flush_waits_for_what_is_not_even_fed() {
    let progress = Progress::new(0, 2, usize::MAX);
    let through = progress.make_due();
    assert_eq!((through, progress.flushed(through).now_or_never()), (2, None));
    drop(progress.read_back(logged(1), true));
    assert_eq!(progress.flushed(through).now_or_never(), None);
    let last = progress.read_back(logged(2), true);
    assert_eq!(progress.flushed(through).now_or_never(), None);
    drop(last);
    assert!(progress.flushed(through).now_or_never().is_some(), "although it is not live yet");
}

#[tokio::test]
async fn who_waits_wakes_up_when_it_is_time() {
    let progress = Progress::new(0, 0, 100);
    let ticket = progress.logged(Logged { memory: 100, ..logged(1) }).expect("a ticket");
    let (flushes, rooms) = (progress.clone(), progress.clone());
    let flushed = tokio::spawn(async move { flushes.flushed(1).await });
    let room = tokio::spawn(async move { rooms.room().await });
    let behinds = progress.clone();
    let behind = tokio::spawn(async move { behinds.behind().await });
    tokio::task::yield_now().await;
    assert!(!flushed.is_finished() && !room.is_finished() && !behind.is_finished());
    assert!(progress.logged(logged(2)).is_none());
    assert_eq!(behind.await.expect("no panic"), 2);
    drop(ticket);
    flushed.await.expect("no panic");
    room.await.expect("no panic");
}

#[test]
fn memory_and_the_log_press_each_by_itself() {
    let progress = Progress::new(0, 0, 100);
    let half = progress.logged(Logged { memory: 50, ..logged(1) });
    assert!(!progress.is_pressed());
    let more = progress.logged(Logged { memory: 1, ..logged(2) });
    assert!(progress.is_pressed() && !progress.is_log_pressed());
    drop(more);
    assert!(!progress.is_pressed());
    progress.press_log(true);
    assert!(progress.is_pressed() && progress.is_log_pressed());
    drop(half);
    progress.press_log(false);
    assert!(!progress.is_pressed());
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

/// A request on its way, with how many of its readings are not accounted for.
struct OnItsWay {
    ticket: Arc<Ticket>,
    left: u64,
}

#[test]
fn the_account_holds_whatever_happens_in_whatever_order() {
    for seed in 1..=50 {
        let mut random = Random(seed << 32 | 0x9E37_79B9);
        let replay = random.below(5);
        let progress = Progress::new(0, replay, 200);
        let (mut next, mut to_read): (Sequence, Vec<Logged>) = (replay, (1..=replay).map(logged).collect());
        let (mut under_way, mut waiting, mut expected): (Vec<OnItsWay>, _, _) =
            (Vec::new(), Vec::new(), Ledger::default());
        let check = |progress: &Progress, expected: &Ledger, what: &str| {
            let Ledger { accepted, replayed, stored, duplicate, overwritten, deleted, dead_lettered, pending } =
                progress.lag().ledger;
            let gone = stored + duplicate + overwritten + deleted + dead_lettered;
            assert_eq!(signed(accepted + replayed), signed(gone) + pending, "seed {seed}: {what}");
            assert_eq!(progress.lag().ledger, *expected, "seed {seed}: {what}");
        };
        for step in 0..400 {
            match random.below(if step < 300 { 8 } else { 4 }) {
                // A flight lands, in part, wherever it is.
                0..4 if !under_way.is_empty() => {
                    let place = usize::try_from(random.below(under_way.len() as u64)).expect("an index");
                    let landed = 1 + random.below(under_way[place].left);
                    account(&progress, &mut expected, &under_way[place].ticket, landed, &mut random);
                    under_way[place].left -= landed;
                    if under_way[place].left == 0 {
                        under_way.swap_remove(place);
                    }
                }
                // The feeder reads on, and goes live when it has read all.
                0..6 => {
                    if to_read.is_empty() {
                        progress.try_go_live(next + 1);
                    } else {
                        let read = to_read.remove(0);
                        let replayed = read.sequence <= replay;
                        expected.replayed += if replayed { read.readings } else { 0 };
                        expected.pending += if replayed { signed(read.readings) } else { 0 };
                        under_way.push(OnItsWay { ticket: progress.read_back(read, replayed).0, left: read.readings });
                    }
                }
                // A request is logged, and every other one is waited for.
                _ => {
                    next += 1;
                    let readings = 1 + random.below(9);
                    if random.below(2) == 0 {
                        waiting.push(waiter(&progress, next));
                    }
                    let request = Logged { readings, ..logged(next) };
                    match progress.logged(request) {
                        Some((ticket, _)) => under_way.push(OnItsWay { ticket, left: readings }),
                        None => to_read.push(request),
                    }
                    expected.accepted += readings;
                    expected.pending += signed(readings);
                }
            }
            check(&progress, &expected, "a step");
        }
        while !to_read.is_empty() {
            let read = to_read.remove(0);
            drop(progress.read_back(read, false));
        }
        let left: u64 = under_way.iter().map(|one| one.left).sum();
        assert!(expected.pending >= signed(left), "seed {seed}");
        drop(under_way);
        assert!(waiting.iter_mut().all(|answer| answer.try_recv().is_ok()), "seed {seed}: everybody was answered");
        assert_eq!(progress.releasable(), next, "seed {seed}: nothing is held");
        assert_eq!(progress.lag().unflushed_bytes, 0, "seed {seed}");
    }
}

/// So many readings of a request are stored, in one of the ways, or refused.
fn account(progress: &Progress, expected: &mut Ledger, ticket: &Ticket, count: u64, random: &mut Random) {
    expected.pending -= signed(count);
    if random.below(8) == 0 {
        ticket.refuse(&refusal());
        progress.dead_lettered(count);
        expected.dead_lettered += count;
        return;
    }
    let new = random.below(count + 1);
    let duplicate = random.below(count - new + 1);
    let overwritten = count - new - duplicate;
    progress.stored(Applied { new, duplicate, overwritten, late: new / 2, set_aside: 0 });
    expected.stored += new;
    expected.duplicate += duplicate;
    expected.overwritten += overwritten;
}
