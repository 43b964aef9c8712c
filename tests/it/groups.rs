//! Groups: endpoints answer from acked changes on both stores, and group documents in MongoDB follow sensor documents.

use crate::support::prelude::*;

const CONFIG: &str = "[flush]\ninterval = \"50ms\"\n[sensors]\nwrite_interval = \"50ms\"\n\
                      [[groups]]\nname = \"site\"\nby = \"meta.site\"\n[[groups]]\nname = \"gateway\"\nby = \"gw\"\ndatabase = \"d\"\n";

/// Changes metadata, acked by the WAL only.
fn describe(server: &Server, key: &str, meta: &Value) {
    let url = server.url(&format!("/api/v1/sensors/{}/meta?db=d", encode(key)));
    request("PATCH", &url, meta.to_string().as_bytes(), &[]).unwrap().expect(200);
}

fn fetch_json(server: &Server, path: &str) -> Value {
    server.fetch(&format!("/api/v1/groups{path}"))
}

/// Returns the members of a value in order, by the endpoint.
fn members(server: &Server, group: &str, value: &str) -> Vec<String> {
    let sensors = fetch_json(server, &format!("/{group}/{value}?db=d"))["sensors"].clone();
    sensors.as_array().unwrap().iter().map(|entry| entry["sensor"].as_str().unwrap().to_owned()).collect()
}

/// Contents of MongoDB.
struct Stored {
    uri: String,
}

impl Stored {
    /// Returns the members by value and sensor with the latest `v`; panics on duplicates and oversized documents.
    fn members(&self, group: &str) -> BTreeMap<String, BTreeMap<String, i64>> {
        let mut found: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
        for document in find(&self.uri, "d.groups", doc! { "group": group }) {
            let members = document.get_array("members").unwrap();
            assert!((1..=200).contains(&members.len()), "{}", members.len());
            assert_eq!(document.get_i32("count").unwrap(), i32::try_from(members.len()).unwrap());
            let sensors = found.entry(document.get_str("value").unwrap().to_owned()).or_default();
            for member in members {
                let member = member.as_document().unwrap();
                let latest = member.get_document("latest").ok().and_then(|latest| latest.get_f64("v").ok());
                let sensor = member.get_str("sensor").unwrap();
                #[expect(clippy::cast_possible_truncation, reason = "the tests write small whole numbers")]
                let before = sensors.insert(sensor.to_owned(), latest.unwrap_or(-1.0) as i64);
                assert!(before.is_none(), "{sensor} is listed twice");
            }
        }
        found
    }

    fn names(&self) -> Vec<String> {
        in_mongo(&self.uri, async |mongo| mongo.list_collection_names().await.unwrap())
    }
}

fn expected(groups: &[(&str, &[(&str, i64)])]) -> BTreeMap<String, BTreeMap<String, i64>> {
    let latest = |members: &[(&str, i64)]| members.iter().map(|(key, v)| ((*key).to_owned(), *v)).collect();
    groups.iter().map(|(value, members)| ((*value).to_owned(), latest(members))).collect()
}

