//! What an old name means in a query and in a deletion: a corrected spelling is the present name, a sensor that moved is where it is.

use serde_json::{Value, json};

use super::{T, escaped, flush, influxql, listed, readings, relabel, set, stores, undo, write};
use crate::support::http::{get, post};
use crate::support::server::{Launch, Server};

/// Two sensors of the lab; one of them is in the attic from 16:00 on.
const LATER: i64 = T + 3600;
const SINCE: &str = "2026-01-15T16:00:00Z";

fn api(server: &Server, path: &str) -> Value {
    get(&server.url(&format!("/api/v1/{path}"))).expect(200).json()
}

fn ask(server: &Server, statement: &str) -> Value {
    post(&server.url(&format!("/query?db=d&epoch=s&q={}", escaped(statement))), "", &[]).expect(200).json()["results"]
        [0]
    .clone()
}

fn error(server: &Server, statement: &str) -> String {
    ask(server, statement)["error"].as_str().unwrap_or_default().to_owned()
}

/// The mean of each series, with the values of its tags.
fn means(server: &Server, statement: &str) -> Vec<(Value, f64)> {
    let series = influxql(server, statement);
    let all = series.as_array().cloned().unwrap_or_default();
    all.iter().map(|of| (of["tags"].clone(), of["values"][0][1].as_f64().unwrap())).collect()
}

/// Regression: after a move `room = 'lab'` meant the readings of the new room, too: the lab's mean was that of both rooms, `room != 'lab'` found nothing,
/// and a deletion of the lab's readings took the attic's.
#[test]
fn a_sensor_that_moved_is_where_it_is() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        for (time, moved, stays) in [(T, 10, 20), (LATER, 60, 20)] {
            write(
                &server,
                &format!(
                    "climate,room=lab,sensor=moved v={moved}i {time}\nclimate,room=lab,sensor=stays v={stays}i {time}\n"
                ),
            );
        }
        flush(&server);
        let (old, new) = ("climate,room=lab,sensor=moved", "climate,room=attic,sensor=moved");
        relabel(&server, &json!({"kind": "sensor", "from": old, "to": new, "since": SINCE}));
        let since = format!("FROM climate WHERE time >= {LATER}s");
        let mean = |condition: &str| means(&server, &format!("SELECT mean(v) {since} AND {condition}"));
        let rooms = means(&server, &format!("SELECT mean(v) {since} GROUP BY room"));
        assert_eq!(rooms, [(json!({"room": "attic"}), 60.0), (json!({"room": "lab"}), 20.0)]);
        assert_eq!(mean("room = 'lab'"), [(Value::Null, 20.0)]);
        assert_eq!(mean("room != 'lab'"), [(Value::Null, 60.0)]);
        assert_eq!(mean("room =~ /lab/ AND v > 0"), [(Value::Null, 20.0)]);
        assert_eq!(means(&server, "SELECT mean(v) FROM climate WHERE room = 'lab'"), [(Value::Null, 50.0 / 3.0)]);
        let path = "summary?db=d&measurement=climate&tag.room=lab&group_by=room&agg=avg&from=2026-01-15T16:00:00Z";
        let told = api(&server, path);
        assert_eq!(told["series"].as_array().map(Vec::len), Some(1), "{told}");
        assert_eq!(told["series"][0]["windows"][0]["fields"]["v"]["avg"].as_f64(), Some(20.0), "{told}");
        let latest = api(&server, "latest?db=d&tag.room=lab&epoch=s");
        assert!(!latest.to_string().contains("attic"), "{latest}");
        // By its key it is one series.
        for key in [old, new] {
            let all = [(T, 10), (LATER, 60)];
            assert_eq!(readings(&server, key), if key == old { &all[..] } else { &all[1..] }, "{key}");
        }
        assert_eq!(error(&server, "DELETE FROM climate WHERE room = 'lab'"), "");
        assert_eq!(influxql(&server, "SELECT v, room FROM climate")[0]["values"], json!([[LATER, 60, "attic"]]));
        server.stop();
    }
}

/// Regression: a deletion under an old spelling took what is shown under another name. It is refused, whichever way it names it.
#[test]
fn a_deletion_under_an_old_spelling_is_refused() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        write(&server, &format!("climate,room=lab,s=1 temp=1 {T}\nclimate,room=roof,s=2 temp=2 {T}\n"));
        relabel(&server, &json!({"kind": "tag_value", "tag": "room", "from": "lab", "to": "hall"}));
        relabel(&server, &json!({"kind": "measurement", "from": "climate", "to": "weather"}));
        let all = set(&["weather,room=hall,s=1", "weather,room=roof,s=2"]);
        for statement in [
            "DELETE FROM weather WHERE room = 'lab'",
            "DELETE FROM weather WHERE room != 'lab'",
            "DELETE FROM climate WHERE room = 'hall'",
            "DELETE FROM weather WHERE room = 'lab' AND temp > 0",
            "DELETE FROM weather WHERE room != 'lab' OR temp > 5",
            "DROP SERIES FROM weather WHERE room =~ /lab/",
            "DROP MEASUREMENT climate",
        ] {
            let told = error(&server, statement);
            assert!(told.contains("goes by present names") && told.contains("weather,room="), "{statement}: {told}");
            assert_eq!(listed(&server), all, "{statement}");
        }
        // A query understands it.
        assert_eq!(means(&server, "SELECT mean(temp) FROM climate WHERE room = 'lab'"), [(Value::Null, 1.0)]);
        assert_eq!(error(&server, "DELETE FROM weather WHERE room = 'hall'"), "");
        assert_eq!(listed(&server), set(&["weather,room=roof,s=2"]));
        server.stop();
    }
}

