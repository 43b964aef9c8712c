//! MongoDB snapshots, as made by `mongodump --oplog` or of volumes, put back; see docs/how-to/backup.md.

use mongodb::Client;

use crate::support::prelude::*;

use super::{PAGES, START, digest, write};

/// Copies all collections of a database into another one, which is dropped first.
fn copy_collections(from: &str, to: &str) {
    block_on(async {
        let client = Client::with_uri_str(mongod().uri("admin")).await.unwrap();
        client.database(to).drop().await.unwrap();
        let database = client.database(from);
        let names = database.list_collection_names().filter(doc! { "type": "collection" }).await.unwrap();
        // A restored database gets its view with the next write.
        for name in names.into_iter().filter(|name| !name.starts_with("system.")) {
            let copied =
                doc! { "aggregate": &name, "cursor": {}, "pipeline": [{ "$out": { "db": to, "coll": &name } }] };
            database.run_command(copied).await.unwrap();
            let mut indexes = database.collection::<Document>(&name).list_indexes().await.unwrap();
            while indexes.advance().await.unwrap() {
                let index = indexes.deserialize_current().unwrap();
                client.database(to).collection::<Document>(&name).create_index(index).await.unwrap();
            }
        }
    });
}

fn lines(sensor: &str, count: u64) -> String {
    (0..count).map(|n| format!("m,s={sensor} v={n}i {}\n", START + n * 60)).collect()
}

#[test]
fn the_log_replays_onto_a_restored_snapshot() {
    let name = fresh_database_name();
    let kept = fresh_database_name();
    let store = mongod().uri(&name);
    // Nothing is flushed without a request.
    let lazy = PAGES.replace("100ms", "1h").replace("50ms", "10m");
    let mut server = Launch::with_store(&store).config(lazy).start();
    write(&server, "plant", &lines("flushed", 300));
    flush(&server);
    copy_collections(&name, &kept);
    write(&server, "plant", &lines("only-in-the-log", 200));
    server.kill();
    copy_collections(&kept, &name);
    // With an empty data folder, the state equals the snapshot.
    let empty = Folder::new("empty");
    let of_snapshot = digest(&mongod().uri(&kept), empty.path());
    assert_eq!(of_snapshot["total"]["readings"], 300, "{of_snapshot}");
    assert_eq!(digest(&store, empty.path()), of_snapshot);
    // With its own data folder, the server replays its WAL.
    server.restart();
    assert!(server.stop().success());
    let now = digest(&store, &server.data_dir());
    assert_eq!((&now["total"]["readings"], &now["total"]["sensors"]), (&500.into(), &2.into()), "{now}");
    verify(&store, &server.data_dir(), &[]).expect_success();
}

/// Without a flush before the snapshot, the readings in the WAL are missing.
#[test]
fn a_snapshot_without_a_flush_lacks_unflushed_readings() {
    let name = fresh_database_name();
    let kept = fresh_database_name();
    let lazy = PAGES.replace("100ms", "1h").replace("50ms", "10m");
    let server = Launch::with_store(mongod().uri(&name)).config(lazy).start();
    write(&server, "plant", &lines("a", 100));
    copy_collections(&name, &kept);
    let empty = Folder::new("empty");
    assert_eq!(digest(&mongod().uri(&kept), empty.path())["total"]["readings"], 0);
    flush(&server);
    copy_collections(&name, &kept);
    assert_eq!(digest(&mongod().uri(&kept), empty.path())["total"]["readings"], 100);
}
