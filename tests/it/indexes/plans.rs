//! docs/reference/indexes.md, as MongoDB's profiler sees it: the index of every question and job, and no scan.

use crate::support::prelude::*;

const PAGE: &str = "docs/reference/indexes.md";
const CONFIG: &str = "[page]\nmax_readings = 4\n[sensors]\nwrite_interval = \"50ms\"\n\
                      [retention]\ninterval = \"200ms\"\n[flush]\ninterval = \"500ms\"\n\
                      [[meta.copy]]\nname = \"site\"\nindex = true\n[[groups]]\nname = \"site\"\nby = \"meta.site\"\n\
                      [[kinds]]\nname = \"press\"\nmeasurement = \"machine\"\nindex = true\n";
/// Collections with one document, or one per database or token, which are read whole.
const SMALL: [&str; 4] = ["databases", "registry", "settings", "tokens"];

/// A collection and the fields of one of its indexes.
type Plan = (String, String);

/// Returns the table of the page: what each question and job uses.
fn documented() -> BTreeMap<String, BTreeSet<Plan>> {
    let text = fs::read_to_string(root().join(PAGE)).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    let plans = |uses: &str| -> BTreeSet<Plan> {
        let plan =
            |part: &str| part.trim_matches('`').split_once("` by `").map(|(of, by)| (of.to_owned(), by.to_owned()));
        uses.split(", `").filter_map(|part| plan(part.trim())).collect()
    };
    rows.map(|(what, uses)| (what.to_owned(), plans(uses))).filter(|(_, plans)| !plans.is_empty()).collect()
}

/// Reads the profile of a database step by step.
struct Profiler {
    uri: String,
    seen: usize,
}

impl Profiler {
    fn start(uri: &str) -> Profiler {
        run_command(uri, None, doc! { "create": "system.profile", "capped": true, "size": 64 << 20 });
        run_command(uri, None, doc! { "profile": 2 });
        Profiler { uri: uri.to_owned(), seen: 0 }
    }

    /// Returns the plans since the last call. Panics at the scan of a collection.
    fn plans(&mut self) -> BTreeSet<Plan> {
        let seen = self.seen as u64;
        let all = in_mongo(&self.uri, async |mongo| {
            let profile = mongo.collection::<Document>("system.profile");
            let mut found = profile.find(doc! {}).skip(seen).await.unwrap();
            let mut all = Vec::new();
            while found.advance().await.unwrap() {
                all.push(found.deserialize_current().unwrap());
            }
            all
        });
        self.seen += all.len();
        all.iter().flat_map(plans_of).collect()
    }
}

fn plans_of(operation: &Document) -> Vec<Plan> {
    let Ok(summary) = operation.get_str("planSummary") else { return Vec::new() };
    let collection = operation.get_str("ns").unwrap().split_once('.').unwrap().1;
    let collection = collection.strip_prefix("d.").unwrap_or(collection);
    if SMALL.contains(&collection) || collection.starts_with("system.") {
        return Vec::new();
    }
    assert!(!summary.contains("COLLSCAN"), "{collection} is scanned: {operation}");
    if summary == "IDHACK" {
        return vec![(collection.to_owned(), "_id".to_owned())];
    }
    let indexes = summary.split("SCAN { ").skip(1).map(|rest| rest.split(" }").next().unwrap());
    let fields = |keys: &str| keys.split(", ").map(|key| key.split(':').next().unwrap()).collect::<Vec<_>>().join(", ");
    indexes.map(|keys| (collection.to_owned(), fields(keys))).collect()
}

fn fill(server: &Server) {
    let climate = |n: i64| format!("climate,room=r{},sensor=s{n} temp={n}.5 {}", n % 2, START / SECOND);
    let mut lines: Vec<String> = (0..8).map(climate).collect();
    // The hour of one sensor has two pages.
    lines.extend((0..6).map(|n| format!("machine,line=1 v={n} {}", START / SECOND + n)));
    for _ in 0..2 {
        post(&server.url("/write?db=d&precision=s&ack=store"), lines.join("\n"), &[]).expect(204);
        lines.push(format!("climate,room=r0,sensor=s0 temp=9 {}", START / SECOND + 60));
    }
}

