//! Every route with every kind of token. A route that is not in the table fails the test: somebody has to say what it
//! needs.

use std::collections::BTreeMap;
use std::io::Write;

use super::{PATIENCE, await_status, create, guarded, token_command, with};
use crate::support::http::{get, request};
use crate::support::poll;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Needs {
    Nothing,
    Write,
    Read,
    Metrics,
    Admin,
}

/// What a route is asked, with what body, and what it needs; for some several.
const CELLS: &[(&str, &str, &str, &str, Needs)] = &[
    ("GET", "/", "", "", Needs::Nothing),
    ("GET", "/openapi.json", "", "", Needs::Nothing),
    ("GET", "/ping", "", "", Needs::Nothing),
    ("GET", "/health", "", "", Needs::Nothing),
    ("GET", "/ready", "", "", Needs::Nothing),
    ("GET", "/settings", "", "", Needs::Nothing),
    (
        "POST",
        "/api/v1/readings",
        "db=a",
        "{\"measurement\":\"m\",\"tags\":{\"site\":\"lab\"},\"fields\":{\"v\":1}}",
        Needs::Write,
    ),
    ("POST", "/write", "db=a", "m,site=lab v=1 1", Needs::Write),
    ("POST", "/api/v2/write", "bucket=a/autogen", "m,site=lab v=1 1", Needs::Write),
    ("POST", "/api/v3/write_lp", "db=a", "m,site=lab v=1 1", Needs::Write),
    ("POST", "/query", "q=CREATE+DATABASE+a", "", Needs::Write),
    ("GET", "/api/v1/readings", "db=a&measurement=m", "", Needs::Read),
    ("GET", "/api/v1/readings", "db=a&sensor=m,site=lab", "", Needs::Read),
    ("GET", "/api/v1/summary", "db=a&measurement=m", "", Needs::Read),
    ("GET", "/api/v1/sensors", "db=a", "", Needs::Read),
    ("GET", "/api/v1/latest", "db=a", "", Needs::Read),
    ("GET", "/api/v1/measurements", "db=a", "", Needs::Read),
    ("GET", "/api/v1/tags", "db=a", "", Needs::Read),
    ("GET", "/api/v1/tags/{key}", "db=a", "", Needs::Read),
    ("GET", "/api/v1/fields", "db=a", "", Needs::Read),
    ("GET", "/query", "db=a&q=SELECT+*+FROM+m", "", Needs::Read),
    // The database stands in the statement, and the request's is another.
    ("GET", "/query", "db=b&q=SELECT+*+FROM+a..m", "", Needs::Read),
    ("GET", "/query", "db=b&q=SHOW+SERIES+ON+a", "", Needs::Read),
    ("POST", "/query", "db=a&q=SHOW+FIELD+KEYS", "", Needs::Read),
    ("POST", "/query", "db=a&q=SELECT+v+FROM+(SELECT+v+FROM+m)", "", Needs::Read),
    ("GET", "/query", "db=a&q=SHOW+MEASUREMENTS%3BSHOW+TAG+KEYS", "", Needs::Read),
    ("POST", "/query", "db=a&q=DELETE+FROM+nothing", "", Needs::Admin),
    ("POST", "/query", "db=a&q=DROP+SERIES+FROM+nothing", "", Needs::Admin),
    ("POST", "/query", "db=a&q=DROP+MEASUREMENT+nothing", "", Needs::Admin),
    ("POST", "/api/v1/flush", "", "", Needs::Admin),
    ("GET", "/api/v1/status", "", "", Needs::Metrics),
    ("GET", "/metrics", "", "", Needs::Metrics),
];

/// Kinds of tokens, and what each may do in database `a`. The one of all databases may also flush.
const KINDS: &[(&str, &[&str], &[Needs])] = &[
    ("write", &["--write", "a"], &[Needs::Write]),
    ("read", &["--read", "a"], &[Needs::Read]),
    ("both", &["--write", "?", "--read", "a*"], &[Needs::Write, Needs::Read]),
    ("elsewhere", &["--write", "b", "--read", "b"], &[]),
    ("elsewhere-all", &["--admin", "b"], &[]),
    ("metrics", &["--metrics"], &[Needs::Metrics]),
    ("pinned", &["--write", "*", "--read", "*", "--sensor-tag", "site=lab"], &[Needs::Write, Needs::Read]),
    ("admin", &["--admin", "*"], &[Needs::Write, Needs::Read, Needs::Metrics, Needs::Admin]),
];

/// What a refused token may look like.
const REFUSED: &[&str] =
    &["none", "malformed", "unknown", "wrong secret", "empty", "revoked", "expired", "rotated away"];

