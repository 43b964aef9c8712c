//! Whose log a data folder holds: one process's at a time, and one store's as long as that lacks something.

use std::time::Duration;

use serde_json::json;

use super::{readings, run, write};
use crate::support::eventually;
use crate::support::http::get;
use crate::support::mongod::{fresh_database_name, mongod};
use crate::support::series::await_fed;
use crate::support::server::{Launch, Server};

/// The second has a store of its own to serve, and only the log is in use.
#[test]
fn a_second_process_on_one_log_is_refused_and_the_first_goes_on() {
    let name = fresh_database_name();
    let server = Server::start(&mongod().uri(&name));
    write(&server, "m v=1 1");
    let data = server.data_dir();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap(), "--store"];
    for store in [mongod().uri(&name), mongod().uri(&fresh_database_name()), "embedded".to_owned()] {
        let (code, printed, said) = run(&[&arguments[..], &[&store]].concat(), &[]);
        assert_eq!((code, printed.as_str()), (1, ""), "{store}: {said}");
        let expected = format!(
            "hourglass: opening the WAL in {}: the WAL is in use by another process",
            data.join("log").display()
        );
        assert_eq!(said.lines().last(), Some(expected.as_str()), "{store}: {said}");
    }
    write(&server, "m v=2 2");
    assert_eq!(readings(&server, "m").len(), 2);
}

/// Panics unless the server's folder is refused to this store, with the way out.
#[track_caller]
fn refused(server: &mut Server, store: &str, found: &str, wanted: &str) {
    server.relaunch(Launch::with_store(store));
    let status = eventually("its end", Duration::from_secs(60), || server.exited());
    let said = server.stderr();
    assert_eq!(status.code(), Some(1), "{said}");
    assert_eq!(server.stdout(), "", "it never served");
    let folder = server.data_dir().join("log");
    let start = format!("hourglass: opening the WAL in {}: the WAL holds records up to sequence ", folder.display());
    let end = format!(
        " for the store {found}, but the store is {wanted}: start with the former store until they are flushed, or \
         set another WAL folder (wal.dir) for the latter"
    );
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with(&start) && last.ends_with(&end), "{said}");
}

#[test]
fn a_log_with_records_for_another_store_is_refused_until_that_has_them() {
    let name = fresh_database_name();
    let (uri, other) = (mongod().uri(&name), mongod().uri(&fresh_database_name()));
    let identity = |uri: &str| uri.split('?').next().unwrap().to_owned();
    let mut server = Server::start(&uri);
    write(&server, "m v=1 1");
    server.kill();
    refused(&mut server, &other, &identity(&uri), &identity(&other));
    refused(&mut server, "embedded", &identity(&uri), "embedded");
    // With its own store nothing is lost, and a stop brings all of it there.
    server.restart_as(Launch::with_store(&uri));
    await_fed(&server);
    assert_eq!(readings(&server, "m").len(), 1);
    assert!(server.stop().success());
    // Now the log needs no store in particular.
    for store in [other.as_str(), "embedded"] {
        server.restart_as(Launch::with_store(store));
        let nothing = get(&server.url("/api/v1/readings?db=d&sensor=m")).expect(200).json();
        assert_eq!(nothing["series"], json!([]), "{store}");
        write(&server, "m v=2 2");
        assert!(server.stop().success());
    }
    // The other way round, and told apart by the folder.
    server.restart_as(Launch::embedded());
    write(&server, "m v=3 3");
    server.kill();
    refused(&mut server, &uri, "embedded", &identity(&uri));
    let elsewhere = format!("[wal]\ndir = {:?}\n", server.data_dir().join("another-log"));
    server.restart_as(Launch::with_store(&uri).config(elsewhere));
    assert_eq!(readings(&server, "m").len(), 1, "what that store had");
}
