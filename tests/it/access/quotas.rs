//! Quotas of tokens and databases.

use crate::support::prelude::*;

use super::{create, start_with_auth, with};

fn lines(measurement: &str, from: usize, count: usize) -> String {
    (from..from + count).map(|n| format!("{measurement} v={n} 1768485600000{n:06}\n")).collect()
}

/// Returns how often a `token` or `database` was `warned` or `refused`, by quota.
fn quota_count(server: &Server, admin: &str, outcome: &str, scope: &str, quota: &str) -> f64 {
    let name = format!("hourglass_access_quota_total{{outcome=\"{outcome}\",scope=\"{scope}\",resource=\"{quota}\"}}");
    sample(&with(admin, "GET", &server.url("/metrics"), "").expect(200), &name)
}

fn sensors(from: usize, count: usize) -> String {
    (from..from + count).map(|n| format!("fleet,plant=p,device=d{n} v=1 {n}\n")).collect()
}

#[test]
fn a_rate_quota_slows_only_its_own_token() {
    let (server, admin) = start_with_auth("");
    let slow = create(&server, &["--name", "slow", "--write", "a", "--rate", "100/s"]);
    let other = create(&server, &["--name", "other", "--write", "a"]);
    let url = server.url("/write?db=a");
    // A burst of five seconds is allowed: first no warning, then one, then refusals.
    let first = with(&slow, "POST", &url, &lines("m", 0, 100)).expect(204);
    assert_eq!(first.header("x-hourglass-warning"), None);
    assert_eq!(quota_count(&server, &admin, "warned", "token", "readings"), 0.0);
    let warned = with(&slow, "POST", &url, &lines("m", 100, 900)).expect(204);
    let warning = warned.header("x-hourglass-warning").unwrap().to_owned();
    assert!(warning.contains("token slow (100 readings per second) is used"), "{warning}");
    assert_eq!(quota_count(&server, &admin, "warned", "token", "readings"), 1.0);
    let refused = with(&slow, "POST", &url, &lines("m", 1000, 1)).expect(429);
    assert_eq!(quota_count(&server, &admin, "refused", "token", "readings"), 1.0);
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=6).contains(&seconds), "{seconds}");
    assert!(refused.text().contains("token slow (100 readings per second)"), "{}", refused.text());
    with(&other, "POST", &url, &lines("n", 0, 5000)).expect(204);
    // Waiting for Retry-After is enough.
    let retry_at = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < retry_at {
        std::thread::sleep(Duration::from_millis(50));
    }
    with(&slow, "POST", &url, &lines("m", 1000, 1)).expect(204);
}

#[test]
fn a_sensor_quota_refuses_only_new_sensors() {
    let (server, admin) = start_with_auth("");
    let url = server.url("/write?db=a");
    with(&admin, "POST", &url, &sensors(1000, 50)).expect(204);
    let token = create(&server, &["--name", "t", "--write", "*", "--new-sensors", "10/h"]);
    with(&token, "POST", &url, &sensors(1000, 50)).expect(204);
    let warned = with(&token, "POST", &url, &sensors(0, 9)).expect(204);
    assert!(warned.header("x-hourglass-warning").unwrap().contains("(10 new sensors per hour) is 90 % used"));
    assert_eq!(quota_count(&server, &admin, "warned", "token", "new_sensors"), 1.0);
    let partial = with(&token, "POST", &url, &sensors(5, 10)).expect(400);
    let reply = partial.text();
    assert!(
        reply.contains("dropped=5") && reply.contains("measurement \\\"fleet\\\"") && reply.contains("\\\"device\\\""),
        "{reply}"
    );
    // Only new sensors: a later retry succeeds.
    let refused = with(&token, "POST", &url, &sensors(20, 5)).expect(429);
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() > 60);
    with(&token, "POST", &url, &sensors(1000, 50)).expect(204);
    with(&admin, "POST", &url, &sensors(20, 5)).expect(204);
    assert!(quota_count(&server, &admin, "refused", "token", "new_sensors") >= 1.0);
}

/// Sensors in the store are not new after a restart.
#[test]
fn known_sensors_stay_known_after_a_restart() {
    let launch = Launch::embedded().config("[quota]\ndatabase_new_sensors = 10\n");
    let mut server = launch.clone().start();
    post(&server.url("/write?db=a"), sensors(0, 10), &[]).expect(204);
    server.stop();
    server.restart_as(launch);
    post(&server.url("/write?db=a"), sensors(0, 20), &[]).expect(204);
    post(&server.url("/write?db=a"), sensors(0, 21), &[]).expect(400);
}

