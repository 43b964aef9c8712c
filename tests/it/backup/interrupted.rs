//! Incremental backups, and backups, restores and services that are killed; damaged files.

use crate::support::prelude::*;

use super::{DAY, PAGES, SEALS, START, backup, digest, restore, start_filled, write};

pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn manifest(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("manifest.json")).unwrap()).unwrap()
}

/// Restores into a new embedded store and returns its digest.
#[track_caller]
fn digest_of_backup(from: &Path) -> Value {
    let restored_dir = Folder::new("restored");
    restore(from, "embedded", restored_dir.path()).expect_success();
    assert!(!restored_dir.file("unfinished.jsonl").exists());
    digest("embedded", restored_dir.path())["databases"].clone()
}

#[track_caller]
fn killed_at(server: &Server, backup_dir: &Path, point: &str) {
    let mut command = program();
    command.args(["backup", "create", path(backup_dir), "--server", &server.url("")]).env("FAULT_KILL_AT", point);
    run_program(&mut command).expect_killed();
}

#[test]
fn a_second_backup_writes_the_days_that_changed() {
    for (store, more) in stores().into_iter().zip([SEALS, SEALS]) {
        let mut server = start_filled(&store, more);
        let backup_dir = Folder::new("backup");
        assert!(
            backup(&server, backup_dir.path(), &[]).expect_success().stdout.contains("\n4 days written"),
            "three and one"
        );
        let names = files(backup_dir.path());
        assert!(
            backup(&server, backup_dir.path(), &[])
                .expect_success()
                .stdout
                .contains("\n0 days written (0 bytes), 4 unchanged")
        );
        // The job `expire` may note its cutoff in the settings between the two backups.
        let is_content = |name: &&PathBuf| !name.to_string_lossy().contains("/settings-");
        let names_again = files(backup_dir.path());
        assert!(names.iter().filter(is_content).eq(names_again.iter().filter(is_content)), "{names:?} {names_again:?}");
        // A late reading, a correction, a partial deletion, and a dropped database.
        write(&server, "plant", &format!("climate,s=9 temp=1 {}\n", START + DAY + 5));
        write(&server, "plant", &format!("climate,s=0 temp=999 {}\n", START + 600));
        let output = backup(&server, backup_dir.path(), &[]).expect_success().stdout;
        assert!(output.contains("\n2 days written") && output.contains(" 2 unchanged"), "{output}");
        execute(&server, "plant", &format!("DELETE FROM climate WHERE s='1' AND time > {}s", START + 2 * DAY));
        execute(&server, "o", "DROP RETENTION POLICY \"t.her\" ON o");
        let output = backup(&server, backup_dir.path(), &[]).expect_success().stdout;
        assert!(output.contains("\n1 days written") && output.contains(" 2 unchanged"), "{output}");
        assert_eq!(
            names.len() - 2,
            files(backup_dir.path()).len(),
            "what nothing names is removed: {:?}",
            files(backup_dir.path())
        );
        assert!(server.stop().success());
        assert_eq!(digest(&store, &server.data_dir())["databases"], digest_of_backup(backup_dir.path()));
    }
}

#[test]
fn a_killed_backup_leaves_the_previous_one() {
    for store in stores() {
        let mut server = start_filled(&store, "");
        let backup_dir = Folder::new("backup");
        backup(&server, backup_dir.path(), &[]).expect_success();
        let before = digest_of_backup(backup_dir.path());
        for (point, is_new) in
            [("day_kept:1", false), ("day_kept:3", false), ("days_kept:1", false), ("manifest_kept:1", true)]
        {
            let all_days = (0..3).map(|day| format!("climate,s=0 x=\"{point}\" {}\n", START + day * DAY + 60));
            write(&server, "plant", &all_days.collect::<String>());
            killed_at(&server, backup_dir.path(), point);
            assert_eq!(digest_of_backup(backup_dir.path()) == before, !is_new, "{point}");
        }
        backup(&server, backup_dir.path(), &[]).expect_success();
        let named = 1 + 1 + 4 + 2 + 1 + 1;
        assert_eq!(
            files(backup_dir.path()).len(),
            named,
            "manifest, lock, days, sensors, tokens, settings: {:?}",
            files(backup_dir.path())
        );
        assert!(server.stop().success());
        assert_eq!(digest(&store, &server.data_dir())["databases"], digest_of_backup(backup_dir.path()));
    }
}

