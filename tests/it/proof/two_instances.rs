//! Two instances on one MongoDB that write and correct the same readings while each of them is killed again and
//! again: no timestamp is there twice, every field holds a value that somebody wrote, and a correction that is sent
//! after the other instance's ack from the store stands.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hourglass::reading::Value;

use super::oracle::{START, StopAtEnd};
use super::{CAPS, DATABASE, RECOVERY, config, cycles, flush};
use crate::support::eventually;
use crate::support::http::request;
use crate::support::mongod::{fresh_database_name, mongod};
use crate::support::pages::Stored;
use crate::support::random::Random;
use crate::support::series::{metric, readings};
use crate::support::server::{Launch, Server};

const WRITERS: usize = 4;
const SENSORS: i64 = 3;
const TIMES: i64 = 90;
const STEP: i64 = 39_000_000_000;
const LINES: i64 = 12;
const FLUSH_INTERVAL: &str = "200ms";
const CORRECTIONS: i64 = 40;

/// A field of a reading.
type Place = (String, i64, String);

/// What all writers sent.
#[derive(Default)]
struct Written {
    /// Every value that any attempt carried.
    tried: BTreeMap<Place, BTreeSet<i64>>,
    /// What was acked at least once.
    acked: BTreeSet<Place>,
}

#[test]
fn two_instances_that_are_killed_make_a_union_and_later_corrections_stand() {
    let name = fresh_database_name();
    let launch = Launch::with_store(mongod().uri(&name)).config(config(FLUSH_INTERVAL));
    let mut servers = [launch.clone().start(), launch.clone().start()];
    let stored = Stored::in_mongo(mongod(), &name, DATABASE);
    let written = Mutex::new(Written::default());
    let kills = cycles().div_ceil(3);
    let conflicts = write_through_kills(&mut servers, &written, kills);
    servers.iter().for_each(|server| assert!(flush(server), "a flush"));
    let written = written.into_inner().expect("no writer panicked");
    check_union(&stored, &written);

    correct_in_turn(&servers, &stored);
    let fields: usize = written.acked.len();
    let _ = writeln!(
        std::io::stderr(),
        "two instances: {kills} kills, {fields} fields acked, {CORRECTIONS} corrections in turn, {conflicts} conflicts"
    );
    assert!(conflicts > 0.0, "they never met");
}

/// Both are killed in turn while all writers send to either. The conflicts that were seen.
fn write_through_kills(servers: &mut [Server; 2], written: &Mutex<Written>, kills: usize) -> f64 {
    let bases = [servers[0].url(""), servers[1].url("")];
    let (stop, acks) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut conflicts = 0.0;
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for writer in 0..WRITERS {
            let (bases, stop, acks) = (&bases, &stop, &acks);
            scope.spawn(move || write(writer, bases, written, stop, acks));
        }
        let await_acks = |more: usize| {
            let before = acks.load(Ordering::Relaxed);
            let come = || (acks.load(Ordering::Relaxed) >= before + more).then_some(());
            eventually("bodies are acked", RECOVERY, come);
        };
        for kill in 0..kills {
            await_acks(3 * WRITERS);
            let server = &mut servers[kill % 2];
            conflicts += metric(server, "hourglass_store_conflicts_total");
            server.kill();
            await_acks(WRITERS);
            server.restart(server.address());
        }
        await_acks(3 * WRITERS);
    });
    conflicts + servers.iter().map(|server| metric(server, "hourglass_store_conflicts_total")).sum::<f64>()
}