#[test]
fn total_sensors_are_limited_per_token_and_per_database() {
    let (server, admin) = start_with_auth("[quota]\ndatabase_sensors = 20\n");
    let url = server.url("/write?db=a");
    let token = create(&server, &["--name", "t", "--write", "*", "--sensors", "5"]);
    with(&token, "POST", &url, &sensors(0, 5)).expect(204);
    let partial = with(&token, "POST", &url, &sensors(0, 6)).expect(400);
    assert!(partial.text().contains("token t (5 sensors)"), "{}", partial.text());
    with(&token, "POST", &url, &sensors(0, 5)).expect(204);
    // Regression: a flood of new sensors refused readings of known ones.
    with(&token, "POST", &url, &sensors(100, 1000)).expect(400);
    let warned = with(&admin, "POST", &url, &sensors(5, 15)).expect(204);
    assert!(warned.header("x-hourglass-warning").unwrap().contains("database a (20 sensors)"), "{warned:?}");
    assert_eq!(quota_count(&server, &admin, "warned", "database", "sensors"), 1.0);
    let partial = with(&admin, "POST", &url, &sensors(15, 10)).expect(400);
    assert!(partial.text().contains("database a (20 sensors)"), "{}", partial.text());
    with(&admin, "POST", &server.url("/write?db=b"), &sensors(15, 10)).expect(204);
}

#[test]
fn database_rates_apply_without_tokens() {
    let server = Launch::embedded().config("[quota]\ndatabase_readings = 10\n").start();
    post(&server.url("/write?db=a"), lines("m", 0, 1000), &[]).expect(204);
    let refused = post(&server.url("/write?db=a"), lines("m", 0, 1), &[]).expect(429);
    assert!(refused.text().contains("database a (10 readings per second)"), "{}", refused.text());
    post(&server.url("/write?db=b"), lines("m", 0, 1), &[]).expect(204);
    get(&server.url("/api/v1/readings?db=a&sensor=m")).expect(200);
    assert!(metric(&server, "hourglass_ingest_readings_accepted_total") >= 1001.0);
}

/// Regression: unread answers of one token held all query memory.
#[test]
fn the_queries_of_one_token_leave_memory_for_others() {
    let bounds = "[query]\nrequest_bytes = \"16MiB\"\nbytes = \"64MiB\"\ntoken_bytes = \"3MiB\"\nlog_after = \"0s\"\n";
    let (server, admin) = start_with_auth(bounds);
    let reader = create(&server, &["--name", "reader", "--read", "a"]);
    let other = create(&server, &["--name", "other", "--read", "a"]);
    let lines = |name: &str, count: u32| (0..count).map(|n| format!("{name} v={n} {n}\n")).collect::<String>();
    with(&admin, "POST", &server.url("/write?db=a"), &(lines("m", 60_000) + &lines("few", 20))).expect(204);
    let all = server.url("/query?db=a&q=SELECT%20v%20FROM%20m");
    let refused = with(&reader, "GET", &all, "").expect(503);
    assert!(
        refused.text().contains("more than 3145728 bytes of memory at present (3/4 of query.bytes)"),
        "{refused:?}"
    );
    assert!(refused.header("retry-after").is_some());
    let few = server.url("/query?db=a&q=SELECT%20v%20FROM%20few%20LIMIT%2010");
    with(&reader, "GET", &few, "").expect(200);
    with(&other, "GET", &few, "").expect(200);
    // Slow queries are logged with token, shortened text and amount read.
    let long = format!("{few}{}", "%20".repeat(300));
    with(&other, "GET", &long, "").expect(200);
    let log = server.stderr();
    let slow_query = log.lines().rfind(|line| line.contains("slow query (query.log_after)")).expect("a line");
    let slow_query: serde_json::Value = serde_json::from_str(slow_query).expect("JSON");
    assert_eq!((&slow_query["token"], &slow_query["readings"]), (&"other".into(), &20.into()), "{slow_query}");
    assert_eq!(slow_query["query"].as_str().map(str::len), Some(200), "{slow_query}");
}

/// Regression: mistyped names counted as databases, were in no list, and could not be dropped.
#[test]
fn a_mistyped_name_uses_up_no_database() {
    let (server, admin) = start_with_auth("[limits]\ndatabases = 3\n");
    let tenant = create(&server, &["--name", "tenant", "--write", "*", "--databases", "1"]);
    let write = |database: &str, body: &str| with(&tenant, "POST", &server.url(&format!("/write?db={database}")), body);
    for number in 0..5 {
        write(&format!("typo_{number}"), "broken").expect(400);
        write(&format!("typo_{number}"), "").expect(204);
    }
    write("real", "m v=1 1").expect(204);
    write("other", "m v=1 1").expect(403);
    with(&admin, "POST", &server.url("/write?db=second"), "m v=1 1").expect(204);
}

