//! Renames: sensors under other names in reads, writes and deletions.

mod model;

use crate::support::prelude::*;

const T: i64 = 1_768_489_200;

fn put(server: &Server, entry: &Value, query: &str) -> Answer {
    let url = server.url(&format!("/api/v1/renames?db=d{query}"));
    request("PUT", &url, entry.to_string().as_bytes(), &[]).unwrap()
}

fn rename(server: &Server, entry: &Value) {
    put(server, entry, "").expect(200);
}

/// Deletes an entry by its stored name.
fn delete(server: &Server, entry: &Value) -> Answer {
    let field = |name: &str| entry[name].as_str().map(|text| format!("&{name}={}", encode(text))).unwrap_or_default();
    let query = ["kind", "tag", "measurement", "from"].map(field).concat();
    request("DELETE", &server.url(&format!("/api/v1/renames?db=d{query}")), b"", &[]).unwrap()
}

fn value(tag: &str, from: &str, to: &str) -> Value {
    json!({"kind": "tag_value", "tag": tag, "from": from, "to": to})
}

fn sensor(from: &str, to: &str) -> Value {
    json!({"kind": "sensor", "from": from, "to": to})
}

fn renames(server: &Server) -> Value {
    server.fetch("/api/v1/renames?db=d")["renames"].clone()
}

fn change(server: &Server, statement: &str) {
    execute(server, "d", statement);
}

/// Returns the readings of a sensor's field `v`, by time.
fn readings(server: &Server, key: &str) -> Vec<(i64, i64)> {
    let url = format!("/api/v1/readings?db=d&limit=1000&epoch=s&sensor={}", encode(key));
    let answer = server.fetch(&url);
    let rows =
        answer["series"].as_array().into_iter().flatten().flat_map(|series| series["readings"].as_array().unwrap());
    let number = |value: &Value| value.as_i64().unwrap_or_else(|| panic!("{answer}"));
    rows.map(|row| (number(&row["ts"]), number(&row["v"]))).collect()
}

fn list_sensors(server: &Server) -> BTreeSet<String> {
    sensor_keys(server, "db=d").into_iter().collect()
}

/// Returns the first column of a listing.
fn listed_values(server: &Server, statement: &str) -> BTreeSet<String> {
    let series = influxql(server, statement);
    let rows = series.as_array().into_iter().flatten().flat_map(|series| series["values"].as_array().unwrap());
    rows.map(|row| row.as_array().unwrap().last().unwrap().as_str().unwrap().to_owned()).collect()
}

fn set(keys: &[&str]) -> BTreeSet<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

#[test]
fn every_kind_of_name_can_be_renamed_and_written_by_both_names() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        write_flushed(&server, format!("m,room=a,s=1 v=1i {T}\nm,room=b,s=2 v=2i {}\n", T + 1));
        let old = "m,room=a,s=1";
        for (entry, new) in [
            (sensor(old, "w,area=x,s=9"), "w,area=x,s=9"),
            (value("room", "a", "c"), "m,room=c,s=1"),
            (json!({"kind": "tag_value", "tag": "room", "measurement": "m", "from": "a", "to": "c"}), "m,room=c,s=1"),
            (json!({"kind": "tag_key", "from": "room", "to": "area"}), "m,area=a,s=1"),
            (json!({"kind": "measurement", "from": "m", "to": "w"}), "w,room=a,s=1"),
        ] {
            let dry = put(&server, &entry, "&dry_run=true").expect(200).json();
            assert_eq!((&dry["dry_run"], &dry["examples"][0]), (&json!(true), &json!({"from": old, "to": new})));
            assert_eq!((list_sensors(&server), renames(&server)), (set(&[old, "m,room=b,s=2"]), json!([])), "{entry}");
            assert_eq!(put(&server, &entry, "").expect(200).json()["renamed"], dry["renamed"]);
            assert_eq!(renames(&server), json!([entry]));
            assert!(
                list_sensors(&server).contains(new) && !list_sensors(&server).contains(old),
                "{entry}: {:?}",
                list_sensors(&server)
            );
            assert_eq!(listed_values(&server, "SHOW SERIES"), list_sensors(&server), "{entry}");
            // Both names are written, before and after the flush.
            write(&server, format!("{old} v=3i {}\n{new} v=4i {}\n", T + 7200, T + 7201));
            for _ in 0..2 {
                let all = [(T, 1), (T + 7200, 3), (T + 7201, 4)];
                assert_eq!((readings(&server, new), readings(&server, old)), (all.to_vec(), vec![]), "{entry}");
                let latest = server.url(&format!("/api/v1/latest?db=d&epoch=s&sensor={}", encode(new)));
                let latest = get(&latest).expect(200).json();
                assert_eq!(latest["series"][0]["readings"][0]["ts"], json!(T + 7201), "{entry}: {latest}");
                let sums = influxql(&server, "SELECT sum(v), count(v) FROM /.*/ WHERE s =~ /1|9/");
                assert_eq!(sums[0]["values"][0], json!([0, 8, 3]), "{entry}: {sums}");
                flush(&server);
            }
            delete(&server, &entry).expect(200);
            assert_eq!(list_sensors(&server), set(&[old, "m,room=b,s=2"]), "{entry}: no other sensor was made");
            assert_eq!((readings(&server, old).len(), readings(&server, new)), (3, vec![]), "{entry}");
            change(&server, &format!("DELETE FROM m WHERE time >= {}s", T + 7200));
        }
        server.stop();
    }
}

