//! A backup of a running service holds everything acked before it began, and no partial reading.

use std::collections::HashMap;
use std::thread;

use crate::support::prelude::*;

use super::{PAGES, SEALS, START, backup, start_restored};

const SENDERS: u64 = 3;
const LINES: u64 = 20;
/// Readings after which a sender sets metadata and starts a new sensor.
const DESCRIBED: u64 = 10 * LINES;
/// Times of a sender; each is overwritten after this many readings.
const TIMES: u64 = 4_999;

fn backups() -> usize {
    scaled(1, 20)
}

/// Sends until `stop`. All fields of the nth reading are n, so partial readings are detected.
fn load(server: &Server, acked: &Arc<Vec<AtomicU64>>, stop: &Arc<AtomicBool>) -> Vec<thread::JoinHandle<()>> {
    let send = |sender: u64| {
        let url = server.url("/write?db=plant&precision=s");
        let acked = acked.clone();
        let stop = stop.clone();
        let meta_url = server.url(&format!("/api/v1/sensors/load%2Cs%3D{sender}/meta?db=plant"));
        thread::spawn(move || {
            for first in (0..).step_by(LINES as usize) {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                pause_client();
                // Over several days, out of order, with some corrections of whole readings.
                let line = |n: u64| format!("load,s={sender} a={n}i,b={n}i,c={n}i {}\n", place(n));
                let lines: String = (first..first + LINES).map(line).collect();
                let send = || request("POST", &url, lines.as_bytes(), &[]).expect("the server answers");
                // Overload is answered with a refusal.
                let answer = eventually("an ack", || Some(send()).filter(|a| a.status != 503));
                answer.expect(204);
                if first % DESCRIBED == 0 {
                    describe(&meta_url, &url, sender, first);
                }
                acked[usize::try_from(sender).unwrap()].store(first + LINES, Ordering::SeqCst);
            }
        })
    };
    (0..SENDERS).map(send).collect()
}

/// Sets the metadata of a sender's sensor and writes to a new sensor.
fn describe(meta_url: &str, url: &str, sender: u64, first: u64) {
    let body = format!("{{\"at\":{first}}}");
    let line = format!("new,s={sender},n={first} v={first}i {START}\n");
    for (method, url, body, status) in [("PUT", meta_url, &body, 200), ("POST", url, &line, 204)] {
        let send = || request(method, url, body.as_bytes(), &[]).expect("the server answers");
        let answer = eventually("an ack", || Some(send()).filter(|a| a.status != 503));
        answer.expect(status);
    }
}

fn place(n: u64) -> u64 {
    START + (n / 3 * 7919) % TIMES * 3 * 86_400 / TIMES
}

#[test]
fn a_backup_under_load_holds_everything_acked_before_it_began() {
    // The second server flushes only on request.
    let lazy = PAGES.replace("100ms", "1h").replace("50ms", "10m");
    for (store, config) in stores().into_iter().zip([format!("{PAGES}{SEALS}"), lazy]) {
        let server = Launch::with_store(store).config(config).start();
        let acked: Arc<Vec<AtomicU64>> = Arc::new((0..SENDERS).map(|_| AtomicU64::new(0)).collect());
        let stop = Arc::new(AtomicBool::new(false));
        let senders = load(&server, &acked, &stop);
        wait_until("some readings are acked", || (0..3).all(|sender| acked[sender].load(Ordering::SeqCst) > 60));
        let backup_dir = Folder::new("backup");
        for _ in 0..backups() {
            let before: Vec<u64> = acked.iter().map(|acked| acked.load(Ordering::SeqCst)).collect();
            backup(&server, backup_dir.path(), &[]).expect_success();
            let mut restored = start_restored(backup_dir.path());
            let after: Vec<u64> = acked.iter().map(|acked| acked.load(Ordering::SeqCst)).collect();
            for sender in 0..SENDERS {
                let index = usize::try_from(sender).unwrap();
                compare(&restored, sender, before[index], after[index] + LINES);
                compare_sensors(&restored, sender, before[index]);
            }
            assert!(restored.stop().success());
            hourglass(&["verify", "--store", "embedded", "--data-dir", path(&restored.data_dir())]).expect_success();
        }
        println!("{} backups under load restored, verified, and held everything acked before they began", backups());
        stop.store(true, Ordering::SeqCst);
        senders.into_iter().for_each(|sender| sender.join().expect("it sent"));
    }
}

/// The metadata and new sensors of a sender are as of the backup or later.
fn compare_sensors(restored: &Server, sender: u64, before: u64) {
    let described = before.saturating_sub(LINES) / DESCRIBED * DESCRIBED;
    let meta = restored.fetch(&format!("/api/v1/sensors/load%2Cs%3D{sender}/meta?db=plant"));
    assert!(meta["at"].as_u64() >= Some(described), "sender {sender}: {meta} is older than the acked {described}");
    let path = format!("/query?db=plant&q=SELECT+v+FROM+new+WHERE+s='{sender}'+GROUP+BY+n");
    let answer = restored.fetch(&path);
    let series = answer["results"][0]["series"].as_array().map_or(0, Vec::len) as u64;
    assert!(
        series > described / DESCRIBED,
        "sender {sender}: {series} new sensors, {} were acked",
        described / DESCRIBED + 1
    );
}

/// Each time has the last value acked before the backup or a later one.
fn compare(restored: &Server, sender: u64, before: u64, after: u64) {
    let path = format!("/query?db=plant&epoch=s&q=SELECT+a,b,c+FROM+load+WHERE+s='{sender}'");
    let answer = restored.fetch(&path);
    let rows = answer["results"][0]["series"][0]["values"].as_array().cloned().unwrap_or_default();
    let value = |row: &Value, column: usize| row[column].as_u64().unwrap_or_else(|| panic!("half a reading: {row}"));
    let mut found: HashMap<u64, u64> = HashMap::new();
    for row in &rows {
        let time = value(row, 0);
        let a = value(row, 1);
        let b = value(row, 2);
        let c = value(row, 3);
        assert!(a == b && b == c, "half of one reading and half of another: {row}");
        assert!(a < after && place(a) == time, "never sent: {row}");
        found.insert(time, a);
    }
    let mut expected: HashMap<u64, u64> = HashMap::new();
    expected.extend((0..before).map(|n| (place(n), n)));
    for (time, n) in expected {
        let value =
            found.get(&time).unwrap_or_else(|| panic!("sender {sender}: the acked reading {n} at {time} is lost"));
        assert!(*value >= n, "sender {sender}: {value} at {time} is older than the acked {n}");
    }
}
