//! Queries during a replay or a short outage: only those wait that need missing readings.

use crate::support::prelude::*;

const NEXT: i64 = START + HOUR;
/// Longer than any step here, and below `query.timeout`.
const LONG: &str = "20s";

/// A server whose replay is halted at its first record while a file exists.
struct HaltedServer {
    server: Server,
    halt: Halt,
}

/// Stores a reading of `m,s=old`, logs `more`, kills the server and starts it halted.
fn start_halted(wait: &str, more: &str) -> HaltedServer {
    let halt = Halt::new();
    // Only the first reading is ever flushed.
    let config = format!(
        "[query]\nwait = \"{wait}\"\nconcurrent = 1\n[flush]\ninterval = \"1h\"\nquiet = \"10m\"\n[sensors]\nwrite_interval = \"1h\"\n"
    );
    let launch = halt.launch(Launch::embedded().config(config), "replay");
    let mut server = launch.start();
    write(&server, &format!("m,s=old v=1 {START}"));
    // So that it is not replayed.
    assert!(server.stop().success());
    server.restart();
    write(&server, more);
    server.kill();
    halt.set();
    server.restart_behind();
    HaltedServer { server, halt }
}

fn write(server: &Server, lines: &str) {
    post(&server.url("/write?db=d"), lines, &[]).expect(204);
}

fn readings(server: &Server, sensor: &str, hour: i64) -> Answer {
    let to = hour + HOUR;
    get(&server.url(&format!("/api/v1/readings?db=d&sensor=m,s={sensor}&from={hour}&to={to}&epoch=ns")))
}

fn values(answer: Answer) -> Vec<f64> {
    let answer = answer.expect(200).json();
    let readings = answer["series"][0]["readings"].as_array().cloned().unwrap_or_default();
    readings.iter().map(|reading| reading["v"].as_f64().expect("a number")).collect()
}

fn influx(server: &Server, statement: &str) -> Answer {
    let statement = encode(statement);
    get(&server.url(&format!("/query?db=d&q={statement}&epoch=ns")))
}

/// Expects 503 with the reason, the wait limit and Retry-After.
fn expect_behind(answer: Answer) {
    let answer = answer.expect(503);
    assert!(answer.text().contains("being replayed"), "{}", answer.text());
    assert!(answer.header("retry-after").is_some());
}

/// Regression: any backlog made all queries 503, so dashboards were blank for minutes after a kill.
#[test]
fn a_backlog_delays_only_queries_that_need_it() {
    let more = format!("m,s=old v=2 {NEXT}\nm,s=new v=3,w=1 {START}\nother,s=new v=1 {START}");
    let HaltedServer { server, halt } = start_halted("500ms", &more);
    let server = &server;
    // All queries wait until the backlog is known.
    wait_until("the backlog is known", || readings(server, "old", START).status == 200);
    assert_eq!(values(readings(server, "old", START)), [1.0]);
    expect_behind(readings(server, "old", NEXT));
    expect_behind(readings(server, "new", START));
    // A sensor that only the WAL knows is found in empty hours.
    assert!(values(readings(server, "old", NEXT + 2 * HOUR)).is_empty());
    let summary = |from: i64| {
        let to = from + HOUR;
        get(&server.url(&format!("/api/v1/summary?db=d&measurement=m&tag.s=old&agg=max&from={from}&to={to}")))
    };
    assert!(summary(START).expect(200).text().contains("\"max\":1"));
    expect_behind(summary(NEXT));
    // InfluxQL behaves alike, and sensors and fields that only the WAL knows are listed.
    let select = |sensor: &str, from: i64| {
        influx(server, &format!("SELECT v FROM m WHERE s = '{sensor}' AND time >= {from} AND time < {}", from + 1))
    };
    assert!(select("old", START).expect(200).text().contains(&format!("[{START},1]")));
    assert!(select("old", NEXT).text().contains("being replayed"), "{}", select("old", NEXT).text());
    assert!(select("new", START).text().contains("being replayed"));
    let listed = influx(server, "SHOW SERIES").expect(200).text().to_string();
    assert!(["m,s=old", "m,s=new", "other,s=new"].iter().all(|key| listed.contains(key)), "{listed}");
    let fields = get(&server.url("/api/v1/fields?db=d&measurement=m")).expect(200).text().to_string();
    assert!(fields.contains("\"w\""), "{fields}");
    // The list of sensors shows latest values, so it waits.
    expect_behind(get(&server.url("/api/v1/sensors?db=d")));
    // New records wait behind the backlog; another database is not affected.
    write(server, &format!("m,s=late v=4 {START}\nm,s=old v=5 {}", NEXT + 1));
    expect_behind(readings(server, "late", START));
    assert_eq!(values(readings(server, "old", START)), [1.0]);
    assert!(influx(server, "SHOW SERIES").expect(200).text().contains("m,s=late"));
    expect_behind(get(&server.url("/api/v1/sensors?db=d")));
    get(&server.url("/api/v1/sensors?db=another")).expect(200);
    halt.lift();
    await_dispatched(server);
    for (sensor, hour, expected) in
        [("old", NEXT, vec![2.0, 5.0]), ("new", START, vec![3.0]), ("late", START, vec![4.0])]
    {
        assert_eq!(values(readings(server, sensor, hour)), expected, "{sensor}");
    }
    get(&server.url("/api/v1/sensors?db=d")).expect(200);
}

