//! `hourglass backup copy` between the stores and back keeps the digest, even with kills.

use crate::support::prelude::*;

use super::{PAGES, SEALS, START, digest, start_filled, start_restored, write};

#[test]
fn a_copy_to_another_store_and_back_has_the_same_digest() {
    let mut server = start_filled("embedded", SEALS);
    assert!(server.stop().success());
    let there = Folder::new("there");
    let folder = server.data_dir();
    let original = digest("embedded", &folder);
    let config = there.file("own.toml");
    let columns = format!("{SEALS}form = \"columns\"\n");
    for (round, seals) in ["", SEALS, &columns].into_iter().enumerate() {
        std::fs::write(&config, format!("{PAGES}{seals}")).unwrap();
        let uri = mongod().uri(&fresh_database_name());
        let back = there.file(&format!("back{round}"));
        let data = there.file(&format!("data{round}"));
        for (from, to) in [(path(&folder), &*uri), (&*uri, path(&back))] {
            let arguments = ["backup", "copy", "--source", from, "--target", to];
            let folder = ["--config", path(&config), "--data-dir", path(&data)];
            let arguments = [&arguments[..], &folder].concat();
            let mut command = program();
            run_program(command.args(&arguments).env("FAULT_KILL_AT", "day_copied:2")).expect_killed();
            hourglass(&arguments).expect_success();
            hourglass(&arguments).expect_failure("not empty");
        }
        assert_eq!(original, digest(&uri, &data));
        assert_eq!(original, digest("embedded", &back));
        for (store, data) in [(&*uri, &data), ("embedded", &back)] {
            verify(store, data, &[]).expect_success();
        }
    }
}

#[test]
fn a_copy_needs_an_empty_wal_and_another_store() {
    let mut server = Launch::embedded().config("[flush]\ninterval = \"1h\"\nquiet = \"10m\"\n").start();
    write(&server, "plant", "m v=1 1768435200\n");
    server.kill();
    let target = Folder::new("target");
    let source = server.data_dir();
    hourglass(&["backup", "copy", "--source", path(&source), "--target", path(target.path())])
        .expect_failure("wal flush");
    hourglass(&["backup", "copy", "--source", path(&source), "--target", path(&source)]).expect_failure("the same");
    hourglass(&["wal", "flush", "--data-dir", path(&source)]).expect_success();
    hourglass(&["backup", "copy", "--source", path(&source), "--target", path(target.path())]).expect_success();
}

/// Writes after a restore win over restored values, and deletions and sealing work.
#[test]
fn a_restored_store_takes_writes_deletions_and_sealing() {
    let mut server = start_filled("embedded", "");
    let renamed = r#"{"kind":"tag_value","tag":"s","from":"1","to":"renamed"}"#;
    request("PUT", &server.url("/api/v1/renames?db=plant"), renamed.as_bytes(), &[]).unwrap().expect(200);
    let backup = Folder::new("backup");
    super::backup(&server, backup.path(), &[]).expect_success();
    let mut copy = start_restored(backup.path());
    let of_new_name =
        |server: &Server| server.fetch("/query?db=plant&q=SELECT+count(temp)+FROM+climate+WHERE+s='renamed'");
    let count = &of_new_name(&copy)["results"][0]["series"][0]["values"][0][1];
    assert!(count.as_u64() > Some(0) && of_new_name(&copy) == of_new_name(&server), "{count}");
    copy.stop();
    copy.restart_as(Launch::embedded().config(format!("{PAGES}{SEALS}")));
    for one in [&server, &copy] {
        write(one, "plant", &format!("climate,s=0 temp=77 {START}\nclimate,s=new temp=1 {START}\n"));
        execute(one, "plant", &format!("DELETE FROM climate WHERE s='3' AND time < {}s", START + 40_000));
        flush(one);
    }
    for query in
        ["SELECT+*+FROM+climate", "SHOW+SERIES", "SHOW+FIELD+KEYS", "SELECT+last(temp)+FROM+climate+GROUP+BY+s"]
    {
        let [one, other] = [&server, &copy].map(|one| one.fetch(&format!("/query?db=plant&q={query}")));
        assert_eq!(one, other, "{query}");
    }
    let sensors = |server: &Server| {
        let mut listed = server.fetch("/api/v1/sensors?db=plant&recent=true");
        // Overflow marks are not restored, because the pages are new.
        for sensor in listed["sensors"].as_array_mut().expect("a list") {
            sensor.as_object_mut().expect("a sensor").remove("outlier");
        }
        listed
    };
    assert_eq!(sensors(&server), sensors(&copy));
    flush(&copy);
    assert!(server.stop().success() && copy.stop().success());
    assert_eq!(digest("embedded", &server.data_dir()), digest("embedded", &copy.data_dir()));
}

/// Stamps of restored data exceed those of another machine's clock.
#[test]
fn writes_after_a_restore_win_with_any_clock() {
    let server = start_filled("embedded", "");
    let backup = Folder::new("backup");
    super::backup(&server, backup.path(), &[]).expect_success();
    let mut copy = start_restored(backup.path());
    copy.kill();
    copy.restart_as(Launch::embedded().config(PAGES).env("FAULT_CLOCK_MS", -3_600_000));
    write(&copy, "plant", &format!("climate,s=0 temp=77 {START}\n"));
    let ask = || copy.fetch("/query?db=plant&q=SELECT+first(temp)+FROM+climate+WHERE+s='0'");
    assert_eq!(ask()["results"][0]["series"][0]["values"][0][1], 77);
    flush(&copy);
    assert_eq!(ask()["results"][0]["series"][0]["values"][0][1], 77);
}
