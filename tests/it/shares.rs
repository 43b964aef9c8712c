//! Attacks by one tenant on limits that all tenants share: the others keep their part.

use crate::access::{create, start_with_auth, with};
use crate::support::prelude::*;

/// Lines of new sensors.
fn sensors(numbers: std::ops::Range<usize>) -> String {
    numbers.map(|number| format!("m,s={number} v=1 1\n")).collect()
}

/// Returns the number of sensors in a database.
fn count(server: &Server, token: &str, database: &str) -> usize {
    let url = server.url(&format!("/api/v1/measurements?db={database}"));
    let listed = with(token, "GET", &url, "").expect(200).json();
    usize::try_from(listed["measurements"][0]["sensors"].as_u64().unwrap_or_else(|| panic!("{listed}"))).unwrap()
}

/// Regression: a token filled the catalog in 34 s, and no other token could write a new sensor.
#[test]
fn one_token_does_not_fill_the_catalog() {
    let (server, admin) = start_with_auth("[limits]\nsensors = 320\n");
    let greedy = create(&server, &["--name", "greedy", "--write", "greedy*"]);
    let small = create(&server, &["--name", "small", "--write", "small"]);
    // By one database, and then by others of the same token.
    for database in ["greedy", "greedy2", "greedy3"] {
        let url = server.url(&format!("/write?db={database}"));
        let answer = with(&greedy, "POST", &url, &sensors(0..250));
        assert!(answer.status == 204 || answer.text().contains("limits.sensors"), "{}", answer.text());
    }
    assert_eq!(count(&server, &admin, "greedy") + count(&server, &admin, "greedy2"), 300);
    with(&small, "POST", &server.url("/write?db=small"), &sensors(0..20)).expect(204);
    let refused = with(&small, "POST", &server.url("/write?db=small"), &sensors(20..21)).expect(400);
    assert!(refused.text().contains("the limit of 320 sensors (limits.sensors)"), "{}", refused.text());

    // A single database without tokens has everything.
    let server = Launch::embedded().config("[limits]\nsensors = 320\n").start();
    post(&server.url("/write?db=only"), sensors(0..320), &[]).expect(204);
}

/// Bodies that arrive slowly hold their memory for up to 30 s. Those of one token took all of `ingest.bytes_in_flight`.
#[test]
fn slow_bodies_of_one_token_do_not_block_others() {
    let config = "[ingest]\nbytes_in_flight = \"4MiB\"\n[limits]\nbody_bytes = \"1MiB\"\n";
    let (server, _) = start_with_auth(config);
    let greedy = create(&server, &["--name", "greedy", "--write", "greedy"]);
    let small = create(&server, &["--name", "small", "--write", "small"]);
    let body = sensors(0..100_000);
    let body = &body.as_bytes()[..1 << 20];
    let head = format!(
        "POST /write?db=greedy HTTP/1.1\r\nHost: localhost\r\nAuthorization: Token {greedy}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let slow: Vec<TcpStream> = (0..12)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            // All but the last byte.
            let _ = stream.write_all(&body[..body.len() - 1]);
            stream
        })
        .collect();
    let refused = || with(&greedy, "POST", &server.url("/write?db=greedy"), &sensors(0..10_000)).status == 503;
    wait_until("the greedy token has its share", refused);
    for number in 0..20 {
        with(&small, "POST", &server.url("/write?db=small"), &sensors(number..number + 500)).expect(204);
    }
    drop(slow);
}

/// Regression: deletions by value and previews had one turn for all databases, which one tenant could keep.
#[test]
fn a_deletion_by_value_does_not_block_other_databases() {
    let halt = Halt::already_set();
    let server = halt.launch(Launch::embedded(), "part_resolved").start();
    for database in ["big", "small"] {
        post(&server.url(&format!("/write?precision=s&db={database}")), "m,s=1 v=1 1768485600", &[]).expect(204);
    }
    let delete = |database: &str, parameters: &str| {
        let q = encode("DELETE FROM m WHERE v > 0");
        let answer = post(&server.url(&format!("/query?db={database}&q={q}{parameters}")), "", &[]).expect(200);
        format!("{} {}", answer.text(), answer.header("x-hourglass-notice").unwrap_or_default())
    };
    std::thread::scope(|scope| {
        let deletes = scope.spawn(|| delete("big", ""));
        halt.await_met("the deletion has its turn");
        let waits = scope.spawn(|| delete("big", "&dry_run=true"));
        let preview = delete("small", "&dry_run=true");
        assert!(preview.contains("[\"small\",1,1"), "{preview}");
        assert!(!deletes.is_finished() && !waits.is_finished());
        halt.lift();
        let deleted = deletes.join().expect("an answer");
        assert!(deleted.contains("deleted 1 readings"), "{deleted}");
        waits.join().expect("an answer");
    });
}

/// Regression: an import of metadata held a lock of the whole process for 37 s, and other tenants got 503.
#[test]
fn an_import_of_metadata_does_not_block_other_databases() {
    let server = Launch::embedded().start();
    let line = |number: usize| format!("{{\"sensor\":\"m,s={number}\",\"meta\":{{\"site\":\"{number}\"}}}}\n");
    let import: String = (0..40_000).map(line).collect();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            post(&server.url("/api/v1/meta?db=big"), import.as_bytes(), &[]).expect(200);
            is_done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        // Some of the import is logged, so it has its turn.
        let has_begun = || get(&server.url("/api/v1/sensors/m%2Cs%3D0/meta?db=big")).text().contains("site");
        wait_until("the import has begun", has_begun);
        for number in 0..5 {
            let url = server.url(&format!("/api/v1/sensors/m%2Cs%3D{number}/meta?db=small"));
            request("PUT", &url, b"{\"site\":\"lab\"}", &[]).unwrap().expect(200);
        }
        assert!(!is_done.load(std::sync::atomic::Ordering::SeqCst), "the import ended first");
    });
}

/// Regression: nothing counted metadata that waits for the store. Changes of 100,000 sensors took 1 GB.
#[test]
fn metadata_that_is_not_stored_counts_in_the_catalog() {
    let halt = Halt::already_set();
    let config = "[catalog]\nmax_bytes = \"4MiB\"\n[ingest]\nack_timeout = \"1s\"\n";
    let server = halt.launch(Launch::embedded().config(config), "writing_documents").start();
    let line = |number: usize| format!("{{\"sensor\":\"m,s={number}\",\"meta\":{{\"site\":\"{number}\"}}}}\n");
    let lines: String = (0..4_000).map(line).collect();
    let import = || post(&server.url("/api/v1/meta?db=d"), lines.as_bytes(), &[]);
    let refused = import().expect(503);
    assert!(refused.text().contains("catalog.max_bytes"), "{}", refused.text());
    let used = metric(&server, "hourglass_catalog_bytes");
    assert!((2e6..=f64::from(4 << 20)).contains(&used), "{used}");
    halt.lift();
    wait_until("the store has room for the rest", || import().status == 200);
}
