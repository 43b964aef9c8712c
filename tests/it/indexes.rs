//! Indexes that the configuration declares: made in the background where they are missing, dropped once they are not declared any
//! more, and each used by the query that it is shown with, on a real mongod.

use std::process::Command;
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use serde_json::Value;

use crate::support::eventually;
use crate::support::http::{get, post};
use crate::support::mongod::{fresh_database_name, mongod};
use crate::support::packages::{self, Package};
use crate::support::server::{Launch, Server, program};

const WITHIN: Duration = Duration::from_secs(90);

const CONFIG: &str = "[sensors]\nwrite_interval = \"50ms\"\n[[meta.copy]]\nname = \"site\"\nindex = true\n[[meta.copy]]\nname = \"a.b\"\n\
                      index = true\ndatabase = \"d\"\n[[meta.copy]]\nname = \"owner\"\n\
                      [[kinds]]\nname = \"press\"\nmeasurement = \"machine\"\nindex = true\n[[kinds]]\nname = \"spare\"\nindex = true\n";

fn shown(server: &Server) -> Vec<Value> {
    let body = get(&server.url("/api/v1/indexes")).expect(200).json();
    body["indexes"].as_array().unwrap().clone()
}

fn await_ready(server: &Server, count: usize) {
    eventually("the declared indexes are ready", WITHIN, || {
        let shown = shown(server);
        (shown.len() == count && shown.iter().all(|index| index["state"] == "ready")).then_some(())
    });
}

/// The names of a collection's indexes.
fn stored(uri: &str, collection: &str) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::with_uri_str(uri).await.unwrap();
        client.default_database().unwrap().collection::<Document>(collection).list_index_names().await.unwrap()
    })
}

#[test]
fn declared_indexes_are_made_shown_used_and_dropped() {
    let uri = mongod().uri(&fresh_database_name());
    let mut server = Launch::with_store(&uri).config(CONFIG).start();
    post(&server.url("/write?db=d&precision=s"), "machine,line=1 v=1 1768485600\nclimate,s=1 v=1 1768485600", &[])
        .expect(204);
    post(&server.url("/api/v1/flush"), "", &[]).expect(204);
    // Three of pages and days, and four of sensors.
    await_ready(&server, 3 * 3 + 5);
    let buckets =
        || stored(&uri, "d.buckets").into_iter().filter(|name| name.starts_with("hourglass.")).collect::<Vec<_>>();
    let mut found = buckets();
    found.sort();
    assert_eq!(found, ["hourglass.kind.press", "hourglass.meta.a.b", "hourglass.meta.site"]);
    each_query_uses_an_index(&uri, &shown(&server));
    let told = program().args(["indexes", "--server", &server.url("")]).output().unwrap();
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.status.success() && text.contains("d.buckets hourglass.meta.site ready"), "{text}");
    assert!(text.contains(r#"db.getCollection("d.buckets").find({ "meta.site": "VALUE", start: "#), "{text}");
    // One that somebody else made stays, whatever its name begins with otherwise.
    make_own(&uri);
    server.stop();
    let fewer = "[[meta.copy]]\nname = \"site\"\nindex = true\n[[kinds]]\nname = \"press\"\nmeasurement = \"mill\"\nindex = true\n";
    server.restart_as(Launch::with_store(&uri).config(fewer).listen("127.0.0.1:0"));
    await_ready(&server, 2 * 3 + 3);
    let mut found = stored(&uri, "d.buckets");
    found.retain(|name| name.starts_with("hourglass.") || name.starts_with("own"));
    found.sort();
    assert_eq!(found, ["hourglass.kind.press", "hourglass.meta.site", "own"]);
    server.stop();
    server.restart_as(Launch::with_store(&uri).listen("127.0.0.1:0"));
    eventually("none is left", WITHIN, || buckets().is_empty().then_some(()));
    assert!(shown(&server).is_empty() && stored(&uri, "d.buckets").contains(&"own".to_owned()));
    let told = program().args(["indexes", "--server", &server.url("")]).output().unwrap();
    assert!(told.status.success() && String::from_utf8_lossy(&told.stdout).contains("no index is declared"));
}

fn make_own(uri: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::with_uri_str(uri).await.unwrap();
        let options = mongodb::options::IndexOptions::builder().name("own".to_owned()).build();
        let model = mongodb::IndexModel::builder().keys(doc! { "meta.own": 1 }).options(options).build();
        client.default_database().unwrap().collection::<Document>("d.buckets").create_index(model).await.unwrap();
    });
}

/// `mongosh` explains each query as it is shown: it uses the index that it is shown with, and scans no collection.
fn each_query_uses_an_index(uri: &str, shown: &[Value]) {
    let Some(mongosh) = packages::require(Package::Mongosh) else { return };
    let explained = |index: &Value| {
        format!("print(JSON.stringify({}.explain().queryPlanner.winningPlan));", index["query"].as_str().unwrap())
    };
    let script: String = shown.iter().map(explained).collect();
    let home = tempfile::tempdir().unwrap();
    let told = Command::new(mongosh)
        .args(["--quiet", "--norc", uri, "--eval", &script])
        .env("HOME", home.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&told.stdout).into_owned() + &String::from_utf8_lossy(&told.stderr);
    let plans: Vec<&str> = text.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!(plans.len(), shown.len(), "{text}");
    for (plan, index) in plans.iter().zip(shown) {
        assert!(!plan.contains("COLLSCAN"), "{}: {plan}", index["query"]);
        assert!(plan.contains(&format!("\"indexName\":{}", index["name"])), "{}: {plan}", index["query"]);
    }
}

#[test]
fn on_the_embedded_store_nothing_is_declared() {
    let server = Launch::embedded().config(CONFIG).start();
    assert!(shown(&server).is_empty());
}
