//! A deletion by value has listed the parts of a day when another instance moves their readings; it must not miss any.

use super::START;
use crate::support::jobs;
use crate::support::prelude::*;

const CONFIG: &str = "[flush]\ninterval = \"100ms\"\nquiet = \"50ms\"\n[sensors]\nwrite_interval = \"100ms\"\n";
/// Days are sealed on request.
const SEALS: &str = "[seal]\nafter = \"1s\"\ninterval = \"1h\"\nquiet = \"1h\"\n";
/// Minutes of the day.
const EARLY: u64 = 60;
const LATE: u64 = 600;

/// Regression: the deletion had listed a chunk that another instance then folded into the day, which kept the readings.
#[test]
fn chunks_folded_during_a_deletion_restore_nothing() {
    beside_sealing(&format!("{CONFIG}{SEALS}direct_min = 1\n"), |_| 0);
}

/// Regression: the deletion had listed the whole day, which another instance then split into hours.
#[test]
fn a_day_split_during_a_deletion_restores_nothing() {
    beside_sealing(&format!("{CONFIG}[page]\nmax_readings = 2\n{SEALS}direct_min = 0\n"), |sealing| {
        seal(sealing, 0);
        // Too many pages in one hour for a day in one part.
        write(sealing, (0..200).map(|n| (EARLY * 60 + n, 1)));
        1
    });
}

/// Deletes readings at [`LATE`] while another instance seals; `before` returns its count of sealed days.
fn beside_sealing(config: &str, before: impl Fn(&Server) -> u64) {
    let launch = Launch::with_store(mongod().uri(&fresh_database_name())).config(config);
    let halt = Halt::new();
    let deleting = halt.launch(launch.clone(), "deletion_listed").start();
    let sealing = launch.start();
    write(&deleting, (0..6).map(|n| (LATE * 60 + n, if n % 2 == 0 { 5000 } else { n })));
    await_settled(&[&deleting, &sealing]);
    let sealed = before(&sealing);
    await_settled(&[&deleting, &sealing]);
    halt.set();
    let url = deleting.url("/query?db=d&q=DELETE+FROM+climate+WHERE+temp+%3E+1000");
    let request = std::thread::spawn(move || post(&url, "", &[]));
    halt.await_met("parts are listed");
    seal(&sealing, sealed);
    halt.lift();
    let answer = request.join().expect("an answer").expect(200).json();
    assert!(answer["results"][0]["error"].is_null(), "{answer}");
    let late = i64::try_from(START + LATE * 60).expect("a time") * 1_000_000_000;
    for server in [&deleting, &sealing] {
        let remaining = readings(server, "d", "climate,s=0", Some((late, late + 60_000_000_000)), 100);
        let remaining: Vec<&str> = remaining.iter().map(|(_, fields)| &*fields["temp"]).collect();
        assert_eq!(remaining, ["1", "3", "5"]);
    }
}

/// Stores readings by second of the day.
fn write(server: &Server, readings: impl Iterator<Item = (u64, u64)>) {
    let lines: String =
        readings.map(|(second, temp)| format!("climate,s=0 temp={temp}i {}\n", START + second)).collect();
    write_flushed(server, lines);
}

/// Waits until the stored readings can be sealed.
pub fn await_settled(servers: &[&Server]) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs_f64();
    for server in servers {
        wait_until("no log has older readings", || metric(server, "hourglass_registry_floor_timestamp_seconds") > now);
    }
}

/// Seals the day; `before` is the earlier count of sealed days.
fn seal(server: &Server, before: u64) {
    wait_until("the day is sealed", || jobs::seal(server)["progress"]["days"].as_u64() > Some(before));
}
