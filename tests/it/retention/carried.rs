//! Summaries of expired readings are kept bit for bit in backups, copies and digests.

use crate::support::prelude::*;

use super::summaries::{await_gone, fill, kept_from, launch, whole_hours};
use super::{HOUR, STORES};

const KEPT: &str = r#"{"readings":"3d","summaries":"inf"}"#;

/// Runs `hourglass` successfully and returns its output.
#[track_caller]
fn run(arguments: &[&str]) -> String {
    hourglass(arguments).expect_success().stdout
}

/// Starts a service on a restored or copied store: equal answers, and no writes into expired days.
#[track_caller]
fn check_restored(store: &str, data: &Path, first: i64, before: &[Value]) {
    let verified = run(&["verify", "--store", store, "--data-dir", path(data)]);
    assert!(!verified.contains("wrong"), "{verified}");
    let mut server: Server = launch(store).start();
    if store == "embedded" {
        assert!(server.stop().success());
        std::fs::remove_dir_all(server.data_dir()).expect("the folder exists");
        std::fs::rename(data, server.data_dir()).expect("a folder can be moved");
        server.restart();
    }
    assert_eq!(whole_hours(&server, first), before);
    assert_eq!(post(&server.url("/write?db=w"), format!("m,s=0 temp=1 {}", first + HOUR), &[]).status, 400);
    post(&server.url("/write?db=w"), format!("m,s=0 temp=1 {}", now() - HOUR), &[]).expect(204);
    await_gone(&server);
    assert_eq!(whole_hours(&server, first), before, "stripped again");
    assert!(server.stop().success());
}

/// Regression: backups, copies and digests lacked the summaries of days without readings.
#[test]
fn summaries_without_readings_are_in_backups_and_copies() {
    for (place, new) in STORES.into_iter().enumerate() {
        let store = new();
        let mut server = launch(&store).start();
        let first = fill(&server);
        let before = whole_hours(&server, first);
        server.set("w", KEPT).expect(200);
        await_gone(&server);
        let folder = Folder::new("carried");
        let backup_dir = folder.file("backup");
        let from = server.url("");
        let output = run(&["backup", "create", path(&backup_dir), "--server", &from, "--prove"]);
        assert!(output.contains("hours of summaries") && !output.contains("not in the backup"), "{output}");
        // A second one finds the days unchanged; a third one finds the day with a deleted hour.
        assert!(run(&["backup", "create", path(&backup_dir), "--server", &from]).contains("\n0 days written"));
        let gone = format!("DELETE FROM m WHERE time >= {first} AND time < {}", first + HOUR);
        let result = super::ask(&server, "db=w", &gone);
        assert!(result["error"].is_null(), "{result}");
        let after = whole_hours(&server, first);
        assert_ne!(after, before);
        assert!(run(&["backup", "create", path(&backup_dir), "--server", &from]).contains("\n1 days written"));
        // Restores into the other store, with a kill.
        let other = STORES[1 - place]();
        let data = folder.file("data");
        let arguments = ["backup", "restore", path(&backup_dir), "--store", &other, "--data-dir", path(&data)];
        run_program(program().args(arguments).env("FAULT_KILL_AT", "day_restored:2")).expect_killed();
        run(&arguments);
        assert!(server.stop().success());
        let original = digest(&store, &server.data_dir());
        assert!(original["total"]["summaries"].as_u64() > Some(24), "{original}");
        assert_eq!(digest(&other, &data), original, "restored");
        check_restored(&other, &data, first, &after);
    }
}

/// A day with readings in one part only is copied whole, in either form.
#[test]
fn a_store_killed_during_expiry_can_be_copied() {
    for new in STORES {
        let store = new();
        let config = format!("{}{}", super::CONFIG, super::summaries::SEALS);
        let mut server = Launch::with_store(&store).config(config).env("FAULT_KILL_AT", "stripped:1").start();
        let first = fill(&server);
        let before = whole_hours(&server, first);
        server.set("w", KEPT).expect(200);
        assert!(poll(super::TIMEOUT, || server.exited()).is_some(), "{}", server.stderr());
        let folder = Folder::new("carried");
        let data = server.data_dir();
        let there = folder.file("there");
        run(&["wal", "flush", "--store", &store, "--data-dir", path(&data)]);
        let from = if store == "embedded" { path(&data).to_owned() } else { store.clone() };
        let mut arguments = vec!["backup", "copy", "--source", &from, "--target", path(&there)];
        if store != "embedded" {
            arguments.extend(["--data-dir", path(&data)]);
        }
        run(&arguments);
        let original = digest(&store, &data);
        assert!(original["total"]["summaries"].as_u64() > Some(0), "{original}");
        assert_eq!(digest("embedded", &there), original);
        check_restored("embedded", &there, first, &before);
        assert!(kept_from() > first);
        drop(server);
    }
}
