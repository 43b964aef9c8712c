//! A deletion that is made and forgotten while another instance seals the day still applies to it.

use super::deleted_by_value::await_settled;
use super::{PAGES, START, line};
use crate::support::jobs;
use crate::support::prelude::*;

const CONFIG: &str = "[seal]\nafter = \"0s\"\n";
/// Minutes of the day: sealed before, and deleted.
const EARLY: u64 = 60;
const LATE: u64 = 600;

tests! {
    fn a_deletion_during_sealing_holds() => seal_beside_a_deletion(false);
    /// The sealed day has nothing of the deleted range, so the deletion does not write it.
    fn a_deletion_while_a_day_is_sealed_again_holds() => seal_beside_a_deletion(true);
}

/// Regression: chunks were read before the claim of their day, so a deletion in between was missed.
#[test]
fn a_deletion_before_the_claim_of_a_day_covers_its_chunks() {
    beside_a_deletion(
        "parts_listed",
        "[seal]\nafter = \"1s\"\ndirect_min = 1\ninterval = \"1h\"\nquiet = \"1h\"\n",
        false,
    );
}

fn seal_beside_a_deletion(is_sealed_before: bool) {
    beside_a_deletion("pages_read", CONFIG, is_sealed_before);
}

fn beside_a_deletion(point: &str, config: &str, is_sealed_before: bool) {
    let name = fresh_database_name();
    let launch = Launch::with_store(mongod().uri(&name)).config(format!("{PAGES}{config}"));
    let halt = Halt::new();
    let sealing = halt.launch(launch.clone(), point);
    // The instance with the least opening forgets deletions, so another one must seal; both restart until it does.
    let (deleting, sealing_server) = eventually("a sealing instance with the greater opening", || {
        let mut deleting = launch.clone().start();
        let first = openings(&name).pop();
        let mut sealing_server = sealing.clone().start();
        if openings(&name).into_iter().min() == first {
            return Some((deleting, sealing_server));
        }
        deleting.stop();
        sealing_server.stop();
        None
    });
    write(&deleting, EARLY);
    if is_sealed_before {
        seal(&deleting, 1);
    }
    write(&deleting, LATE);
    await_settled(&[&deleting, &sealing_server]);
    halt.set();
    let url = run_url(&sealing_server, "seal");
    let request = std::thread::spawn(move || post(&url, "", &[]));
    halt.await_met("the pages are read");
    let from = START + LATE * 60;
    let to = START + (LATE + 60) * 60;
    execute(&deleting, "d", &format!("DELETE FROM climate WHERE time >= {from}s AND time < {to}s"));
    wait_until("the deletion is forgotten", || metric(&deleting, "hourglass_registry_deletions") == 0.0);
    halt.lift();
    request.join().expect("an answer");
    seal(&deleting, 0);
    for server in [&deleting, &sealing_server] {
        let answer = server.fetch("/api/v1/readings?db=d&sensor=climate,s=0&epoch=s&limit=100");
        let times = answer["series"][0]["readings"].as_array().into_iter().flatten().map(|row| row["ts"].as_u64());
        let expected: Vec<Option<u64>> = (0..5).map(|n| Some(START + (EARLY + n) * 60)).collect();
        assert_eq!(times.collect::<Vec<_>>(), expected);
    }
}

fn write(server: &Server, minute: u64) {
    let lines: String = (0..5).map(|n| line(0, minute + n, n)).collect();
    write_flushed(server, lines);
}

/// Seals until nothing is left; this instance must seal at least `days`.
fn seal(server: &Server, days: u64) {
    wait_until("days are sealed", || jobs::seal(server)["progress"]["days"].as_u64().unwrap_or(0) >= days);
}

/// Returns the openings of registered instances.
fn openings(name: &str) -> Vec<String> {
    let registry = find(&mongod().uri(name), "registry", doc! {}).remove(0);
    let logs = registry.get_array("logs").expect("logs").iter();
    let logs = logs.filter_map(|log| log.as_document()).filter(|log| !log.contains_key("takenBy"));
    logs.map(|log| log.get_str("opening").expect("an opening").to_owned()).collect()
}