/// Nothing is flushed, and acked changes are in the next answer.
#[test]
fn group_endpoints_return_acked_changes_on_both_stores() {
    let mongo = mongod().uri(&fresh_database_name());
    for store in ["embedded", &mongo] {
        let config = CONFIG.replace("50ms", "1h");
        let server = Launch::with_store(store).config(config).start();
        write(&server, "m,gw=g1,s=1 v=1 10\nm,gw=g1,s=2 v=2 10\nm,gw=g2,s=3 v=3 10\nm,s=4 v=4 10\n");
        describe(&server, "m,gw=g1,s=1", &json!({"site": "lab/1", "owner": "Kim"}));
        describe(&server, "m,gw=g2,s=3", &json!({"site": "lab/1"}));
        describe(&server, "m,s=4", &json!({"site": 7}));
        describe(&server, "m,s=5", &json!({"site": "lab/1"}));
        let all = fetch_json(&server, "?db=d");
        let declared = json!([{"group": "gateway", "by": "gw"}, {"group": "site", "by": "meta.site"}]);
        assert_eq!(all["groups"], declared, "{store}");
        assert_eq!(fetch_json(&server, "?db=other")["groups"], json!([{"group": "site", "by": "meta.site"}]));
        let sites = fetch_json(&server, "/site?db=d");
        assert_eq!(sites["values"], json!([{"value": "7", "sensors": 1}, {"value": "lab/1", "sensors": 2}]), "{store}");
        let first = fetch_json(&server, "/site?db=d&limit=1");
        assert_eq!((&first["next"], first["values"].as_array().unwrap().len()), (&json!("7"), 1));
        assert_eq!(fetch_json(&server, "/site?db=d&limit=1&cursor=7")["values"][0]["value"], "lab/1");
        let lab = fetch_json(&server, "/site/lab%2F1?db=d&epoch=s");
        assert_eq!(lab["sensors"].as_array().unwrap().len(), 2, "{lab}");
        let one = &lab["sensors"][0];
        assert_eq!((&one["sensor"], &one["latest"]["v"]), (&json!("m,gw=g1,s=1"), &json!(1)), "{one}");
        assert_eq!(one["groups"], json!({"gateway": "g1", "site": "lab/1"}));
        let page = fetch_json(&server, "/site/lab%2F1?db=d&limit=1");
        assert_eq!(page["next"], "m,gw=g1,s=1");
        let rest = fetch_json(&server, "/site/lab%2F1?db=d&limit=1&cursor=m%2Cgw%3Dg1%2Cs%3D1");
        assert_eq!((&rest["next"], &rest["sensors"][0]["sensor"]), (&Value::Null, &json!("m,gw=g2,s=3")));
        // A sensor lists its groups; without any, the field is missing.
        let listed = server.fetch("/api/v1/sensors?db=d");
        let entry = |key: &str| {
            listed["sensors"].as_array().unwrap().iter().find(|entry| entry["sensor"] == key).unwrap().clone()
        };
        assert_eq!(entry("m,gw=g1,s=2")["groups"], json!({"gateway": "g1"}));
        assert!(entry("m,s=5").get("groups").is_none(), "it has had no reading");
        // Moves and deletions apply at once, too.
        describe(&server, "m,gw=g1,s=1", &json!({"site": "roof"}));
        write(&server, "m,gw=g1,s=1 v=11 20\n");
        assert_eq!(members(&server, "site", "lab%2F1"), ["m,gw=g2,s=3"]);
        assert_eq!(fetch_json(&server, "/site/roof?db=d")["sensors"][0]["latest"]["v"], 11);
        assert_eq!(members(&server, "site", "nowhere"), [""; 0]);
        execute(&server, "d", "DROP SERIES FROM m WHERE s = '3'");
        assert_eq!(members(&server, "gateway", "g2"), [""; 0]);
        let answer = get(&server.url("/api/v1/groups/floor?db=d")).expect(404);
        assert!(answer.text().contains("no group \\\"floor\\\""), "{}", answer.text());
        get(&server.url("/api/v1/groups/gateway?db=other")).expect(404);
    }
}

/// A sensor that serves several assets is a member of each, and names all of them.
#[test]
fn an_array_of_references_is_many_to_many() {
    let mongo = mongod().uri(&fresh_database_name());
    let config = CONFIG.replace("by = \"meta.site\"", "by = \"meta.site.assets\"");
    for store in ["embedded", &mongo] {
        let server = Launch::with_store(store).config(&config).start();
        write(&server, "m,s=1 v=1 10\nm,s=2 v=2 10\n");
        describe(&server, "m,s=1", &json!({"site": {"assets": ["pump", "tank", "pump", 7]}}));
        describe(&server, "m,s=2", &json!({"site": {"assets": "tank"}}));
        let values =
            json!([{"value": "7", "sensors": 1}, {"value": "pump", "sensors": 1}, {"value": "tank", "sensors": 2}]);
        assert_eq!(fetch_json(&server, "/site?db=d")["values"], values, "{store}");
        assert_eq!(members(&server, "site", "tank"), ["m,s=1", "m,s=2"], "{store}");
        let pump = fetch_json(&server, "/site/pump?db=d");
        assert_eq!(pump["sensors"][0]["groups"], json!({"site": ["7", "pump", "tank"]}), "{store}");
        let answer = server.fetch("/api/v1/latest?db=d&tag.meta.site.assets=tank");
        assert_eq!(answer["series"][0]["sensor"], "m,s=2", "a condition compares the whole value");
        if store == "embedded" {
            continue;
        }
        let stored = Stored { uri: mongo.clone() };
        let both =
            expected(&[("7", &[("m,s=1", 1)]), ("pump", &[("m,s=1", 1)]), ("tank", &[("m,s=1", 1), ("m,s=2", 2)])]);
        wait_until("the documents are written", || stored.members("site") == both);
        let sensors = |value: &str| find(&mongo, "d.sensors", doc! { "groups.site": value });
        wait_until("the sensors name their groups", || sensors("tank").len() == 2);
        assert_eq!(sensors("pump").len(), 1);
        // One reference less: only that document changes.
        describe(&server, "m,s=1", &json!({"site": {"assets": ["pump", "tank"]}}));
        wait_until("a membership ends", || !stored.members("site").contains_key("7"));
        assert_eq!(stored.members("site").len(), 2);
    }
}