#[test]
fn conditions_groups_and_listings_use_shown_names() {
    let server = Launch::embedded().start();
    write(&server, format!("m,room=lab,s=1 v=1i {T}\nm,room=hall,s=2 v=2i {T}\nn,room=lab,s=3 v=4i {T}\n"));
    for entry in [
        value("room", "lab", "hall"),
        json!({"kind": "measurement", "from": "n", "to": "power"}),
        json!({"kind": "tag_key", "from": "room", "to": "place"}),
    ] {
        rename(&server, &entry);
    }
    let sum =
        |condition: &str| influxql(&server, &format!("SELECT sum(v) FROM {condition}"))[0]["values"][0][1].clone();
    assert_eq!(sum("m WHERE place = 'hall'"), json!(3));
    assert_eq!(sum("/.*/ WHERE place = 'hall'"), json!(3), "the first series");
    assert_eq!(sum("power"), json!(4));
    assert_eq!((sum("n"), sum("m WHERE place = 'lab'"), sum("m WHERE room = 'hall'")), Default::default());
    let grouped = influxql(&server, "SELECT sum(v) FROM m GROUP BY place");
    assert_eq!(grouped.as_array().unwrap().len(), 1, "two sensors with one shown value: {grouped}");
    assert_eq!(grouped[0]["tags"], json!({"place": "hall"}));
    assert_eq!(listed_values(&server, "SHOW MEASUREMENTS"), set(&["m", "power"]));
    assert_eq!(listed_values(&server, "SHOW TAG VALUES WITH KEY IN (room, place)"), set(&["hall"]));
    assert_eq!(listed_values(&server, "SHOW TAG KEYS"), set(&["place", "s"]));
    let rows = influxql(&server, "SELECT * FROM power");
    assert_eq!(rows[0]["columns"], json!(["time", "place", "s", "v"]));
    let summary = |selector: &str| {
        let url = format!("/api/v1/summary?db=d&agg=sum&{selector}");
        server.fetch(&url)["series"].as_array().unwrap().len()
    };
    assert_eq!((summary("measurement=m&tag.place=hall"), summary("measurement=n")), (2, 0));
    // A series by its tag `sensor`, and pages of lists in the order of shown names.
    let page = |cursor: &str| server.fetch(&format!("/api/v1/sensors?db=d&limit=2{cursor}"));
    let first = page("");
    assert_eq!(first["next"], "m,place=hall,s=2", "{first}");
    assert_eq!(page("&cursor=m,place%3Dhall,s%3D2")["sensors"][0]["sensor"], "power,place=hall,s=3");
}

