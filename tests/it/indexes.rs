//! Declared indexes on a real mongod: created, used by their queries, and dropped once they are not declared.

mod plans;

use crate::support::packages;
use crate::support::prelude::*;

const CONFIG: &str = "[meta]\ntext = [\"name\", \"place.room\"]\n[sensors]\nwrite_interval = \"50ms\"\n[[meta.copy]]\nname = \"site\"\nindex = true\n[[meta.copy]]\nname = \"a.b\"\n\
                      index = true\ndatabase = \"d\"\n[[meta.copy]]\nname = \"owner\"\n\
                      [[kinds]]\nname = \"press\"\nmeasurement = \"machine\"\nindex = true\n[[kinds]]\nname = \"spare\"\nindex = true\n";

/// Runs the index job, so that no index is being built.
fn settle(server: &Server) {
    let done = run_job(server, "index");
    assert_eq!(done["last_error"], json!(null), "{done}");
    // The next run may have begun.
    wait_until("no database is left", || job(server, "index")["left"] == 0);
}

/// Returns the names of a collection's indexes.
fn list_indexes(uri: &str, collection: &str) -> Vec<String> {
    in_mongo(uri, async |mongo| mongo.collection::<Document>(collection).list_index_names().await.unwrap())
}

#[test]
fn declared_indexes_are_created_used_and_dropped() {
    let uri = mongod().uri(&fresh_database_name());
    let mut server = Launch::with_store(&uri).config(CONFIG).start();
    write_flushed(&server, "machine,s=1 v=1 1768485600\nclimate,s=1 v=1 1768485600");
    settle(&server);
    let owned = |collection: &str| {
        let mut found: Vec<String> = list_indexes(&uri, collection);
        found.retain(|name| name.starts_with("hourglass.") || name.starts_with("own"));
        found.sort();
        found
    };
    let all = ["hourglass.kind.press", "hourglass.kind.spare", "hourglass.meta.a.b", "hourglass.meta.site"];
    for collection in ["d.buckets", "d.overflow", "d.days"] {
        assert_eq!(owned(collection), all);
    }
    assert_eq!(owned("d.sensors"), [&all[..], &["hourglass.text"]].concat());
    each_query_uses_its_index(&uri);
    // A foreign index stays, whatever the rest of its name.
    make_own(&uri);
    server.stop();
    let fewer = "[[meta.copy]]\nname = \"site\"\nindex = true\n[[kinds]]\nname = \"press\"\nmeasurement = \"climate\"\nindex = true\n";
    server.restart_as(Launch::with_store(&uri).config(fewer));
    settle(&server);
    assert_eq!(owned("d.buckets"), ["hourglass.kind.press", "hourglass.meta.site", "own"]);
    assert_eq!(owned("d.sensors"), ["hourglass.kind.press", "hourglass.meta.site"]);
    // The other measurement is of the kind now, also its documents that were stored before.
    wait_until("the kinds are updated", || {
        let is_press =
            |id: &str, collection: &str| !find(&uri, collection, doc! { "_id": id, "kind": "press" }).is_empty();
        let found = [("machine,s=1", "d.sensors"), ("climate,s=1", "d.sensors")].map(|(id, name)| is_press(id, name));
        let pages = ["machine", "climate"].map(|name| is_press(&format!("2026-01-15T14 {name},s=1 0"), "d.buckets"));
        found == [false, true] && pages == [false, true]
    });
    server.stop();
    server.restart_as(Launch::with_store(&uri));
    wait_until("none is left", || owned("d.buckets") == ["own"]);
}

fn make_own(uri: &str) {
    let index = doc! { "key": { "meta.own": 1 }, "name": "own" };
    run_command(uri, None, doc! { "createIndexes": "d.buckets", "indexes": [index] });
}

/// Explains queries with `mongosh`: each uses its index and scans no collection.
fn each_query_uses_its_index(uri: &str) {
    let Some(mongosh) = packages::require(Package::Mongosh) else { return };
    let since = r#"{ $gte: ISODate("2026-01-15T00:00:00Z") }"#;
    let queries = [
        ("d.buckets", "hourglass.meta.site", format!(r#""meta.site": "VALUE", start: {since}"#)),
        ("d.overflow", "hourglass.meta.a.b", format!(r#""meta.a.b": "VALUE", start: {since}"#)),
        ("d.buckets", "measurement_1_start_1", format!(r#"measurement: "VALUE", start: {since}"#)),
        ("d.days", "hourglass.kind.press", format!(r#"kind: "press", start: {since}"#)),
        ("d.sensors", "hourglass.meta.site", r#""meta.site": "VALUE""#.to_owned()),
        ("d.sensors", "hourglass.text", r#"$text: { $search: "VALUE" }"#.to_owned()),
        ("d.sensors", "hourglass.kind.spare", format!(r#"kind: "spare", lastSeen: {since}"#)),
    ];
    let explained = |(collection, _, filter): &(&str, &str, String)| {
        let query = format!("db.getCollection({collection:?}).find({{ {filter} }})");
        format!("print(JSON.stringify({query}.explain().queryPlanner.winningPlan));")
    };
    let script: String = queries.iter().map(explained).collect();
    let home = tempfile::tempdir().unwrap();
    let shell = Command::new(mongosh)
        .args(["--quiet", "--norc", uri, "--eval", &script])
        .env("HOME", home.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&shell.stdout).into_owned() + &String::from_utf8_lossy(&shell.stderr);
    let plans: Vec<&str> = text.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!(plans.len(), queries.len(), "{text}");
    for (plan, (_, name, query)) in plans.iter().zip(queries) {
        assert!(!plan.contains("COLLSCAN"), "{query}: {plan}");
        assert!(plan.contains(&format!("\"indexName\":{name:?}")), "{query}: {plan}");
    }
}

#[test]
fn the_embedded_store_has_no_index_job() {
    let server = Launch::embedded().config(CONFIG).start();
    get(&server.url("/api/v1/jobs/index")).expect(404);
}

/// Regression: the first write after an upgrade built the index of measurements in all collections, and no reading was
/// stored until the builds ended.
#[test]
fn an_old_database_gets_its_index_in_the_background() {
    let uri = mongod().uri(&fresh_database_name());
    let mut server = Launch::with_store(&uri).start();
    write_flushed(&server, "climate,s=1 v=1 1768485600");
    server.stop();
    let index = "measurement_1_start_1";
    for collection in ["d.buckets", "d.overflow", "d.days"] {
        run_command(&uri, None, doc! { "dropIndexes": collection, "index": index });
    }
    server.restart_as(Launch::with_store(&uri));
    settle(&server);
    for collection in ["d.buckets", "d.overflow", "d.days"] {
        assert!(list_indexes(&uri, collection).iter().any(|name| name == index), "{collection}");
    }
}
