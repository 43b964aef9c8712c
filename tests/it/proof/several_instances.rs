//! Three instances that write, correct and delete the same readings through kills: no duplicates, latest acked or
//! concurrent values, and equal answers.

use hourglass::reading::Value;

use crate::support::prelude::*;

use super::history::{CellKey, Delete, History};
use super::{CAPS, DATABASE, config, flush};

const WRITERS: usize = 4;
const SENSORS: i64 = 3;
const TIMES: i64 = 90;
const STEP: i64 = 39_000_000_000;
const LINES: i64 = 12;
const FLUSH_INTERVAL: &str = "200ms";

#[test]
fn three_killed_instances_keep_the_latest_acked_values() {
    written_to_through_kills(3);
}

fn written_to_through_kills(instances: usize) {
    let name = fresh_database_name();
    let launch = Launch::with_store(mongod().uri(&name)).config(config(FLUSH_INTERVAL));
    let mut servers: Vec<Server> = (0..instances).map(|_| launch.clone().start()).collect();
    let stored = Stored::in_mongo(mongod(), &name, DATABASE);
    let history = Mutex::new(History::default());
    let kills = scaled(3, 170);
    let conflicts = write_through_kills(&mut servers, &history, kills);
    servers.iter().for_each(|server| assert!(flush(server), "a flush"));
    let history = history.into_inner().expect("no writer panicked");
    let found = values(&stored);
    history.check(&found);
    for server in &servers {
        assert!(answers(server) == found, "an instance answers something else than what is stored");
    }
    let acked = history.acked();
    let deleted = history.deletions();
    let _ = writeln!(
        std::io::stderr(),
        "{instances} instances: {kills} kills, {acked} fields acked, {deleted} deletions, {conflicts} conflicts"
    );
    assert!(conflicts > 0.0, "they never met");
}

/// Kills each instance in turn under load; deletes during every second downtime. Returns the conflicts.
fn write_through_kills(servers: &mut [Server], history: &Mutex<History>, kills: usize) -> f64 {
    let bases: Vec<String> = servers.iter().map(|server| server.url("")).collect();
    let stop = AtomicBool::new(false);
    let acks = AtomicUsize::new(0);
    let mut conflicts = 0.0;
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        for writer in 0..WRITERS {
            let bases = &bases;
            let stop = &stop;
            let acks = &acks;
            scope.spawn(move || write(writer, bases, history, stop, acks));
        }
        let await_acks = |more: usize| {
            let before = acks.load(Ordering::Relaxed);
            wait_until("bodies are acked", || acks.load(Ordering::Relaxed) >= before + more);
        };
        for kill in 0..kills {
            await_acks(3 * WRITERS);
            let victim = kill % servers.len();
            conflicts += metric(&servers[victim], "hourglass_store_conflicts_total");
            servers[victim].kill();
            if kill % 2 == 1 {
                delete(&servers[(victim + 1) % servers.len()], kill, history);
            }
            await_acks(WRITERS);
            servers[victim].restart();
        }
        await_acks(3 * WRITERS);
    });
    conflicts + servers.iter().map(|server| metric(server, "hourglass_store_conflicts_total")).sum::<f64>()
}

/// Deletes a third of a sensor's times.
fn delete(server: &Server, number: usize, history: &Mutex<History>) {
    let number = i64::try_from(number).expect("small");
    let sensor = number % SENSORS;
    let first = START + number % 3 * (TIMES / 3) * STEP;
    let range = first..first + TIMES / 3 * STEP;
    let statement =
        format!("DELETE FROM shared WHERE sensor='s{sensor}' AND time >= {} AND time < {}", range.start, range.end);
    let statement: String = encode(&statement);
    let start = Instant::now();
    let answer = request("POST", &server.url(&format!("/query?db={DATABASE}&q={statement}")), b"", &[]);
    let done = answer.is_ok_and(|answer| answer.status == 200 && !answer.text().contains("error"));
    let sensor = format!("shared,sensor=s{sensor}");
    let end = done.then(Instant::now);
    let source = server.url("");
    let deleted = Delete { sensor, range, start, end, done, source };
    history.lock().expect("no writer panicked").note_deletion(deleted);
}

/// Sends each body to the instances in turn until one acks it, and some once more to another one, as after a lost ack.
fn write(writer: usize, bases: &[String], history: &Mutex<History>, stop: &AtomicBool, acks: &AtomicUsize) {
    let mut random = Random::new(u64::try_from(writer).expect("small") + 4711);
    for body in 0.. {
        let mut lines = String::new();
        let mut cells = Vec::new();
        for line in 0..LINES {
            let sensor = format!("shared,sensor=s{}", random.below(SENSORS));
            let time = START + random.below(TIMES) * STEP;
            let value = (i64::try_from(writer).expect("small") * 1_000_000 + body) * LINES + line;
            let own = ["w0", "w1", "w2", "w3"][writer];
            lines.push_str(&format!("{sensor} {own}={value}i,all={value}i {time}\n"));
            let cell = |field: &str| CellKey { sensor: sensor.clone(), time, field: field.to_owned() };
            cells.extend([own, "all"].map(|field| (cell(field), value)));
        }
        let mut instance = usize::try_from(random.below(i64::try_from(bases.len()).expect("few"))).expect("small");
        let ack = random.pick(&["", "&ack=store"]);
        let mut times_to_send = 1 + i64::from(random.below(4) == 0);
        while times_to_send > 0 {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let url = format!("{}/write?db={DATABASE}{ack}", bases[instance]);
            let attempt = history.lock().expect("no writer panicked").begin(&cells, &bases[instance]);
            let acked = match request("POST", &url, lines.as_bytes(), &[]) {
                // It may be logged after the answer.
                Ok(answer) if answer.status == 503 => None,
                Ok(answer) => {
                    answer.expect(204);
                    Some(true)
                }
                Err(_killed) => Some(false),
            };
            history.lock().expect("no writer panicked").end(attempt, acked);
            if acked == Some(true) {
                acks.fetch_add(1, Ordering::Relaxed);
                times_to_send -= 1;
            }
            pause_client();
            instance = (instance + 1) % bases.len();
        }
    }
}

/// Returns the stored values, each timestamp once.
fn values(stored: &Stored) -> BTreeMap<CellKey, i64> {
    let mut found = BTreeMap::new();
    let mut overflowing = 0;
    stored.each_bucket(&CAPS, |pages| {
        overflowing += usize::from(pages.len() > 1);
        for reading in pages.iter().flat_map(|page| &page.readings) {
            for (field, value) in &reading.fields {
                let Value::Integer(value) = value else { panic!("{field}: {value:?}") };
                let sensor = pages[0].sensor.clone();
                let cell = CellKey { sensor, time: reading.time, field: field.clone() };
                assert!(found.insert(cell.clone(), *value).is_none(), "{cell:?} twice");
            }
        }
    });
    assert!(overflowing > 2, "{overflowing} buckets overflowed");
    found
}

/// Returns the values that an instance answers.
fn answers(server: &Server) -> BTreeMap<CellKey, i64> {
    let mut found = BTreeMap::new();
    for sensor in (0..SENSORS).map(|sensor| format!("shared,sensor=s{sensor}")) {
        for (time, fields) in readings(server, DATABASE, &sensor, None, 1000) {
            let value = |text: String| text.parse().expect("an integer");
            let cell = |field: String| CellKey { sensor: sensor.clone(), time, field };
            found.extend(fields.into_iter().map(|(field, text)| (cell(field), value(text))));
        }
    }
    found
}
