//! Two instances on one MongoDB: deletions are visible within five seconds, and later writes are stored.

use crate::support::prelude::*;

use super::{CAPS, CONFIG, DATABASE, SECOND, START, list_sensors, run, times, write};

struct World {
    here: Server,
    there: Server,
    stored: Stored,
}

impl World {
    fn start() -> World {
        World::start_with(CONFIG, &[])
    }

    /// With environment variables for the instance that deletes.
    fn start_with(config: &str, variables: &[(&str, String)]) -> World {
        let name = fresh_database_name();
        let launch = Launch::with_store(mongod().uri(&name)).config(config);
        let with_them = variables.iter().fold(launch.clone(), |launch, (name, value)| launch.env(name, value));
        let here = with_them.start();
        let there = launch.start();
        World { here, there, stored: Stored::in_mongo(mongod(), &name, DATABASE) }
    }

    /// Writes readings of two sensors by both instances and flushes them.
    fn fill(&self) {
        for (number, server) in (0..).zip([&self.here, &self.there]) {
            let lines = |tag: &str| -> String {
                (0..20).map(|n| format!("m,t={tag} v=1 {}\n", START + (2 * n + number) * SECOND)).collect()
            };
            write(server, &(lines("a") + &lines("b")));
            flush(server);
        }
    }

    fn sensors(&self) -> BTreeSet<String> {
        let mut keys = BTreeSet::new();
        self.stored.each_sensor(|sensor| assert!(keys.insert(sensor.key)));
        keys
    }
}

fn databases(server: &Server) -> BTreeSet<String> {
    let answer = server.fetch("/query?q=SHOW%20DATABASES");
    let rows = answer["results"][0]["series"][0]["values"].as_array().cloned().unwrap_or_default();
    rows.iter().map(|row| row[0].as_str().expect("a name").to_owned()).collect()
}

fn list_series(server: &Server) -> Vec<String> {
    let answer = server.fetch(&format!("/query?db={DATABASE}&q=SHOW%20SERIES"));
    let rows = answer["results"][0]["series"][0]["values"].as_array().cloned().unwrap_or_default();
    rows.iter().map(|row| row[0].as_str().expect("a key").to_owned()).collect()
}

#[test]
fn a_dropped_series_is_hidden_on_other_instances() {
    let world = World::start();
    world.fill();
    run(&world.here, "DROP SERIES FROM m WHERE t = 'a'");
    assert_eq!((times(&world.there, "m,t=a"), times(&world.there, "m,t=b").len()), (vec![], 40));
    wait_until("it is not listed", || list_sensors(&world.there) == ["m,t=b"]);
    wait_until("it is not shown", || list_series(&world.there) == ["m,t=b"]);
    wait_until("its missing document is noticed", || {
        // Hot buckets of the other instance must not restore anything.
        write(&world.there, &format!("m,t=a v=2 {}", START + 100 * SECOND));
        flush(&world.there);
        world.sensors().contains("m,t=a")
    });
    for server in [&world.here, &world.there] {
        assert_eq!((times(server, "m,t=a"), times(server, "m,t=b").len()), (vec![START + 100 * SECOND], 40));
        wait_until("both are shown", || list_series(server) == ["m,t=a", "m,t=b"]);
    }
    world.stored.each_bucket(&CAPS, |_| {});
}

/// Regression: a deletion by key excluded the sensors with more tags that its instance knew. One that only another
/// instance had acked was deleted, too.
#[test]
fn a_deletion_by_key_spares_unflushed_sensors_with_more_tags() {
    let world = World::start();
    world.fill();
    write(&world.there, &format!("m,t=a,floor=2 v=1 {START}"));
    let url = world.here.url(&format!("/api/v1/readings?db={DATABASE}&sensor=m,t%3Da"));
    request("DELETE", &url, b"", &[]).expect("an answer").expect(204);
    flush(&world.there);
    wait_until("it is deleted", || list_sensors(&world.there) == ["m,floor=2,t=a", "m,t=b"]);
    for server in [&world.here, &world.there] {
        assert_eq!((times(server, "m,t=a"), times(server, "m,t=b").len()), (vec![], 40));
        assert_eq!(times(server, "m,t=a,floor=2"), [START]);
    }
}

