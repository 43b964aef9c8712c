//! Ownership of a data folder: one process at a time, and one store while the WAL has records for it.

use crate::support::prelude::*;

use super::{EXIT_UNAVAILABLE, readings, run, write};

/// The second process has another store, so only the WAL is in use. Regression: the exit status was 1, like that of any
/// error.
#[test]
fn a_second_process_on_a_log_is_refused() {
    let name = fresh_database_name();
    let server = Server::start(&mongod().uri(&name));
    write(&server, "m v=1 1");
    let data = server.data_dir();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap(), "--store"];
    for store in [mongod().uri(&name), mongod().uri(&fresh_database_name()), "embedded".to_owned()] {
        let (code, printed, complaint) = run(&[&arguments[..], &[&store]].concat(), &[]);
        assert_eq!((code, printed.as_str()), (EXIT_UNAVAILABLE, ""), "{store}: {complaint}");
        let expected = format!(
            "hourglass: opening the WAL in {}: the WAL is in use by another process",
            data.join("log").display()
        );
        assert_eq!(complaint.lines().last(), Some(expected.as_str()), "{store}: {complaint}");
    }
    write(&server, "m v=2 2");
    assert_eq!(readings(&server, "m").len(), 2);
}

/// Regression: `token list --data-dir nosuch` created the folder and reported no tokens.
#[test]
fn read_only_commands_create_no_folder() {
    let folder = Folder::new("read-only");
    let missing = folder.file("nosuch");
    let shown = missing.to_str().unwrap();
    for command in [
        &["token", "list"][..],
        &["audit", "list"],
        &["audit", "verify"],
        &["token", "revoke", "a"],
        &["token", "rotate", "a"],
        &["token", "bind", "a"],
        &["dead-letters", "list"],
        &["dead-letters", "send"],
        &["dead-letters", "done", "1"],
        &["verify"],
        &["wal", "flush"],
    ] {
        let (code, printed, complaint) = run(&[command, &["--data-dir", shown]].concat(), &[]);
        assert!(code != 0 && printed.is_empty(), "{command:?}: {code} {printed}");
        assert!(complaint.contains(shown) && complaint.lines().count() == 1, "{command:?}: {complaint}");
        assert!(!missing.exists(), "{command:?} made it");
    }
    // A relative path is shown as an absolute one.
    let listed = program().args(["token", "list", "--data-dir", "nosuch"]).current_dir(folder.path()).output().unwrap();
    let complaint = String::from_utf8(listed.stderr).unwrap();
    let expected = format!("hourglass: there is no folder {shown}: ");
    assert!(listed.status.code() == Some(1) && complaint.starts_with(&expected), "{complaint}");
    // With MongoDB, tokens are not in the folder: it is optional, but a named one must exist.
    let store = mongod().uri(&fresh_database_name());
    let (code, _, complaint) = run(&["token", "list", "--store", &store, "--data-dir", shown], &[]);
    assert!(code == 1 && complaint.starts_with(&expected), "{complaint}");
    let listed = program().args(["token", "list", "--store", &store]).current_dir(folder.path()).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    assert!(!folder.file("data").exists() && !missing.exists());
}

/// Regression: a service started in another directory created a new `./data`, and its readings seemed lost.
#[test]
fn a_new_data_folder_beside_another_causes_a_warning() {
    let mut first = Server::start("embedded");
    let data = first.data_dir();
    write(&first, "m v=1 1");
    let own = format!("\"folder\":{:?}", data.to_str().unwrap());
    assert!(first.stderr().contains(&own), "its absolute path is logged: {}", first.stderr());
    assert!(!first.stderr().contains("is near"), "{}", first.stderr());
    let other_data = data.with_file_name("data2");
    let toml = data.with_file_name("beside.toml");
    std::fs::write(&toml, format!("[server]\ndata_dir = {:?}\n", other_data.to_str().unwrap())).unwrap();
    // The port is taken, so the process ends after it has created and checked the folder.
    let address = first.address().to_string();
    let start = || run(&["serve", "--listen", &address, "--config", toml.to_str().unwrap()], &[]).2;
    let complaint = start();
    let warnings: Vec<&str> = complaint.lines().filter(|line| line.contains("is near")).collect();
    assert_eq!(warnings.len(), 1, "{complaint}");
    for path in [&data, &other_data] {
        assert!(warnings[0].contains(path.to_str().unwrap()), "{complaint}");
    }
    // It has a store now and is no longer new.
    assert!(!start().contains("is near"));
    first.stop();
    first.restart();
    assert!(!first.stderr().contains("is near"), "{}", first.stderr());
}

/// Checks that the folder is refused for this store, with a hint.
#[track_caller]
fn refused(server: &mut Server, store: &str, found: &str, wanted: &str) {
    server.relaunch(Launch::with_store(store));
    let status = eventually("its end", || server.exited());
    let complaint = server.stderr();
    assert_eq!(status.code(), Some(1), "{complaint}");
    assert_eq!(server.stdout(), "", "it never served");
    let folder = server.data_dir().join("log");
    let start = format!("hourglass: opening the WAL in {}: the WAL holds records up to sequence ", folder.display());
    let end = format!(
        " for the store {found}, but the store is {wanted}: start with the former store until they are flushed, or \
         set another WAL folder (wal.dir) for the latter"
    );
    let last = complaint.lines().last().unwrap_or_default();
    assert!(last.starts_with(&start) && last.ends_with(&end), "{complaint}");
}

#[test]
fn a_log_with_records_for_another_store_is_refused() {
    let uri = mongod().uri(&fresh_database_name());
    let other = mongod().uri(&fresh_database_name());
    let identity = |uri: &str| uri.split('?').next().unwrap().to_owned();
    let mut server = Server::start(&uri);
    write(&server, "m v=1 1");
    server.kill();
    refused(&mut server, &other, &identity(&uri), &identity(&other));
    refused(&mut server, "embedded", &identity(&uri), "embedded");
    // With its own store nothing is lost, and a stop flushes all of it.
    server.restart_with(Launch::with_store(&uri));
    assert_eq!(readings(&server, "m").len(), 1);
    assert!(server.stop().success());
    // The empty log fits any store.
    for store in [other.as_str(), "embedded"] {
        server.restart_as(Launch::with_store(store));
        let nothing = server.fetch("/api/v1/readings?db=d&sensor=m");
        assert_eq!(nothing["series"], json!([]), "{store}");
        write(&server, "m v=2 2");
        assert!(server.stop().success());
    }
    // The other way round, with stores identified by folder.
    server.restart_as(Launch::embedded());
    write(&server, "m v=3 3");
    server.kill();
    refused(&mut server, &uri, "embedded", &identity(&uri));
    let elsewhere = format!("[wal]\ndir = {:?}\n", server.data_dir().join("another-log"));
    server.restart_as(Launch::with_store(&uri).config(elsewhere));
    assert_eq!(readings(&server, "m").len(), 1, "what that store had");
}