fn ask(server: &Server, paths: &[&str]) {
    for path in paths {
        let separator = if path.contains('?') { '&' } else { '?' };
        get(&server.url(&format!("{path}{separator}db=d"))).expect(200);
    }
}

fn jobs(server: &Server, names: &[&str]) {
    names.iter().for_each(|name| drop(run_job(server, name)));
}

/// Runs queries of a person, each of which uses an index.
fn find_all(uri: &str, queries: &[(&str, Document)]) {
    queries.iter().for_each(|(collection, filter)| drop(find_unsorted(uri, collection, filter.clone())));
}

fn find_unsorted(uri: &str, collection: &str, filter: Document) -> Document {
    run_command(uri, None, doc! { "find": format!("d.{collection}"), "filter": filter })
}

#[test]
fn every_question_and_job_uses_an_index() {
    let uri = mongod().uri(&fresh_database_name());
    let mut profiler = Profiler::start(&uri);
    let mut server = Launch::with_store(&uri).config(CONFIG).start();
    let mut found: BTreeMap<&str, BTreeSet<Plan>> = BTreeMap::new();
    let mut step = |what: &'static str, plans: BTreeSet<Plan>| drop(found.insert(what, plans));

    fill(&server);
    step("a flush", profiler.plans());
    for (sensor, site) in [("climate,room=r0,sensor=s0", "north"), ("climate,room=r1,sensor=s1", "south")] {
        let path = format!("/api/v1/sensors/{}/meta?db=d", encode(sensor));
        request(
            "PUT",
            &server.url(&path),
            json!({ "site": site }).to_string().as_bytes(),
            &[("x-hourglass-ack", "store")],
        )
        .unwrap()
        .expect(200);
    }
    step("a change of metadata", profiler.plans());
    jobs(&server, &["index", "refresh", "group", "outliers", "migrate"]);
    step("jobs `index`, `refresh`, `group`, `outliers`, `migrate`", profiler.plans());
    let start = "2026-01-15T14:00:00Z";
    ask(
        &server,
        &[&format!("/api/v1/readings?measurement=climate&from={start}"), "/api/v1/readings?sensor=machine%2Cline%3D1"],
    );
    step("readings that are not sealed", profiler.plans());
    seal(&server);
    step("job `seal`", profiler.plans());
    ask(
        &server,
        &[
            &format!("/api/v1/readings?measurement=climate&from={start}"),
            &format!("/api/v1/summary?measurement=climate&from={start}&step=1h&group_by=room"),
            &format!("/api/v1/summary?measurement=climate&from={start}&step=1d&group_by=meta.site"),
        ],
    );
    for statement in ["SELECT mean(temp) FROM climate GROUP BY time(1h), room", "SELECT last(v) FROM machine"] {
        influxql(&server, statement);
    }
    step("readings and summaries of sealed days", profiler.plans());
    ask(&server, &["/api/v1/latest", "/api/v1/sensors", "/api/v1/tags", "/api/v1/measurements", "/api/v1/meta"]);
    influxql(&server, "SHOW SERIES");
    step("latest values, lists of sensors and tags", profiler.plans());
    ask(&server, &["/api/v1/sensors?outlier=true"]);
    step("outlier sensors", profiler.plans());
    ask(&server, &["/api/v1/groups/site/north"]);
    step("a group", profiler.plans());
    ask(&server, &["/api/v1/documents?sensor=machine%2Cline%3D1"]);
    step("`hourglass show`", profiler.plans());

    let since = doc! { "$gte": mongodb::bson::DateTime::from_millis(START / 1_000_000) };
    let of_readings = ["buckets", "overflow", "days"].into_iter().flat_map(|collection| {
        [
            (collection, doc! { "sensor": "machine,line=1", "start": since.clone() }),
            (collection, doc! { "measurement": "machine", "start": since.clone() }),
            (collection, doc! { "kind": "press", "start": since.clone() }),
            (collection, doc! { "meta.site": "north", "start": since.clone() }),
        ]
    });
    find_all(&uri, &of_readings.collect::<Vec<_>>());
    step("your queries for readings", profiler.plans());
    let others = [
        ("sensors", doc! { "kind": "press", "lastSeen": since }),
        ("sensors", doc! { "meta.site": "north" }),
        ("sensors", doc! { "outlier.since": { "$exists": true } }),
        ("groups", doc! { "group": "site", "value": "north" }),
        ("groups", doc! { "members.sensor": "climate,room=r0,sensor=s0" }),
    ];
    find_all(&uri, &others);
    step("your queries for sensors and groups", profiler.plans());

    for statement in
        ["DELETE FROM climate WHERE sensor = 's2' AND time < now()", "DROP SERIES FROM climate WHERE sensor = 's3'"]
    {
        post(&server.url(&format!("/query?db=d&q={}", encode(statement))), "", &[]).expect(200);
    }
    wait_until("the deletions are forgotten", || run_job(&server, "sweep")["left"] == 0);
    step("deletions, job `sweep`", profiler.plans());
    let folder = Folder::new("backup");
    let target = folder.file("backup");
    hourglass(&["backup", "create", path(&target), "--server", &server.url("")]).expect_success();
    step("a backup", profiler.plans());
    let keep = json!({ "readings": "1d", "summaries": "9000d" }).to_string();
    request("PATCH", &server.url("/api/v1/databases/d"), keep.as_bytes(), &[]).unwrap().expect(200);
    wait_until("readings have expired", || {
        jobs(&server, &["expire", "strip", "sweep"]);
        !find(&uri, "d.days", doc! { "form": "expired" }).is_empty()
    });
    step("jobs `expire` and `strip`", profiler.plans());
    let data = server.data_dir();
    server.stop();
    verify(&uri, &data, &[]).expect_success();
    digest(&uri, &data);
    step("`hourglass verify`, `backup digest`", profiler.plans());

    check(&found, &uri);
}

