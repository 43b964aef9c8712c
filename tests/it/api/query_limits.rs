//! Limits of a query: each refusal names its config key.

use crate::support::prelude::*;

use super::{Client, text_at};

#[test]
fn an_exceeded_query_limit_is_named() {
    let server = Launch::embedded().config("[query]\nseries_max = 2\n").start();
    let client = Client { server: &server, database: "d" };
    client.keep("m,s=1 v=1 1000\nm,s=2 v=1 1000\nm,s=3 v=1 1000");
    let readings = "/api/v1/readings";
    let summary = "/api/v1/summary";
    let cases = [
        (readings, "measurement=m", true),
        (readings, "measurement=m&max_points=5", true),
        (readings, "measurement=m&tag.s=~[12]", false),
        (summary, "measurement=m", true),
        ("/query", "q=SELECT+max(v)+FROM+m", true),
        ("/api/v1/tags", "", false),
        ("/api/v1/latest", "measurement=m", false),
    ];
    for (path, parameters, is_refused) in cases {
        let answer = client.get(path, parameters);
        let text = answer.text().to_owned();
        if !is_refused {
            assert!(answer.status == 200 && !text.contains("error"), "{path} {parameters}: {text}");
        } else if path == "/query" {
            assert!(text.contains("sensors of the query: "), "{parameters}: {text}");
        } else {
            let error = answer.expect(400).json();
            assert!(text_at(&error, "error").contains("sensors of the query: "), "{path} {parameters}: {text}");
        }
    }
}

/// Regression: sensor documents and measurement names were not counted, so lists used hundreds of megabytes.
#[test]
fn lists_respect_the_request_byte_limit() {
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
            let is_refused = answer.text().contains("more than 1048576 bytes of memory (half of query.bytes)");
            assert_eq!(is_refused, !is_answered, "{path} {parameters}: {:.300}", answer.text());
        }
    };
    check();
    // Stored sensors and unflushed ones.
    flush(&server);
    check();
}
