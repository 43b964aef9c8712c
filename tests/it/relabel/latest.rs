//! The latest reading under a name.

use bson::{Document, doc};
use mongodb::Client;
use serde_json::{Value, json};

use super::{T, escaped, flush, relabel, stores, value, write};
use crate::support::http::get;
use crate::support::mongod::{fresh_database_name, mongod};
use crate::support::server::{Launch, Server};

fn latest(server: &Server, key: &str, more: &str) -> Value {
    get(&server.url(&format!("/api/v1/latest?db=d&epoch=s&sensor={}{more}", escaped(key)))).expect(200).json()
}

/// A sensor that moved has a name before and one since, each with its latest reading.
#[test]
fn each_name_of_a_sensor_has_its_latest_reading() {
    for store in stores() {
        let server = Launch::with_store(store).start();
        write(&server, &format!("m,s=a v=1i {T}\nm,s=a v=2i {}\nm,s=c v=3i {T}\n", T + 10));
        let mut moved = json!({"kind": "sensor", "from": "m,s=a", "to": "m,s=b"});
        moved["since"] = json!("2026-01-15T15:00:05Z");
        relabel(&server, &moved);
        let of = |key: &str, time: i64, v: i64| json!({"sensor": key, "tags": {"s": &key[4..]}, "readings": [{"ts": time, "v": v}]});
        let (before, since) = (of("m,s=a", T, 1), of("m,s=b", T + 10, 2));
        for _ in 0..2 {
            assert_eq!(latest(&server, "m,s=a", ""), json!({"series": [before, since], "next": null}));
            assert_eq!(latest(&server, "m,s=a", "&limit=1"), json!({"series": [before], "next": "m,s=a"}));
            let rest = latest(&server, "m,s=a", "&limit=1&cursor=m,s%3Da");
            assert_eq!(rest, json!({"series": [since], "next": null}));
            assert_eq!(latest(&server, "m,s=b", ""), json!({"series": [since], "next": null}));
            assert_eq!(latest(&server, "m,s=c", "")["series"][0]["sensor"], "m,s=c");
            assert_eq!(latest(&server, "m,s=d", "")["series"], json!([]));
            flush(&server);
        }
    }
}

/// In a database with relabels, the documents of all sensors were read for the latest reading of one.
#[test]
fn no_other_documents_are_read_for_one_sensor() {
    let uri = mongod().uri(&fresh_database_name());
    let server = Launch::with_store(&uri).start();
    let lines: String = (0..50).map(|n| format!("m,room=a,s={n} v={n}i {T}\n")).collect();
    write(&server, &lines);
    flush(&server);
    relabel(&server, &value("room", "a", "c"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let database = runtime.block_on(Client::with_uri_str(&uri)).unwrap().default_database().unwrap();
    let profile =
        |level: i32| runtime.block_on(async { database.run_command(doc! { "profile": level }).await }).unwrap();
    profile(2);
    for key in ["m,room=a,s=7", "m,room=c,s=7"] {
        assert_eq!(latest(&server, key, "")["series"][0]["readings"][0]["v"], 7, "{key}");
    }
    profile(0);
    let by_key = doc! { "command.find": "d.sensors", "command.filter._id.$in": { "$exists": true } };
    let read: Vec<i32> = runtime.block_on(async {
        let (mut all, mut read) =
            (database.collection::<Document>("system.profile").find(by_key).await.unwrap(), Vec::new());
        while all.advance().await.unwrap() {
            read.push(all.deserialize_current().unwrap().get_i32("nreturned").unwrap());
        }
        read
    });
    assert!(!read.is_empty() && read.iter().all(|count| *count <= 2), "{read:?}");
}
