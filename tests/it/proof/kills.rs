//! Kills at random moments and at each point of a write on one data folder: no acked reading is lost or doubled.

use crate::support::prelude::*;

use super::oracle::Oracle;
use super::{RECOVERY, World, config};

/// Fault points of a write.
const POINTS: [&str; 11] = [
    "before_append",
    "after_append",
    "after_sync",
    "before_dispatch",
    "after_dispatch",
    "before_flush",
    "after_flush",
    "before_truncate",
    "after_truncate",
    "during_replay",
    "before_sensors",
];
const CONNECTIONS: usize = 3;
const FLUSH_INTERVAL: &str = "200ms";
const PACE: Duration = Duration::from_millis(5);
/// Checks of answers in a run; the last one covers the documents, too.
const CHECKS: usize = 5;
const SIGKILL: i32 = 9;
/// Time for a server to reach a point under load.
const POINT_TIME_MAX: Duration = Duration::from_secs(10);

#[test]
fn kills_cost_no_acks_in_the_embedded_store() {
    let launch = Launch::embedded().config(config(FLUSH_INTERVAL));
    kills_cost_no_acks("kills, embedded", World::start(launch.clone()), &launch, 1);
}

#[test]
fn kills_cost_no_acks_in_mongodb() {
    let launch = Launch::with_store(mongod().uri(&fresh_database_name())).config(config(FLUSH_INTERVAL));
    kills_cost_no_acks("kills, MongoDB", World::start(launch.clone()), &launch, 2);
}

fn kills_cost_no_acks(name: &str, mut world: World, launch: &Launch, seed: u64) {
    let mut oracle = Oracle::new(seed, CONNECTIONS).with_pace(PACE);
    let mut random = Random::new(seed);
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    let points: Vec<&str> = shared(POINTS, seed as usize).collect();
    let cycles = scaled(points.len() + 1, 400);
    for cycle in 0..cycles {
        // Each point in turn, then a random moment.
        let point = points.get(cycle % (points.len() + 1)).copied();
        oracle.during(&world.base(), |progress| {
            std::thread::sleep(Duration::from_millis(random.below(150).unsigned_abs()));
            world.server.kill();
            if let Some(point) = point {
                // The killed server's log is replayed by the next one, which dies at the point.
                let nth = if point == "during_replay" { 1 } else { 1 + random.below(scaled(1, 4)) };
                // If it is not passed that often in time, once is enough.
                if [nth, 1].iter().any(|nth| ends_at(&mut world, launch, &format!("{point}:{nth}"))) {
                    reached.insert(point);
                }
            }
            world.server.restart_as(launch.clone());
            progress.await_acks(3, RECOVERY);
        });
        if (cycle + 1) % cycles.div_ceil(CHECKS) == 0 {
            oracle.check_answers(&world.server);
        }
    }
    world.check(&mut oracle);
    oracle.assert_no_violations(name);
    let missed: Vec<&&str> = points.iter().filter(|point| !reached.contains(**point)).collect();
    assert!(missed.is_empty(), "{name}: points that were not reached: {missed:?}");
}

/// Starts the server with a fault point under load; one that does not reach it is killed.
fn ends_at(world: &mut World, launch: &Launch, point: &str) -> bool {
    world.server.relaunch(launch.clone().env("FAULT_KILL_AT", point));
    let ended = poll(POINT_TIME_MAX, || world.server.exited());
    world.server.kill();
    ended.is_some_and(|status| status.signal() == Some(SIGKILL))
}
