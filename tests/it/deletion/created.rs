//! `CREATE DATABASE` after `DROP DATABASE`: an acked database survives kills and replayed drops, with its settings.

use crate::support::prelude::*;

use super::{CONFIG, DATABASE, START, run, times, write};

/// Points after the WAL append at which a drop is killed.
const POINTS: [&str; 7] = [
    "after_sync",
    "before_dispatch",
    "after_dispatch",
    "forgetting_deleted",
    "before_deletion",
    "during_unlisting",
    "after_deletion",
];
/// Acked readings stay in the WAL.
const SLOW: &str = "[flush]\ninterval = \"1h\"\nquiet = \"10m\"\n";
/// With a setting that expires nothing.
const CREATE: &str = "CREATE DATABASE doomed WITH SHARD DURATION 2h";
/// This setting as InfluxDB shows it, and the default.
const SET: &str = "2h0m0s";
const UNSET: &str = "168h0m0s";

/// Returns the shard duration of policy `autogen`; `None` without the database.
fn shard_duration(server: &Server) -> Option<String> {
    let databases = server.fetch("/query?q=SHOW%20DATABASES");
    let rows = databases["results"][0]["series"][0]["values"].as_array().cloned().unwrap_or_default();
    rows.iter().find(|row| row[0] == DATABASE)?;
    let policies = server.fetch(&format!("/query?q=SHOW%20RETENTION%20POLICIES%20ON%20{DATABASE}"));
    let rows = policies["results"][0]["series"][0]["values"].as_array().cloned().unwrap_or_default();
    let own = rows.iter().find(|row| row[0] == "autogen")?;
    Some(own[2].as_str().expect("a duration").to_owned())
}

#[track_caller]
fn assert_exists(server: &Server, what: &str) {
    assert_eq!(shard_duration(server).as_deref(), Some(SET), "{what}: the database whose creation was answered");
}

tests! {
    /// Regression: of two replayed drops the first counted as not done and dropped the database created since.
    fn a_recreated_database_survives_a_replayed_drop_in_the_embedded_store() =>
        check_replayed_drop(&Launch::embedded().config(SLOW));
    fn a_recreated_database_survives_a_replayed_drop_in_mongodb() =>
        check_replayed_drop(&Launch::with_store(mongod().uri(&fresh_database_name())).config(SLOW));
}

fn check_replayed_drop(launch: &Launch) {
    let mut server = launch.clone().start();
    // Keeps the WAL from being truncated, so that both drops are replayed.
    post(&server.url("/write?db=other"), format!("m,t=a v=1 {START}"), &[]).expect(204);
    write(&server, &format!("m,t=a v=1 {START}"));
    run(&server, &format!("DROP DATABASE {DATABASE}; {CREATE}; DROP DATABASE {DATABASE}; {CREATE}"));
    for round in 0..2 {
        server.kill_and_restart();
        assert_exists(&server, &format!("round {round}"));
        assert!(times(&server, "m,t=a").is_empty());
        run(&server, "DROP SERIES FROM m WHERE t = 'a'");
    }
    run(&server, &format!("DROP DATABASE {DATABASE}"));
    assert_eq!(shard_duration(&server), None, "a later drop finds it");
}

tests! {
    /// A client that creates the database again before a killed drop is replayed must find it.
    fn a_replayed_drop_keeps_a_later_database_in_the_embedded_store() =>
        check_creation_before_replay(&Launch::embedded().config(CONFIG));
    fn a_replayed_drop_keeps_a_later_database_in_mongodb() =>
        check_creation_before_replay(&Launch::with_store(mongod().uri(&fresh_database_name())).config(CONFIG));
}

fn check_creation_before_replay(launch: &Launch) {
    for point in POINTS {
        let mut server = launch.clone().start();
        run(&server, "CREATE DATABASE doomed WITH SHARD DURATION 3h");
        write(&server, &format!("m,t=a v=1 {}", now()));
        flush(&server);
        kill_during_drop(&mut server, launch, point);
        let halt = Halt::already_set();
        let halted = halt.launch(launch.clone(), "replay");
        server.restart_as(halted);
        // It keeps its settings while the drop is unknown.
        run(&server, "CREATE DATABASE doomed");
        run(&server, "ALTER RETENTION POLICY autogen ON doomed SHARD DURATION 2h");
        halt.lift();
        await_dispatched(&server);
        for round in 0..2 {
            await_drop(&server, &format!("{point}, round {round}"), &[]);
            assert_exists(&server, point);
            server.kill();
            server.restart_with(launch.clone());
        }
        let later = now();
        write(&server, &format!("m,t=a v=2 {later}"));
        flush(&server);
        assert_eq!(times(&server, "m,t=a"), [later], "{point}");
        run(&server, &format!("DROP DATABASE {DATABASE}"));
        assert_eq!(shard_duration(&server), None, "{point}: a later drop finds it");
    }
}

/// Without explicit settings, the database has none of the dropped ones.
#[test]
fn a_database_created_after_a_killed_drop_has_default_settings() {
    let launch = Launch::embedded().config(CONFIG);
    for point in ["before_deletion", "during_unlisting"] {
        let mut server = launch.clone().start();
        run(&server, CREATE);
        kill_during_drop(&mut server, &launch, point);
        let halt = Halt::already_set();
        server.restart_as(halt.launch(launch.clone(), "replay"));
        run(&server, "CREATE DATABASE doomed");
        halt.lift();
        await_dispatched(&server);
        wait_until("the settings go with the drop", || {
            let now =
                shard_duration(&server).unwrap_or_else(|| panic!("{point}: the database whose creation was answered"));
            now == UNSET
        });
    }
}

/// One instance is killed during a drop; another one creates the database and is acked.
#[test]
fn a_resumed_drop_keeps_a_database_created_by_another_instance() {
    for point in ["before_deletion", "during_unlisting"] {
        let launch = Launch::with_store(mongod().uri(&fresh_database_name())).config(CONFIG);
        let mut here = launch.clone().start();
        let there = launch.clone().start();
        write(&there, &format!("m,t=a v=1 {START}"));
        flush(&there);
        kill_during_drop(&mut here, &launch, point);
        run(&there, "CREATE DATABASE doomed");
        run(&there, "ALTER RETENTION POLICY autogen ON doomed SHARD DURATION 2h");
        assert_exists(&there, point);
        here.restart_with(launch.clone());
        let later = now();
        write(&there, &format!("m,t=a v=2 {later}"));
        flush(&there);
        for server in [&here, &there] {
            await_drop(server, point, &[later]);
        }
        // A sensor document that is written before the drop is known there would list the database again.
        flush(&there);
        run(&here, &format!("DROP DATABASE {DATABASE}"));
        wait_until("it is gone for both", || [&here, &there].iter().all(|server| shard_duration(server).is_none()));
    }
}

/// Waits until only these readings are left; the database must exist all the time.
#[track_caller]
fn await_drop(server: &Server, what: &str, left: &[i64]) {
    wait_until("the drop is carried out", || {
        assert_exists(server, what);
        times(server, "m,t=a") == left
    });
    assert_exists(server, what);
}

/// Restarts the server so that it kills itself at a point, and drops the database there.
#[track_caller]
fn kill_during_drop(server: &mut Server, launch: &Launch, point: &str) {
    server.kill();
    server.restart_with(launch.clone().env("FAULT_KILL_AT", format!("{point}:1")));
    let url = server.url(&format!("/query?db={DATABASE}&q=DROP%20DATABASE%20{DATABASE}"));
    let _ = request("POST", &url, b"", &[]);
    eventually(point, || server.exited());
}
