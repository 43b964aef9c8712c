//! Metadata of relabelled sensors: one document, whatever name one asks by.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    Name, Rule, T, all_names, escaped, flush, influxql, key, make_one, moments, named, parts, readings, relabel,
    stores, undo, value, write,
};
use crate::support::http::{Answer, get, post, request};
use crate::support::random::Random;
use crate::support::series::await_fed;
use crate::support::server::{Launch, Server};

fn send(server: &Server, method: &str, key: &str, body: &Value, headers: &[(&str, &str)]) -> Answer {
    let url = server.url(&format!("/api/v1/sensors/{}/meta?db=d", escaped(key)));
    request(method, &url, body.to_string().as_bytes(), headers).unwrap()
}

fn put(server: &Server, key: &str, body: &Value) {
    send(server, "PUT", key, body, &[]).expect(200);
}

fn patch(server: &Server, key: &str, body: &Value) {
    send(server, "PATCH", key, body, &[]).expect(200);
}

/// What is said of a sensor, with the tag of that.
fn told(server: &Server, key: &str) -> (Value, String) {
    let answer = get(&server.url(&format!("/api/v1/sensors/{}/meta?db=d", escaped(key)))).expect(200);
    (answer.json(), answer.header("etag").unwrap().to_owned())
}

fn meta(server: &Server, key: &str) -> Value {
    told(server, key).0
}

/// All metadata that there is, page by page.
fn exported(server: &Server) -> BTreeMap<String, Value> {
    let (mut all, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let page = get(&server.url(&format!("/api/v1/meta?db=d&limit=2{cursor}"))).expect(200).json();
        for of in page["sensors"].as_array().unwrap() {
            let before = all.insert(of["sensor"].as_str().unwrap().to_owned(), of["meta"].clone());
            assert_eq!(before, None, "twice: {of}");
        }
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={}", escaped(next)),
            None => return all,
        }
    }
}

/// What the list of sensors says of those that it has.
fn in_list(server: &Server) -> BTreeMap<String, Value> {
    let answer = get(&server.url("/api/v1/sensors?db=d")).expect(200).json();
    let of = |one: &Value| {
        let meta = one.get("meta").cloned().unwrap_or_else(|| json!({}));
        (one["sensor"].as_str().unwrap().to_owned(), meta)
    };
    answer["sensors"].as_array().unwrap().iter().map(of).collect()
}

fn all(pairs: &[(&str, Value)]) -> BTreeMap<String, Value> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

/// Somebody renamed a sensor, described it by its new name, and found nothing by the old one: there were two documents.
#[test]
fn the_old_and_the_new_name_of_a_sensor_have_one_document() {
    const GROUPS: &str = "[[groups]]\nname = \"site\"\nby = \"meta.site\"\n";
    for store in stores() {
        let mut server = Launch::with_store(store).config(GROUPS).start();
        let (old, new) = ("m,room=a,s=1", "m,room=b,s=9");
        write(&server, &format!("{old} v=1i {T}\nm,room=z,s=5 v=7i {T}\n"));
        put(&server, old, &json!({"site": "lab", "at": {"x": 1, "y": 2}}));
        let id = relabel(&server, &json!({"kind": "sensor", "from": old, "to": new}));
        assert_eq!(told(&server, old), told(&server, new));
        let tag = told(&server, old).1;
        send(&server, "PATCH", new, &json!({"at": {"y": null}, "unit": "K"}), &[("if-match", &tag)]).expect(200);
        send(&server, "PATCH", old, &json!({"unit": "C"}), &[("if-match", &tag)]).expect(412);
        patch(&server, old, &json!({"site": "roof"}));
        let expected = json!({"site": "roof", "at": {"x": 1}, "unit": "K"});
        for _ in 0..3 {
            for name in [old, new] {
                assert_eq!(meta(&server, name), expected, "{name}");
                assert_eq!(readings(&server, name), [(T, 1)], "{name}");
                let url = format!("/api/v1/latest?db=d&epoch=s&sensor={}", escaped(name));
                let latest = get(&server.url(&url)).expect(200).json();
                assert_eq!(latest["series"][0]["sensor"], new, "{name}: {latest}");
            }
            assert_eq!(exported(&server), all(&[(new, expected.clone())]));
            assert_eq!(in_list(&server), all(&[(new, expected.clone()), ("m,room=z,s=5", json!({}))]));
            let of_roof = get(&server.url("/api/v1/groups/site/roof?db=d")).expect(200).json();
            assert_eq!(
                (&of_roof["sensors"][0]["sensor"], of_roof["sensors"].as_array().unwrap().len()),
                (&json!(new), 1)
            );
            let sum = influxql(&server, "SELECT sum(v) FROM m WHERE \"meta.site\" = 'roof' GROUP BY \"meta.unit\"");
            assert_eq!((&sum[0]["values"][0][1], &sum[0]["tags"]["meta.unit"]), (&json!(1), &json!("K")), "{sum}");
            server.kill();
            server.restart("127.0.0.1:0");
            await_fed(&server);
        }
        // Before any reading, too, and by lines.
        let lines =
            format!("{}\n{}\n", json!({"sensor": old, "meta": {"n": 1}}), json!({"sensor": new, "meta": {"n": 2}}));
        let done =
            post(&server.url("/api/v1/meta?db=d"), lines, &[("content-type", "application/x-ndjson")]).expect(200);
        assert_eq!((&done.json()["changed"], &done.json()["new"]), (&json!(2), &json!(0)), "{}", done.text());
        assert_eq!((meta(&server, old)["n"].clone(), meta(&server, new)["n"].clone()), (json!(2), json!(2)));
        undo(&server, &id).expect(200);
        assert_eq!(
            (meta(&server, old), meta(&server, new)),
            (json!({"site": "roof", "at": {"x": 1}, "unit": "K", "n": 2}), json!({}))
        );
        server.stop();
    }
}

