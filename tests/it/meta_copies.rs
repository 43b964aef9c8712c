//! Copies of metadata in MongoDB pages and days follow changes despite writes and kills, and readings stay unchanged.

use crate::support::prelude::*;

const DAY: u64 = 86_400;

/// Copies settle after four times the timeout.
fn config(timeout: &str) -> String {
    format!(
        "[store]\ncommand_timeout = \"{timeout}\"\n[flush]\ninterval = \"50ms\"\n\
         [seal]\nafter = \"1s\"\ninterval = \"1h\"\nquiet = \"0s\"\n[sensors]\nwrite_interval = \"50ms\"\n\
         [[meta.copy]]\nname = \"site\"\n[[meta.copy]]\nname = \"floor\"\ndatabase = \"d\"\n"
    )
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Stored pages and days of a sensor.
struct Stored {
    uri: String,
}

impl Stored {
    fn from_uri(uri: &str) -> Self {
        Self { uri: uri.to_owned() }
    }

    fn documents(&self, sensor: &str) -> Vec<Document> {
        let documents = |name: &str| find(&self.uri, name, doc! { "sensor": sensor });
        ["d.buckets", "d.overflow", "d.days"].into_iter().flat_map(documents).collect()
    }

    /// Returns the distinct copies in its pages and days.
    fn copies(&self, sensor: &str) -> Vec<Option<Document>> {
        let mut held: Vec<Option<Document>> =
            self.documents(sensor).iter().map(|document| document.get_document("meta").ok().cloned()).collect();
        held.dedup();
        held
    }

    /// Returns its pages and days without copies.
    fn rest(&self, sensor: &str) -> Vec<Document> {
        let mut documents = self.documents(sensor);
        documents.iter_mut().for_each(|document| drop(document.remove("meta")));
        documents
    }
}

#[test]
fn copies_on_pages_and_days_follow_the_metadata() {
    let uri = mongod().uri(&fresh_database_name());
    let server = Launch::with_store(&uri).config(config("2s")).start();
    let stored = Stored::from_uri(&uri);
    describe(&server, "PUT", "m,s=1", &json!({"site": "lab", "floor": 3, "secret": "x"})).expect(200);
    describe(&server, "PUT", "m,s=2", &json!({"secret": "x"})).expect(200);
    let old = now() - 3 * DAY;
    write_flushed(&server, format!("m,s=1 v=1 {old}\nm,s=2 v=1 {old}\nm,s=3 v=1 {old}\n"));
    seal(&server);
    write_flushed(&server, format!("m,s=1 v=2 {}\nm,s=2 v=2 {}\n", now(), now()));
    let lab = doc! { "floor": 3_i64, "site": "lab" };
    assert_eq!(stored.documents("m,s=1").len(), 2, "a page and a day");
    assert_eq!(stored.copies("m,s=1"), [Some(lab)]);
    assert_eq!((stored.copies("m,s=2"), stored.copies("m,s=3")), (vec![None], vec![None]));
    let before = stored.rest("m,s=1");
    describe(&server, "PATCH", "m,s=1", &json!({"site": "roof", "floor": null})).expect(200);
    let roof = [Some(doc! { "site": "roof" })];
    wait_until("all copies follow", || stored.copies("m,s=1") == roof);
    wait_until("nothing lags behind", || job(&server, "refresh")["left"] == 0);
    // Neither readings nor revs change, so known pages can still be written.
    assert_eq!(stored.rest("m,s=1"), before);
    write_flushed(&server, format!("m,s=1 v=3 {}\n", now() + 1));
    assert_eq!(stored.copies("m,s=1"), roof);
    let count = influxql(&server, "SELECT count(v) FROM m WHERE s = '1'");
    assert_eq!(count[0]["values"][0][1], 3, "{count}");
    // A change of other names changes no page.
    let job_progress = job(&server, "refresh")["progress"].take();
    describe(&server, "PATCH", "m,s=1", &json!({"secret": "y"})).expect(200);
    wait_until("it was looked at", || {
        let now = job(&server, "refresh");
        now["progress"]["sensors"] != job_progress["sensors"] && now["left"] == 0
    });
    assert_eq!(progress(&server, "refresh", "documents"), job_progress["documents"]);
    assert!(progress(&server, "refresh", "documents") >= 2);
}

/// Regression: copies were compared in the update filter, where MongoDB treats a list as any element, and 3 as 3.0.
#[test]
fn copies_change_between_values_that_mongodb_compares_as_equal() {
    let uri = mongod().uri(&fresh_database_name());
    let server = Launch::with_store(&uri).config(config("2s")).start();
    let stored = Stored::from_uri(&uri);
    describe(&server, "PUT", "m,s=1", &json!({"site": ["lab", "roof"], "floor": 3})).expect(200);
    write_flushed(&server, format!("m,s=1 v=1 {}\n", now()));
    for (site, floor) in [(json!("lab"), json!(3.0)), (json!(["lab"]), json!(3)), (json!("lab"), json!(0.0))] {
        describe(&server, "PUT", "m,s=1", &json!({"site": site, "floor": floor})).expect(200);
        let mut site_now = mongodb::bson::serialize_to_document(&json!({"floor": floor, "site": site})).unwrap();
        if let Some(whole) = floor.as_i64() {
            site_now.insert("floor", whole);
        }
        wait_until("the copies follow", || stored.copies("m,s=1") == [Some(site_now.clone())]);
        wait_until("nothing lags behind", || job(&server, "refresh")["left"] == 0);
    }
}

/// After a kill between document and copies, the next start completes them.
#[test]
fn copies_are_completed_at_the_start_after_a_kill() {
    let uri = mongod().uri(&fresh_database_name());
    let mut server = Launch::with_store(&uri).config(config("1s")).env("FAULT_KILL_AT", "before_copies:1").start();
    let stored = Stored::from_uri(&uri);
    let old = now() - 3 * DAY;
    write_flushed(&server, format!("m,s=1 v=1 {old}\n"));
    describe(&server, "PUT", "m,s=1", &json!({"site": "lab"})).expect(200);
    eventually("it is dead", || server.exited());
    assert_eq!(stored.copies("m,s=1"), [None]);
    server.restart_as(Launch::with_store(&uri).config(config("1s")));
    wait_until("copies follow", || stored.copies("m,s=1") == [Some(doc! { "site": "lab" })]);
    // A newly copied name is added to existing documents.
    server.stop();
    let more = config("1s") + "[[meta.copy]]\nname = \"unit\"\n";
    server.restart_as(Launch::with_store(&uri).config(more));
    describe(&server, "PATCH", "m,s=1", &json!({"unit": "K"})).expect(200);
    let both = [Some(doc! { "site": "lab", "unit": "K" })];
    wait_until("both names", || stored.copies("m,s=1") == both);
}

/// Regression: if a removal was forgotten before a kill, copies of the removed value stayed for ever.
#[test]
fn copies_of_a_removed_name_are_removed() {
    let uri = mongod().uri(&fresh_database_name());
    let (fast, slow) =
        (|| Launch::with_store(&uri).config(config("1s")), || Launch::with_store(&uri).config(config("60s")));
    let mut server = fast().start();
    let stored = Stored::from_uri(&uri);
    let old = now() - 3 * DAY;
    describe(&server, "PUT", "m,s=1", &json!({"site": "lab"})).expect(200);
    write_flushed(&server, format!("m,s=1 v=1 {old}\n"));
    let document = || find(&stored.uri, "d.sensors", doc! { "_id": "m,s=1" }).remove(0);
    eventually("the document says that copies are set", || document().get("copied").map(drop));
    // Copies are set four minutes after the change; the process stops before that, with everything stored.
    server.stop();
    server.restart_as(slow());
    describe(&server, "PATCH", "m,s=1", &json!({"site": null})).expect(200);
    server.stop();
    server.restart_as(slow());
    let mut time = now();
    wait_until("the removal is forgotten", || {
        time += 1;
        write_flushed(&server, format!("m,s=1 v=2 {time}\n"));
        document().get("metaStamps").is_none()
    });
    server.kill();
    let of_old = || find(&stored.uri, "d.buckets", doc! { "sensor": "m,s=1", "meta.site": "lab" }).len();
    assert_eq!(of_old(), 1, "the old page still has its copy");
    server.restart_as(fast());
    wait_until("it goes", || of_old() == 0);
}

/// Two instances change metadata, write and seal at random; in the end every page and day has the right copies.
#[test]
fn copies_agree_with_the_metadata_during_writes() {
    let uri = mongod().uri(&fresh_database_name());
    let servers = [(); 2].map(|()| Launch::with_store(&uri).config(config("2s")).start());
    let stored = Stored::from_uri(&uri);
    let mut random = Random::new(11);
    let start = now() - 5 * DAY;
    let mut times = BTreeMap::<i64, u64>::new();
    for step in 0..40_u64 {
        let server = &servers[usize::from(random.once_in(2))];
        let sensor = random.below(3);
        match random.below(8) {
            0..=2 => {
                let site = if random.below(5) == 0 { Value::Null } else { json!(format!("site{}", random.below(4))) };
                describe(server, "PATCH", &format!("m,s={sensor}"), &json!({"site": site})).expect(200);
            }
            3..=6 => {
                let time = start + u64::try_from(random.below(4)).unwrap() * DAY + step * 60;
                write_flushed(server, format!("m,s={sensor} v={step} {time}\n"));
                *times.entry(sensor).or_default() += 1;
            }
            _ => drop(ask_job(server, "seal")),
        }
    }
    for sensor in 0..3 {
        let key = format!("m,s={sensor}");
        eventually("copies are as the document", || {
            let document = find(&stored.uri, "d.sensors", doc! { "_id": &key }).pop()?;
            let site_now = document.get_document("meta").ok().and_then(|meta| meta.get("site").cloned());
            let site = |held: &Option<Document>| held.as_ref().and_then(|held| held.get("site").cloned());
            let is_agreed = |held: &Option<Document>| site(held) == site_now;
            stored.copies(&key).iter().all(is_agreed).then_some(())
        });
        let written = times.get(&sensor).copied().unwrap_or_default();
        let count = influxql(&servers[0], &format!("SELECT count(v) FROM m WHERE s = '{sensor}'"));
        let found = count[0]["values"][0][1].as_u64().unwrap_or_default();
        assert_eq!(found, written, "{key}: {count}");
    }
}

/// A copied path becomes an object of its own, with an index that `mongosh` queries naturally use.
#[test]
fn a_path_in_metadata_is_copied_as_an_object() {
    let uri = mongod().uri(&fresh_database_name());
    let paths = "[[meta.copy]]\nname = \"place.name\"\nindex = true\n[[meta.copy]]\nname = \"place.floor\"\n";
    let mut server = Launch::with_store(&uri).config(config("500ms") + "[[meta.copy]]\nname = \"place\"\n").start();
    let stored = Stored::from_uri(&uri);
    let describe = |server: &Server, meta: &Value| {
        let url = server.url("/api/v1/sensors/m%2Cs%3D1/meta?db=d");
        request("PUT", &url, meta.to_string().as_bytes(), &[("x-hourglass-ack", "store")]).unwrap().expect(200);
    };
    describe(&server, &json!({"place": "lab"}));
    post(&server.url("/write?db=d&precision=s&ack=store"), "m,s=1 v=1 1768485600", &[]).expect(204);
    wait_until("the copy is a text", || stored.copies("m,s=1") == [Some(doc! { "place": "lab" })]);
    server.stop();
    // The text of before is no object that could get members.
    server.restart_as(Launch::with_store(&uri).config(config("500ms") + paths));
    describe(&server, &json!({"place": {"name": "lab", "floor": 3, "owner": "Kim"}}));
    let copy = doc! { "place": { "floor": 3_i64, "name": "lab" } };
    wait_until("both members are copied", || stored.copies("m,s=1") == [Some(copy.clone())]);
    post(&server.url("/write?db=d&precision=s&ack=store"), "m,s=1 v=1 1768489200", &[]).expect(204);
    assert_eq!(stored.copies("m,s=1"), [Some(copy)], "of a new page, too");
    wait_until("the age of the copies is known", || {
        !find(&uri, "d.sensors", doc! { "copied.refreshedAt": { "$gte": mongodb::bson::DateTime::from_millis(0) } })
            .is_empty()
    });
    describe(&server, &json!({}));
    wait_until("the copies are removed", || {
        stored.copies("m,s=1").iter().all(|copy| copy.as_ref().is_none_or(Document::is_empty))
    });
}

/// Regression: the sensor's document named the new kind before its pages did, so after a kill nothing showed that they
/// were outdated.
#[test]
fn a_changed_kind_reaches_all_pages_after_a_kill() {
    let uri = mongod().uri(&fresh_database_name());
    let kinds = "[[kinds]]\nname = \"a\"\nmeasurement = \"m\"\n[[kinds]]\nname = \"b\"\n";
    let config = config("500ms") + kinds;
    let launch = || Launch::with_store(&uri).config(&config);
    let mut server = launch().env("FAULT_KILL_AT", "before_copies:1").start();
    let documents = |kind: &str| -> usize {
        ["d.buckets", "d.sensors"].iter().map(|name| find(&uri, name, doc! { "kind": kind }).len()).sum()
    };
    write_flushed(&server, "m,s=1 v=1 1768485600");
    wait_until("both documents are of the first kind", || documents("a") == 2);
    describe(&server, "PATCH", "m,s=1", &json!({"kind": "b"})).expect(200);
    wait_until("it dies before it refreshes the page", || server.exited().is_some());
    server.restart_as(launch());
    wait_until("both documents are of the second kind", || documents("b") == 2);
}

/// The list of sensors with outdated copies is paged, and in the end empty.
#[test]
fn outdated_copies_are_listed() {
    let uri = mongod().uri(&fresh_database_name());
    let mut server = Launch::with_store(&uri).config(config("60s")).start();
    for sensor in 1..=3 {
        write_flushed(&server, format!("m,s={sensor} v=1 {}\n", now()));
        describe(&server, "PUT", &format!("m,s={sensor}"), &json!({"site": "lab"})).expect(200);
    }
    flush(&server);
    let outdated = |server: &Server, query: &str| server.fetch(&format!("/api/v1/jobs/refresh/outdated?db=d{query}"));
    let first = outdated(&server, "&limit=2");
    assert_eq!(first["sensors"], json!([{"sensor": "m,s=1"}, {"sensor": "m,s=2"}]), "{first}");
    let cursor = first["next"].as_str().expect("a next page").replace(',', "%2C").replace('=', "%3D");
    let second = outdated(&server, &format!("&limit=2&cursor={cursor}"));
    assert_eq!(second, json!({"sensors": [{"sensor": "m,s=3"}], "next": null}));
    server.stop();
    server.restart_as(Launch::with_store(&uri).config(config("500ms")));
    wait_until("none is outdated", || outdated(&server, "") == json!({"sensors": [], "next": null}));
}
