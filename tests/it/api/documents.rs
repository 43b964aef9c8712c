//! `/api/v1/documents`: the stored documents of a sensor, the same on both stores.

use crate::support::prelude::*;

const CONFIG: &str = "[page]\nmax_readings = 4\n[sensors]\nwrite_interval = \"200ms\"\n[seal]\n";
const SENSOR: &str = "climate,sensor=temp-01,site=lab";

/// Writes an hour with an overflow page, long over, and the first readings of this hour.
fn fill(server: &Server) {
    let lines: String = (0..10).map(|n| format!("{SENSOR} temp={n}.5,ok=true {}\n", START + n * MINUTE)).collect();
    post(&server.url("/write?db=plant"), lines, &[]).expect(204);
    flush(server);
}

fn documents(server: &Server, more: &str) -> Vec<Value> {
    let path = format!("/api/v1/documents?db=plant&sensor={}{more}", encode(SENSOR));
    server.fetch(&path)["documents"].as_array().expect("documents").clone()
}

/// Without what differs between two services: revs, stamps, and times of the wall clock.
fn without_stamps(mut documents: Vec<Value>) -> Vec<Value> {
    for shown in &mut documents {
        let document = shown["document"].as_object_mut().expect("a document");
        for name in ["rev", "newest", "oldest", "order", "floor", "outlier", "lifetime"] {
            document.remove(name);
        }
    }
    documents
}

#[test]
fn both_stores_show_the_same_documents() {
    let servers = [
        Launch::embedded().config(format!("{CONFIG}form = \"off\"\n")).start(),
        Launch::with_store(mongod().uri(&fresh_database_name())).config(format!("{CONFIG}form = \"off\"\n")).start(),
    ];
    let mut shown = Vec::new();
    for server in &servers {
        fill(server);
        let found = eventually("the sensor's document is written", || {
            Some(documents(server, "")).filter(|found| found.iter().any(|one| one["collection"] == "sensors"))
        });
        let names: Vec<&str> = found.iter().filter_map(|one| one["collection"].as_str()).collect();
        assert_eq!(names, ["sensors", "buckets", "overflow", "overflow"]);
        let page = &found[1]["document"];
        assert_eq!(page["_id"], format!("2026-01-15T14 {SENSOR} 0"));
        assert_eq!(page["start"], json!({ "$date": "2026-01-15T14:00:00Z" }));
        assert_eq!(page["readings"][1], json!({ "ts": { "$date": "2026-01-15T14:01:00Z" }, "temp": 1.5, "ok": true }));
        assert_eq!(page["overflow"], json!({ "pages": 1, "count": 4 }), "one of two pages is closed");
        assert_eq!((&page["page"], &found[2]["document"]["page"]), (&json!(0), &json!(1)));
        assert_eq!(documents(server, "&from=2026-01-15T15:00:00Z").len(), 1, "only the sensor's own");
        assert_eq!(documents(server, "&to=2026-01-15T15:00:00Z&limit=1").len(), 3);
        shown.push(without_stamps(found));
    }
    assert_eq!(shown[0], shown[1]);
}

#[test]
fn packed_days_are_decoded() {
    for store in ["embedded".to_owned(), mongod().uri(&fresh_database_name())] {
        let server = Launch::with_store(store).config(format!("{CONFIG}after = \"0s\"\n")).start();
        let line = |n: i64| format!("{SENSOR} temp={}.5 {}\n", n % 7, START + n * SECOND);
        post(&server.url("/write?db=plant"), (0..3600).map(line).collect::<String>(), &[]).expect(204);
        flush(&server);
        let days = eventually("the day is sealed", || {
            post(&server.url("/api/v1/jobs/seal/run"), "", &[]);
            let found = documents(&server, "");
            let days: Vec<Value> = found.into_iter().filter(|one| one["collection"] == "days").collect();
            days.first().is_some_and(|day| day["document"]["form"] == "packed").then_some(days)
        });
        assert_eq!(days.len(), 1);
        assert_eq!(days[0]["decoded_of"], 3600);
        assert_eq!(days[0]["decoded"][8], json!({ "ts": "2026-01-15T14:00:08Z", "temp": 1.5 }));
        assert!(days[0]["document"]["sealed"]["$binary"]["base64"].is_string(), "{}", days[0]["document"]);
    }
}

