//! Relabels: sensors under other names, in every way in which they are read, deleted and written, undone in any order, with kills.

mod changes;
mod deletions;
mod latest;
mod metadata;
mod moves;
mod since;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::eventually;
use crate::support::http::{Answer, get, post, request};
use crate::support::jobs::ask_job;
use crate::support::mongod::{fresh_database_name, mongod};
use crate::support::random::Random;
use crate::support::series::await_fed;
use crate::support::server::{Launch, Server};

use self::deletions::{delete_by_time, delete_by_value};

const WITHIN: Duration = Duration::from_secs(30);
const T: i64 = 1_768_489_200;

fn stores() -> [String; 2] {
    ["embedded".to_owned(), mongod().uri(&fresh_database_name())]
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn write(server: &Server, lines: &str) {
    post(&server.url("/write?db=d&precision=s"), lines, &[]).expect(204);
}

fn flush(server: &Server) {
    post(&server.url("/api/v1/flush"), "", &[]).expect(204);
}

fn ask(server: &Server, body: &Value, query: &str) -> Answer {
    post(&server.url(&format!("/api/v1/relabel?db=d{query}")), body.to_string(), &[])
}

/// Makes a relabel; returns its id.
fn relabel(server: &Server, body: &Value) -> String {
    let made = ask(server, body, "").expect(200).json();
    made["relabel"]["id"].as_str().unwrap().to_owned()
}

fn undo(server: &Server, id: &str) -> Answer {
    request("DELETE", &server.url(&format!("/api/v1/relabels/{id}?db=d")), b"", &[]).unwrap()
}

fn value(tag: &str, from: &str, to: &str) -> Value {
    json!({"kind": "tag_value", "tag": tag, "from": from, "to": to})
}

fn influxql(server: &Server, statement: &str) -> Value {
    let answer = get(&server.url(&format!("/query?db=d&epoch=s&q={}", escaped(statement)))).expect(200).json();
    answer["results"][0]["series"].clone()
}

fn change(server: &Server, statement: &str) {
    let answer = post(&server.url(&format!("/query?db=d&q={}", escaped(statement))), "", &[]).expect(200).json();
    assert!(answer["results"][0].get("error").is_none(), "{statement}: {answer}");
}

/// The readings of a sensor's field `v`, by time.
fn readings(server: &Server, key: &str) -> Vec<(i64, i64)> {
    let url = format!("/api/v1/readings?db=d&limit=1000&epoch=s&sensor={}", escaped(key));
    let answer = get(&server.url(&url)).expect(200).json();
    let rows =
        answer["series"].as_array().into_iter().flatten().flat_map(|series| series["readings"].as_array().unwrap());
    let number = |value: &Value| value.as_i64().unwrap_or_else(|| panic!("{answer}"));
    rows.map(|row| (number(&row["ts"]), number(&row["v"]))).collect()
}

/// All keys that the list of sensors has.
fn listed(server: &Server) -> BTreeSet<String> {
    let answer = get(&server.url("/api/v1/sensors?db=d")).expect(200).json();
    answer["sensors"].as_array().unwrap().iter().map(|of| of["sensor"].as_str().unwrap().to_owned()).collect()
}

fn keys_of_series(server: &Server) -> BTreeSet<String> {
    let series = influxql(server, "SHOW SERIES");
    series[0]["values"].as_array().into_iter().flatten().map(|row| row[0].as_str().unwrap().to_owned()).collect()
}

fn set(keys: &[&str]) -> BTreeSet<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

#[test]
fn every_kind_of_name_is_shown_as_another_one_and_comes_back() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        write(&server, &format!("m,room=a,s=1 v=1i {T}\nm,room=b,s=2 v=2i {}\n", T + 1));
        flush(&server);
        for (body, old, new) in [
            (json!({"kind": "sensor", "from": "m,room=a,s=1", "to": "m,room=c,s=9"}), "m,room=a,s=1", "m,room=c,s=9"),
            (value("room", "a", "c"), "m,room=a,s=1", "m,room=c,s=1"),
            (
                json!({"kind": "tag_key", "measurement": "m", "from": "room", "to": "area"}),
                "m,room=a,s=1",
                "m,area=a,s=1",
            ),
            (json!({"kind": "measurement", "from": "m", "to": "w"}), "m,room=a,s=1", "w,room=a,s=1"),
        ] {
            let dry = ask(&server, &body, "&dry_run=true").expect(200).json();
            assert_eq!((&dry["dry_run"], &dry["relabel"]), (&json!(true), &Value::Null), "{body}");
            assert_eq!(listed(&server), set(&["m,room=a,s=1", "m,room=b,s=2"]), "{body}");
            let id = relabel(&server, &body);
            assert!(listed(&server).contains(new) && !listed(&server).contains(old), "{body}: {:?}", listed(&server));
            assert_eq!(keys_of_series(&server), listed(&server), "{body}");
            // A new reading under the old name lands there, before and after it is stored.
            write(&server, &format!("m,room=a,s=1 v=3i {}\n", T + 7200));
            for _ in 0..2 {
                for key in [old, new] {
                    assert_eq!(readings(&server, key), [(T, 1), (T + 7200, 3)], "{body}: {key}");
                }
                let latest = get(&server.url(&format!("/api/v1/latest?db=d&epoch=s&sensor={}", escaped(new))))
                    .expect(200)
                    .json();
                assert_eq!(latest["series"][0]["readings"][0]["ts"], json!(T + 7200), "{body}: {latest}");
                let all = influxql(&server, "SELECT sum(v), count(v) FROM /.*/ WHERE s =~ /1|9/");
                let row = &all[0]["values"][0];
                assert_eq!((&row[1], &row[2]), (&json!(4), &json!(2)), "{body}: {all}");
                flush(&server);
            }
            let gone = undo(&server, &id).expect(200).json();
            assert_eq!(gone["id"], json!(id));
            assert_eq!(listed(&server), set(&["m,room=a,s=1", "m,room=b,s=2"]), "{body}");
            assert_eq!(readings(&server, new), [], "{body}");
            change(&server, &format!("DELETE FROM m WHERE time = {}s", T + 7200));
        }
        server.stop();
    }
}

