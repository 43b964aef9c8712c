//! Month totals answer queries of many days, but never for a changed day.

use super::{PAGES, START, line};
use crate::support::prelude::*;

const CONFIG: &str = "[seal]\nafter = \"0s\"\n";
const DAYS: u64 = 40;

fn daily(server: &Server) -> Value {
    let from = START;
    let to = START + DAYS * 86_400;
    let path = format!("/api/v1/summary?db=d&sensor=climate,s=0&from={from}&to={to}&step=1d");
    server.fetch(&path)
}

fn from_totals(server: &Server) -> f64 {
    metric(server, "hourglass_query_daily_totals_total")
}

fn flush_and_seal(server: &Server) {
    flush(server);
    seal(server);
}

/// Returns a reading every two hours for the second half of January 2026 and most of February.
fn forty_days() -> String {
    (0..DAYS * 12).map(|n| line(0, n * 120, n * 7 % 101)).collect()
}

#[test]
fn days_are_answered_from_totals_until_they_change() {
    for store in stores() {
        let server = Launch::with_store(store).config(format!("{PAGES}{CONFIG}")).start();
        let plain = Launch::embedded().config(PAGES).start();
        let both = |body: &str| [&server, &plain].into_iter().for_each(|server| write(server, body));
        both(&forty_days());
        assert_eq!(daily(&server), daily(&plain));
        assert_eq!(from_totals(&server), 0.0);
        flush_and_seal(&server);
        assert_eq!(daily(&server), daily(&plain));
        assert_eq!(from_totals(&server), 40.0, "all days");
        // On the first day of February: unflushed, then in an hour page, then sealed.
        both(&line(0, 17 * 1440 + 7, 4));
        for (step, more) in [("unflushed", 39.0), ("in a page", 39.0), ("sealed", 40.0)] {
            match step {
                "in a page" => drop(post(&server.url("/api/v1/flush"), "", &[]).expect(204)),
                "sealed" => flush_and_seal(&server),
                _ => {}
            }
            let before = from_totals(&server);
            assert_eq!(daily(&server), daily(&plain), "{step}");
            assert_eq!(from_totals(&server) - before, more, "{step}");
        }
        // Deletes half a day of January.
        let from = START + 86_400;
        let to = START + 86_400 + 43_200;
        for server in [&server, &plain] {
            execute(server, "d", &format!("DELETE FROM climate WHERE time >= {from}s AND time < {to}s"));
        }
        assert_eq!(daily(&server), daily(&plain), "deleted");
        wait_until("the deletion is forgotten", || metric(&server, "hourglass_registry_deletions") == 0.0);
        flush_and_seal(&server);
        let before = from_totals(&server);
        assert_eq!(daily(&server), daily(&plain), "deleted and added up again");
        assert_eq!(from_totals(&server) - before, 40.0);
    }
}

/// Regression: a late reading of a day without readings was missing in daily answers until the day was sealed.
#[test]
fn a_late_reading_of_a_silent_day_is_in_daily_answers() {
    for store in stores() {
        let server = Launch::with_store(store).config(format!("{PAGES}{CONFIG}")).start();
        let plain = Launch::embedded().config(PAGES).start();
        let both = |body: String| [&server, &plain].into_iter().for_each(|server| write(server, body.clone()));
        let silent = 3 * 12..4 * 12;
        both((0..DAYS * 12).filter(|n| !silent.contains(n)).map(|n| line(0, n * 120, n * 7 % 101)).collect());
        flush_and_seal(&server);
        assert_eq!((daily(&server), from_totals(&server)), (daily(&plain), 39.0));
        both(line(0, 3 * 1440 + 60, 4));
        assert_eq!(daily(&server), daily(&plain), "unflushed");
        flush(&server);
        let before = from_totals(&server);
        assert_eq!(daily(&server), daily(&plain), "in a page");
        assert_eq!(from_totals(&server) - before, 39.0, "all others");
        flush_and_seal(&server);
        let before = from_totals(&server);
        assert_eq!(daily(&server), daily(&plain), "sealed");
        assert_eq!(from_totals(&server) - before, 40.0, "all days");
    }
}

