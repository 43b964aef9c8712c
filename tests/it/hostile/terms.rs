//! Many terms, keys and names, long patterns, deep expressions, and bodies and readers that never end.

use super::queries::reset_and_measure;
use super::sizes::{chunk, status_of};
use super::{Memory, with_good_client};
use crate::support::packed::gzip;
use crate::support::prelude::*;

fn server(config: &str) -> Server {
    let server = Launch::embedded().config(config).start();
    server.limit_memory(4 << 30);
    write(
        &server,
        format!("m,a=x,b=y v=1,t=\"text\" {}\nm,a=z v=2,t=\"texts\" {}", START / SECOND, START / SECOND + 1),
    );
    server
}

fn get_encoded(server: &Server, path: &str, q: &str) -> Answer {
    get(&server.url(&format!("{path}{}", encode(q))))
}

/// Regression: a function name of 5,000 parentheses overflowed the stack of the process.
#[test]
fn function_names_are_parsed_without_recursion() {
    let server = server("");
    let deep = format!("{}{}", "(".repeat(5_000), ")".repeat(5_000));
    get(&server.url(&format!("/api/v1/summary?db=d&measurement=m&agg={deep}"))).expect(400);
    get(&server.url("/api/v1/summary?db=d&measurement=m&agg=increase(increase(v))")).expect(400);
    get(&server.url("/ping")).expect(204);
}

/// Regression: the longest expressions that are allowed overflowed the stack of a build that is not optimised.
#[test]
fn the_longest_expressions_are_answered() {
    let server = server("");
    let chain = |item: &str, between: &str| vec![item; 990].join(between);
    let nested = (0..90).fold("m".to_owned(), |inner, _| format!("(SELECT v FROM {inner})"));
    let calls = format!("SELECT {} FROM m", vec!["mean(v)"; 600].join(" + "));
    for q in [
        format!("SELECT {} FROM m", chain("v", "+")),
        format!("SELECT {} FROM m", chain("mean(v)", "+")),
        format!("SHOW MEASUREMENTS WHERE {}", chain("a='1'", " OR ")),
        format!("SELECT v FROM m WHERE {}", chain("v=1", " OR ")),
        format!("SELECT v FROM {nested}"),
        format!("EXPLAIN {calls}"),
        calls,
    ] {
        let form = [("content-type", "application/x-www-form-urlencoded")];
        let answer = post(&server.url("/query?db=d"), format!("q={}", encode(&q)), &form).expect(200);
        assert!(!answer.text().contains("error"), "{:.60}: {:.200}", q, answer.text());
    }
}

/// Regression: 731 bytes of gzip became 2.5 GB, because each `\w` of a pattern is 7 KB of ranges.
#[test]
fn a_long_pattern_takes_little_memory() {
    let server = server("");
    let before = reset_and_measure(&server);
    let headers = [("content-encoding", "gzip"), ("content-type", "application/x-www-form-urlencoded")];
    let q = format!("SELECT v FROM m WHERE a=~/{}/", "\\w".repeat(200_000));
    let answer =
        request("POST", &server.url("/query?db=d"), &gzip(format!("q={}", encode(&q)).as_bytes(), 6), &headers);
    let text = answer.unwrap().text().to_owned();
    assert!(text.contains("error"), "{text:.200}");
    let refused = get_encoded(&server, "/api/v1/readings?db=d&measurement=m&tag.a=~", &"\\w".repeat(3_000)).expect(400);
    assert!(refused.text().contains("at most 4096 bytes"), "{}", refused.text());
    // A pattern counts as often as it is evaluated.
    let repeated = vec!["t=~/te.*t/"; 17].join(" OR ");
    let refused = get_encoded(&server, "/query?db=d&q=", &format!("SELECT t FROM m WHERE {repeated}"));
    assert!(refused.text().contains("regular expressions"), "{}", refused.text());
    Memory::assert_growth_at_most(&server, before, 64 << 20);
}