#[test]
fn every_route_asks_every_kind_of_token_for_what_it_needs() {
    let (server, admin) = guarded("");
    let routes = get(&server.url("/openapi.json")).expect(200).json();
    for (path, operations) in routes["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            let known = CELLS.iter().any(|(m, p, ..)| *m == method && p == path);
            assert!(known, "{method} {path} has no cell: what does it need?");
        }
    }
    let mut tokens = BTreeMap::new();
    for (kind, flags, _) in KINDS {
        tokens.insert(*kind, create(&server, &[&["--name", *kind], *flags].concat()));
    }
    for kind in ["expired", "revoked", "rotated away"] {
        let name = kind.replace(' ', "-");
        let expires = if kind == "expired" { "1s" } else { "1h" };
        tokens.insert(kind, create(&server, &["--name", &name, "--admin", "*", "--expires", expires]));
    }
    assert!(token_command(&server.data_dir(), &["revoke", "revoked"]).status.success());
    assert!(token_command(&server.data_dir(), &["rotate", "rotated-away"]).status.success());
    let flipped = |text: &str| text[..text.len() - 1].to_owned() + if text.ends_with('0') { "1" } else { "0" };
    tokens.insert("wrong secret", flipped(&admin));
    tokens.insert("unknown", admin.replacen(&admin[3..15], "000000000000", 1));
    tokens.insert("malformed", "secret".to_owned());
    tokens.insert("empty", String::new());
    with(&admin, "POST", &server.url("/write?db=a"), "m,site=lab v=1 1").expect(204);
    let expired = || {
        let listed = token_command(&server.data_dir(), &["list"]).stdout;
        String::from_utf8(listed).unwrap().contains(" expired 2").then_some(())
    };
    assert!(poll(PATIENCE, expired).is_some());
    await_status(&server, &tokens["revoked"], 401);
    await_status(&server, &tokens["rotated away"], 401);
    await_status(&server, &tokens["admin"], 200);

    let (mut cells, mut wrong) = (0, Vec::new());
    for (method, path, query, body, needs) in CELLS {
        let url = server.url(&format!("{}?{query}", path.replace("{key}", "site")));
        let mut judge = |kind: &str, status: u16, expected: &[u16]| {
            cells += 1;
            let is_right = if expected.is_empty() { (200..300).contains(&status) } else { expected.contains(&status) };
            if !is_right {
                wrong.push(format!("{method} {path}?{query} with {kind}: {status}, expected {expected:?}"));
            }
        };
        for kind in REFUSED {
            let expected: &[u16] = if *needs == Needs::Nothing { &[] } else { &[401] };
            let answer = match *kind {
                "none" => request(method, &url, body.as_bytes(), &[]).unwrap(),
                kind => with(&tokens[kind], method, &url, body),
            };
            judge(kind, answer.status, expected);
            if answer.status == 401 {
                assert!(answer.header("www-authenticate").is_some() && !answer.text().contains("hg_"));
            }
        }
        for (kind, _, may) in KINDS {
            let expected: &[u16] = if *needs == Needs::Nothing || may.contains(needs) { &[] } else { &[403] };
            judge(kind, with(&tokens[kind], method, &url, body).status, expected);
        }
    }
    let _ = writeln!(std::io::stderr(), "access: {cells} cells checked");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Paths and methods that there are not say so to everybody, and tell nothing else.
    get(&server.url("/nothing")).expect(404);
    request("DELETE", &server.url("/metrics"), b"", &[]).unwrap().expect(405);
    request("HEAD", &server.url("/metrics"), b"", &[]).unwrap().expect(401);
}

#[test]
fn a_token_is_taken_in_every_form_that_clients_send() {
    use base64::Engine;
    // Whoever debugs with all there is finds no secret there either.
    let (server, token) = guarded("[telemetry]\nlog_level = \"trace\"\n");
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("somebody:{token}"));
    let headers =
        [format!("Token {token}"), format!("Bearer {token}"), format!("Basic {basic}"), format!("Token me:{token}")];
    for (method, path, body) in [("POST", "/write?db=a", "m v=1"), ("GET", "/query?q=SHOW+DATABASES", "")] {
        for header in &headers {
            let answer = request(method, &server.url(path), body.as_bytes(), &[("Authorization", header)]).unwrap();
            assert!(answer.status < 300, "{path} {header}: {}", answer.text());
        }
        let url = server.url(&format!("{path}&u=somebody&p={token}"));
        assert!(request(method, &url, body.as_bytes(), &[]).unwrap().status < 300, "in the URL");
        // What stands in the header counts, and what is wrong there is not made good by the URL.
        request(method, &url, body.as_bytes(), &[("Authorization", "Token wrong")]).unwrap().expect(401);
    }
    get(&server.url(&format!("/api/v1/measurements?db=a&p={token}"))).expect(200);
    let said = format!("{}{}", server.stderr(), with(&token, "GET", &server.url("/metrics"), "").text());
    assert!(!said.contains(&token[16..]), "the secret is in the log or the metrics");
}

#[test]
fn status_has_an_address_of_its_own() {
    let config = "[status]\nlisten = \"127.0.0.1:0\"\n";
    let (server, admin) = guarded(config);
    let banner = server.stdout();
    let metrics = banner.split("metrics: ").nth(1).and_then(|rest| rest.split(')').next()).unwrap();
    assert!(get(metrics).expect(200).text().contains("hourglass_build_info"));
    let base = metrics.trim_end_matches("/metrics");
    for path in ["/ping", "/health", "/ready", "/api/v1/status"] {
        assert!(get(&format!("{base}{path}")).status < 300, "{path}");
    }
    for path in ["/", "/query?q=SHOW+DATABASES", "/api/v1/measurements", "/openapi.json"] {
        with(&admin, "GET", &format!("{base}{path}"), "").expect(404);
    }
    with(&admin, "POST", &format!("{base}/write?db=a"), "m v=1").expect(404);
    with(&admin, "GET", &server.url("/metrics"), "").expect(404);
    get(&server.url("/ping")).expect(204);
}
