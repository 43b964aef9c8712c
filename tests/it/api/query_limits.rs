//! The limits on what one query may be about: each refusal names the config key that made it.

use crate::support::prelude::*;

use super::{Client, text_at};

/// Readings of an hour each, a day apart.
const EARLY: &str = "SELECT v FROM n WHERE time >= 0 AND time < 1h";
const LATE: &str = "SELECT v FROM n WHERE time >= 26h AND time < 28h";

#[test]
fn the_limit_that_a_query_is_over_is_named() {
    let config = "[query]\nspan_max = \"24h\"\nseries_max = 2\n";
    let server = Launch::embedded().config(config).start();
    let client = Client { server: &server, database: "d" };
    client.keep("m,s=1 v=1 1000\nm,s=2 v=1 1000\nm,s=3 v=1 1000\nn v=1 1000\nn v=2 97200000000000\no v=1 1000");
    let day = "from=1970-01-01T00:00:00Z&to=1970-01-02T00:00:00Z";
    let longer = "from=1970-01-01T00:00:00Z&to=1970-01-02T00:00:00.000000001Z";
    let (readings, summary) = ("/api/v1/readings", "/api/v1/summary");
    let statement = |text: &str| format!("q={}", super::encode(text));
    let cases = [
        (readings, format!("sensor=n&{day}"), None),
        (readings, format!("sensor=n&{longer}"), Some("the query covers more than")),
        (readings, "sensor=n&from=0".to_owned(), Some("the query covers more than")),
        (readings, "sensor=n&from=-1h&to=2200-01-01T00:00:00Z".to_owned(), None),
        // Raw readings come part by part, and have no beginning where none is said.
        (readings, "sensor=n".to_owned(), None),
        (readings, "sensor=n&max_points=5".to_owned(), Some("the query covers more than")),
        (readings, "sensor=o&max_points=5".to_owned(), None),
        (readings, format!("measurement=n&{longer}"), Some("the query covers more than")),
        (readings, "measurement=m".to_owned(), Some("the query selects")),
        (readings, "measurement=m&max_points=5".to_owned(), Some("the query selects")),
        (readings, "measurement=m&tag.s=~[12]".to_owned(), None),
        (summary, format!("sensor=n&{longer}"), Some("the query covers more than")),
        (summary, format!("sensor=n&{day}"), None),
        (summary, "sensor=n".to_owned(), Some("the query covers more than")),
        (summary, "sensor=o".to_owned(), None),
        (summary, "measurement=n&agg=median".to_owned(), Some("the query covers more than")),
        (summary, "measurement=n&agg=max".to_owned(), Some("the query covers more than")),
        (summary, "measurement=o".to_owned(), None),
        (summary, "measurement=m".to_owned(), Some("the query selects")),
        ("/query", statement("SELECT max(v) FROM n"), Some("the query covers more than")),
        ("/query", statement("SELECT v FROM n"), Some("the query covers more than")),
        ("/query", statement("SELECT max(v) FROM o"), None),
        // A statement is about all that it reads, a request may have several.
        ("/query", statement(&format!("SELECT v FROM ({EARLY}), ({LATE})")), Some("the query covers more than")),
        (
            "/query",
            statement(&format!("SELECT max(v) FROM (SELECT v FROM o), ({LATE})")),
            Some("the query covers more than"),
        ),
        ("/query", statement(&format!("SELECT v FROM ({EARLY}), (SELECT v FROM o)")), None),
        ("/query", statement(&format!("{EARLY}; {LATE}")), None),
        ("/query", statement("SELECT max(v) FROM m"), Some("the query selects")),
        ("/api/v1/tags", String::new(), None),
        ("/api/v1/latest", "measurement=m".to_owned(), None),
    ];
    for (path, parameters, key) in cases {
        let answer = client.get(path, &parameters);
        let text = answer.text().to_owned();
        match key {
            None => assert!(answer.status == 200 && !text.contains("error"), "{path} {parameters}: {text}"),
            Some(key) if path == "/query" => assert!(text.contains(key), "{parameters}: {text}"),
            Some(key) => {
                let error = answer.expect(400).json();
                assert!(text_at(&error, "error").contains(key), "{path} {parameters}: {text}");
            }
        }
    }
}

/// Documents of sensors were read without being counted, and so were names of measurements: lists of many sensors took
/// hundreds of megabytes beside what queries may take.
#[test]
fn lists_are_held_to_the_bytes_of_a_request() {
    let server = Launch::embedded().config("[query]\nrequest_bytes = \"1MiB\"\nsensors_max = 5000\n").start();
    let client = Client { server: &server, database: "d" };
    client.keep(&(0..5000).map(|n| format!("m{n:04} v={n} 1\n")).collect::<String>());
    let names = "q=SHOW%20MEASUREMENTS";
    let check = || {
        for (path, parameters, is_answered) in [
            ("/api/v1/latest", "", false),
            ("/api/v1/latest", "limit=500", true),
            ("/api/v1/sensors", "limit=2000", false),
            ("/api/v1/sensors", "limit=500", true),
            ("/api/v1/measurements", "", false),
            ("/api/v1/measurements", "measurement=m0001", true),
            ("/query", names, false),
            ("/query", "q=SHOW%20TAG%20KEYS", true),
        ] {
            let answer = client.get(path, parameters);
            assert_eq!(answer.status, if is_answered || path == "/query" { 200 } else { 400 }, "{path} {parameters}");
            let is_refused = answer.text().contains("more than 1048576 bytes of memory (query.request_bytes)");
            assert_eq!(is_refused, !is_answered, "{path} {parameters}: {:.300}", answer.text());
        }
    };
    check();
    // From the store as well as from what is not there yet.
    flush(&server);
    check();
}