#[test]
fn two_that_are_one_have_what_both_have_and_a_change_is_of_both() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        write(&server, &format!("m,room=a,s=1 v=1i {T}\nm,room=a,s=2 v=2i {}\n", T + 1));
        put(&server, "m,room=a,s=1", &json!({"site": "a", "owner": "x"}));
        put(&server, "m,room=a,s=2", &json!({"site": "b", "at": {"x": 1}}));
        let id = relabel(&server, &value("s", "1", "2"));
        let names = ["m,room=a,s=1", "m,room=a,s=2"];
        let both = |expected: Value| {
            for name in names {
                assert_eq!(meta(&server, name), expected, "{name}");
            }
            assert_eq!(exported(&server), all(&[(names[1], expected.clone())]));
            assert_eq!(in_list(&server), all(&[(names[1], expected)]));
        };
        // The later value of each name.
        both(json!({"site": "b", "owner": "x", "at": {"x": 1}}));
        patch(&server, names[0], &json!({"owner": null, "site": "c", "at": {"y": 2}}));
        both(json!({"site": "c", "at": {"x": 1, "y": 2}}));
        // A sensor that is read under the name from now on has said nothing yet.
        flush(&server);
        patch(&server, names[1], &json!({"unit": "K"}));
        both(json!({"site": "c", "at": {"x": 1, "y": 2}, "unit": "K"}));
        undo(&server, &id).expect(200);
        // What was said of both stays said of both; what one had alone it has alone.
        for name in names {
            assert_eq!(meta(&server, name), json!({"site": "c", "at": {"x": 1, "y": 2}, "unit": "K"}), "{name}");
        }
        patch(&server, names[0], &json!({"only": 1}));
        relabel(&server, &value("s", "1", "2"));
        put(&server, names[0], &json!({"last": 1}));
        both(json!({"last": 1}));
        server.stop();
    }
}

/// From a time on the old name still shows what is earlier, and is its own.
#[test]
fn with_a_time_both_names_are_shown_and_each_has_what_its_sensors_have() {
    let mut server = Launch::embedded().start();
    write(&server, &format!("m,s=1 v=1i {T}\nm,s=1 v=2i {}\nm,s=2 v=3i {}\n", T + 7200, T + 7200));
    put(&server, "m,s=1", &json!({"site": "a"}));
    put(&server, "m,s=2", &json!({"site": "b"}));
    relabel(
        &server,
        &json!({"kind": "tag_value", "tag": "s", "from": "1", "to": "2", "since": "2026-01-15T16:00:00Z"}),
    );
    let agree = |expected: &[(&str, Value)]| {
        for (name, expected) in expected {
            assert_eq!(meta(&server, name), *expected, "{name}");
        }
        assert_eq!(exported(&server), all(expected));
        assert_eq!(in_list(&server), all(expected));
        for (name, expected) in expected {
            let site = expected["site"].as_str().unwrap();
            let rows = influxql(&server, &format!("SELECT sum(v) FROM m WHERE \"meta.site\" = '{site}' GROUP BY s"));
            let shown: Vec<String> = rows
                .as_array()
                .unwrap()
                .iter()
                .map(|of| format!("m,s={}", of["tags"]["s"].as_str().unwrap()))
                .collect();
            assert!(shown.contains(&(*name).to_owned()), "{name}: {rows}");
        }
    };
    agree(&[("m,s=1", json!({"site": "a"})), ("m,s=2", json!({"site": "b"}))]);
    // What is said of the old name is said of a sensor that the new one shows, too.
    patch(&server, "m,s=1", &json!({"site": "c"}));
    agree(&[("m,s=1", json!({"site": "c"})), ("m,s=2", json!({"site": "c"}))]);
    patch(&server, "m,s=2", &json!({"site": "d"}));
    agree(&[("m,s=1", json!({"site": "d"})), ("m,s=2", json!({"site": "d"}))]);
    server.stop();
}