#[test]
fn a_new_sensor_written_by_its_shown_name_is_stored_by_its_stored_name() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        write(&server, format!("m,room=lab,s=1 v=1i {T}\nm,room=hall,s=2 v=2i {T}\n"));
        let entry = value("room", "lab", "hall");
        rename(&server, &entry);
        // The second sensor is stored under the shown name, the third is new; their other names mean the same.
        write(&server, format!("m,room=hall,s=2 v=3i {}\nm,room=hall,s=3 v=4i {T}\n", T + 1));
        write(&server, format!("m,room=lab,s=2 v=5i {}\nm,room=lab,s=3 v=6i {}\n", T + 2, T + 1));
        server.kill_and_restart();
        write(&server, format!("m,room=hall,s=3 v=7i {}\nm,s=3,room=hall v=8i {}\n", T + 2, T + 3));
        write_flushed(&server, format!("m,room=lab,s=2 v=9i {}\n", T + 3));
        let all =
            |server: &Server, key: &str| readings(server, key).into_iter().map(|reading| reading.1).collect::<Vec<_>>();
        assert_eq!(all(&server, "m,room=hall,s=2"), [2, 3, 5, 9]);
        assert_eq!(all(&server, "m,room=hall,s=3"), [4, 6, 7, 8]);
        delete(&server, &entry).expect(200);
        assert_eq!(list_sensors(&server), set(&["m,room=lab,s=1", "m,room=hall,s=2", "m,room=lab,s=3"]));
        // Regression: the catalog forgot the shown name.
        write(&server, format!("m,room=hall,s=3 v=1i {T}\n"));
        assert_eq!(all(&server, "m,room=lab,s=3"), [4, 6, 7, 8]);
        assert_eq!(all(&server, "m,room=hall,s=3"), [1]);
        server.stop();
    }
}

#[test]
fn other_instances_follow_a_rename() {
    let store = mongod().uri(&fresh_database_name());
    let mut one = Launch::with_store(store.clone()).start();
    let mut other = Launch::with_store(store).start();
    write_flushed(&one, format!("m,s=1 v=1i {T}\n"));
    rename(&one, &value("s", "1", "2"));
    let has = |server: &Server, key: &str| (list_sensors(server) == set(&[key])).then_some(());
    eventually("the other shows the new name", || has(&other, "m,s=2"));
    // Acked there under both names, and not flushed.
    write(&other, format!("m,s=1 v=2i {}\nm,s=2 v=3i {}\n", T + 1, T + 2));
    assert_eq!(readings(&other, "m,s=2"), [(T, 1), (T + 1, 2), (T + 2, 3)]);
    delete(&one, &value("s", "1", "2")).expect(200);
    eventually("the other shows the old name", || has(&other, "m,s=1"));
    assert_eq!(readings(&other, "m,s=1").len(), 3);
    one.stop();
    other.stop();
}

#[test]
fn ambiguous_renames_are_refused() {
    let server = Launch::embedded().start();
    write(&server, format!("m,room=a,s=1 v=1i {T}\nm,room=b,s=1 v=2i {T}\nm,room=b,s=2 v=2i {T}\n"));
    post(&server.url("/write?db=d/week&precision=s"), format!("p,s=1 v=1i {T}"), &[]);
    let refused = |entry: &Value, why: &str| {
        let answer = put(&server, entry, "").expect(400).text().to_owned();
        assert!(answer.contains(why), "{entry}: {answer}");
        assert_eq!(put(&server, entry, "&dry_run=true").status, 400, "{entry}");
    };
    refused(&value("room", "a", "b"), "m,room=b,s=1 would name two stored sensors");
    refused(&sensor("m,room=a,s=1", "m,room=b,s=2"), "would name two stored sensors");
    refused(&value("room", "a", "a"), "both names are the same");
    refused(&value("", "a", "b"), "tag goes with kind tag_value");
    refused(&sensor("m,room=a", "m,"), "parameter sensor");
    refused(&json!({"kind": "tag_key", "from": "room"}), "kind, from and to are needed");
    refused(&json!({"kind": "room", "from": "a", "to": "b"}), "tag_value");
    refused(&json!({"kind": "measurement", "from": "m", "to": "w", "since": "x"}), "unknown key");
    refused(&json!({"kind": "measurement", "from": "m", "to": 7}), "send a string");
    refused(&value("room", "a", &"b".repeat(70_000)), "limits.name_bytes");
    let policy = server.url("/api/v1/renames?db=d/week");
    request("PUT", &policy, value("room", "a", "b").to_string().as_bytes(), &[]).unwrap().expect(400);
    delete(&server, &value("room", "a", "")).expect(400);
    assert_eq!(renames(&server), json!([]));
    // A rename by key resolves the conflict; without its entry both would have the same name again.
    let own = sensor("m,room=b,s=1", "m,room=b,s=7");
    rename(&server, &own);
    refused(&value("room", "a", "b"), "would name two stored sensors");
    rename(&server, &value("room", "a", "c"));
    // A shown name stands for its entry.
    rename(&server, &value("room", "c", "d"));
    rename(&server, &sensor("m,room=b,s=7", "m,room=b,s=8"));
    assert_eq!(renames(&server), json!([sensor("m,room=b,s=1", "m,room=b,s=8"), value("room", "a", "d")]));
    rename(&server, &sensor("m,room=d,s=1", "x,s=1"));
    assert_eq!(list_sensors(&server), set(&["m,room=b,s=2", "m,room=b,s=8", "x,s=1"]));
    delete(&server, &sensor("m,room=b,s=8", "")).expect(400);
    delete(&server, &own).expect(200);
    assert_eq!(list_sensors(&server), set(&["m,room=b,s=1", "m,room=b,s=2", "x,s=1"]));
}

