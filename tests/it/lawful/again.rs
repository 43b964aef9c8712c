//! Resent readings count as duplicates and change no stored document.

use crate::support::prelude::*;

use super::DATABASE;

/// Readings of a sensor in one hour, enough for several pages by default.
const READINGS: i64 = 9000;

#[test]
fn resent_readings_change_no_document_in_the_embedded_store() {
    let mut server = Server::start("embedded");
    let stored = Stored::from_server(&server, DATABASE);
    send_again(&mut server, &stored, |_| {});
}

#[test]
fn resent_readings_change_no_document_in_mongodb() {
    let mut server = Server::start(&mongod().uri(&fresh_database_name()));
    let stored = Stored::from_server(&server, DATABASE);
    // A repeated value gets a later stamp while others may hold an older value, so its page is written once more.
    send_again(&mut server, &stored, |server| {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs_f64();
        wait_until("the floor passes what is stored", || {
            metric(server, "hourglass_registry_floor_timestamp_seconds") > started
        });
    });
    stored.check_collections();
}

/// Sends the same body four times: twice with hot buckets, and twice with buckets in the store only.
fn send_again(server: &mut Server, stored: &Stored, wait_for_floor: impl Fn(&Server)) {
    let line = |n: i64| format!("m,s=a v={}.5,n={n}i {}\nm,s=b v={n} {}\n", n % 97, START + n * 300_000_000, START + n);
    let body: String = (0..READINGS).map(line).collect();
    let mut before = None;
    for is_new in [true, false] {
        for _ in 0..2 {
            post(&server.url(&format!("/write?db={DATABASE}")), &body, &[]).expect(204);
            flush(server);
        }
        let [new, duplicate] = if is_new { [2 * READINGS, 2 * READINGS] } else { [0, 4 * READINGS] };
        for (counter, expected) in [("stored", new), ("duplicate", duplicate)] {
            let count = metric(server, &format!("hourglass_ingest_readings_{counter}_total"));
            assert_eq!(count.to_string(), expected.to_string(), "{counter}");
        }
        assert!(server.stop().success());
        let documents = stored.fingerprints();
        assert!(documents.len() > 4, "several pages: {}", documents.len());
        assert!(before.is_none_or(|before| before == documents), "readings that were there changed a document");
        before = Some(documents);
        server.restart();
        wait_for_floor(server);
    }
}
