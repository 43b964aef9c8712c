//! The store on a disk whose power is cut: what was acked is there with its last value, what was
//! not is there whole or not at all, and everything can be read.

mod disk;
mod history;

use std::collections::HashSet;

use self::disk::Disk;
use self::history::History;

/// Steps of the workload that is cut at each of its operations.
const SHORT: u64 = 5;
/// Ways in which the disk keeps and loses, per moment of a cut.
const WAYS: u64 = 3;

/// A cut, and what it left behind opened, checked, and written to.
async fn cut_once(mut history: History, moment: u64, seed: u64, steps: u64) -> Result<History, String> {
    let told = |why: String| format!("seed {seed}, cut at operation {moment}: {why}");
    history.disk().cut_after(moment);
    history.write(steps).await.map_err(told)?;
    let mut history = history.after_cut(seed).await.map_err(told)?;
    history.write(1).await.map_err(told)?;
    history.check().await.map_err(told)?;
    Ok(history)
}

/// Cuts a short workload at every one of its operations, in some ways each. Gives the losses seen.
async fn cut_everywhere(syncs: bool) -> (u64, Vec<String>) {
    let new = Disk::new(syncs);
    let mut whole = History::new(new.fork(), 1);
    whole.write(SHORT).await.expect("nothing fails");
    let operations = whole.disk().operations();
    let mut losses = Vec::new();
    let mut cuts = 0;
    for moment in 0..operations {
        for way in 0..WAYS {
            let seed = moment * WAYS + way;
            cuts += 1;
            losses.extend(cut_once(History::new(new.fork(), 1), moment, seed, SHORT).await.err());
        }
        if !syncs && losses.len() > 3 {
            break;
        }
    }
    (cuts, losses)
}

#[tokio::test]
async fn a_cut_at_any_operation_loses_nothing_that_was_acked() {
    let (cuts, losses) = cut_everywhere(true).await;
    assert!(cuts > 100, "{cuts} cuts");
    assert!(losses.is_empty(), "{} of {cuts}, such as: {}", losses.len(), losses[0]);
}

/// The control: the same on a disk whose syncs do nothing is seen to lose.
#[tokio::test]
async fn without_syncs_the_same_cuts_are_seen_to_lose() {
    let (cuts, losses) = cut_everywhere(false).await;
    assert!(!losses.is_empty(), "{cuts} cuts lost nothing, so this test could not see a loss");
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