#[test]
fn two_that_are_one_are_read_as_one_and_sums_are_exact() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        // The same second under both names in the first hour, one name alone in the next two.
        let hour = |n: i64| T + 3600 * n;
        let line = |s: &str, time: i64, v: i64| format!("m,s={s} v={v}i {time}\n");
        let body: String = [
            line("old", hour(0), 1),
            line("new", hour(0), 10),
            line("old", hour(0) + 1, 2),
            line("new", hour(0) + 2, 20),
            line("old", hour(1), 3),
            line("new", hour(2), 30),
        ]
        .concat();
        write(&server, &body);
        let check = |stage: &str| {
            let sums = influxql(
                &server,
                &format!(
                    "SELECT sum(v), count(v), max(v) FROM m WHERE time >= {}s AND time < {}s GROUP BY time(1h)",
                    T - 3600,
                    hour(4)
                ),
            );
            let rows: Vec<(i64, i64, i64)> = sums[0]["values"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|row| row[2] != json!(0))
                .map(|row| (row[0].as_i64().unwrap(), row[1].as_i64().unwrap(), row[2].as_i64().unwrap()))
                .collect();
            // What is stored under the present name counts where both have a value.
            assert_eq!(rows, [(hour(0), 32, 3), (hour(1), 3, 1), (hour(2), 30, 1)], "{stage}");
            for key in ["m,s=old", "m,s=new"] {
                let expected = [(hour(0), 10), (hour(0) + 1, 2), (hour(0) + 2, 20), (hour(1), 3), (hour(2), 30)];
                assert_eq!(readings(&server, key), expected, "{stage}: {key}");
            }
            let days = influxql(
                &server,
                &format!(
                    "SELECT sum(v), count(v) FROM m WHERE time >= {}s AND time < {}s GROUP BY time(1d)",
                    T / 86400 * 86400,
                    T / 86400 * 86400 + 172_800
                ),
            );
            let row = &days[0]["values"][0];
            assert_eq!((&row[1], &row[2]), (&json!(65), &json!(5)), "{stage}: {days}");
            assert_eq!(listed(&server), set(&["m,s=new"]), "{stage}");
        };
        relabel(&server, &json!({"kind": "sensor", "from": "m,s=old", "to": "m,s=new"}));
        check("unflushed");
        flush(&server);
        check("flushed");
        ask_job(&server, "seal");
        check("sealed");
        // From one moment to the next: the old name keeps what is earlier.
        let rules = get(&server.url("/api/v1/relabels?db=d")).expect(200).json();
        undo(&server, rules["relabels"][0]["id"].as_str().unwrap()).expect(200);
        let since = "2026-01-15T15:00:01Z";
        assert_eq!(hour(0), 1_768_489_200, "{since} is one second later");
        relabel(&server, &json!({"kind": "sensor", "from": "m,s=old", "to": "m,s=new", "since": since}));
        assert_eq!(
            readings(&server, "m,s=new"),
            [(hour(0), 10), (hour(0) + 1, 2), (hour(0) + 2, 20), (hour(1), 3), (hour(2), 30)]
        );
        let counts = influxql(&server, "SELECT count(v), sum(v) FROM m WHERE time < '2026-01-15T15:00:01Z' GROUP BY s");
        assert_eq!((&counts[0]["tags"]["s"], &counts[0]["values"][0][2]), (&json!("new"), &json!(10)), "{counts}");
        assert_eq!((&counts[1]["tags"]["s"], &counts[1]["values"][0][2]), (&json!("old"), &json!(1)), "{counts}");
        server.stop();
    }
}