/// What is said of stored sensors, each value with the step that said it.
type Said = BTreeMap<Name, BTreeMap<&'static str, (i64, i64)>>;

/// The stored sensors that a name shows at some time.
fn shown(rules: &[Rule], name: &Name) -> Vec<Name> {
    let is_shown = |stored: &Name| moments(rules).iter().any(|time| named(rules, stored, *time) == *name);
    all_names().into_iter().filter(is_shown).collect()
}

/// The stored sensors that metadata of a name is about.
fn about(rules: &[Rule], known: &BTreeSet<Name>, name: &Name) -> Vec<Name> {
    let mut of = shown(rules, name);
    if of.is_empty() {
        of = shown(rules, &named(rules, name, i64::MAX));
    }
    of.retain(|stored| known.contains(stored));
    of
}

fn together(said: &Said, of: &[Name]) -> Value {
    let mut values: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for (name, value) in of.iter().filter_map(|stored| said.get(stored)).flatten() {
        let held = values.entry(name).or_insert(*value);
        *held = (*held).max(*value);
    }
    values.into_iter().map(|(name, (_, value))| (name.to_owned(), json!(value))).collect()
}

/// Relabels, their undoing, changes of metadata by any name, and kills, against a plain model of what each stored sensor says.
#[test]
fn metadata_by_any_name_is_what_a_plain_model_says() {
    let [embedded, shared] = stores();
    for (run, (store, steps, kills)) in
        [(embedded.clone(), 100, 5), (shared, 100, 5), (embedded, 30, 100)].into_iter().enumerate()
    {
        let mut server = Launch::with_store(store).start();
        let mut random = Random::new(0xdeca + run as u64);
        let (mut said, mut known, mut rules): (Said, BTreeSet<Name>, Vec<Rule>) = Default::default();
        for step in 0..steps {
            let mut pick = |all: &[&str]| random.of(all).to_owned();
            let name = (pick(&["m", "n"]), pick(&["a", "b", "c"]), pick(&["1", "2", "3"]));
            let (field, is_removed) = (random.of(&["x", "y"]), random.below(3) == 0);
            match random.below(100) {
                0..25 => {
                    write(&server, &format!("{} v={step}i {}\n", key(&name), T + 900 * random.below(12)));
                    known.insert(name.clone());
                }
                25..60 => {
                    let is_put = random.below(4) == 0;
                    // Of a sensor that has nothing but removed names nobody knows for long.
                    let value = if is_removed && !is_put { Value::Null } else { json!(step) };
                    send(
                        &server,
                        if is_put { "PUT" } else { "PATCH" },
                        &key(&name),
                        &json!({"k": step, field: value}),
                        &[],
                    )
                    .expect(200);
                    let mut of = about(&rules, &known, &name);
                    if of.is_empty() {
                        of.push(name.clone());
                    }
                    for stored in of {
                        known.insert(stored.clone());
                        let values = said.entry(stored).or_default();
                        if is_put {
                            values.clear();
                        }
                        values.insert("k", (step, step));
                        match is_removed && !is_put {
                            true => drop(values.remove(field)),
                            false => drop(values.insert(field, (step, step))),
                        }
                    }
                }
                60..78 if rules.len() < 6 => rules.extend(make_one(&server, &mut random)),
                60..90 if !rules.is_empty() => {
                    let rule = rules.remove(usize::try_from(random.below(rules.len() as i64)).unwrap());
                    undo(&server, &rule.id).expect(200);
                }
                90..95 => flush(&server),
                _ => {}
            }
            if random.below(100) < kills {
                server.kill();
                server.restart("127.0.0.1:0");
                await_fed(&server);
            }
            if step % 5 != 4 {
                continue;
            }
            let context = || format!("run {run}, step {step}, rules {rules:#?}, known {known:?}, said {said:?}");
            for name in all_names() {
                let expected = together(&said, &about(&rules, &known, &name));
                assert_eq!(meta(&server, &key(&name)), expected, "{name:?}: {}", context());
            }
            let shown: BTreeSet<Name> = said
                .keys()
                .flat_map(|stored| {
                    moments(&rules).into_iter().map(|time| named(&rules, stored, time)).collect::<Vec<_>>()
                })
                .collect();
            let of = |name: &Name| together(&said, &about(&rules, &known, name));
            let expected: BTreeMap<String, Value> = shown.iter().map(|name| (key(name), of(name))).collect();
            assert_eq!(exported(&server), expected, "{}", context());
            for (name, meta) in in_list(&server) {
                assert_eq!(meta, of(&parts(&name)), "{name} in the list: {}", context());
            }
        }
        server.stop();
    }
}
