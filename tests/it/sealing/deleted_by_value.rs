//! A deletion by value is about to cut the parts of a day that it has listed, when another instance moves their readings on. Nobody
//! remembers such a deletion, so what it misses stays.

use super::START;
use crate::support::jobs;
use crate::support::prelude::*;

const CONFIG: &str = "[flush]\ninterval = \"100ms\"\nquiet = \"50ms\"\n[sensors]\nwrite_interval = \"100ms\"\n";
/// Days are sealed when somebody asks for it.
const SEALS: &str = "[seal]\nafter = \"1s\"\ninterval = \"1h\"\nquiet = \"1h\"\n";
/// Of the day, in minutes.
const EARLY: u64 = 60;
const LATE: u64 = 600;

/// The deletion had listed a chunk and no day. Another instance, which had listed the chunk, too, then claimed the day, read the
/// chunk as it was, and wrote the day. The deletion found the chunk gone and answered 200; the day kept what was deleted.
#[test]
fn chunks_folded_during_a_deletion_restore_nothing() {
    beside_sealing(&format!("{CONFIG}{SEALS}direct_min = 1\n"), |_| 0);
}

/// The deletion had listed the part for the whole day and no hour. Another instance then claimed hours, read the day as it was, and
/// removed it once the hours were written.
#[test]
fn a_day_split_during_a_deletion_restores_nothing() {
    beside_sealing(&format!("{CONFIG}[page]\nmax_readings = 2\n{SEALS}direct_min = 0\n"), |there| {
        seal(there, 0);
        // Too many pages of one hour for a day in one part.
        write(there, (0..200).map(|n| (EARLY * 60 + n, 1)));
        1
    });
}

/// Deletes some of the readings at [`LATE`], and has the other instance seal once the deletion has listed the day's parts.
/// `before` is given the instance that seals, and returns how many days it has sealed.
fn beside_sealing(config: &str, before: impl Fn(&Server) -> u64) {
    let launch = Launch::with_store(mongod().uri(&fresh_database_name())).config(config);
    let halt = Halt::new();
    let here = halt.launch(launch.clone(), "deletion_listed").start();
    let there = launch.start();
    write(&here, (0..6).map(|n| (LATE * 60 + n, if n % 2 == 0 { 5000 } else { n })));
    await_settled(&[&here, &there]);
    let sealed = before(&there);
    await_settled(&[&here, &there]);
    halt.set();
    let url = here.url("/query?db=d&q=DELETE+FROM+climate+WHERE+temp+%3E+1000");
    let asked = std::thread::spawn(move || post(&url, "", &[]));
    halt.await_met("parts are listed");
    seal(&there, sealed);
    halt.lift();
    let answer = asked.join().expect("an answer").expect(200).json();
    assert!(answer["results"][0]["error"].is_null(), "{answer}");
    let late = i64::try_from(START + LATE * 60).expect("a time") * 1_000_000_000;
    for server in [&here, &there] {
        let left = readings(server, "d", "climate,s=0", Some((late, late + 60_000_000_000)), 100);
        let left: Vec<&str> = left.iter().map(|(_, fields)| &*fields["temp"]).collect();
        assert_eq!(left, ["1", "3", "5"]);
    }
}

/// Stores readings, given by second of the day.
fn write(server: &Server, readings: impl Iterator<Item = (u64, u64)>) {
    let lines: String =
        readings.map(|(second, temp)| format!("climate,s=0 temp={temp}i {}\n", START + second)).collect();
    keep(server, lines);
}

/// Waits until what is stored may be sealed.
pub fn await_settled(servers: &[&Server]) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs_f64();
    for server in servers {
        wait_until("no log has older readings", WITHIN, || {
            metric(server, "hourglass_registry_floor_timestamp_seconds") > now
        });
    }
}

/// Has the day sealed; before, this instance has sealed so many.
fn seal(server: &Server, before: u64) {
    wait_until("the day is sealed", WITHIN, || jobs::seal(server)["progress"]["days"].as_u64() > Some(before));
}