/// The documents may have deleted readings, so only administrators of the database see them.
#[test]
fn only_administrators_see_documents() {
    let server = Launch::embedded().start();
    fill(&server);
    let path = format!("/api/v1/documents?db=plant&sensor={}", encode(SENSOR));
    get(&server.url(&path)).expect(200);
    let bad = get(&server.url("/api/v1/documents?db=plant&measurement=climate")).expect(400);
    assert!(bad.text().contains("unknown parameter"), "{}", bad.text());
}

/// The view for people: a reading is found once, whether it is in an hour page, an overflow page or a plain day.
#[test]
fn single_readings_are_found_in_a_view() {
    let uri = mongod().uri(&fresh_database_name());
    let server = Launch::with_store(&uri).config(format!("{CONFIG}after = \"0s\"\n")).start();
    server.set("plant", "{\"seal_form\":\"off\"}").expect(200);
    fill(&server);
    let view = "plant.recent_readings";
    let times = || {
        let found = find(&uri, view, doc! { "sensor": SENSOR, "reading.ok": true });
        let mut times: Vec<i64> =
            found.iter().map(|one| one.get_datetime("ts").expect("a time").timestamp_millis() / 1000).collect();
        times.sort_unstable();
        times
    };
    let written: Vec<i64> = (0..10).map(|n| (START + n * MINUTE) / SECOND).collect();
    assert_eq!(times(), written);
    server.set("plant", "{\"seal_form\":\"packed\"}").expect(200);
    wait_until("the day is sealed", || {
        run_job(&server, "seal");
        find(&uri, "plant.buckets", doc! {}).is_empty()
    });
    assert_eq!(times(), written);
    let plan =
        run_command(&uri, None, doc! { "explain": { "find": view, "filter": { "sensor": SENSOR } } }).to_string();
    assert!(!plan.contains("COLLSCAN") && plan.matches("IXSCAN").count() >= 3, "{plan}");
    execute(&server, "plant", "DROP DATABASE plant");
    let left = run_command(&uri, None, doc! { "listCollections": 1, "filter": { "name": view } });
    assert!(left.get_document("cursor").expect("a list").get_array("firstBatch").expect("a list").is_empty(), "{left}");
}

/// Regression: the deleter read pages without the deleted readings, saw no difference, and left the counts as they were.
#[test]
fn a_deletion_in_a_closed_page_lowers_the_counts_of_page_0() {
    let config = format!("{CONFIG}form = \"off\"\n");
    for store in ["embedded".to_owned(), mongod().uri(&fresh_database_name())] {
        let server = Launch::with_store(store).config(&config).start();
        fill(&server);
        let overflow = || documents(&server, "")[1]["document"]["overflow"].clone();
        wait_until("the sensor's document is written", || documents(&server, "")[0]["collection"] == "sensors");
        assert_eq!(overflow(), json!({ "pages": 1, "count": 4 }));
        execute(&server, "plant", &format!("DELETE FROM climate WHERE time = {}", START + 5 * MINUTE));
        wait_until("the reading is removed", || overflow() == json!({ "pages": 1, "count": 3 }));
        // The whole page: the last page takes its number.
        let range = format!("time >= {} AND time < {}", START + 4 * MINUTE, START + 8 * MINUTE);
        execute(&server, "plant", &format!("DELETE FROM climate WHERE {range}"));
        wait_until("the page is removed", || overflow() == json!({ "pages": 0, "count": 0 }));
    }
}
