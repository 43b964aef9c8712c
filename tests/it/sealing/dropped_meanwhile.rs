//! A database that is dropped during sealing or month totals is not created again.

use super::{PAGES, line};
use crate::support::prelude::*;

/// Regression: after a drop between two turns, the sealer claimed the next days and created the database again.
#[test]
fn a_database_dropped_during_sealing_stays_dropped() {
    dropped_at("days_listed", mongod().uri(&fresh_database_name()));
}

/// Regression: month totals took no turn, so their claims listed a dropped database again.
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
    let request = std::thread::spawn(move || post(&url, "", &[]));
    halt.await_met("it is halted");
    post(&server.url("/query?q=DROP%20DATABASE%20d"), "", &[]).expect(200);
    assert!(!list_databases(&server).contains("\"d\""), "{point}");
    halt.lift();
    request.join().expect("an answer");
    // The halted round has ended once a later one has.
    wait_until("sealing goes on", || ask_job(&server, "seal").status == 200);
    let listed = list_databases(&server);
    assert!(!listed.contains("\"d\"") && listed.contains("\"other\""), "{point}: {listed}");
}

fn list_databases(server: &Server) -> String {
    get(&server.url("/query?q=SHOW%20DATABASES")).expect(200).text().to_owned()
}
