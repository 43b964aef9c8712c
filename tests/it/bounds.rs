//! Bounds of what hourglass makes MongoDB hold: sizes of documents, connections, and no joins.

use crate::support::prelude::*;

/// 2026-01-15T00:00:00Z, in seconds.
const START: u64 = 1_768_435_200;
const MIB: i64 = 1 << 20;

/// Returns the size of the largest document of each collection whose sensor matches.
fn largest(uri: &str, sensor: Document) -> BTreeMap<String, i64> {
    in_mongo(uri, async |mongo| {
        let mut found = BTreeMap::new();
        for name in mongo.list_collection_names().await.unwrap() {
            if name.contains("system.") || name.ends_with("recent_readings") {
                continue;
            }
            let size = doc! { "$max": { "$toLong": { "$bsonSize": "$$ROOT" } } };
            let group = doc! { "$group": { "_id": null, "bytes": size } };
            let matching = doc! { "$match": { "sensor": &sensor } };
            let mut answer = mongo.collection::<Document>(&name).aggregate([matching, group]).await.unwrap();
            if answer.advance().await.unwrap() {
                found.insert(name, answer.deserialize_current().unwrap().get_i64("bytes").unwrap());
            }
        }
        found
    })
}

/// A fast sensor, sensors with many fields and full metadata, and a large group: each document is below 1 MiB, except
/// days of more than about 500 fields.
#[test]
fn documents_stay_below_a_mebibyte() {
    let uri = mongod().uri(&fresh_database_name());
    let config = "[seal]\nafter = \"0s\"\ninterval = \"24h\"\n[sensors]\nwrite_interval = \"100ms\"\n\
                  [[groups]]\nname = \"site\"\nby = \"meta.site\"\n";
    let server = Launch::with_store(&uri).config(config).start();
    let write = |lines: String| write_to(&server, "db=d&precision=s", lines);
    let mut random = Random::new(7);
    for hour in 0..24 {
        let seconds = hour * 3600..(hour + 1) * 3600;
        let line = |s: u64| {
            let temp = random.below(4000);
            format!("fast,s=1 temp={}.{:02},hum={}i {}\n", temp / 100, temp % 100, random.below(100), START + s)
        };
        write(seconds.map(line).collect());
    }
    for reading in 0..48 {
        for part in 0..4 {
            let fields = (part * 250..(part + 1) * 250).map(|field| format!("field_{field:04}={field}.{reading}"));
            let fields = Vec::from_iter(fields).join(",");
            let name = if part == 0 { "some,s=1" } else { "wide,s=1" };
            write(format!("{name} {fields} {time}\nwide,s=1 {fields} {time}\n", time = START + reading * 1800));
        }
    }
    write((0..300).map(|n| format!("m,s={n} v={n} {START}\n")).collect());
    let member = |n: u64| format!("{}\n", json!({ "sensor": format!("m,s={n}"), "meta": { "site": "lab" } }));
    let wide = json!({ "sensor": "wide,s=1", "meta": { "note": "x".repeat(8000) } });
    post(&server.url("/api/v1/meta?db=d"), format!("{}{wide}", (0..300).map(member).collect::<String>()), &[])
        .expect(200);
    flush(&server);
    let pages = largest(&uri, doc! { "$exists": true });
    seal(&server);
    run_job(&server, "group");
    let few_fields = largest(&uri, doc! { "$ne": "wide,s=1" });
    let wide = largest(&uri, doc! { "$eq": "wide,s=1" });
    println!("{pages:?}\n{few_fields:?}\n{wide:?}");
    for (name, bytes) in pages.iter().chain(&few_fields) {
        assert!(*bytes < MIB, "{name}: {bytes} bytes");
    }
    assert!((MIB..3 * MIB).contains(&wide["d.days"]), "{wide:?}");
    assert!(pages["d.buckets"] > 100_000 && few_fields["d.days"] > 200_000, "{pages:?} {few_fields:?}");
    assert!(few_fields["d.sensors"] > 50_000 && few_fields["d.groups"] > 5_000, "{few_fields:?}");
}

/// Many clients share a few connections: 4 commands of each kind at once, some checks, and the driver's monitors.
#[test]
fn connections_to_mongodb_are_bounded() {
    let uri = format!("{}&appName=bounded", mongod().uri(&fresh_database_name()));
    let server = Launch::with_store(&uri).start();
    let open = || {
        in_mongo(&uri, async |mongo| {
            let every = doc! { "$currentOp": { "allUsers": true, "idleConnections": true } };
            let ours = doc! { "$match": { "appName": "bounded", "clientMetadata.driver.name": { "$exists": true } } };
            let count = doc! { "$group": { "_id": "$client" } };
            let mut answer = mongo.client().database("admin").aggregate([every, ours, count]).await.unwrap();
            let mut clients = 0;
            while answer.advance().await.unwrap() {
                clients += 1;
            }
            clients
        })
    };
    let mut most = 0;
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..32)
            .map(|client| {
                let server = &server;
                scope.spawn(move || {
                    for n in 0..5 {
                        post(&server.url("/write?db=d&ack=store"), format!("m,s={client} v={n} {n}"), &[]).expect(204);
                        get(&server.url(&format!("/api/v1/readings?db=d&sensor=m,s={client}"))).expect(200);
                    }
                })
            })
            .collect();
        while clients.iter().any(|client| !client.is_finished()) {
            most = most.max(open());
        }
    });
    // The test itself also has the name: one connection for its command, and monitors.
    assert!((2..=12 + 2 + 3).contains(&most), "{most} connections");
}

/// Joins read a document per page. What is queried together is stored together.
#[test]
fn no_query_and_no_job_joins_collections() {
    let mut files = 0;
    let mut folders = vec![root().join("src"), root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files += 1;
                let text = fs::read_to_string(&path).unwrap();
                assert!(!text.contains("$lookup") && !text.contains("$graphLookup"), "{}", path.display());
            }
        }
    }
    assert!(files > 300, "{files}");
}