#[test]
fn group_documents_follow_sensor_documents() {
    let uri = mongod().uri(&fresh_database_name());
    let mut server = Launch::with_store(&uri).config(CONFIG).start();
    let stored = Stored { uri: uri.clone() };
    write(&server, "m,gw=g1,s=1 v=1 10\nm,gw=g1,s=2 v=2 10\nm,s=3 v=3 10\n");
    for key in ["m,gw=g1,s=1", "m,gw=g1,s=2", "m,s=3"] {
        describe(&server, key, &json!({"site": "lab"}));
    }
    let lab = expected(&[("lab", &[("m,gw=g1,s=1", 1), ("m,gw=g1,s=2", 2), ("m,s=3", 3)])]);
    wait_until("they are members", || stored.members("site") == lab);
    assert_eq!(stored.members("gateway"), expected(&[("g1", &[("m,gw=g1,s=1", 1), ("m,gw=g1,s=2", 2)])]));
    let sensor = find(&stored.uri, "d.sensors", doc! { "_id": "m,gw=g1,s=1" }).pop().unwrap();
    assert_eq!(sensor.get_document("groups").unwrap(), &doc! { "gateway": "g1", "site": "lab" });
    // A new reading, a move, and a sensor that leaves.
    write(&server, "m,gw=g1,s=2 v=22 20\n");
    describe(&server, "m,gw=g1,s=1", &json!({"site": "the roof"}));
    describe(&server, "m,s=3", &json!({"site": null}));
    let moved = expected(&[("lab", &[("m,gw=g1,s=2", 22)]), ("the roof", &[("m,gw=g1,s=1", 1)])]);
    wait_until("they moved", || stored.members("site") == moved);
    let no_groups =
        || find(&stored.uri, "d.sensors", doc! { "_id": "m,s=3", "groups": { "$exists": true } }).is_empty();
    wait_until("its document says so", no_groups);
    execute(&server, "d", "DROP SERIES FROM m WHERE s = '2'");
    let left = expected(&[("the roof", &[("m,gw=g1,s=1", 1)])]);
    wait_until("it is gone", || stored.members("site") == left);
    assert!(progress(&server, "group", "documents") >= 4);
    let is_done = |job: &Value| job["left"] == 0 && job["last_error"].is_null();
    wait_until("nothing is left", || is_done(&job(&server, "group")));
    // The walk at startup drops undeclared groups, adds new ones and repairs manual changes.
    server.stop();
    let other = "[[groups]]\nname = \"number\"\nby = \"s\"\n";
    server.restart_as(Launch::with_store(&uri).config(other));
    let numbers = expected(&[("1", &[("m,gw=g1,s=1", 1)]), ("3", &[("m,s=3", 3)])]);
    wait_until("they are others", || stored.members("number") == numbers);
    assert!(stored.members("site").is_empty() && stored.members("gateway").is_empty());
    post(&server.url("/query?q=DROP%20DATABASE%20d"), "", &[]).expect(200);
    wait_until("the collection is gone", || !stored.names().iter().any(|name| name.starts_with("d.")));
}