#[test]
fn old_names_are_understood_where_conditions_name_them() {
    let mut server = Launch::embedded().start();
    write(&server, &format!("m,room=lab,s=1 v=1i {T}\nm,room=hall,s=2 v=2i {T}\nm,room=roof,s=3 v=4i {T}\n"));
    relabel(&server, &value("room", "lab", "hall"));
    relabel(&server, &json!({"kind": "measurement", "from": "m", "to": "w"}));
    let sum = |statement: &str| influxql(&server, statement)[0]["values"][0][1].clone();
    // An old value is another name of the new one, at whatever sensor.
    for (from, condition, expected) in [
        ("w", "room = 'hall'", 3),
        ("m", "room = 'hall'", 3),
        ("w", "room = 'lab'", 3),
        ("w", "room != 'hall'", 4),
        ("w", "room =~ /lab|roof/", 7),
        ("w", "room !~ /hall/", 4),
        ("w", "room = 'lab' AND v > 0", 3),
    ] {
        let told = sum(&format!("SELECT sum(v) FROM {from} WHERE {condition}"));
        assert_eq!(told, json!(expected), "{from} {condition}");
    }
    let tags = influxql(&server, "SHOW TAG VALUES WITH KEY = room");
    assert_eq!(tags[0]["name"], "w");
    assert_eq!(tags[0]["values"], json!([["room", "hall"], ["room", "roof"]]));
    let values = get(&server.url("/api/v1/tags/room?db=d")).expect(200).json();
    assert_eq!(values["values"].as_array().unwrap().len(), 2, "{values}");
    server.stop();
}

#[test]
fn a_deletion_takes_what_is_shown_and_no_undo_brings_it_back() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        write(&server, &format!("m,room=a,s=1 v=1i {T}\nm,room=b,s=1 v=2i {}\nm,room=c,s=1 v=3i {T}\n", T + 1));
        flush(&server);
        let id = relabel(&server, &value("room", "a", "b"));
        // It is shown as room=b: nothing has the name that is deleted.
        change(&server, "DELETE FROM m WHERE room = 'x'");
        assert_eq!(readings(&server, "m,room=b,s=1").len(), 2);
        change(&server, "DROP SERIES FROM m WHERE room = 'b'");
        assert_eq!(listed(&server), set(&["m,room=c,s=1"]));
        server.kill();
        server.restart("127.0.0.1:0");
        await_fed(&server);
        undo(&server, &id).expect(200);
        assert_eq!(listed(&server), set(&["m,room=c,s=1"]));
        // What is renamed away is not taken by a deletion of the old name's neighbours.
        write(&server, &format!("m,room=a,s=1 v=5i {T}\n"));
        let id = relabel(&server, &json!({"kind": "measurement", "from": "m", "to": "w"}));
        write(&server, &format!("w,room=z,s=1 v=6i {T}\n"));
        change(&server, "DELETE FROM w WHERE room = 'z'");
        assert_eq!(readings(&server, "m,room=a,s=1"), [(T, 5)]);
        undo(&server, &id).expect(200);
        assert_eq!(readings(&server, "m,room=a,s=1"), [(T, 5)]);
        server.stop();
    }
}