/// Regression: a tenant with `--write 'a_*'` created 100 databases in a second and left no room for others.
#[test]
fn one_token_cannot_use_up_all_databases() {
    let (mut server, admin) = start_with_auth("[limits]\ndatabases = 12\n[quota]\ntoken_databases = 4\n");
    let tenant = create(&server, &["--name", "tenant", "--write", "a_*", "--databases", "3"]);
    let usual = create(&server, &["--name", "usual", "--write", "b_*", "--admin", "b_*"]);
    // One database of the tenant exists already.
    with(&admin, "POST", &server.url("/write?db=a_0"), "m v=1 1").expect(204);
    let write = |server: &Server, token: &str, database: &str| {
        with(token, "POST", &server.url(&format!("/write?db={database}")), "m v=1 1")
    };
    for database in ["a_1", "a_2", "a_0", "a_1"] {
        write(&server, &tenant, database).expect(204);
    }
    let refused = write(&server, &tenant, "a_3").expect(403);
    let reply = refused.text();
    for part in ["token tenant (3 databases)", "--databases", "a_3"] {
        assert!(reply.contains(part), "{part}: {reply}");
    }
    let refused =
        with(&tenant, "POST", &server.url("/api/v1/readings?db=a_3"), r#"{"sensor":"m","value":1}"#).expect(403);
    assert!(refused.text().contains("\"database_quota\""), "{}", refused.text());
    assert_eq!(quota_count(&server, &admin, "refused", "token", "databases"), 2.0);
    // The default for tokens without a quota of their own, for both ways to create a database.
    for database in ["b_0", "b_1", "b_2"] {
        write(&server, &usual, database).expect(204);
    }
    let statement = |name: &str| format!("/query?q=CREATE+DATABASE+%22{name}%22");
    with(&usual, "POST", &server.url(&statement("b_3")), "").expect(200);
    let refused = with(&usual, "POST", &server.url(&statement("b_4")), "");
    assert!(refused.text().contains("token usual (4 databases)"), "{}", refused.text());
    write(&server, &usual, "b_5").expect(403);
    // A restart does not reset the quota.
    with(&admin, "POST", &server.url("/api/v1/flush"), "").expect(204);
    server.stop();
    server.restart_behind();
    write(&server, &tenant, "a_3").expect(403);
    write(&server, &tenant, "a_2").expect(204);
    // A drop makes room, and an admin of all databases has no quota.
    with(&admin, "POST", &server.url("/query?q=DROP+DATABASE+%22a_1%22"), "").expect(200);
    write(&server, &tenant, "a_3").expect(204);
    write(&server, &tenant, "a_4").expect(403);
    for number in 0..5 {
        write(&server, &admin, &format!("c_{number}")).expect(204);
    }
    write(&server, &admin, "c_5").expect(400);
}

/// A dry run uses no quota and reports rates, new sensors and total sensors like a write.
#[test]
fn a_dry_run_uses_no_quota_and_reports_every_quota() {
    let (server, _) = start_with_auth("");
    let words = ["--name", "slow", "--write", "a", "--rate", "10/s", "--new-sensors", "2/h", "--sensors", "2"];
    let slow = create(&server, &words);
    let explain = |body: &str| with(&slow, "POST", &server.url("/api/v1/explain?db=a"), body).expect(200).json();
    for _ in 0..5 {
        let reply = explain(&lines("m", 0, 40));
        assert_eq!(reply["quota"], serde_json::json!({"readings": 40, "new_sensors": 1, "passes": true}), "{reply}");
        let reply = explain(&sensors(0, 2));
        assert_eq!(reply["quota"]["new_sensors"], 2, "{reply}");
    }
    let reply = explain(&sensors(0, 3));
    assert_eq!((&reply["write"]["status"], &reply["quota"]["new_sensors"]), (&400.into(), &2.into()), "{reply}");
    with(&slow, "POST", &server.url("/write?db=a"), &sensors(0, 2)).expect(204);
    // The hourly quota of new sensors is used up, so a write of new sensors only gets Retry-After.
    let reply = explain(&sensors(2, 1));
    let written = with(&slow, "POST", &server.url("/write?db=a"), &sensors(2, 1));
    assert_eq!(reply["write"]["status"], written.status, "{reply} {}", written.text());
    with(&slow, "POST", &server.url("/write?db=a"), &lines("fleet,plant=p,device=d0", 0, 200)).expect(204);
    let reply = explain(&lines("fleet,plant=p,device=d0", 0, 1));
    assert_eq!((&reply["write"]["status"], &reply["quota"]["passes"]), (&429.into(), &false.into()), "{reply}");
    with(&slow, "POST", &server.url("/write?db=a"), &lines("fleet,plant=p,device=d0", 0, 1)).expect(429);
}