/// Compares what was found with the page, and asserts that each index is used.
fn check(found: &BTreeMap<&str, BTreeSet<Plan>>, uri: &str) {
    let documented = documented();
    let table = |rows: &mut dyn Iterator<Item = (&str, &BTreeSet<Plan>)>| {
        rows.map(|(what, plans)| {
            let plans: Vec<String> = plans.iter().map(|(of, by)| format!("`{of}` by `{by}`")).collect();
            format!("| {what} | {} |\n", plans.join(", "))
        })
        .collect::<String>()
    };
    let shown = table(&mut found.iter().map(|(what, plans)| (*what, plans)));
    assert_eq!(
        documented.keys().map(String::as_str).collect::<Vec<_>>(),
        found.keys().copied().collect::<Vec<_>>(),
        "{shown}"
    );
    let known: BTreeSet<&Plan> = documented.values().flatten().collect();
    let used: BTreeSet<&Plan> = found.values().flatten().collect();
    assert_eq!(used, known, "{shown}");
    // Jobs run by themselves, too, so that what one of them does can be part of another step.
    for (what, plans) in documented.iter().filter(|(what, _)| !what.contains("job")) {
        assert!(plans.is_subset(&found[&**what]), "{what}: {plans:?}\n{shown}");
    }
    for collection in ["buckets", "overflow", "days", "months", "sensors", "groups"] {
        let listed = run_command(uri, None, doc! { "listIndexes": format!("d.{collection}") });
        for index in listed.get_document("cursor").unwrap().get_array("firstBatch").unwrap() {
            let keys = index.as_document().unwrap().get_document("key").unwrap();
            let plan = (collection.to_owned(), keys.keys().cloned().collect::<Vec<_>>().join(", "));
            assert!(used.contains(&plan), "no question uses {plan:?}");
        }
    }
}
