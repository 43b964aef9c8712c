//! Stops that report unflushed records, and `hourglass wal flush`, which leaves none.

use crate::support::prelude::*;

const BODIES: usize = 40;
const LINES: usize = 600;
/// Nothing is flushed without a request.
const CONFIG: &str = "[flush]\ninterval = \"10m\"\n";

/// Sends the readings that [`check_stored`] expects, acked by the WAL only.
fn send(server: &Server) {
    for body in 0..BODIES {
        let mut lines = String::new();
        for line in 0..LINES {
            writeln!(lines, "m,s=s{line:03} v={body} {}", START + i64::try_from(body).unwrap() * 60_000_000_000)
                .unwrap();
        }
        post(&server.url("/write?ack=log"), lines, &[]).expect(204);
    }
}

/// Checks that the WAL is empty and all readings are in the store.
#[track_caller]
fn check_stored(server: &Server) {
    assert_eq!(metric(server, "hourglass_ingest_readings_replayed_total"), 0.0, "nothing was left in the WAL");
    let counted = server.fetch("/query?db=default&q=SELECT+count(v)+FROM+m");
    assert_eq!(counted["results"][0]["series"][0]["values"][0][1], BODIES * LINES, "{counted}");
}

/// Regression: a stop right after a kill reported success, while 240,000 acked readings were in the WAL only.
#[track_caller]
fn a_stop_flushes_the_backlog(launch: Launch) {
    let mut server = launch.config(CONFIG).start();
    send(&server);
    server.kill();
    server.restart_behind();
    let status = server.stop();
    assert!(status.success(), "{status}");
    assert!(server.stderr().contains("\"complete\":true"), "{}", server.stderr());
    server.restart();
    check_stored(&server);
}

tests! {
    fn a_stop_flushes_a_replayed_backlog_embedded() => a_stop_flushes_the_backlog(Launch::embedded());
    fn a_stop_flushes_a_replayed_backlog_on_mongodb() =>
        a_stop_flushes_the_backlog(Launch::with_store(mongod().uri(&fresh_database_name())));
}

/// A deletion in the WAL is acked, too.
#[test]
fn a_stop_completes_a_replayed_deletion() {
    let launch = Launch::embedded().config(CONFIG);
    let mut server = launch.clone().env("FAULT_KILL_AT", "before_deletion:1").start();
    post(&server.url("/write?ack=store"), format!("m v=1 {START}"), &[]).expect(204);
    // The process ends before it answers.
    let drop = server.url("/query?q=DROP+DATABASE+%22default%22");
    assert!(request("POST", &drop, b"", &[]).is_err(), "killed before it was done");
    server.kill();
    server.restart_as(launch.clone());
    let status = server.stop();
    assert!(status.success() && server.stderr().contains("\"complete\":true"), "{status} {}", server.stderr());
    server.restart();
    let databases = get(&server.url("/query?q=SHOW+DATABASES")).expect(200).text().to_owned();
    assert!(!databases.contains("default"), "{databases}");
}

/// Records that cannot be flushed in time stay in the WAL, and the exit status says so.
#[test]
fn a_stop_reports_records_left_in_the_log() {
    let mut mongod = Mongod::start();
    let name = fresh_database_name();
    let config = format!("{CONFIG}[server]\nshutdown_timeout = \"6s\"\n[store]\ncommand_timeout = \"1s\"\n");
    let mut server = Launch::with_store(mongod.uri(&name)).config(config).start();
    send(&server);
    mongod.kill();
    server.kill();
    server.restart_behind();
    let status = server.stop();
    assert_eq!(status.code(), Some(75), "{}", server.stderr());
    let output = server.stderr();
    let folder = server.data_dir().join("log");
    assert!(
        output.contains(&format!("\"records\":{BODIES},")) && output.contains(&folder.display().to_string()),
        "{output}"
    );
    assert!(output.contains("\"complete\":false"), "{output}");
    // `wal flush` waits up to its timeout for the lock, and then until it is done.
    let uri = mongod.uri(&name);
    let (code, output) = flush_wal(&server.data_dir(), &uri, &["--timeout", "1s"]);
    assert_eq!(code, 75, "{output}");
    assert!(output.contains(&format!("{BODIES} records are left in the WAL in {}", folder.display())), "{output}");
    mongod.restart();
    let (code, output) = flush_wal(&server.data_dir(), &uri, &[]);
    assert_eq!(code, 0, "{output}");
    server.restart();
    check_stored(&server);
}

/// Returns status and output of `hourglass wal flush`.
fn flush_wal(data_dir: &Path, store: &str, more: &[&str]) -> (i32, String) {
    let ran = hourglass(&[&["wal", "flush", "--store", store, "--data-dir", path(data_dir)], more].concat());
    (ran.status.expect("a status"), ran.output())
}

#[track_caller]
fn wal_flush_empties_the_log(store: &str) {
    let mut server = Launch::with_store(store).config(CONFIG).start();
    send(&server);
    // A folder in use is refused and left alone.
    let (code, output) = flush_wal(&server.data_dir(), store, &[]);
    assert_eq!(code, 69, "{output}");
    assert!(output.contains("the WAL is in use by another process"), "{output}");
    server.kill();
    let (code, output) = flush_wal(&server.data_dir(), store, &[]);
    assert_eq!(code, 0, "{output}");
    let log = server.data_dir().join("log");
    let first = format!("{BODIES} records of the WAL in {} may not be in the store yet\n", log.display());
    let last = format!("the WAL in {} is empty: everything is in the store\n", log.display());
    assert!(output.contains(&first) && output.contains(&last), "{output}");
    let (code, output) = flush_wal(&server.data_dir(), store, &[]);
    assert!(code == 0 && output.contains("0 records of the WAL in "), "{output}");
    server.restart();
    check_stored(&server);
    flush(&server);
}

tests! {
    fn wal_flush_empties_the_log_into_the_embedded_store() => wal_flush_empties_the_log("embedded");
    fn wal_flush_empties_the_log_into_mongodb() => wal_flush_empties_the_log(&mongod().uri(&fresh_database_name()));
}

/// A missing folder is an error and is not created.
#[test]
fn wal_flush_creates_no_log() {
    let server = Server::start("embedded");
    let elsewhere = server.data_dir().join("elsewhere");
    let (code, output) = flush_wal(&elsewhere, "embedded", &[]);
    assert_eq!(code, 1, "{output}");
    assert!(output.contains("there is no WAL in ") && !elsewhere.exists(), "{output}");
}
