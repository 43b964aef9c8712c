//! MongoDB refuses one database: others drain, the cause is reported, its backlog is bounded, and it recovers.

use hourglass::bucket::Caps;

use crate::support::prelude::*;

const CAPS: Caps = Caps { max_readings: 3600, max_bytes: 1 << 20, hard_bytes: 4 << 20 };

/// A server that flushes at once.
struct World {
    uri: String,
    name: String,
    server: Server,
}

impl World {
    fn new(mongod: &Mongod, before: &[Document], config: &str) -> World {
        let name = fresh_database_name();
        let uri = mongod.uri(&name);
        before.iter().for_each(|command| drop(run_command(&uri, None, command.clone())));
        let config = format!("[flush]\ninterval = \"100ms\"\n[sensors]\nwrite_interval = \"100ms\"\n{config}");
        let server = Launch::with_store(&uri).config(config).start();
        World { uri, name, server }
    }

    fn write(&self, database: &str, sensor: usize) -> u16 {
        let url = self.server.url(&format!("/write?db={database}"));
        post(&url, format!("m,s={sensor} v={sensor} {START}"), &[]).status
    }

    /// Returns the number of stored readings of a database.
    fn stored(&self, database: &str) -> usize {
        Stored::from_uri(&self.uri, &self.name, database).count(&CAPS)
    }

    #[track_caller]
    fn await_stored(&self, database: &str, readings: usize) {
        let what = format!("{readings} readings of {database} are stored");
        wait_until(&what, || self.stored(database) == readings);
    }

    /// Returns the health message about a database.
    fn health_of(&self, database: &str) -> Option<String> {
        let health = self.server.fetch("/health");
        let name = format!("database {database}");
        let checks = health["checks"].as_array().expect("checks").clone();
        let database_check =
            |check: &Value| (check["name"] == name.as_str()).then(|| check["message"].as_str().unwrap().to_owned());
        checks.iter().find_map(database_check)
    }
}

/// Regression: shards retried the oldest buckets first, so a database with a view for a collection blocked all others.
#[test]
fn an_unwritable_database_delays_no_other() {
    let view = doc! { "create": "one.buckets", "viewOn": "elsewhere", "pipeline": [] };
    let world = World::new(mongod(), &[view], "");
    for sensor in 0..50 {
        assert_eq!((world.write("one", sensor), world.write("two", sensor)), (204, 204));
    }
    world.await_stored("two", 50);
    let message = eventually("health names the database", || world.health_of("one"));
    assert!(message.contains("one.buckets") && message.contains("view"), "its cause: {message}");
    assert_eq!(world.health_of("two"), None);
    get(&world.server.url("/ready")).expect(200);
    let status = world.server.fetch("/api/v1/status");
    assert_eq!(status["store"]["away"], false);
    let failing = status["failing_databases"].as_array().unwrap();
    assert_eq!((failing.len(), &failing[0]["database"], &failing[0]["class"]), (1, &"one".into(), &"database".into()));
    assert_eq!(metric(&world.server, "hourglass_store_databases_failing"), 1.0);
    let log = world.server.stderr();
    assert!(log.lines().any(|line| line.contains("cannot store readings") && line.contains("one.buckets")), "{log}");
    // New readings of the other database keep draining.
    assert_eq!(world.write("two", 50), 204);
    world.await_stored("two", 51);
    run_command(&world.uri, None, doc! { "drop": "one.buckets" });
    world.await_stored("one", 50);
    wait_until("health passes again", || world.health_of("one").is_none());
    wait_until("nothing is pending", || metric(&world.server, "hourglass_ingest_readings_pending") == 0.0);
    assert_eq!(metric(&world.server, "hourglass_store_databases_failing"), 0.0);
}

/// Regression: an existing index `{sensor, start}` under another name (error 85) stopped all writes.
#[test]
fn an_index_under_another_name_is_accepted() {
    let by_sensor = |name: &str| doc! { "key": { "sensor": 1, "start": 1 }, "name": name };
    let outliers = doc! { "key": { "outlier.since": 1 }, "name": "mine", "sparse": true };
    let before = [
        doc! { "createIndexes": "one.buckets", "indexes": [by_sensor("mine")] },
        doc! { "createIndexes": "one.overflow", "indexes": [by_sensor("mine_too")] },
        doc! { "createIndexes": "one.sensors", "indexes": [outliers] },
    ];
    let world = World::new(mongod(), &before, "");
    assert_eq!((world.write("one", 1), world.write("two", 1)), (204, 204));
    world.await_stored("one", 1);
    world.await_stored("two", 1);
    assert_eq!(world.health_of("one"), None);
}

/// Regression: error 13 for one database was taken for an outage. Its backlog must not fill memory and log.
#[test]
fn the_backlog_of_an_unwritable_database_is_bounded() {
    let mongod = Mongod::start_with(&["--setParameter", "enableTestCommands=1"]);
    let world = World::new(&mongod, &[], "[memtable]\nmax_bytes = \"1MiB\"\n[ingest]\ndatabase_share = 2\n");
    let fail = |mode: &str| {
        let namespace = format!("{}.one.buckets", world.name);
        let commands = ["insert", "update", "find"];
        let data = doc! { "failCommands": commands.to_vec(), "errorCode": 13, "namespace": namespace };
        run_command(
            &world.uri,
            Some("admin"),
            doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data },
        );
    };
    fail("alwaysOn");
    assert_eq!((world.write("one", 0), world.write("two", 0)), (204, 204));
    world.await_stored("two", 1);
    eventually("it is reported", || world.health_of("one"));
    let mut taken = 1;
    let refused = loop {
        let answer = post(&world.server.url("/write?db=one"), format!("m,s={taken} v={taken} {START}"), &[]);
        if answer.status != 204 {
            break answer.expect(503);
        }
        taken += 1;
        assert!(taken < 5000, "the share does not bound it");
    };
    let text = refused.text();
    assert!(text.contains("their share of") && text.contains("one") && text.contains("not authorised"), "{text}");
    assert!(refused.header("retry-after").is_some());
    for sensor in 1..50 {
        assert_eq!(world.write("two", sensor), 204, "others go on");
    }
    world.await_stored("two", 50);
    fail("off");
    world.await_stored("one", taken);
    wait_until("writes are accepted again", || world.write("one", taken) == 204);
    world.await_stored("one", taken + 1);
}
