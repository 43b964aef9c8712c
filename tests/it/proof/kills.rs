//! `kill -9` at random moments and at each point that a write passes, again and again on one data folder: nothing that
//! was acked is lost or doubled, and the server goes on by itself.

use crate::support::prelude::*;

use super::oracle::Oracle;
use super::{RECOVERY, World, config};

/// Where a server can be told to kill itself.
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
/// How often what queries answer is looked at in a run; the last time the documents are, too.
const CHECKS: usize = 5;
const SIGKILL: i32 = 9;
/// How long a server may take to come to a point, with writes on their way all the time.
const POINT_WITHIN: Duration = Duration::from_secs(10);

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
    let mut oracle = Oracle::new(seed, CONNECTIONS).paced(PACE);
    let mut random = Random::new(seed);
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    let cycles = scaled([6, POINTS.len() + 1, 400]);
    for cycle in 0..cycles {
        // Each point in its turn, then a kill at a random moment alone.
        let point = POINTS.get(cycle % (POINTS.len() + 1)).copied();
        oracle.during(&world.base(), |progress| {
            // A moment is a length of time by its nature; nothing is waited for here.
            std::thread::sleep(Duration::from_millis(random.below(150).unsigned_abs()));
            world.server.kill();
            if let Some(point) = point {
                // What has just been killed is what the next server replays; that one dies at the point.
                let nth = if point == "during_replay" { 1 } else { 1 + random.below(4) };
                // One that is not passed that often in time is passed once.
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
    oracle.assert_kept(name);
    let missed: Vec<&&str> = POINTS.iter().filter(|point| !reached.contains(**point)).collect();
    assert!(cycles < POINTS.len() || missed.is_empty(), "{name}: points that were not reached: {missed:?}");
}

/// Starts the server to kill itself at a point, with clients' requests on their way. One that does not is killed.
fn ends_at(world: &mut World, launch: &Launch, point: &str) -> bool {
    world.server.relaunch(launch.clone().env("FAULT_KILL_AT", point));
    let ended = poll(POINT_WITHIN, || world.server.exited());
    world.server.kill();
    ended.is_some_and(|status| status.signal() == Some(SIGKILL))
}