#[test]
fn a_service_killed_during_a_backup_leaves_the_previous_one() {
    for store in stores() {
        let mut server = start_filled(&store, "");
        let backup_dir = Folder::new("backup");
        backup(&server, backup_dir.path(), &[]).expect_success();
        let before = manifest(backup_dir.path());
        write(&server, "plant", &format!("climate,s=0 temp=1 {}\n", START + 60));
        flush(&server);
        server.kill();
        let launch = Launch::with_store(&store).config(PAGES);
        server.restart_as(launch.clone().env("FAULT_KILL_AT", "part_sent:1"));
        let failed = backup(&server, backup_dir.path(), &[]);
        assert_eq!(failed.status, Some(1), "{failed:?}");
        assert!(poll(TIMEOUT, || server.exited()).is_some());
        assert_eq!(manifest(backup_dir.path()), before);
        server.restart_as(launch);
        backup(&server, backup_dir.path(), &[]).expect_success();
        assert_ne!(manifest(backup_dir.path()), before);
    }
}

#[test]
fn a_killed_restore_is_resumed_and_blocks_serving() {
    for (store, to_store) in stores().into_iter().zip(stores()) {
        let mut server = start_filled(&store, "");
        let backup_dir = Folder::new("backup");
        let restored_dir = Folder::new("restored");
        backup(&server, backup_dir.path(), &[]).expect_success();
        assert!(server.stop().success());
        for point in ["day_restored:1", "day_restored:3"] {
            let flags = ["--store", &to_store, "--data-dir", path(restored_dir.path())];
            let mut command = program();
            command.args(["backup", "restore", path(backup_dir.path())]).args(flags);
            run_program(command.env("FAULT_KILL_AT", point)).expect_killed();
            hourglass(&[&["serve", "--listen", "127.0.0.1:0"], &flags[..]].concat()).expect_failure("is incomplete");
        }
        restore(backup_dir.path(), &to_store, restored_dir.path()).expect_success();
        assert_eq!(
            digest(&store, &server.data_dir())["databases"],
            digest(&to_store, restored_dir.path())["databases"]
        );
        verify(&to_store, restored_dir.path(), &[]).expect_success();
        restore(backup_dir.path(), &to_store, restored_dir.path()).expect_failure("not empty");
    }
}

/// Regression: after `DROP DATABASE` by mistake, a restore into the same store did not finish, and no service started: the
/// remembered drop covered what was restored.
#[test]
fn a_database_dropped_by_mistake_can_be_restored_in_place() {
    for store in stores() {
        let mut server = start_filled(&store, SEALS);
        let folder = Folder::new("backup");
        backup(&server, &folder.file("backup"), &[]).expect_success();
        let path = "/query?db=plant&q=SELECT%20count(*)%20FROM%20climate";
        let before = server.fetch(path);
        for database in ["plant", "o"] {
            execute(&server, "plant", &format!("DROP DATABASE {database}"));
        }
        assert!(server.stop().success());
        restore(&folder.file("backup"), &store, &server.data_dir()).expect_success();
        server.restart();
        assert_eq!(server.fetch(path), before, "{store}");
        wait_until("the registry settles", || metric(&server, "hourglass_registry_deletions") == 0.0);
        assert_eq!(server.fetch(path), before, "{store}");
    }
}