/// A renamed sensor belongs to the group of its shown name; documents use the stored name.
#[test]
fn groups_use_the_shown_names_of_renamed_sensors() {
    let uri = mongod().uri(&fresh_database_name());
    let server = Launch::with_store(&uri).config(CONFIG).start();
    let stored = Stored { uri };
    write(&server, "m,gw=g1,s=1 v=1 10\nm,gw=g2,s=2 v=2 10\n");
    let body = r#"{"kind":"tag_value","tag":"gw","from":"g1","to":"g2"}"#;
    request("PUT", &server.url("/api/v1/renames?db=d"), body.as_bytes(), &[]).unwrap().expect(200);
    let values = json!([{"value": "g2", "sensors": 2}]);
    wait_until("the new name counts", || fetch_json(&server, "/gateway?db=d")["values"] == values);
    assert_eq!(members(&server, "gateway", "g2"), ["m,gw=g2,s=1", "m,gw=g2,s=2"]);
    assert_eq!(members(&server, "gateway", "g1"), [""; 0]);
    let as_stored = expected(&[("g1", &[("m,gw=g1,s=1", 1)]), ("g2", &[("m,gw=g2,s=2", 2)])]);
    wait_until("documents use stored names", || stored.members("gateway") == as_stored);
}

#[test]
fn without_groups_nothing_is_created() {
    let uri = mongod().uri(&fresh_database_name());
    let server = Launch::with_store(&uri).config("[sensors]\nwrite_interval = \"50ms\"\n").start();
    let stored = Stored { uri };
    write_flushed(&server, "m,gw=g1,s=1 v=1 10\n");
    wait_until("the document is written", || {
        !find(&stored.uri, "d.sensors", doc! { "latest": { "$exists": true } }).is_empty()
    });
    assert!(!stored.names().contains(&"d.groups".to_owned()), "{:?}", stored.names());
    assert_eq!(fetch_json(&server, "?db=d"), json!({"groups": []}));
    let listed = server.fetch("/api/v1/sensors?db=d");
    assert!(listed["sensors"][0].get("groups").is_none(), "{listed}");
}

/// After a kill before or after the update of group documents, the sensor ends in the right group.
#[test]
fn a_move_completes_after_a_kill_at_any_step() {
    // A dead process holds its locks until the server gives them up; this own server does so after seconds.
    let own = Mongod::start();
    for (step, times) in [("before_groups", 1), ("after_groups", 1), ("before_groups", 2), ("after_groups", 2)] {
        let uri = own.uri(&fresh_database_name());
        let kill = format!("{step}:{times}");
        let mut server = Launch::with_store(&uri).config(CONFIG).env("FAULT_KILL_AT", &kill).start();
        let stored = Stored { uri: uri.clone() };
        write(&server, "m,gw=g1,s=1 v=1 10\n");
        let url = server.url("/api/v1/sensors/m%2Cgw%3Dg1%2Cs%3D1/meta?db=d");
        // It may die before it answers, with or without a WAL record.
        let patch = |site: &str| request("PATCH", &url, json!({"site": site}).to_string().as_bytes(), &[]).is_ok();
        let mut is_told = patch("lab");
        if times == 2 {
            wait_until("it is a member, or the process is dead", || {
                !stored.members("site").is_empty() || server.exited().is_some()
            });
            is_told &= patch("roof");
            write_until_dead(&mut server);
        }
        eventually("it is dead", || server.exited());
        server.restart_as(Launch::with_store(&uri).config(CONFIG));
        wait_until("the stored groups match the answer", || {
            let listed = server.fetch("/api/v1/sensors?db=d");
            let documented = listed["sensors"][0]["groups"]["site"].as_str().map(str::to_owned);
            let is_only_site =
                |value: &String| stored.members("site").keys().cloned().collect::<Vec<_>>() == [value.clone()];
            assert!(!is_told || documented.is_some(), "{kill}: {listed}");
            let is_there = documented.as_ref().map_or_else(|| stored.members("site").is_empty(), is_only_site);
            is_there && stored.members("gateway").contains_key("g1")
        });
    }
}

/// Writes until the process is dead; each new document updates its group.
fn write_until_dead(server: &mut Server) {
    let url = server.url("/write?db=d&precision=s");
    let mut time = 100;
    eventually("it dies", || {
        time += 1;
        let _ = request("POST", &url, format!("m,gw=g1,s=1 v=1 {time}").as_bytes(), &[]);
        server.exited()
    });
}