#[test]
fn what_cannot_be_is_refused_and_a_final_relabel_stays() {
    let mut server = Launch::embedded().config("[limits]\nrelabels = 3\n").start();
    write(&server, &format!("m,s=1 v=1i {T}\nm,s=2 v=\"text\" {T}\n"));
    let refused = |body: &Value, why: &str| {
        let text = ask(&server, body, "").expect(400);
        let text = text.text();
        assert!(text.contains(why), "{body}: {text}");
    };
    refused(&json!([]), "send a JSON object");
    refused(&json!({"kind": "room", "from": "a", "to": "b"}), "kind");
    refused(&json!({"kind": "tag_value", "from": "a", "to": "b"}), "tag");
    refused(&json!({"kind": "measurement", "from": "a", "to": "a"}), "the same");
    refused(&json!({"kind": "measurement", "from": "a", "to": "b", "since": "now"}), "RFC 3339");
    refused(&json!({"kind": "measurement", "from": "a", "to": "b", "x": 1}), "unknown key");
    refused(&value("s", "1", "2"), "one family");
    let id = relabel(&server, &value("s", "1", "3"));
    refused(&value("s", "1", "3"), "there already");
    let finalize = |id: &str| post(&server.url(&format!("/api/v1/relabels/{id}/finalize?db=d")), "", &[]);
    assert_eq!(finalize(&id).expect(200).json()["final"], json!(true));
    let text = undo(&server, &id).expect(400);
    let text = text.text();
    assert!(text.contains("final"), "{text}");
    assert!(undo(&server, "ff").expect(400).text().contains("no relabel"));
    relabel(&server, &value("x", "1", "3"));
    relabel(&server, &value("x", "2", "3"));
    refused(&value("x", "4", "3"), "limits.relabels");
    server.stop();
}

/// A second instance learns of a relabel, and of its undoing, by itself.
#[test]
fn another_instance_learns_of_it() {
    let store = mongod().uri(&fresh_database_name());
    let (mut one, mut other) = (Launch::with_store(store.clone()).start(), Launch::with_store(store).start());
    write(&one, &format!("m,s=1 v=1i {T}\n"));
    flush(&one);
    let id = relabel(&one, &value("s", "1", "2"));
    let has = |server: &Server, key: &str| (listed(server) == set(&[key])).then_some(());
    eventually("the other shows the new name", WITHIN, || has(&other, "m,s=2"));
    // Acked there under the old name, and not flushed.
    write(&other, &format!("m,s=1 v=2i {}\n", T + 1));
    assert_eq!(readings(&other, "m,s=2"), [(T, 1), (T + 1, 2)]);
    undo(&one, &id).expect(200);
    eventually("the other shows the old name", WITHIN, || has(&other, "m,s=1"));
    one.stop();
    other.stop();
}

/// A rule of the model.
#[derive(Debug, Clone)]
struct Rule {
    id: String,
    kind: i64,
    from: String,
    to: String,
    since: Option<i64>,
}

/// A sensor of the model: measurement, room, s.
type Name = (String, String, String);

/// The readings of the model.
type Readings = BTreeMap<(Name, i64), i64>;

fn named(rules: &[Rule], stored: &Name, time: i64) -> Name {
    let mut name = stored.clone();
    for rule in rules.iter().filter(|rule| rule.since.is_none_or(|since| since <= time)) {
        let place = match rule.kind {
            0 => &mut name.0,
            1 => &mut name.1,
            2 => &mut name.2,
            _ => {
                if key(&name) == rule.from {
                    name = parts(&rule.to);
                }
                continue;
            }
        };
        if *place == rule.from {
            place.clone_from(&rule.to);
        }
    }
    name
}

fn key((measurement, room, s): &Name) -> String {
    format!("{measurement},room={room},s={s}")
}

fn parts(key: &str) -> Name {
    let mut parts = key.split([',', '=']).map(str::to_owned);
    let mut next = || parts.next().unwrap();
    let measurement = next();
    next();
    let room = next();
    next();
    (measurement, room, next())
}

/// The names of the small world of the random tests, which no rule leaves.
fn all_names() -> Vec<Name> {
    let mut names = Vec::new();
    for (measurement, room) in ["m", "n"].iter().flat_map(|measurement| ["a", "b", "c"].map(|room| (measurement, room)))
    {
        names.extend(["1", "2", "3"].map(|s| ((*measurement).to_owned(), room.to_owned(), s.to_owned())));
    }
    names
}

fn moments(rules: &[Rule]) -> Vec<i64> {
    std::iter::once(i64::MIN).chain(rules.iter().filter_map(|rule| rule.since)).collect()
}

