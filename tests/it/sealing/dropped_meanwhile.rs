//! A database is dropped while its days are being sealed, or its months added up: it does not come back as an empty one.

use super::{PAGES, line};
use crate::support::prelude::*;

/// The sealer lists many days, and takes a turn for some of them at a time. After a drop in between, it claimed the next ones: the
/// database had its collections again, and was listed, for good.
#[test]
fn a_database_dropped_during_sealing_stays_dropped() {
    dropped_at("days_listed", mongod().uri(&fresh_database_name()));
}

/// Adding up months took no turn at all. Claims of months, written after a drop, listed the database again.
#[test]
fn a_database_dropped_during_month_totals_stays_dropped() {
    for store in stores() {
        dropped_at("months_listed", store);
    }
}

fn dropped_at(point: &str, store: String) {
    let halt = Halt::new();
    let launch = Launch::with_store(store).config(format!("{PAGES}[seal]\nafter = \"0s\"\n"));
    let server = halt.launch(launch, point).start();
    let lines: String = (0..3).flat_map(|sensor| (0..40 * 4).map(move |n| line(sensor, n * 360, n))).collect();
    post(&server.url("/write?db=d&precision=s"), lines, &[]).expect(204);
    post(&server.url("/write?db=other"), "m v=1 1768435200000000000", &[]).expect(204);
    flush(&server);
    halt.set();
    let url = run_url(&server, "seal");
    let asked = std::thread::spawn(move || post(&url, "", &[]));
    halt.await_met("it is halted");
    post(&server.url("/query?q=DROP%20DATABASE%20d"), "", &[]).expect(200);
    assert!(!listed(&server).contains("\"d\""), "{point}");
    halt.lift();
    asked.join().expect("an answer");
    // The round that was halted has ended once a later one has.
    wait_until("sealing goes on", WITHIN, || ask_job(&server, "seal").status == 200);
    let listed = listed(&server);
    assert!(!listed.contains("\"d\"") && listed.contains("\"other\""), "{point}: {listed}");
}

fn listed(server: &Server) -> String {
    get(&server.url("/query?q=SHOW%20DATABASES")).expect(200).text().to_owned()
}
