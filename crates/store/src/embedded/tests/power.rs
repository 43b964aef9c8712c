//! The store on a disk that loses power. Acked writes survive with their last value, unacked ones completely or not at
//! all, and all data stays readable.

mod disk;
mod history;

use std::collections::HashSet;

use self::disk::Disk;
use self::history::{History, UnansweredCalls};
use crate::bucket::store::DatabaseStore;

/// Steps of the workload that is cut at each of its operations.
const SHORT_STEPS: u64 = 5;
/// Number of random losses that are tried per cut.
const LOSSES_PER_CUT: u64 = 3;

/// Cuts the power, reopens the store, checks it, and writes to it.
async fn cut_once(mut history: History, moment: u64, seed: u64, steps: u64) -> Result<History, String> {
    let with_context = |error: String| format!("seed {seed}, cut at operation {moment}: {error}");
    history.disk().cut_after(moment);
    history.write(steps).await.map_err(with_context)?;
    let mut history = history.after_cut(seed).await.map_err(with_context)?;
    history.write(1).await.map_err(with_context)?;
    history.check().await.map_err(with_context)?;
    Ok(history)
}

/// Totals over cuts at every operation.
#[derive(Debug, Default)]
struct Cuts {
    count: u64,
    losses: Vec<String>,
    unanswered: UnansweredCalls,
}

/// Cuts a short workload at every one of its operations, in several ways each.
async fn cut_everywhere(syncs: bool) -> Cuts {
    let new = Disk::new(syncs);
    let mut uncut = History::new(new.fork(), 1);
    uncut.write(SHORT_STEPS).await.expect("nothing fails");
    let operations = uncut.disk().operations();
    let mut cuts = Cuts::default();
    for moment in 0..operations {
        for loss in 0..LOSSES_PER_CUT {
            let seed = moment * LOSSES_PER_CUT + loss;
            cuts.count += 1;
            match cut_once(History::new(new.fork(), 1), moment, seed, SHORT_STEPS).await {
                Ok(history) => cuts.unanswered.add(&history.unanswered),
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
    assert!(
        cuts.count > 100 && cuts.unanswered.not_applied.min(cuts.unanswered.applied) > 10,
        "too little happened: {cuts:?}"
    );
    assert_eq!(cuts.losses, [""; 0]);
}

/// Control: on a disk whose syncs do nothing, the same cuts must cause losses.
#[tokio::test]
async fn without_syncs_the_same_cuts_cause_losses() {
    let cuts = cut_everywhere(false).await;
    assert!(!cuts.losses.is_empty(), "{cuts:?}: nothing was lost, so the other tests could not detect a loss");
}

#[tokio::test]
async fn repeated_cuts_at_random_operations_lose_nothing_that_was_acked() {
    let mut outcomes = HashSet::new();
    for seed in 1..=8 {
        let mut history = History::new(Disk::new(true), seed);
        let mut moment = seed;
        for cut in 0..10 {
            moment = moment.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let before = history.acked();
            let loss_seed = seed * 1000 + cut;
            history = cut_once(history, (moment >> 33) % 400, loss_seed, 30).await.expect("nothing is lost");
            outcomes.insert(history.acked() > before);
        }
        assert!(history.acked() > 30, "seed {seed}: {} writes were acked", history.acked());
    }
    assert!(outcomes.contains(&true));
}

/// After a cut, an unfinished new file is an empty store or is refused. It never opens with wrong contents. Because it may
/// be refused, the store creates its file under a temporary name.
#[tokio::test]
async fn a_cut_during_creation_leaves_an_empty_store_or_a_refused_file() {
    let uncut = Disk::new(true);
    drop(History::open(&uncut));
    let mut opened = 0;
    let mut refused = 0;
    for moment in 0..uncut.operations() {
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
                Err(error) => {
                    assert!(error.contains("Not a redb database"), "cut at {moment}: {error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(opened > 10 && refused > 0, "{opened} opened, {refused} refused");
}

/// The power fails again while the store recovers from a cut.
#[tokio::test]
async fn a_cut_during_recovery_loses_nothing_that_was_acked() {
    let new = Disk::new(true);
    drop(History::new(new.clone(), 1));
    let mut cuts = 0;
    for seed in 0..60 {
        let mut history = History::new(new.fork(), seed);
        history.disk().cut_after(20 + seed * 3);
        history.write(20).await.expect("a cut is no conflict");
        for attempt in 0..3 {
            let disk = history.disk().after_cut(seed * 5 + attempt);
            let before = disk.operations();
            disk.cut_after((seed + attempt) % 7);
            drop(History::open(&disk));
            cuts += u64::from(disk.operations() > before);
            history.move_to(disk);
        }
        let mut history = history.after_cut(seed).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        history.write(2).await.and(history.check().await).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(cuts > 60, "{cuts} cuts during recovery");
}