/// Regression: a compressed body that decompresses to nothing was kept whole, outside of all limits.
#[test]
fn a_body_that_decompresses_to_nothing_has_a_limit() {
    let server = server("");
    let before = reset_and_measure(&server);
    // A frame that decoders skip.
    let frame = [&b"\x50\x2a\x4d\x18"[..], &65_000_u32.to_le_bytes(), &[0; 65_000]].concat();
    let head = "POST /write?db=d HTTP/1.1\r\ncontent-encoding: zstd";
    let status =
        with_good_client(&server, "skippable frames", || status_of(&server, head, (0..1_500).map(|_| chunk(&frame))));
    assert_eq!(status, 413);
    Memory::assert_growth_at_most(&server, before, 48 << 20);
}

/// Regression: a request was compared with 12,000 terms, or with 170,000 keys, or sorted by 10,000 tags, in one step.
#[test]
fn terms_keys_and_names_are_few() {
    let server = server("");
    let list = |count: usize| (0..count).map(|n| format!("k{n}")).collect::<Vec<_>>().join(",");
    let group = format!("({})", vec!["a='q'"; 400].join(" OR "));
    for q in [
        format!("SHOW MEASUREMENTS WHERE {}", [&*group; 3].join(" AND ")),
        format!("SELECT v FROM m WHERE {}", [&*group; 3].join(" AND ")),
        format!("SELECT count(v) FROM (SELECT v FROM m WHERE {group} AND {group}) WHERE {group}"),
        format!("SHOW TAG VALUES WITH KEY IN ({})", list(1_001)),
        format!("SELECT count(v) FROM m GROUP BY {}", list(101)),
    ] {
        let refused = get_encoded(&server, "/query?db=d&q=", &q).expect(400);
        assert!(refused.text().contains("exceeds the limit of"), "{:.60}: {}", q, refused.text());
    }
    for path in [
        format!("/api/v1/summary?db=d&measurement=m&group_by={}", list(101)),
        format!("/api/v1/readings?db=d&measurement=m&fields={}", list(1_001)),
    ] {
        let refused = get(&server.url(&path)).expect(400);
        assert!(refused.text().contains("at most"), "{}", refused.text());
    }
    let within = format!("SHOW TAG VALUES WITH KEY IN ({})", list(1_000));
    get_encoded(&server, "/query?db=d&q=", &within).expect(200);
}

/// Regression: windows of a nanosecond were listed, twice as many at each step, until the memory was gone.
#[test]
fn many_empty_windows_take_little_memory() {
    let server = server("[query]\ntimeout = \"3s\"\n");
    let before = reset_and_measure(&server);
    let path = "/api/v1/summary?db=d&measurement=m&from=1700-01-01T00:00:00Z&step=1ns&agg=count&limit=1";
    get(&server.url(path)).expect(503);
    Memory::assert_growth_at_most(&server, before, 64 << 20);
}

/// Regression: a client that did not read its export kept the turn that all other queries waited for.
#[test]
fn a_client_that_does_not_read_keeps_no_turn() {
    let server = server("[query]\nconcurrent = 1\ntimeout = \"10s\"\n");
    let text = "x".repeat(60_000);
    for from in (0..400).step_by(100) {
        let lines: String =
            (from..from + 100).map(|n| format!("log t=\"{n}{text}\" {}\n", START / SECOND + n)).collect();
        write(&server, &lines);
    }
    let mut stalled = TcpStream::connect(server.address()).unwrap();
    let head = "GET /api/v1/export?db=d&measurement=log HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stalled.write_all(head.as_bytes()).unwrap();
    let mut first = vec![0; 100_000];
    stalled.read_exact(&mut first).unwrap();
    // It stalls within this time, once all buffers are full.
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        get_encoded(&server, "/query?db=d&q=", "SELECT count(v) FROM m").expect(200);
    }
}

/// Regression: a shown name carried escape sequences to the terminal of whoever listed it.
#[test]
fn a_shown_name_has_no_control_characters() {
    let server = server("");
    let rename = |to: &str| {
        let body = json!({ "kind": "tag_value", "tag": "a", "from": "x", "to": to }).to_string();
        request("PUT", &server.url("/api/v1/renames?db=d"), body.as_bytes(), &[("content-type", "application/json")])
            .unwrap()
    };
    let refused = rename("z\u{1b}[31m").expect(400);
    assert!(refused.text().contains("control characters"), "{}", refused.text());
    rename("z").expect(200);
}
