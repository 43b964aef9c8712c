//! Metadata and sensors without readings in backups, copies and digests.

use crate::support::prelude::*;

use super::{PAGES, SEALS, START, backup, digest, restore, start_filled, start_restored, write};

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

/// Regression: a restore took any names and days from a backup, and printed control characters of terminals.
#[test]
fn a_backup_with_invalid_names_and_days_is_refused() {
    let mut server = start_filled("embedded", "");
    let data = server.data_dir();
    let add = ["token", "add", "--name", "boss", "--admin", "*", "--data-dir", path(&data)];
    let token = hourglass(&add).expect_success().stdout.trim().to_owned();
    let folder = Folder::new("backup");
    wait_until("the token is valid", || backup(&server, folder.path(), &["--token", &token]).status == Some(0));
    assert!(server.stop().success());
    let read = |name: &str| std::fs::read(folder.file(name)).unwrap();
    let manifest: Value = serde_json::from_slice(&read("manifest.json")).unwrap();
    let evil = "x\u{1b}[2J\u{9b}2J";
    let refused = |manifest: &Value| {
        std::fs::write(folder.file("manifest.json"), manifest.to_string()).unwrap();
        let target = Folder::new("restored");
        let output = restore(folder.path(), "embedded", target.path());
        let printed = format!("{}{}", output.stdout, output.stderr);
        assert!(output.status != Some(0), "{printed}");
        assert!(!printed.chars().any(|c| c.is_control() && c != '\n'), "{printed:?}");
        printed
    };
    let has_days = |database: &Value| database["days"].as_array().is_some_and(|days| !days.is_empty());
    let filled = manifest["databases"].as_array().unwrap().iter().position(has_days).unwrap();
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut changed = manifest.clone();
        change(&mut changed);
        refused(&changed)
    };
    let printed = changed(&|manifest| manifest["databases"][filled]["name"] = json!(evil));
    assert!(printed.contains("which cannot exist"), "{printed}");
    let printed = changed(&|manifest| manifest["databases"][filled]["days"][0]["number"] = json!(i64::MAX));
    assert!(printed.contains("which is out of range"), "{printed}");
    let printed = changed(&|manifest| manifest["databases"][filled]["days"][0]["file"] = json!(evil));
    assert!(printed.contains("outside the folder"), "{printed}");
    // A file of its own with its checksum, as an attacker makes it.
    let replaced = |key: &str, text: String| {
        let name = manifest[key]["file"].as_str().unwrap();
        let original = read(name);
        std::fs::write(folder.file(name), &text).unwrap();
        let printed = changed(&|manifest| {
            manifest[key]["bytes"] = json!(text.len());
            manifest[key]["sha256"] = json!(sha256(text.as_bytes()));
        });
        std::fs::write(folder.file(name), original).unwrap();
        printed
    };
    let mut tokens: Value = serde_json::from_slice(&std::fs::read(data.join("tokens.json")).unwrap()).unwrap();
    for (key, value) in [("name", json!(evil)), ("certificates", json!([evil]))] {
        let mut strange = tokens["tokens"].clone();
        strange[0][key] = value;
        assert!(replaced("tokens", strange.to_string()).contains("are invalid"), "{key}");
    }
    replaced("settings", json!([{"database": evil, "rev": 1}]).to_string());

    // The list of tokens shows such a name, but not as it is.
    tokens["tokens"][0]["name"] = json!(evil);
    std::fs::write(data.join("tokens.json"), tokens.to_string()).unwrap();
    let listed = hourglass(&["token", "list", "--data-dir", path(&data)]).expect_success().stdout;
    assert!(
        listed.contains("x\\u{1b}[2J\\u{9b}2J") && !listed.chars().any(|c| c.is_control() && c != '\n'),
        "{listed}"
    );
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A mapping reaches other instances and backups, and a dated message counts once, whichever instance takes it.
#[test]
fn own_mappings_hold_on_other_instances_and_after_a_restore() {
    let store = mongod().uri(&fresh_database_name());
    let mut first = Launch::with_store(&store).config(PAGES).start();
    let second = Launch::with_store(&store).config(PAGES).start();
    let text = "name = \"plug\"\nmeasurement = \"plug\"\nfields = [{ path = \"/w\" }]\ntime = { path = \"/t\", format = \"s\" }\n";
    request("PUT", &first.url("/api/v1/mappings/plug?db=d"), text.as_bytes(), &[]).unwrap().expect(200);
    let send = |server: &Server, watts: u64| {
        let message = json!({ "t": START, "w": watts }).to_string();
        post(&server.url("/api/v1/ingest/plug?db=d"), message, &[]).status
    };
    wait_until("the other instance has the mapping", || send(&second, 1) == 200);
    assert_eq!(send(&first, 2), 200);
    // Acked and not flushed: the next start has it.
    first.kill_and_restart();
    // The later ack wins.
    assert_eq!(send(&second, 3), 200);
    flush(&first);
    flush(&second);
    let stored = |server: &Server| influxql(server, "SELECT count(w), sum(w) FROM plug")[0]["values"][0].clone();
    for server in [&first, &second] {
        assert_eq!((stored(server)[1].clone(), stored(server)[2].clone()), (json!(1), json!(3)));
    }
    let folder = Folder::new("backup");
    backup(&first, folder.path(), &[]).expect_success();
    let restored = start_restored(folder.path());
    assert_eq!(send(&restored, 3), 200);
    assert_eq!((stored(&restored)[1].clone(), stored(&restored)[2].clone()), (json!(1), json!(3)));
}