#[test]
fn a_damaged_file_is_found_and_named() {
    let server = start_filled("embedded", "");
    let backup_dir = Folder::new("backup");
    backup(&server, backup_dir.path(), &[]).expect_success();
    let whole = files(backup_dir.path());
    for file in whole.iter().filter(|file| !path(file).ends_with(".lock")) {
        let content = std::fs::read(file).unwrap();
        for (index, what) in [(content.len() / 2, "flipped"), (content.len() - 1, "cut")] {
            let mut damaged = content.clone();
            if what == "cut" {
                damaged.truncate(index)
            } else {
                damaged[index] ^= 1
            }
            std::fs::write(file, damaged).unwrap();
            let target = Folder::new("restored");
            let name = file.file_name().unwrap().to_str().unwrap();
            let verified = hourglass(&["backup", "verify", path(backup_dir.path())]);
            for output in [restore(backup_dir.path(), "embedded", target.path()), verified] {
                assert!(output.status == Some(1), "{what} {name}: {output:?}");
                assert!(output.stderr.contains(name) || name == "manifest.json", "{what} {name}: {output:?}");
            }
        }
        std::fs::write(file, content).unwrap();
    }
    digest_of_backup(backup_dir.path());
    // A missing file is written again even if its day is unchanged.
    let day = whole.iter().find(|file| path(file).ends_with(".readings")).unwrap();
    std::fs::remove_file(day).unwrap();
    assert!(backup(&server, backup_dir.path(), &[]).expect_success().stdout.contains("\n1 days written"));
    // The settings may have a new expiry mark and then are another file.
    let days = |files: Vec<PathBuf>| -> Vec<PathBuf> {
        files.into_iter().filter(|file| path(file).ends_with(".readings")).collect()
    };
    assert_eq!(days(whole), days(files(backup_dir.path())));
}

#[test]
fn the_metric_of_a_backup_proof_survives_a_restart() {
    const PROVED: &str = "hourglass_backup_proved_timestamp_seconds";
    const COMPLETED: &str = "hourglass_backup_completed_timestamp_seconds";
    for store in stores() {
        let mut server = start_filled(&store, SEALS);
        let backup_dir = Folder::new("backup");
        backup(&server, backup_dir.path(), &[]).expect_success();
        assert!(metric(&server, PROVED).abs() < 1.0, "none is proved");
        let first = manifest(backup_dir.path())["began_ms"].as_f64().unwrap() / 1000.0;
        assert!((metric(&server, COMPLETED) - first).abs() < 0.01);
        assert!(backup(&server, backup_dir.path(), &["--prove"]).expect_success().stdout.contains("proved"));
        let began = manifest(backup_dir.path())["began_ms"].as_f64().unwrap() / 1000.0;
        assert!((metric(&server, PROVED) - began).abs() < 0.01);
        assert!(!backup_dir.file("proof").exists());
        server.kill_and_restart();
        assert!((metric(&server, PROVED) - began).abs() < 0.01);
        assert!((metric(&server, COMPLETED) - began).abs() < 0.01);
        // A damaged backup is not proved. The damaged day is unchanged, so it is not written again.
        let day = files(backup_dir.path()).into_iter().find(|file| path(file).ends_with(".readings")).unwrap();
        let mut content = std::fs::read(&day).unwrap();
        let index = content.len() - 20;
        content[index] ^= 1;
        std::fs::write(&day, content).unwrap();
        backup(&server, backup_dir.path(), &["--prove"]).expect_failure(day.file_name().unwrap().to_str().unwrap());
        assert!((metric(&server, PROVED) - began).abs() < 0.01);
        assert!((metric(&server, COMPLETED) - began).abs() < 0.01, "a backup that fails its proof is no success");
    }
}

