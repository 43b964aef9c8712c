//! Readings outside the accepted window, and timestamps that look like another unit.

use hourglass::clock::now_seconds;

use crate::support::prelude::*;

#[test]
fn readings_outside_the_window_are_rejected_and_the_others_kept() {
    let server = Launch::embedded().config("[limits]\nmax_past = \"24h\"\nmax_future = \"10m\"\n").start();
    let url = server.url("/write?db=a&precision=s");
    let now = now_seconds();
    let body = format!("m v=1 {now}\nm v=1 {}\nm v=1 {}\nm v=1", now - 25 * 3600, now + 3600);
    let partial = post(&url, body, &[]).expect(400);
    let reply = partial.text();
    assert!(reply.contains("partial write") && reply.contains("dropped=2"), "{reply}");
    assert!(
        reply.contains("before now (limits.max_past)") && reply.contains("ahead of now (limits.max_future)"),
        "{reply}"
    );
    let json = format!("{{\"sensor\":\"j\",\"value\":1,\"ts\":{}}}", now - 25 * 3600);
    let refused = post(&server.url("/api/v1/readings?db=a"), json, &[]).expect(400);
    assert!(refused.text().contains("limits.max_past"), "{}", refused.text());
    let open = Launch::embedded().start();
    post(&open.url("/write?db=a&precision=s"), "m v=1 1\nm v=1 4000000000", &[]).expect(204);
}

#[test]
fn a_timestamp_unlike_its_declared_unit_is_kept_with_a_warning() {
    let server = Launch::embedded().start();
    let now = now_seconds();
    let warned = post(
        &server.url("/write?db=a&precision=ns"),
        format!("m v=1 {now}\nm v=2 {}000\nm v=3 {now}000000000", now + 1),
        &[],
    );
    let warned = warned.expect(204);
    let warning = warned.header("x-hourglass-warning").unwrap();
    assert_eq!(warning, "2 timestamps look like s, but ns was declared (precision=)");
    assert_eq!(metric(&server, "hourglass_ingest_timestamps_suspect_total"), 2.0);
    let quiet = post(&server.url("/write?db=a&precision=s"), format!("m v=1 {now}"), &[]).expect(204);
    assert_eq!(quiet.header("x-hourglass-warning"), None);
}

/// Regression: a reading of 1970 that was read and posted back with `precision=ms` got a warning about its unit, because
/// its milliseconds look like seconds of today. A time in RFC 3339 has no unit to mistake.
#[test]
fn a_time_in_rfc_3339_is_not_taken_for_another_unit() {
    let server = Launch::embedded().start();
    let url = server.url("/api/v1/readings?db=a&precision=ms");
    let send = |content_type, body: &str| post(&url, body, &[("content-type", content_type)]).expect(200);
    let old = "1970-01-20T16:13:20Z";
    for (content_type, body) in [
        ("text/csv", format!("sensor,ts,v\nm,{old},1\n")),
        ("application/json", format!("{{\"sensor\":\"m\",\"ts\":\"{old}\",\"value\":1}}")),
    ] {
        let warning = send(content_type, &body).header("x-hourglass-warning").unwrap_or_default().to_owned();
        assert!(!warning.contains("look"), "{body}: {warning}");
    }
    assert_eq!(metric(&server, "hourglass_ingest_timestamps_suspect_total"), 0.0);
    send("text/csv", "sensor,ts,v\nm,1700000000,1\n");
    assert_eq!(metric(&server, "hourglass_ingest_timestamps_suspect_total"), 1.0);
}