/// Makes a random relabel; `None` if it is refused, as one that there is already must be.
fn make_one(server: &Server, random: &mut Random) -> Option<Rule> {
    let mut pick = |all: &[&str]| random.of(all).to_owned();
    let name = (pick(&["m", "n"]), pick(&["a", "b"]), pick(&["1", "2"]));
    let other = (pick(&["m", "n"]), pick(&["a", "b", "c"]), pick(&["1", "2", "3"]));
    let kind = random.below(4);
    let (from, to) = match kind {
        0 => (name.0.clone(), other.0.clone()),
        1 => (name.1.clone(), other.1.clone()),
        2 => (name.2.clone(), other.2.clone()),
        _ => (key(&name), key(&other)),
    };
    let since = (random.below(2) == 0).then(|| T + random.below(12) * 900 + 450);
    let mut body = match kind {
        0 => json!({"kind": "measurement"}),
        1 => json!({"kind": "tag_value", "tag": "room"}),
        2 => json!({"kind": "tag_value", "tag": "s"}),
        _ => json!({"kind": "sensor"}),
    };
    (body["from"], body["to"]) = (json!(from), json!(to));
    if let Some(since) = since {
        let seconds = since - T;
        let (hours, minutes) = (15 + seconds / 3600, seconds / 60 % 60);
        body["since"] = json!(format!("2026-01-15T{hours:02}:{minutes:02}:{:02}Z", seconds % 60));
    }
    let made = ask(server, &body, "");
    if made.status != 200 {
        assert!(from == to || made.text().contains("there already"), "{body}: {}", made.text());
        return None;
    }
    let id = made.json()["relabel"]["id"].as_str().unwrap().to_owned();
    Some(Rule { id, kind, from, to, since })
}

/// Relabels, undoing them in any order or making them final, deletions, readings, seals and kills (once also after every step) against a
/// plain model of what is stored and how it is named.
#[test]
fn relabels_in_any_order_show_what_a_plain_model_shows() {
    let [embedded, shared] = stores();
    let runs = [(embedded.clone(), 120_i64, 3), (shared, 120, 3), (embedded, 36, 100)];
    // By time, by value, and how often the latter and the former was refused.
    let mut gone = (0, 0, 0, 0);
    for (run, (store, steps, kills)) in runs.into_iter().enumerate() {
        let mut server = Launch::with_store(store).start();
        let mut random = Random::new(0x5e1a + run as u64);
        let (mut stored, mut known, mut rules): (Readings, BTreeSet<Name>, Vec<Rule>) = Default::default();
        let mut finals: BTreeSet<String> = BTreeSet::new();
        for step in 0..steps {
            let mut pick = |all: &[&str]| random.of(all).to_owned();
            let name = (pick(&["m", "n"]), pick(&["a", "b"]), pick(&["1", "2"]));
            match random.below(100) {
                0..50 => {
                    // Times that several names have, over some hours.
                    let time = T + random.below(12) * 900;
                    write(&server, &format!("{} v={step}i {time}\n", key(&name)));
                    known.insert(name.clone());
                    stored.insert((name, time), step);
                }
                50..68 if rules.len() < 7 => rules.extend(make_one(&server, &mut random)),
                50..80 if !rules.is_empty() => {
                    let place = usize::try_from(random.below(i64::try_from(rules.len()).unwrap())).unwrap();
                    let is_final = undo(&server, &rules[place].id).status == 400;
                    assert_eq!(is_final, finals.contains(&rules[place].id), "{:?}", rules[place]);
                    if !is_final {
                        rules.remove(place);
                    }
                }
                80..82 if finals.len() < 2 && !rules.is_empty() => {
                    let id =
                        rules[usize::try_from(random.below(i64::try_from(rules.len()).unwrap())).unwrap()].id.clone();
                    post(&server.url(&format!("/api/v1/relabels/{id}/finalize?db=d")), "", &[]).expect(200);
                    finals.insert(id);
                }
                82..86 if !known.is_empty() => {
                    match delete_by_time(&server, &mut random, &rules, (&known, &mut stored)) {
                        Some(count) => gone.0 += count,
                        None => gone.3 += 1,
                    }
                }
                86..92 if !known.is_empty() => {
                    match delete_by_value(&server, &mut random, &rules, (&known, &mut stored)) {
                        Some(count) => gone.1 += count,
                        None => gone.2 += 1,
                    }
                }
                92..95 => flush(&server),
                95..97 => {
                    let sealed = ask_job(&server, "seal");
                    assert!(matches!(sealed.status, 200 | 202), "{}", sealed.text());
                }
                _ => {}
            }
            if random.below(100) < kills {
                server.kill();
                server.restart("127.0.0.1:0");
                await_fed(&server);
            }
            if step % 6 == 5 {
                check(&server, &stored, &rules, step);
            }
        }
        server.stop();
    }
    assert!(gone.0 > 0 && gone.1 > 0 && gone.2 > 0 && gone.3 > 0, "{gone:?}: some kind of deletion was never made");
}