/// Regression: by the old key of a tag all sensors were one group without a value, and a group by it had no members, without a word.
#[test]
fn an_old_key_groups_as_the_present_one() {
    let config = "[[groups]]\nname = \"room\"\nby = \"room\"\n";
    for store in stores() {
        let mut server = Launch::with_store(store).config(config).start();
        write(&server, &format!("climate,room=a,s=1 temp=1 {T}\nclimate,room=b,s=2 temp=2 {T}\n"));
        relabel(&server, &json!({"kind": "tag_key", "from": "room", "to": "zone"}));
        // New devices know the new key only.
        write(&server, &format!("climate,s=3,zone=b temp=4 {T}\n"));
        let of = |room: &str, mean: f64| (json!({"room": room}), mean);
        for end in ["", " SLIMIT 5"] {
            let rooms = means(&server, &format!("SELECT mean(temp) FROM climate GROUP BY room{end}"));
            assert_eq!(rooms, [of("a", 1.0), of("b", 3.0)], "{end}");
        }
        let ends = influxql(&server, "SELECT first(temp) FROM climate GROUP BY time(1h), room fill(none)");
        assert_eq!(ends.as_array().map(Vec::len), Some(2), "{ends}");
        let within = "SELECT mean(m) FROM (SELECT mean(temp) AS m FROM climate GROUP BY room, s) GROUP BY room";
        assert_eq!(means(&server, within), [of("a", 1.0), of("b", 3.0)]);
        let told = api(&server, "summary?db=d&measurement=climate&group_by=room&agg=sum&from=2026-01-15T15:00:00Z");
        assert_eq!(told["series"].as_array().map(Vec::len), Some(2), "{told}");
        assert!(told.to_string().contains("\"room\":\"a\"") && told["notices"].is_null(), "{told}");
        let values = influxql(&server, "SHOW TAG VALUES WITH KEY = room");
        assert_eq!(values[0]["values"], json!([["room", "a"], ["room", "b"]]), "{values}");
        let values = api(&server, "tags/room?db=d");
        assert_eq!(values["values"], json!([{"value": "a", "sensors": 1}, {"value": "b", "sensors": 2}]));
        let groups = api(&server, "groups/room?db=d");
        assert_eq!(groups["values"], json!([{"value": "a", "sensors": 1}, {"value": "b", "sensors": 2}]));
        let members = api(&server, "groups/room/b?db=d");
        assert_eq!(members["sensors"].as_array().map(Vec::len), Some(2), "{members}");
        assert_eq!(members["sensors"][0]["groups"], json!({"room": "b"}), "{members}");
        server.stop();
    }
}

/// Regression: after two sensors became one, the bare name of the old one was unknown, though its key was not.
#[test]
fn a_bare_old_name_is_known_after_a_merge() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        write(&server, &format!("climate,sensor=old temp=1 {T}\nclimate,sensor=new temp=2 {LATER}\n"));
        relabel(&server, &json!({"kind": "sensor", "from": "climate,sensor=old", "to": "climate,sensor=new"}));
        for name in ["old", "new", "climate,sensor=old"] {
            let latest = api(&server, &format!("latest?db=d&epoch=s&sensor={}", escaped(name)));
            assert_eq!(latest["series"][0]["sensor"], "climate,sensor=new", "{name}: {latest}");
            assert_eq!(latest["series"][0]["readings"][0]["ts"], json!(LATER), "{name}: {latest}");
            let summary =
                api(&server, &format!("summary?db=d&sensor={}&agg=sum&from=2026-01-15T15:00:00Z", escaped(name)));
            assert!(summary["notices"].is_null(), "{name}: {summary}");
        }
        // A sensor that has the name by now is meant.
        write(&server, &format!("air,sensor=old temp=3 {T}\n"));
        let latest = api(&server, "latest?db=d&sensor=old");
        assert_eq!(latest["series"][0]["sensor"], "air,sensor=old", "{latest}");
        server.stop();
    }
}

/// After a tag's key was renamed, `room = ''` selected the sensors that have the tag, since the new name has none of the old key: a
/// deletion of those without a room took all that have one.
#[test]
fn a_renamed_tag_is_not_missing_under_its_old_key() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        let lines = [("m,room=lab,s=1", T), ("m,room=lab,s=1", LATER), ("k,room=lab,s=1", T)];
        write(&server, &lines.map(|(name, at)| format!("{name} v=1 {at}\n")).concat());
        for more in [Value::Null, json!(SINCE)] {
            let mut rule = json!({"kind": "tag_key", "measurement": "m", "from": "room", "to": "place"});
            if more.is_string() {
                rule["since"] = more.clone();
            }
            let id = relabel(&server, &rule);
            for condition in ["room = ''", "room !~ /./", "room = '' AND v > 0"] {
                let found = ask(&server, &format!("SELECT v FROM m WHERE {condition}"));
                assert_eq!(found["series"], Value::Null, "{condition} {more}: {found}");
                let told = error(&server, &format!("DELETE FROM m WHERE {condition}"));
                assert!(!told.is_empty(), "{condition} {more}");
            }
            assert!(error(&server, "DELETE WHERE room = ''").contains("goes by present names"), "{more}");
            let found = influxql(&server, "SELECT count(v) FROM m WHERE room != ''");
            assert_eq!(found[0]["values"][0][1], 2, "{more}: {found}");
            let found = api(&server, "readings?db=d&measurement=m&tag.room=");
            assert_eq!(found["series"].as_array().map(Vec::len), Some(0), "{more}: {found}");
            undo(&server, &id).expect(200);
        }
        assert_eq!(influxql(&server, "SELECT count(v) FROM m, k").as_array().map(Vec::len), Some(2));
        server.stop();
    }
}