#[test]
fn deletions_use_shown_names() {
    for store in stores() {
        let mut server = Launch::with_store(&store).start();
        let key = "m,room=a,s=1";
        let lines = format!("{key} v=1i {T}\n{key} v=900i {}\nm,room=b,s=2 v=901i {T}\n", T + 1);
        write_flushed(&server, &lines);
        write(&server, format!("{key} v=902i {}\n", T + 2));
        rename(&server, &value("room", "a", "c"));
        rename(&server, &json!({"kind": "measurement", "from": "m", "to": "w"}));
        let shown = "w,room=c,s=1";
        for nothing in ["DROP MEASUREMENT m", "DELETE FROM m", "DROP SERIES FROM w WHERE room = 'a'"] {
            change(&server, nothing);
        }
        assert_eq!(readings(&server, shown), [(T, 1), (T + 1, 900), (T + 2, 902)]);
        let preview = |statement: &str| -> Value {
            let url = server.url(&format!("/query?db=d&dry_run=true&q={}", encode(statement)));
            post(&url, "", &[]).expect(200).json()["results"][0]["series"][0]["values"][0].clone()
        };
        let by_value = "DELETE FROM w WHERE room = 'c' AND v > 100";
        assert_eq!(preview(by_value), json!(["d", 1, 2, 0]));
        change(&server, by_value);
        assert_eq!((readings(&server, shown), readings(&server, "w,room=b,s=2")), (vec![(T, 1)], vec![(T, 901)]));
        change(&server, &format!("DELETE FROM w WHERE room = 'c' AND time = {T}s"));
        server.kill_and_restart();
        assert_eq!(list_sensors(&server), set(&["w,room=b,s=2"]));
        write(&server, &lines);
        change(&server, "DROP MEASUREMENT w");
        assert_eq!(list_sensors(&server), set(&[]));
        change(&server, "DROP DATABASE d");
        write(&server, &lines);
        assert_eq!((renames(&server), list_sensors(&server)), (json!([]), set(&[key, "m,room=b,s=2"])));
        server.stop();
    }
}

/// A remembered deletion covers unflushed readings of another instance, by the names of its time.
#[test]
fn a_deletion_covers_sensors_known_only_to_another_instance() {
    let store = mongod().uri(&fresh_database_name());
    let launch = Launch::with_store(store);
    let mut one = launch.clone().start();
    let mut other = launch.start();
    write_flushed(&one, format!("m,room=x,s=0 v=0i {T}\n"));
    rename(&one, &value("room", "a", "c"));
    wait_until("the other knows of it", || renames(&other) != json!([]));
    write(&other, format!("m,room=c,s=1 v=1i {T}\nm,room=b,s=2 v=2i {T}\n"));
    change(&one, "DROP SERIES FROM m WHERE room = 'c'");
    delete(&one, &value("room", "a", "")).expect(200);
    let left = set(&["m,room=x,s=0", "m,room=b,s=2"]);
    wait_until("the other has deleted it", || list_sensors(&other) == left);
    flush(&other);
    assert_eq!((readings(&other, "m,room=a,s=1"), readings(&other, "m,room=b,s=2").len()), (vec![], 1));
    one.stop();
    other.stop();
}