/// Two instances write, move and delete at random; in the end documents and endpoints agree with a plain model.
#[test]
fn group_members_agree_with_a_plain_model() {
    let uri = mongod().uri(&fresh_database_name());
    let servers = [(); 2].map(|()| Launch::with_store(&uri).config(CONFIG).start());
    let stored = Stored { uri };
    let mut random = Random::new(23);
    for server in &servers {
        write_flushed(server, "other,s=x v=1 1\n");
    }
    // Latest value and site of each sensor.
    let mut model: BTreeMap<i64, (Option<i64>, Option<i64>)> = BTreeMap::new();
    for step in 0..150_i64 {
        // Each sensor belongs to one instance, so its changes are ordered.
        let sensor = random.below(24);
        let server = &servers[usize::try_from(sensor % 2).unwrap()];
        let key = format!("m,gw=g{},s={sensor}", sensor % 3);
        let (value, site) = model.entry(sensor).or_default();
        match random.below(10) {
            0..=3 => {
                let new = Some(random.below(4)).filter(|site| *site > 0);
                describe(server, &key, &json!({"site": new.map(|site| format!("site{site}"))}));
                *site = new;
            }
            4..=8 => {
                write(server, format!("{key} v={step} {}\n", 100 + step));
                *value = Some(step);
            }
            _ => {
                execute(server, "d", &format!("DROP SERIES FROM m WHERE s = '{sensor}'"));
                (*value, *site) = (None, None);
            }
        }
    }
    let mut expected: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
    for (sensor, (value, site)) in &model {
        if let (Some(value), Some(site)) = (value, site) {
            let key = format!("m,gw=g{},s={sensor}", sensor % 3);
            expected.entry(format!("site{site}")).or_default().insert(key, *value);
        }
    }
    assert!(expected.len() == 3, "{expected:?}");
    wait_until("groups' documents are as the model", || stored.members("site") == expected);
    for server in &servers {
        for (value, of) in &expected {
            let keys: Vec<String> = of.keys().cloned().collect();
            wait_until("the endpoint is as the model", || members(server, "site", value) == keys);
        }
    }
}

/// A large group has several documents within the size limit, each with the members of its range.
#[test]
fn a_large_group_has_several_documents() {
    let uri = mongod().uri(&fresh_database_name());
    let server = Launch::with_store(&uri).config(CONFIG).start();
    let stored = Stored { uri };
    let lines = |from: usize, v: usize| -> String {
        (from..700).step_by(2).map(|s| format!("m,gw=g,s={s:03} v={v} 10\n")).collect()
    };
    write(&server, lines(0, 1));
    eventually("half of them", || (stored.members("gateway").get("g")?.len() == 350).then_some(()));
    write(&server, lines(1, 1));
    eventually("all of them", || (stored.members("gateway").get("g")?.len() == 700).then_some(()));
    let documents = find(&stored.uri, "d.groups", doc! { "group": "gateway", "value": "g" });
    assert!((4..=10).contains(&documents.len()), "{}", documents.len());
    let mut last = String::new();
    for document in &documents {
        let from = document.get_str("from").unwrap();
        for member in document.get_array("members").unwrap() {
            let key = member.as_document().unwrap().get_str("sensor").unwrap();
            assert!(*key >= *from && *key > *last, "{key} after {last} in the document from {from}");
            key.clone_into(&mut last);
        }
    }
    post(&server.url("/query?db=d&q=DROP%20MEASUREMENT%20m"), "", &[]).expect(200);
    wait_until("none of them", || find(&stored.uri, "d.groups", doc! {}).is_empty());
}

/// Regression: the docs named a removed job. Only MongoDB with groups and copies has all jobs.
#[test]
fn every_job_is_documented() {
    let config = format!("{CONFIG}[[meta.copy]]\nname = \"site\"\n");
    let server = Launch::with_store(mongod().uri(&fresh_database_name())).config(config).start();
    let jobs = get(&server.url("/api/v1/jobs")).expect(200).json();
    let name = |job: &Value| job["name"].as_str().expect("a name").to_owned();
    let names: BTreeSet<String> = jobs["jobs"].as_array().expect("a list").iter().map(name).collect();
    let docs = include_str!("../../docs/how-to/jobs.md");
    let chapter = docs.split("\n## ").find(|chapter| chapter.starts_with("Background jobs")).expect("a chapter");
    let row = |line: &str| Some(line.strip_prefix("| `")?.split('`').next()?.to_owned());
    assert_eq!(chapter.lines().filter_map(row).collect::<BTreeSet<_>>(), names);
    let help = program().args(["job", "run", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let documented = help.split("The job: ").nth(1).and_then(|rest| rest.split(['.', '\n']).next()).expect("the jobs");
    let documented = documented.replace(" or ", ", ");
    assert_eq!(documented.split(", ").map(str::to_owned).collect::<BTreeSet<_>>(), names);
}