fn check(server: &Server, stored: &Readings, rules: &[Rule], step: i64) {
    // By present name and time, the value that counts: of the sensor stored under that name, else of the least key.
    let mut shown: BTreeMap<(String, i64), (bool, String, i64)> = BTreeMap::new();
    for ((name, time), value) in stored {
        let present = key(&named(rules, name, *time));
        let (is_other, stored_key) = (present != key(name), key(name));
        let entry = shown.entry((present, *time)).or_insert((is_other, stored_key.clone(), *value));
        if (is_other, &stored_key) < (entry.0, &entry.1) {
            *entry = (is_other, stored_key, *value);
        }
    }
    let mut series: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
    for ((present, time), (_, _, value)) in shown {
        series.entry(present).or_default().push((time, value));
    }
    let context = || format!("step {step}, rules {rules:#?}, stored {stored:?}");
    let keys: BTreeSet<String> = series.keys().cloned().collect();
    let rows = influxql(server, "SELECT v FROM /.*/ GROUP BY *");
    let mut told: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
    for of in rows.as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let name = (text(&of["name"]), text(&of["tags"]["room"]), text(&of["tags"]["s"]));
        let values = of["values"].as_array().unwrap().iter();
        told.insert(key(&name), values.map(|row| (row[0].as_i64().unwrap(), row[1].as_i64().unwrap())).collect());
    }
    assert_eq!(told, series, "{}", context());
    assert!(listed(server).is_superset(&keys) && keys_of_series(server).is_superset(&keys), "{}", context());
    let sums = influxql(
        server,
        &format!(
            "SELECT sum(v), count(v) FROM /.*/ WHERE time >= {T}s AND time < {}s GROUP BY time(1h), *",
            T + 14_400
        ),
    );
    let mut total = BTreeMap::new();
    for of in sums.as_array().into_iter().flatten() {
        for row in of["values"].as_array().unwrap().iter().filter(|row| row[2] != json!(0)) {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let name = (text(&of["name"]), text(&of["tags"]["room"]), text(&of["tags"]["s"]));
            total.insert((key(&name), row[0].as_i64().unwrap()), (row[1].as_i64().unwrap(), row[2].as_i64().unwrap()));
        }
    }
    let mut expected: BTreeMap<(String, i64), (i64, i64)> = BTreeMap::new();
    for (name, values) in &series {
        for (time, value) in values {
            let hour = (time - T) / 3600 * 3600 + T;
            let (sum, count) = expected.entry((name.clone(), hour)).or_default();
            (*sum, *count) = (*sum + value, *count + 1);
        }
    }
    assert_eq!(total, expected, "{}", context());
    // A key is read by the names that it has at each time: an old one as its new one, from then on.
    for name in series.keys().take(3).map(|name| &**name).chain(["m,room=a,s=1"]) {
        let is_meant = |of: &str, time: i64| key(&named(rules, &parts(name), time)) == of;
        let all = series.iter().flat_map(|(of, values)| values.iter().map(move |value| (of, *value)));
        let expected: BTreeSet<(i64, i64)> =
            all.filter(|(of, (time, _))| is_meant(of, *time)).map(|(_, value)| value).collect();
        assert_eq!(readings(server, name), Vec::from_iter(expected), "{name}: {}", context());
    }
}

#[test]
fn a_kill_around_the_change_leaves_it_done_or_not() {
    for store in stores() {
        for (point, is_done) in [("before_relabel:1", false), ("after_relabel:1", true)] {
            let launch = Launch::with_store(store.clone());
            let mut server = launch.clone().env("FAULT_KILL_AT", point).start();
            write(&server, &format!("m,s=1 v=1i {T}\n"));
            let path = server.url("/api/v1/relabel?db=d");
            let _ = request("POST", &path, value("s", "1", point).to_string().as_bytes(), &[]);
            eventually("the server is killed", WITHIN, || server.exited());
            server.restart_as(launch);
            await_fed(&server);
            let to = if is_done { format!("m,s={point}") } else { "m,s=1".to_owned() };
            assert_eq!(listed(&server), set(&[&to]), "{point}");
            assert_eq!(readings(&server, &to), [(T, 1)], "{point}");
            server.stop();
        }
    }
}