#[test]
fn metadata_follows_the_shown_name() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        write(&server, format!("m,s=1 v=1i {T}\n"));
        let url = |key: &str| server.url(&format!("/api/v1/sensors/{}/meta?db=d", encode(key)));
        let send = |method: &str, key: &str, body: &str| request(method, &url(key), body.as_bytes(), &[]).unwrap();
        send("PUT", "m,s=1", r#"{"site":"lab"}"#).expect(200);
        flush(&server);
        rename(&server, &value("s", "1", "one"));
        let patched = send("PATCH", "m,s=one", r#"{"floor":3}"#).expect(200).json();
        let meta = json!({"site": "lab", "floor": 3});
        assert_eq!((&patched, get(&url("m,s=one")).expect(200).json()), (&meta, meta.clone()));
        assert_eq!(get(&url("m,s=1")).expect(200).json(), json!({}), "nothing is shown so");
        // Also before any reading, by a file of several lines.
        let lines = "{\"sensor\":\"m,s=one\",\"meta\":{\"floor\":4}}\n{\"sensor\":\"m,s=2\",\"meta\":{\"floor\":5}}";
        post(&server.url("/api/v1/meta?db=d"), lines, &[]).expect(200);
        let exported = server.fetch("/api/v1/meta?db=d")["sensors"].clone();
        let one = json!({"sensor": "m,s=one", "meta": {"site": "lab", "floor": 4}});
        assert_eq!(exported, json!([one, {"sensor": "m,s=2", "meta": {"floor": 5}}]));
        let found = influxql(&server, "SELECT v, s FROM m WHERE \"meta.floor\" = '4'");
        assert_eq!(found[0]["values"], json!([[T, 1, "one"]]));
        let listed = server.fetch("/api/v1/sensors?db=d")["sensors"][0].clone();
        assert_eq!((&listed["sensor"], &listed["meta"]["floor"]), (&json!("m,s=one"), &json!(4)), "{listed}");
        server.stop();
    }
}

#[test]
fn a_rename_is_atomic_under_kills() {
    for store in stores() {
        for (point, is_done) in [("before_rename:1", false), ("after_rename:1", true)] {
            let launch = Launch::with_store(store.clone());
            let mut server = launch.clone().env("FAULT_KILL_AT", point).start();
            write(&server, format!("m,s=1 v=1i {T}\n"));
            let url = server.url("/api/v1/renames?db=d");
            let _ = request("PUT", &url, value("s", "1", point).to_string().as_bytes(), &[]);
            eventually("the server is killed", || server.exited());
            server.restart_with(launch);
            let to = if is_done { format!("m,s={point}") } else { "m,s=1".to_owned() };
            assert_eq!((list_sensors(&server), readings(&server, &to)), (set(&[&to]), vec![(T, 1)]), "{point}");
            server.stop();
        }
    }
}

#[test]
fn the_renames_command_adds_lists_and_removes() {
    let server = Launch::embedded().start();
    write(&server, format!("m,room=lab,s=1 v=1i {T}\n"));
    let run = |arguments: &[&str]| {
        let ran = run_program(program().arg("rename").args(arguments).args(["--server", &server.url(""), "--db", "d"]));
        (ran.status == Some(0), ran.stdout)
    };
    let add = ["add", "tag_value", "lab", "hall", "--tag", "room", "--measurement", "m"];
    let done = |text: &str| (true, text.to_owned());
    let example = "m,room=lab,s=1 -> m,room=hall,s=1\n1 sensors";
    assert_eq!(run(&[&add[..], &["--dry-run"]].concat()), done(&format!("{example} would get another name\n")));
    assert_eq!(run(&["list"]), done(""));
    assert_eq!(run(&add), done(&format!("{example} get another name\n")));
    assert_eq!(run(&["list"]), done("tag_value tag room measurement m: lab -> hall\n"));
    let remove = ["remove", "tag_value", "lab", "--tag", "room", "--measurement", "m"];
    assert_eq!(run(&remove), done("m,room=hall,s=1 -> m,room=lab,s=1\n1 sensors get another name\n"));
    assert!(!run(&remove).0);
}
