//! The store on a disk that loses power: acked writes are there with their last value, unacked ones are there whole or
//! not at all, and everything is readable.

mod disk;
mod history;

use std::collections::HashSet;

use self::disk::Disk;
use self::history::History;
use crate::bucket::store::DatabaseStore;

/// Steps of the workload that is cut at each of its operations.
const SHORT: u64 = 5;
/// Number of ways in which the disk keeps and loses bytes, per moment of a cut.
const WAYS: u64 = 3;

/// Cuts the power, opens what is left, checks it, and writes to it.
async fn cut_once(mut history: History, moment: u64, seed: u64, steps: u64) -> Result<History, String> {
    let told = |why: String| format!("seed {seed}, cut at operation {moment}: {why}");
    history.disk().cut_after(moment);
    history.write(steps).await.map_err(told)?;
    let mut history = history.after_cut(seed).await.map_err(told)?;
    history.write(1).await.map_err(told)?;
    history.check().await.map_err(told)?;
    Ok(history)
}

/// Totals over cuts at every operation.
#[derive(Debug, Default)]
struct Cuts {
    count: u64,
    losses: Vec<String>,
    /// How often an unanswered call had done nothing, and how often all of it.
    unanswered: [u64; 2],
}

/// Cuts a short workload at every one of its operations, in several ways each.
async fn cut_everywhere(syncs: bool) -> Cuts {
    let new = Disk::new(syncs);
    let mut whole = History::new(new.fork(), 1);
    whole.write(SHORT).await.expect("nothing fails");
    let operations = whole.disk().operations();
    let mut cuts = Cuts::default();
    for moment in 0..operations {
        for way in 0..WAYS {
            let seed = moment * WAYS + way;
            cuts.count += 1;
            match cut_once(History::new(new.fork(), 1), moment, seed, SHORT).await {
                Ok(history) => (0..2).for_each(|n| cuts.unanswered[n] += history.unanswered[n]),
                Err(loss) => cuts.losses.push(loss),
            }
        }
        if !syncs && cuts.losses.len() > 3 {
            break;
        }
    }
    cuts
}

#[tokio::test]
async fn a_cut_at_any_operation_loses_nothing_that_was_acked() {
    let cuts = cut_everywhere(true).await;
    assert!(cuts.count > 100 && cuts.unanswered.iter().all(|seen| *seen > 10), "too little happened: {cuts:?}");
    assert_eq!(cuts.losses, [""; 0]);
}

/// Control: the same on a disk whose syncs do nothing must show losses.
#[tokio::test]
async fn without_syncs_the_same_cuts_are_seen_to_lose() {
    let cuts = cut_everywhere(false).await;
    assert!(!cuts.losses.is_empty(), "{cuts:?}: nothing was lost, so this test could not see a loss");
}

#[tokio::test]
async fn cuts_at_random_moments_one_after_the_other_lose_nothing_that_was_acked() {
    let mut outcomes = HashSet::new();
    for seed in 1..=8 {
        let mut history = History::new(Disk::new(true), seed);
        let mut moment = seed;
        for cut in 0..10 {
            moment = moment.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let before = history.acked();
            let way = seed * 1000 + cut;
            history = cut_once(history, (moment >> 33) % 400, way, 30).await.expect("nothing is lost");
            outcomes.insert(history.acked() > before);
        }
        assert!(history.acked() > 30, "seed {seed}: {} writes were acked", history.acked());
    }
    assert!(outcomes.contains(&true));
}

/// Nothing in an unfinished new file was acked. After a cut it is an empty store, or is refused; it is never opened
/// with wrong contents. Hence a file is made under another name first.
#[tokio::test]
async fn a_cut_while_the_file_is_made_leaves_an_empty_store_or_a_file_that_is_refused() {
    let made = Disk::new(true);
    drop(History::open(&made));
    let (mut opened, mut refused) = (0, 0);
    for moment in 0..made.operations() {
        for seed in 0..8 {
            let disk = Disk::new(true);
            disk.cut_after(moment);
            drop(History::open(&disk));
            let after = disk.after_cut(moment * 8 + seed);
            match History::open(&after) {
                Ok(store) => {
                    assert_eq!(store.databases().await, Ok(Vec::new()), "cut at {moment}");
                    opened += 1;
                }
                Err(why) => {
                    assert!(why.contains("Not a redb database"), "cut at {moment}: {why}");
                    refused += 1;
                }
            }
        }
    }
    assert!(opened > 10 && refused > 0, "{opened} opened, {refused} refused");
}

/// The power fails again while the store is opened after a cut.
#[tokio::test]
async fn a_cut_while_the_store_recovers_from_a_cut_loses_nothing_that_was_acked() {
    let new = Disk::new(true);
    drop(History::new(new.clone(), 1));
    let mut cuts = 0;
    for seed in 0..60 {
        let mut history = History::new(new.fork(), seed);
        history.disk().cut_after(20 + seed * 3);
        history.write(20).await.expect("a cut is no conflict");
        for again in 0..3 {
            let disk = history.disk().after_cut(seed * 5 + again);
            let before = disk.operations();
            disk.cut_after((seed + again) % 7);
            drop(History::open(&disk));
            cuts += u64::from(disk.operations() > before);
            history.move_to(disk);
        }
        let mut history = history.after_cut(seed).await.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        history.write(2).await.and(history.check().await).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    assert!(cuts > 60, "{cuts} cuts in a recovery");
}
