//! Kills and store faults while history is written, deleted, sealed, expired, backed up and copied; after each,
//! readings, summaries and `hourglass verify` are checked. A cycle takes 1.3 s (embedded) to 4 s (MongoDB).

mod clients;
mod summaries;
mod world;

use self::clients::{Clients, ExpiringDatabase};
use self::world::{ServiceFault, World};

use crate::support::prelude::*;

/// Small pages and limits, and constantly running jobs.
const MORE_CONFIG: &str = r#"
[flush]
interval = "200ms"
quiet = "50ms"
[seal]
after = "1s"
interval = "50ms"
quiet = "100ms"
[retention]
interval = "100ms"
"#;
/// Time for a service to reach a fault point.
const POINT_TIME_MAX: Duration = Duration::from_secs(2);
/// The main points of these runs come first, because a short run has few cycles.
const FIRST: [&str; 6] = ["sealed", "pages_removed", "claimed", "during_deletion", "during_expiry", "before_expiry"];

fn busy_config() -> String {
    format!("{}{MORE_CONFIG}", super::CONFIG)
}

/// Returns the names of all fault points in ingest, jobs and stores, read from the sources.
fn points() -> Vec<String> {
    fn add(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).expect("the sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                add(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source");
                let names = text.split("faults::point(\"").skip(1).filter_map(|rest| rest.split('"').next());
                found.extend(names.map(str::to_owned));
            }
        }
    }
    let mut found = BTreeSet::new();
    for room in ["src", "crates/store/src"] {
        add(&Path::new(env!("CARGO_MANIFEST_DIR")).join(room), &mut found);
    }
    let first: Vec<String> = FIRST.map(str::to_owned).into();
    assert!(first.iter().all(|point| found.contains(point)), "{found:?}");
    found.retain(|point| !first.contains(point));
    first.into_iter().chain(found).collect()
}

tests! {
    fn faults_cost_no_history_in_the_embedded_store() =>
        faults("history, embedded", World::embedded(), 21, scaled(2, 500));
    fn faults_cost_no_history_in_mongodb() =>
        faults("history, MongoDB", World::mongo(1), 22, scaled(2, 500));
    fn faults_of_two_instances_cost_no_history() =>
        faults("history, two instances", World::mongo(2), 23, scaled(1, 500));
}

#[track_caller]
fn faults(name: &str, mut world: World, seed: u64, cycles: usize) {
    let began = Instant::now();
    let clients = Clients::new(seed);
    let mut kept = ExpiringDatabase::default();
    let mut random = Random::new(seed);
    let points = points();
    let mut missed: BTreeSet<&String> = points.iter().collect();
    let mut backups = 0;
    let mut copies = 0;
    let mut turn = 0;
    let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
    for cycle in 0..cycles {
        // Every other fault is a kill, at each point in turn.
        let fault = if cycle % 2 == 0 {
            turn += 1;
            ServiceFault::KillAt { point: points[(turn - 1) % points.len()].clone(), nth: 1 + random.below(3) }
        } else if cycle % 4 == 1 {
            // Its backup succeeds.
            ServiceFault::None
        } else {
            world.random_fault(&mut random)
        };
        *faults.entry(fault.kind()).or_default() += 1;
        let is_of_expiry = matches!(&fault, ServiceFault::KillAt { point, .. } if point.ends_with("expiry"));
        let expires = cycle % 3 == 0 || is_of_expiry;
        if expires {
            kept.fill(&world, &clients);
        }
        let asked = random.pick(&[None, Some("backup"), Some("seal"), Some("seal"), Some("compact")]);
        let asked = if cycle % 4 == 1 { Some("backup") } else { asked };
        let victim = usize::try_from(random.below(2)).expect("small") % world.servers.len();
        // Only the first instance receives retention changes.
        let victim = if is_of_expiry { 0 } else { victim };
        let backup = clients.during(&world.bases(), |acks| {
            std::thread::sleep(Duration::from_millis(random.below(150).unsigned_abs()));
            let mut meanwhile = world.ask_meanwhile(asked, victim, &mut random);
            if is_of_expiry {
                world.servers[victim].kill();
            }
            if expires {
                kept.expire(&world);
            }
            if world.inject(&fault, victim, &mut random, acks) {
                missed.retain(|point| !matches!(&fault, ServiceFault::KillAt { point: at, .. } if at == *point));
            }
            world.await_recovered();
            if expires {
                kept.await_expired(&world, &clients);
            }
            let before = acks.count();
            poll(TIMEOUT, || (acks.count() > before + 3).then_some(())).expect("clients are acked after a fault");
            meanwhile.take().and_then(|thread| thread.join().expect("it does not panic"))
        });
        world.await_recovered();
        if let Some(taken) = &backup {
            backups += 1;
            world.restore_and_check(taken, &clients, backups);
        }
        world.check(&clients, &format!("{name}, cycle {cycle}, {fault:?}, {asked:?}"), cycle % 5 == 4);
        if cycle % 25 == 24 || cycle + 1 == cycles {
            copies += 1;
            world.copy_and_check(&clients, copies);
        }
    }
    let _ = writeln!(
        std::io::stderr(),
        "{name}: {} cycles in {:.1?}, {faults:?}, {} fields acked, {} deletions, {} expiries, {backups} backups restored, {copies} copies; \
         points not reached: {missed:?}",
        cycles,
        began.elapsed(),
        clients.acked(),
        clients.deletions(),
        kept.expiries(),
    );
    let needed =
        |point: &&&String| FIRST.contains(&point.as_str()) && (point.as_str() != "claimed" || world.is_shared());
    let needed: Vec<_> = missed.iter().filter(needed).collect();
    assert!(cycles < 12 * points.len() || needed.is_empty(), "{name}: points that were never reached: {needed:?}");
}