/// Regression: `curl …/write -d 'climate temp=22 1768485660'` stored a reading in 1970.
#[test]
fn an_undeclared_timestamp_that_is_near_now_in_another_unit_is_refused() {
    let server = Launch::embedded().start();
    let url = server.url("/write?db=a");
    let now = now_seconds();
    let body = format!("m v=1 {now}\nm v=2 {now}000\nm v=3 {now}000000000\nm v=4 1\nm v=5 631152000000000000\nm v=6");
    let refused = post(&url, body, &[]).expect(400);
    let reply = refused.text();
    let unit = |unit: &str, zeros: &str| {
        format!("the timestamp {now}{zeros} looks like {unit}, but no unit was declared: send precision={unit}, or ")
    };
    for expected in [unit("s", ""), unit("ms", "000"), "limits.undeclared_unit".to_owned(), "dropped=2".to_owned()] {
        assert!(reply.contains(&expected), "{expected} in {reply}");
    }
    assert_eq!(metric(&server, "hourglass_ingest_readings_rejected_total{reason=\"unit\"}"), 2.0);
    for (path, body) in
        [("/api/v2/write?bucket=a", format!("m v=1 {now}")), ("/write?db=a&precision=", format!("m v=1 {now}"))]
    {
        post(&server.url(path), body, &[]).expect(400);
    }
    // Declared, or guessed by magnitude.
    post(&server.url("/write?db=a&precision=s"), format!("m v=1 {now}"), &[]).expect(204);
    post(&server.url("/api/v3/write_lp?db=a"), format!("m v=1 {now}"), &[]).expect(204);
    let lenient = Launch::embedded().config("[limits]\nundeclared_unit = \"warn\"\n").start();
    let warned = post(&lenient.url("/write?db=a"), format!("m v=1 {now}"), &[]).expect(204);
    let warning = "1 timestamps look like s, but ns was declared (precision=)";
    assert_eq!(warned.header("x-hourglass-warning"), Some(warning));
}

/// Regression: `precison=s` was ignored, and readings were stored in 1970.
#[test]
fn misspelt_parameters_are_refused_and_useless_ones_are_reported() {
    let server = Launch::embedded().start();
    for path in ["/write?db=a&precison=s", "/api/v2/write?buket=a", "/api/v3/write_lp?db=a&accept_partal=true"] {
        let refused = post(&server.url(path), "m v=1", &[]).expect(400);
        assert!(refused.text().contains("unknown parameter ") && refused.text().contains("did you mean "), "{path}");
    }
    let warned_answer = post(&server.url("/write?db=a&colour=red&consistency=all"), "m v=1", &[]).expect(204);
    assert_eq!(warned_answer.header("x-hourglass-warning"), Some("unknown parameters are ignored: colour"));
    let refused = post(&server.url("/api/v1/readings?db=a&colour=red"), "{\"value\":1}", &[]).expect(400);
    let expected = "unknown parameter \\\"colour\\\"; use one of db, rp, precision, ack";
    assert!(refused.text().contains(expected), "{}", refused.text());
    post(&server.url("/api/v1/readings?db=a&u=x&p=y"), "{\"value\":1}", &[]).expect(200);
    let warned_answer = get(&server.url("/query?q=SHOW+DATABASES&colour=red")).expect(200);
    assert_eq!(warned_answer.header("x-hourglass-warning"), Some("unknown parameters are ignored: colour"));
    get(&server.url("/query?q=SHOW+DATABASES&epock=s")).expect(400);
    // Regression: parameters of a form were not checked, so `epock=s` was ignored.
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let refused = post(&server.url("/query"), "q=SHOW+DATABASES&epock=s", &form).expect(400);
    assert!(refused.text().contains("did you mean epoch?"), "{}", refused.text());
    let warned_answer =
        post(&server.url("/query?shade=dark"), "q=SHOW+DATABASES&colour=red&u=x&p=y", &form).expect(200);
    let expected = "unknown parameters are ignored: shade; unknown parameters are ignored: colour";
    assert_eq!(warned_answer.header("x-hourglass-warning"), Some(expected));
    let quiet = post(&server.url("/query"), "q=SHOW+DATABASES&db=a&epoch=ns&pretty=true", &form).expect(200);
    assert_eq!(quiet.header("x-hourglass-warning"), None);
    // A body that is no form has no parameters.
    let quiet = post(&server.url("/query?q=SHOW+DATABASES"), "epock=s", &[]).expect(200);
    assert_eq!(quiet.header("x-hourglass-warning"), None);
}