/// One instance has claimed a month while another one seals more of a day in it.
#[test]
fn a_day_sealed_during_month_totals_is_in_no_old_total() {
    for point in ["month_claimed", "month_read"] {
        let launch = Launch::with_store(mongod().uri(&fresh_database_name())).config(format!("{PAGES}{CONFIG}"));
        let halt = Halt::new();
        let plain = Launch::embedded().config(PAGES).start();
        let first = launch.clone().start();
        [&first, &plain].into_iter().for_each(|server| write(server, forty_days()));
        let second = halt.launch(launch, point).start();
        halt.set();
        flush(&first);
        let url = run_url(&second, "seal");
        let request = std::thread::spawn(move || post(&url, "", &[]));
        halt.await_met("the month is claimed");
        [&first, &plain].into_iter().for_each(|server| write(server, line(0, 7, 4)));
        flush_and_seal(&first);
        halt.lift();
        request.join().expect("an answer");
        for server in [&first, &second] {
            assert_eq!(daily(server), daily(&plain), "{point}");
        }
        flush_and_seal(&second);
        for server in [&first, &second] {
            let before = from_totals(server);
            assert_eq!(daily(server), daily(&plain), "{point}");
            assert_eq!(from_totals(server) - before, 40.0, "{point}");
        }
    }
}

/// Regression: a kill between the removals of a day and its month left totals that still had the day.
#[test]
fn a_kill_before_the_removal_of_a_month_restores_no_deleted_day() {
    let launch = Launch::with_store(mongod().uri(&fresh_database_name())).config(format!("{PAGES}{CONFIG}"));
    let mut server = launch.clone().start();
    let plain = Launch::embedded().config(PAGES).start();
    [&server, &plain].into_iter().for_each(|server| write(server, forty_days()));
    flush_and_seal(&server);
    assert!(server.stop().success());
    server.restart_as(launch.clone().env("FAULT_KILL_AT", "month_left:1"));
    let from = START + 86_400;
    let to = START + 2 * 86_400;
    let path = format!("/query?db=d&q=DELETE+FROM+climate+WHERE+time+%3E%3D+{from}s+AND+time+%3C+{to}s");
    let url = server.url(&path);
    let _ = std::panic::catch_unwind(|| post(&url, "", &[]));
    eventually("it is killed", || server.exited().map(|_| ()));
    server.restart_as(launch);
    post(&plain.url(&path), "", &[]).expect(200);
    wait_until("the deletion is forgotten", || metric(&server, "hourglass_registry_deletions") == 0.0);
    assert_eq!(daily(&server), daily(&plain));
}

/// Regression: a kill between a chunk's write and its month's removal hid the chunk from daily sums elsewhere.
#[test]
fn a_kill_before_the_removal_of_a_month_hides_no_chunk() {
    let config = format!("{PAGES}[seal]\nafter = \"1s\"\ninterval = \"1h\"\nquiet = \"1h\"\n");
    let launch = Launch::with_store(mongod().uri(&fresh_database_name())).config(config);
    let first = launch.clone().start();
    let plain = Launch::embedded().config(PAGES).start();
    [&first, &plain].into_iter().for_each(|server| write(server, forty_days()));
    flush_and_seal(&first);
    assert_eq!(daily(&first), daily(&plain));
    assert!(from_totals(&first) > 0.0);
    let mut second = launch.env("FAULT_KILL_AT", "month_left:1").start();
    let more: String = (0..60).map(|n| line(0, 3 * 1440 + 7 + n * 3, 8)).collect();
    [&second, &plain].into_iter().for_each(|server| write(server, more.clone()));
    let url = second.url("/api/v1/flush");
    let _ = std::panic::catch_unwind(|| post(&url, "", &[]));
    eventually("it is killed", || second.exited().map(|_| ()));
    assert_eq!(daily(&first), daily(&plain));
}

/// Totals are derived, so nothing else would detect damage.
#[test]
fn verify_compares_totals_with_their_days() {
    let store = mongod().uri(&fresh_database_name());
    let mut server = Launch::with_store(&store).config(format!("{PAGES}{CONFIG}")).start();
    write(&server, forty_days());
    flush_and_seal(&server);
    assert!(server.stop().success());
    let verified = |flags: &[&str]| verify(&store, &server.data_dir(), flags);
    verified(&[]).expect_success();
    let january = find(&store, "d.months", doc! { "_id": "2026-01 climate,s=0" }).remove(0);
    let totals = january.get("totals").expect("totals");
    write_document(&store, "d.months", doc! { "_id": "2026-02 climate,s=0" }, doc! { "totals": totals });
    let CommandOutput { status, stdout: report, .. } = verified(&[]);
    assert_eq!(status, Some(1), "{report}");
    assert!(report.contains("totals of a month") && report.contains("2026-02 climate,s=0"), "{report}");
    let report = verified(&["--repair"]).stdout;
    assert!(report.contains("2026-02 climate,s=0"), "{report}");
    verified(&[]).expect_success();
}
