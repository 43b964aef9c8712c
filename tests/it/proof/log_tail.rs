//! Damage at the end of the WAL after a kill: possibly acked records are kept aside and reported everywhere.

use crate::support::prelude::*;

// The format of `crates/wal/src/format.rs`.
const HEADER: usize = 4096;
const HEAD: usize = 32;

/// Regression: after a bit flip in the last record, an acked reading was gone without quarantine, metric or warning.
#[test]
fn possibly_acked_records_are_reported_and_kept() {
    let (mut server, records) = killed();
    let segment = newest_segment(&server);
    let last = records[3].clone();
    let changed = flip(&segment, &[last.start + HEAD + 20]);
    let looked = verify(&server);
    assert!(looked.contains("unreadable bytes that may have been acked at"), "{looked}");
    server.restart();
    assert_eq!(count_readings(&server), 3, "the others are kept");
    assert_eq!(verdicts(&server), [("damaged", 0.0), ("in_doubt", 1.0), ("torn", 0.0)]);
    assert_eq!(quarantined(&server), [changed[last].to_vec()]);
    assert_warned(&server, "and 1 (");
    assert!(server.stderr().contains("may be readings that were acked"), "{}", server.stderr());
    let status = server.fetch("/api/v1/status");
    let counts = ["log_damaged", "log_in_doubt", "log_torn"].map(|key| status[key].clone());
    assert_eq!(counts, [json!(0), json!(1), json!(0)]);
    post(&server.url("/write"), format!("m v=9 {}", START + 9), &[]).expect(204);
    assert_eq!(count_readings(&server), 4, "writes go on");
}

/// The fourth record was written after the third had been synced, so the third was acked.
#[test]
fn a_broken_record_before_a_synced_one_is_damage() {
    let (mut server, records) = killed();
    let places: Vec<usize> = records[2..].iter().map(|record| record.start + HEAD + 20).collect();
    let changed = flip(&newest_segment(&server), &places);
    server.restart();
    assert_eq!(count_readings(&server), 2, "the others are kept");
    assert_eq!(verdicts(&server), [("damaged", 1.0), ("in_doubt", 1.0), ("torn", 0.0)]);
    assert_eq!(quarantined(&server), [changed[records[2].clone()].to_vec(), changed[records[3].clone()].to_vec()]);
    assert_warned(&server, "1 places (");
}

/// Returns a killed server with four acked readings, one per request, and the ranges of their records.
fn killed() -> (Server, Vec<Range<usize>>) {
    let mut server = Launch::embedded().config("[flush]\ninterval = \"1h\"\n").start();
    for number in 1..=4 {
        post(&server.url("/write"), format!("m v={number} {}", START + number), &[]).expect(204);
    }
    server.kill();
    let bytes = fs::read(newest_segment(&server)).expect("a segment");
    let mut start = HEADER;
    let records = (0..4).map(|_| {
        let stored = u32::from_le_bytes(bytes[start + 4..start + 8].try_into().expect("four bytes")) as usize;
        assert!(stored > 20, "a record of a reading");
        let record = start..start + HEAD + stored.next_multiple_of(8);
        start = record.end;
        record
    });
    let records = records.collect();
    (server, records)
}

fn log(server: &Server) -> PathBuf {
    server.data_dir().join("log")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    files
}

fn newest_segment(server: &Server) -> PathBuf {
    let mut segments = files(&log(server));
    segments.retain(|path| path.extension().is_some_and(|extension| extension == "segment"));
    segments.pop().expect("a segment")
}

/// Flips a bit at each of these offsets; returns the new bytes.
fn flip(file: &Path, places: &[usize]) -> Vec<u8> {
    let mut bytes = fs::read(file).expect("the segment");
    places.iter().for_each(|place| bytes[*place] ^= 4);
    fs::write(file, &bytes).expect("the segment");
    bytes
}

fn quarantined(server: &Server) -> Vec<Vec<u8>> {
    files(&log(server).join("quarantine")).iter().map(|path| fs::read(path).expect("a kept place")).collect()
}

fn count_readings(server: &Server) -> usize {
    readings(server, "default", "m", None, 100).len()
}

fn verdicts(server: &Server) -> [(&'static str, f64); 3] {
    let answer = get(&server.url("/metrics")).expect(200);
    ["damaged", "in_doubt", "torn"].map(|verdict| {
        let name = format!("hourglass_wal_damaged_total{{verdict=\"{verdict}\"}} ");
        let sample = answer.text().lines().find_map(|line| line.strip_prefix(&name));
        (verdict, sample.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}")))
    })
}

/// Checks that `/health` passes with a warning about the WAL.
#[track_caller]
fn assert_warned(server: &Server, what: &str) {
    let health: Value = server.fetch("/health");
    assert_eq!(health["status"], json!("pass"), "{health}");
    let check = &health["checks"][0];
    assert_eq!((&check["name"], &check["status"]), (&json!("log"), &json!("warn")), "{health}");
    let message = check["message"].as_str().expect("a message");
    assert!(message.contains("acked readings may be missing") && message.contains(what), "{message}");
}

/// Returns the output of `hourglass verify` for the closed log.
fn verify(server: &Server) -> String {
    let mut command = program();
    command.args(["verify", "--data-dir"]).arg(server.data_dir());
    let output = command.output().expect("hourglass runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
