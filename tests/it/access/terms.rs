//! Readings that are too old or too far ahead, and timestamps that look like another unit.

use hourglass::clock::now_seconds;

use crate::support::http::post;
use crate::support::series::metric;
use crate::support::server::Launch;

#[test]
fn readings_outside_the_window_are_rejected_beside_the_others() {
    let server = Launch::embedded().config("[limits]\nmax_past = \"24h\"\nmax_future = \"10m\"\n").start();
    let (url, now) = (server.url("/write?db=a&precision=s"), now_seconds());
    let body = format!("m v=1 {now}\nm v=1 {}\nm v=1 {}\nm v=1", now - 25 * 3600, now + 3600);
    let partial = post(&url, body, &[]).expect(400);
    let said = partial.text();
    assert!(said.contains("partial write") && said.contains("dropped=2"), "{said}");
    assert!(
        said.contains("before now (limits.max_past)") && said.contains("ahead of now (limits.max_future)"),
        "{said}"
    );
    let json = format!("{{\"sensor\":\"j\",\"value\":1,\"ts\":{}}}", now - 25 * 3600);
    let refused = post(&server.url("/api/v1/readings?db=a"), json, &[]).expect(400);
    assert!(refused.text().contains("limits.max_past"), "{}", refused.text());
    let open = Launch::embedded().start();
    post(&open.url("/write?db=a&precision=s"), "m v=1 1\nm v=1 4000000000", &[]).expect(204);
}

#[test]
fn a_timestamp_in_another_unit_than_declared_is_kept_and_warned_of() {
    let server = Launch::embedded().start();
    let now = now_seconds();
    let warned =
        post(&server.url("/write?db=a"), format!("m v=1 {now}\nm v=2 {}000\nm v=3 {now}000000000", now + 1), &[]);
    let warned = warned.expect(204);
    let warning = warned.header("x-hourglass-warning").unwrap();
    assert_eq!(warning, "2 timestamps look like s, but ns was declared (precision=)");
    assert_eq!(metric(&server, "hourglass_ingest_timestamps_suspect_total"), 2.0);
    let quiet = post(&server.url("/write?db=a&precision=s"), format!("m v=1 {now}"), &[]).expect(204);
    assert_eq!(quiet.header("x-hourglass-warning"), None);
}