/// Sends until it is stopped: one instance after the other with the same body, until one of them acks it.
fn write(writer: usize, bases: &[String; 2], written: &Mutex<Written>, stop: &AtomicBool, acks: &AtomicUsize) {
    let mut random = Random::new(u64::try_from(writer).expect("small") + 4711);
    for body in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let (mut lines, mut places) = (String::new(), Vec::new());
        for line in 0..LINES {
            let sensor = format!("shared,sensor=s{}", random.below(SENSORS));
            let time = START + random.below(TIMES) * STEP;
            let value = (i64::try_from(writer).expect("small") * 1_000_000 + body) * LINES + line;
            let own = ["w0", "w1", "w2", "w3"][writer];
            lines.push_str(&format!("{sensor} {own}={value}i,all={value}i {time}\n"));
            places.extend([own, "all"].map(|field| ((sensor.clone(), time, field.to_owned()), value)));
        }
        let mut note = written.lock().expect("no writer panicked");
        for (place, value) in &places {
            note.tried.entry(place.clone()).or_default().insert(*value);
        }
        drop(note);
        let mut instance = usize::try_from(random.below(2)).expect("small");
        let ack = random.of(&["", "&ack=store"]);
        while !stop.load(Ordering::Relaxed) {
            let url = format!("{}/write?db={DATABASE}{ack}", bases[instance]);
            match request("POST", &url, lines.as_bytes(), &[]) {
                Ok(answer) if answer.status == 503 => {}
                Ok(answer) => {
                    answer.expect(204);
                    let mut note = written.lock().expect("no writer panicked");
                    note.acked.extend(places.into_iter().map(|(place, _)| place));
                    acks.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                Err(_killed) => {}
            }
            instance = 1 - instance;
        }
    }
}

fn check_union(stored: &Stored, written: &Written) {
    let mut found: BTreeSet<Place> = BTreeSet::new();
    let mut overflowing = 0;
    stored.each_bucket(&CAPS, |pages| {
        overflowing += usize::from(pages.len() > 1);
        for reading in pages.iter().flat_map(|page| &page.readings) {
            for (field, value) in &reading.fields {
                let Value::Integer(value) = value else { panic!("{field}: {value:?}") };
                let place = (pages[0].sensor.clone(), reading.time, field.clone());
                let tried = written.tried.get(&place);
                assert!(tried.is_some_and(|values| values.contains(value)), "{place:?}: {value} was never written");
                assert!(found.insert(place.clone()), "{place:?} twice");
            }
        }
    });
    for place in &written.acked {
        assert!(found.contains(place), "{place:?} was acked and is not there");
    }
    assert!(overflowing > 2, "{overflowing} buckets overflowed");
}

/// One instance stores a value, the other one corrects it; neither of them may bring an older one back, now or when it
/// writes other readings of the same bucket.
fn correct_in_turn(servers: &[Server; 2], stored: &Stored) {
    let mut expected: BTreeMap<i64, String> = BTreeMap::new();
    let send = |instance: usize, ack: &str, line: String| {
        let url = servers[instance].url(&format!("/write?db={DATABASE}{ack}"));
        eventually("a correction is acked", Duration::from_secs(30), || {
            let answer = request("POST", &url, line.as_bytes(), &[]).expect("an answer");
            (answer.status != 503).then(|| answer.expect(204))
        });
    };
    for number in 0..CORRECTIONS {
        let (time, first) = (START + number * STEP, usize::try_from(number % 2).expect("small"));
        let line = |value: i64| format!("corrected,sensor=c v={value}i {time}\n");
        send(first, "&ack=store", line(3 * number));
        // A third time by the first one, now and then, with the other's ack from the store in between.
        let back = number % 3 == 0;
        send(1 - first, if back { "&ack=store" } else { "" }, line(3 * number + 1));
        if back {
            send(first, "", line(3 * number + 2));
        }
        expected.insert(time, (3 * number + 1 + i64::from(back)).to_string());
    }
    servers.iter().for_each(|server| assert!(flush(server), "a flush"));
    for server in servers {
        let found = readings(server, DATABASE, "corrected,sensor=c", None, 1000);
        let found: BTreeMap<i64, String> = found.into_iter().map(|(time, row)| (time, row["v"].clone())).collect();
        assert_eq!(found, expected, "by a query");
    }
    let mut found: BTreeMap<i64, String> = BTreeMap::new();
    stored.each_bucket(&CAPS, |pages| {
        for reading in pages.iter().filter(|page| page.sensor.starts_with("corrected")).flat_map(|page| &page.readings)
        {
            let Value::Integer(value) = reading.fields[0].1 else { panic!("{reading:?}") };
            found.insert(reading.time, value.to_string());
        }
    });
    assert_eq!(found, expected, "in the store");
}