/// Regression: a query for missing readings was answered 503 at once instead of waiting.
#[test]
fn a_query_for_dispatched_readings_waits_and_blocks_nobody() {
    let halted = start_halted(LONG, &format!("m,s=new v=3 {START}\nm,s=old v=2 {NEXT}"));
    let server = &halted.server;
    std::thread::scope(|threads| {
        let waiting = [("new", START, 3.0), ("old", NEXT, 2.0)].map(|(sensor, hour, value)| {
            let waiting = threads.spawn(move || values(readings(server, sensor, hour)));
            (waiting, value)
        });
        // `query.concurrent` is 1: a waiting query holds no slot.
        assert_eq!(values(readings(server, "old", START)), [1.0]);
        for (waiting, _) in &waiting {
            assert!(!waiting.is_finished(), "nothing of it is there yet");
        }
        halted.halt.lift();
        for (waiting, value) in waiting {
            assert_eq!(waiting.join().unwrap(), [value]);
        }
    });
}

/// A deletion in the backlog resets known sensors, so queries wait, and deleted readings never reappear.
#[test]
fn a_deletion_in_the_backlog_delays_queries_of_its_database() {
    let halt = Halt::new();
    let config = "[query]\nwait = \"500ms\"\n[flush]\ninterval = \"1h\"\nquiet = \"10m\"\n";
    let launch = halt.launch(Launch::embedded().config(config), "replay");
    let mut server = launch.start();
    write(&server, &format!("m,s=old v=1 {START}\nm,s=new v=1 {START}"));
    post(&server.url("/write?db=e"), format!("m,s=old v=1 {START}"), &[]).expect(204);
    assert!(server.stop().success());
    server.restart();
    write(&server, &format!("m,s=new v=2 {START}"));
    server.kill();
    halt.set();
    server.restart_behind();
    wait_until("the backlog is known", || readings(&server, "old", START).status == 200);
    std::thread::scope(|threads| {
        let drop = server.url("/query?db=d&q=DROP%20SERIES%20FROM%20m%20WHERE%20s%3D'new'");
        let deleting = threads.spawn(move || post(&drop, "", &[]).expect(200));
        wait_until("it is logged", || readings(&server, "old", START).status == 503);
        write(&server, &format!("m,s=new v=3 {START}"));
        expect_behind(readings(&server, "old", START));
        get(&server.url("/api/v1/readings?db=e&sensor=m,s=old")).expect(200);
        halt.lift();
        deleting.join().unwrap();
    });
    await_dispatched(&server);
    assert_eq!(values(readings(&server, "new", START)), [3.0]);
    assert_eq!(values(readings(&server, "old", START)), [1.0]);
}

/// Regression: an outage of a second, as in an election, made dashboards show errors.
#[test]
fn queries_wait_out_a_short_outage() {
    let mut mongod = Mongod::start();
    let config = format!("[store]\ncommand_timeout = \"1s\"\n[query]\nwait = \"{LONG}\"\nconcurrent = 1\n");
    let server = Launch::with_store(mongod.uri(&fresh_database_name())).config(config).start();
    write(&server, &format!("m,s=old v=1 {START}"));
    flush(&server);
    mongod.pause();
    wait_until("the outage is noticed", || super::store_health(&server) == "fail");
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| values(readings(&server, "old", START)));
        wait_until("it asks the store", || metric(&server, "hourglass_query_running") > 0.0);
        assert!(!waiting.is_finished());
        mongod.resume();
        assert_eq!(waiting.join().unwrap(), [1.0]);
    });
}