#[test]
fn a_backup_has_tokens_and_config_and_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let mut server = start_filled("embedded", "");
    let data = server.data_dir();
    let token_command = |name: &str| ["token", "add", "--name", name, "--admin", "*", "--data-dir"].map(str::to_owned);
    let arguments = token_command("boss");
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    arguments.push(path(&data));
    let token = hourglass(&arguments).expect_success().stdout.trim().to_owned();
    let ask = || post(&server.url("/api/v1/flush"), "", &[]).status;
    assert!(poll(TIMEOUT, || (ask() == 401).then_some(())).is_some());
    let backup_dir = Folder::new("backup");
    let target = Folder::new("restored");
    backup(&server, backup_dir.path(), &[]).expect_failure("--token-file");
    let config = target.file("own.toml");
    std::fs::write(&config, "[page]\nmax_readings = 7\n").unwrap();
    let bearer = [("authorization", &*format!("Bearer {token}"))];
    let ask = |server: &Server, method: &str, path: &str, body: &str| {
        request(method, &server.url(path), body.as_bytes(), &bearer).expect("an answer").expect(200)
    };
    ask(&server, "PATCH", "/api/v1/databases/plant", r#"{"readings":"5200w"}"#);
    backup(&server, backup_dir.path(), &["--token", &token, "--config", path(&config)]).expect_success();
    for file in files(backup_dir.path()) {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
    assert_eq!(backup_dir.file("days").metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert!(server.stop().success());
    let data = target.file("data");
    restore(backup_dir.path(), "embedded", &data).expect_success();
    assert_eq!(std::fs::read_to_string(data.join("restored.toml")).unwrap(), "[page]\nmax_readings = 7\n");
    let listed = hourglass(&["token", "list", "--data-dir", path(&data)]).expect_success().stdout;
    assert!(listed.contains("boss") && listed.contains("admin"), "{listed}");
    assert_eq!(
        std::fs::read_to_string(server.data_dir().join("tokens.json")).unwrap(),
        std::fs::read_to_string(data.join("tokens.json")).unwrap(),
    );
    std::fs::remove_dir_all(server.data_dir()).expect("the folder exists");
    restore(backup_dir.path(), "embedded", &server.data_dir()).expect_success();
    server.restart_behind();
    let settings = ask(&server, "GET", "/api/v1/databases/plant", "").json();
    assert_eq!(settings["readings"], "873600h", "{settings}");
    let policies = ask(&server, "GET", "/query?q=SHOW%20RETENTION%20POLICIES%20ON%20o", "");
    let policies = policies.text();
    assert!(policies.contains("\"t.her\",\"16800h0m0s\""), "{policies}");
}

#[test]
fn a_backup_needs_an_empty_or_own_folder() {
    let server = start_filled("embedded", "");
    let backup_dir = Folder::new("backup");
    std::fs::write(backup_dir.file("mine.txt"), "mine").unwrap();
    backup(&server, backup_dir.path(), &[]).expect_failure("neither empty nor a backup");
    assert_eq!(files(backup_dir.path()).len(), 1);
    restore(backup_dir.path(), "embedded", &backup_dir.file("data")).expect_failure("no finished backup");
}

/// Acked readings that are not in MongoDB yet delay a backup on every instance.
#[test]
fn a_backup_waits_for_every_instance() {
    let store = mongod().uri(&fresh_database_name());
    let one = start_filled(&store, "");
    let lazy = "[flush]\ninterval = \"1h\"\nquiet = \"10m\"\n[sensors]\nwrite_interval = \"1s\"\n";
    let other = Launch::with_store(&store).config(lazy).start();
    write(&other, "plant", &format!("climate,s=7 temp=7 {}\n", START + 7));
    let backup_dir = Folder::new("backup");
    backup(&one, backup_dir.path(), &["--patience", "2s"]).expect_failure("have not flushed");
    assert!(!backup_dir.file("manifest.json").exists());
    flush(&other);
    backup(&one, backup_dir.path(), &["--patience", "60s"]).expect_success();
    let sensors = digest_of_backup(backup_dir.path());
    assert_eq!(sensors[2]["sensors"], 5, "{sensors}");
}