/// Regression: a deletion overwrote a sensor document that another instance had just updated.
#[test]
fn a_write_during_a_deletion_survives_it() {
    let folder = Folder::new("settling");
    let halt = folder.file("halt");
    std::fs::write(&halt, "").unwrap();
    let world = World::start_with(CONFIG, &[("FAULT_HALT_AT", format!("settling:{}", halt.display()))]);
    world.fill();
    std::thread::scope(|threads| {
        let deletes = threads.spawn(|| run(&world.here, &format!("DELETE FROM m WHERE time < {}", START + SECOND)));
        wait_until("it is deleted in the store", || world.stored.count(&CAPS) == 2 * 39);
        write(&world.there, &format!("m,t=a v=2 {}", START + 100 * SECOND));
        flush(&world.there);
        std::fs::remove_file(&halt).unwrap();
        deletes.join().expect("it is deleted");
    });
    for server in [&world.here, &world.there] {
        let answer = server.fetch(&format!("/api/v1/latest?db={DATABASE}&sensor=m,t=a&epoch=ns"));
        assert_eq!(answer["series"][0]["readings"][0]["ts"], START + 100 * SECOND, "{answer}");
    }
}

/// Regression: a drop emptied the document of a sensor with a newer reading, and nothing filled it again, so the sensor
/// was listed nowhere until its next write.
#[test]
fn a_write_before_a_drop_empties_the_document_survives_it() {
    let folder = Folder::new("hiding");
    let halt = folder.file("halt");
    std::fs::write(&halt, "").unwrap();
    let world = World::start_with(CONFIG, &[("FAULT_HALT_AT", format!("hiding:{}", halt.display()))]);
    world.fill();
    std::thread::scope(|threads| {
        let deletes = threads.spawn(|| run(&world.here, "DROP SERIES FROM m WHERE t = 'a'"));
        wait_until("it is remembered", || metric(&world.there, "hourglass_registry_deletions") == 1.0);
        write(&world.there, &format!("m,t=a w=true {}", START + 100 * SECOND));
        flush(&world.there);
        wait_until("its document is written", || {
            let found = world.there.fetch(&format!("/api/v1/documents?db={DATABASE}&sensor=m,t=a"));
            found["documents"][0]["document"]["fields"]["w"] == "boolean"
        });
        std::fs::remove_file(&halt).unwrap();
        deletes.join().expect("it is deleted");
    });
    for server in [&world.here, &world.there] {
        wait_until("it is listed", || list_series(server) == ["m,t=a", "m,t=b"]);
        let fields = server.fetch(&format!("/query?db={DATABASE}&q=SHOW%20FIELD%20KEYS"));
        assert!(fields.to_string().contains("[\"w\",\"boolean\"]"), "{fields}");
        let seen = server.fetch(&format!("/query?db={DATABASE}&epoch=ns&q={}", encode("SELECT w FROM m")));
        assert_eq!(seen["results"][0]["series"][0]["values"], json!([[START + 100 * SECOND, true]]), "{seen}");
    }
}

/// Regression: an instance saw a page that a drop was about to remove, and listed the database again after the drop had
/// unlisted it. It stayed listed for ever. Found by a run on a busy machine.
#[test]
fn a_dropped_database_is_not_listed_again_by_an_instance_that_saw_its_pages() {
    let removing = Halt::already_set();
    let relisting = Halt::already_set();
    let launch = Launch::with_store(mongod().uri(&fresh_database_name())).config(CONFIG);
    let here = removing.launch(launch.clone(), "removing").start();
    let there = relisting.launch(launch, "relisting").start();
    write(&here, &format!("m,t=a v=1 {START}"));
    flush(&here);
    std::thread::scope(|threads| {
        let drops = threads.spawn(|| run(&here, "DROP DATABASE doomed"));
        relisting.await_met("the other instance saw a page");
        removing.lift();
        wait_until("it is not listed", || !databases(&here).contains(DATABASE));
        relisting.lift();
        drops.join().expect("it is dropped");
    });
    for server in [&there, &here] {
        wait_until("it stays so", || !databases(server).contains(DATABASE));
    }
}

/// Regression: readings stored before the drop was known had no sensor document until the next interval.
#[test]
fn writes_of_another_instance_recreate_a_dropped_database() {
    let world = World::start_with(&CONFIG.replace("write_interval = \"200ms\"", "write_interval = \"1h\""), &[]);
    world.fill();
    run(&world.here, "DROP DATABASE doomed");
    assert!(times(&world.there, "m,t=a").is_empty());
    wait_until("it is not listed", || !databases(&world.there).contains(DATABASE));
    assert!(!databases(&world.here).contains(DATABASE));
    write(&world.there, &format!("m,t=b v=2 {}", START + 100 * SECOND));
    flush(&world.there);
    for server in [&world.here, &world.there] {
        wait_until("it is found", || times(server, "m,t=b") == [START + 100 * SECOND]);
        assert!(times(server, "m,t=a").is_empty());
        wait_until("it is listed", || databases(server).contains(DATABASE));
    }
    // With validators and indexes: MongoDB would create collections implicitly, without compression.
    wait_until("its collections are as they should be", || {
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.stored.check_validators()));
        checked.is_ok()
    });
    assert_eq!(world.sensors(), BTreeSet::from(["m,t=b".to_owned()]));
}
