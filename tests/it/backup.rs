//! `hourglass backup digest`, `create`, `restore` and `copy` on both stores, with kills and damaged files.

mod copies;
mod described;
mod digests;
mod interrupted;
mod over_tls;
mod snapshots;
mod stopped;
mod streams;
mod under_load;

use crate::support::prelude::*;

/// 2026-01-15T00:00:00Z, in seconds.
const START: u64 = 1_768_435_200;
const DAY: u64 = 86_400;
/// Small pages, so that some hours have several.
const PAGES: &str = "[page]\nmax_readings = 4\n[flush]\ninterval = \"100ms\"\nquiet = \"50ms\"\n[sensors]\nwrite_interval = \"100ms\"\n";
const SEALS: &str = "[seal]\nafter = \"1s\"\ninterval = \"50ms\"\nquiet = \"0s\"\n";

/// Computes the digest of a store whose service is stopped.
#[track_caller]
fn digest(store: &str, data_dir: &Path) -> Value {
    let digest = crate::support::programs::digest(store, data_dir);
    assert_eq!(digest["unflushed_records"], 0, "{digest}");
    digest
}

#[track_caller]
fn backup(server: &Server, to: &Path, more: &[&str]) -> CommandOutput {
    let from = server.url("");
    hourglass(&[&["backup", "create", path(to), "--server", &from], more].concat())
}

#[track_caller]
fn restore(from: &Path, store: &str, data_dir: &Path) -> CommandOutput {
    hourglass(&["backup", "restore", path(from), "--store", store, "--data-dir", path(data_dir)])
}

/// Readings of four sensors every ten minutes for three days; some have a field of another type.
fn three_days() -> String {
    (0..4).flat_map(|sensor| (0..3 * 144).map(move |n| line(sensor, n * 600 + sensor, n * 7 % 101))).collect()
}

fn line(sensor: u64, second: u64, value: u64) -> String {
    let fields = match value % 5 {
        0 => format!("temp={value}.25"),
        1 => format!("hum={value}i,temp=-0.0"),
        2 => format!("temp={value}.5,hum={value}i,ok=true"),
        3 => format!("big={}u,temp={value}e30", u64::MAX - value),
        _ => format!("temp={value},note=\"n{value}\""),
    };
    format!("climate,s={sensor} {fields} {}\n", START + second)
}

#[track_caller]
fn write(server: &Server, database: &str, lines: &str) {
    post(&server.url(&format!("/write?db={database}&precision=s")), lines, &[]).expect(204);
}

/// A server with three days in two databases, one of which is a policy of the other.
fn start_filled(store: &str, more: &str) -> Server {
    let server = Launch::with_store(store).config(format!("{PAGES}{more}")).start();
    write(&server, "plant", &three_days());
    execute(&server, "o", "CREATE DATABASE o WITH DURATION 100w NAME \"t.her\"");
    write(&server, "o&rp=t.her", "m v=1i 1768435200\n");
    flush(&server);
    server
}

/// Restores a backup and starts an embedded server on it.
fn start_restored(from: &Path) -> Server {
    let mut server = Launch::embedded().start();
    assert!(server.stop().success());
    std::fs::remove_dir_all(server.data_dir()).expect("the folder exists");
    restore(from, "embedded", &server.data_dir()).expect_success();
    server.restart();
    server
}
