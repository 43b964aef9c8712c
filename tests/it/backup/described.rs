//! Metadata and sensors without readings in backups, copies and digests.

use crate::support::prelude::*;

use super::{PAGES, SEALS, START, backup, digest, restore, start_filled, write};

#[track_caller]
fn put(server: &Server, key: &str, meta: &Value) {
    let key: String = key.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let url = server.url(&format!("/api/v1/sensors/{key}/meta?db=plant"));
    request("PUT", &url, meta.to_string().as_bytes(), &[]).expect("an answer").expect(200);
}

/// Returns key, metadata and statistics of each listed sensor.
fn descriptions(server: &Server) -> Vec<(String, Value, Value)> {
    let listed = server.fetch("/api/v1/sensors?db=plant&limit=1000");
    let description = |sensor: &Value| (sensor["sensor"].to_string(), sensor["meta"].clone(), sensor["fields"].clone());
    listed["sensors"].as_array().expect("a list").iter().map(description).collect()
}

/// Metadata of sensors with, after and without readings, including doubles that a careless parser rounds.
fn describe(server: &Server) {
    put(
        server,
        "climate,s=0",
        &json!({"site": "lab", "at": {"y": 1.0173456789012345, "x": [0.1, null, true]}, "n": 7}),
    );
    put(server, "climate,s=never", &json!({"scale": 30000000000000004e-17, "name": "ü \"quoted\"", "z": -0.0}));
    write(server, "plant", &format!("climate,s=lost temp=1 {START}\n"));
    put(server, "climate,s=lost", &json!({"unit": "°C"}));
    flush(server);
    execute(server, "plant", &format!("DELETE FROM climate WHERE s='lost' AND time < {}s", START + 60));
    flush(server);
}

#[track_caller]
fn start_with_data(store: &str, data: &std::path::Path) -> Server {
    let mut server = Launch::with_store(store).config(PAGES).start();
    assert!(server.stop().success());
    std::fs::remove_dir_all(server.data_dir()).expect("the folder exists");
    std::fs::rename(data, server.data_dir()).expect("a folder can be moved");
    server.restart();
    server
}

/// Regression: backups and copies dropped metadata and sensors without readings.
#[test]
fn a_backup_has_metadata_and_sensors_without_readings() {
    for (store, to_store) in stores().into_iter().zip({
        let [embedded, mongo] = stores();
        [mongo, embedded]
    }) {
        let mut server = start_filled(&store, SEALS);
        describe(&server);
        let folder = Folder::new("backup");
        let data = Folder::new("restored");
        backup(&server, folder.path(), &[]).expect_success();
        // A change of metadata only, then no change.
        put(&server, "climate,s=1", &json!({"site": "roof"}));
        put(&server, "climate,s=0", &json!({"site": "lab"}));
        let output = backup(&server, folder.path(), &["--prove"]).expect_success().stdout;
        assert!(output.contains("\n0 days written") && output.contains("sensors of 1 databases written"), "{output}");
        let output = backup(&server, folder.path(), &[]).expect_success().stdout;
        assert!(output.contains("\n0 days written (0 bytes)") && output.contains("sensors of 0 databases"), "{output}");
        let original = descriptions(&server);
        assert!(
            original.iter().any(|(key, meta, _)| key.contains("never") && meta["name"].is_string()),
            "{original:?}"
        );
        assert!(server.stop().success());
        let data = data.file("data");
        restore(folder.path(), &to_store, &data).expect_success();
        let before = digest(&store, &server.data_dir());
        assert_eq!(before["databases"], digest(&to_store, &data)["databases"]);
        assert_eq!(before["total"]["metadata"], 1 + 1 + 3 + 1, "{before}");
        // Later metadata wins, by name.
        let mut restored = match to_store.as_str() {
            "embedded" => start_with_data("embedded", &data),
            store => Launch::with_store(store).config(PAGES).start(),
        };
        assert_eq!(descriptions(&restored), original);
        put(&restored, "climate,s=never", &json!({"name": "later"}));
        restored.kill_and_restart();
        let later =
            || descriptions(&restored).into_iter().find(|(key, ..)| key.contains("never")).map(|(_, meta, _)| meta);
        wait_until("it is replayed", || later() == Some(json!({"name": "later"})));
    }
}

#[test]
fn a_copy_of_a_stopped_store_has_metadata_and_sensors() {
    let [embedded, mongo] = stores();
    let mut server = start_filled(&embedded, "");
    describe(&server);
    let original = descriptions(&server);
    assert!(server.stop().success());
    let there = Folder::new("there");
    let back = Folder::new("back");
    let from = server.data_dir();
    let data = there.file("data");
    let back = back.file("data");
    for (from, folder) in [(path(&from), &*mongo), (&*mongo, path(&back))] {
        hourglass(&["backup", "copy", "--source", from, "--target", folder, "--data-dir", path(&data)])
            .expect_success();
    }
    assert_eq!(digest("embedded", &from), digest(&mongo, &data));
    assert_eq!(digest("embedded", &from), digest("embedded", &back));
    let restored = start_with_data("embedded", &back);
    assert_eq!(descriptions(&restored), original);
}

#[test]
fn a_backup_in_an_unknown_format_is_refused() {
    let server = start_filled("embedded", "");
    let folder = Folder::new("backup");
    let target = Folder::new("restored");
    backup(&server, folder.path(), &[]).expect_success();
    let mut manifest: Value = serde_json::from_slice(&std::fs::read(folder.file("manifest.json")).unwrap()).unwrap();
    manifest["form"] = json!(3);
    std::fs::write(folder.file("manifest.json"), manifest.to_string()).unwrap();
    restore(folder.path(), "embedded", target.path()).expect_failure("form 3");
}
