//! Every route with every kind of token. A route without a cell fails the test.

use std::io::Write;

use crate::support::prelude::*;

use super::{await_status, create, start_with_auth, token_command, with};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Right {
    Nothing,
    /// Any valid token.
    Token,
    Write,
    Read,
    Metrics,
    Admin,
}

/// A request and the right that it needs.
type RouteCase = (&'static str, &'static str, &'static str, &'static str, Right);

/// Placeholder for a database that is created for each request, so that drops affect no other.
const OWN: &str = "{own}";

/// Some routes have several cells.
const ROUTES: &[RouteCase] = &[
    ("GET", "/", "", "", Right::Nothing),
    ("GET", "/openapi.json", "", "", Right::Nothing),
    ("GET", "/ping", "", "", Right::Nothing),
    ("GET", "/health", "", "", Right::Nothing),
    ("GET", "/ready", "", "", Right::Nothing),
    ("GET", "/settings", "", "", Right::Nothing),
    ("GET", "/ui/{key}", "", "", Right::Nothing),
    (
        "POST",
        "/api/v1/readings",
        "db=a",
        "{\"measurement\":\"m\",\"tags\":{\"site\":\"lab\"},\"fields\":{\"v\":1}}",
        Right::Write,
    ),
    ("POST", "/write", "db=a", "m,site=lab v=1 1", Right::Write),
    ("POST", "/api/v1/explain", "db=a", "m,site=lab v=1 1", Right::Write),
    ("POST", "/api/v2/write", "bucket=a/autogen", "m,site=lab v=1 1", Right::Write),
    ("POST", "/api/v3/write_lp", "db=a", "m,site=lab v=1 1", Right::Write),
    ("POST", "/query", "q=CREATE+DATABASE+a", "", Right::Write),
    // Regression: a token with only writes could set a retention, which deletes readings.
    ("POST", "/query", "q=CREATE+DATABASE+a+WITH+DURATION+0s", "", Right::Admin),
    ("GET", "/api/v1/readings", "db=a&measurement=m", "", Right::Read),
    ("GET", "/api/v1/readings", "db=a&sensor=m,site=lab", "", Right::Read),
    ("GET", "/api/v1/summary", "db=a&measurement=m", "", Right::Read),
    ("GET", "/api/v1/histogram", "db=a&measurement=m&field=v&bounds=1", "", Right::Read),
    ("GET", "/api/v1/sensors", "db=a", "", Right::Read),
    ("GET", "/api/v1/sensors/{key}/meta", "db=a", "", Right::Read),
    ("PUT", "/api/v1/sensors/{key}/meta", "db=a", "{}", Right::Write),
    ("PATCH", "/api/v1/sensors/{key}/meta", "db=a", "{}", Right::Write),
    ("GET", "/api/v1/groups", "db=a", "", Right::Read),
    ("GET", "/api/v1/groups/{key}", "db=a", "", Right::Read),
    ("GET", "/api/v1/groups/{key}/{value}", "db=a", "", Right::Read),
    ("GET", "/api/v1/meta", "db=a", "", Right::Read),
    ("POST", "/api/v1/meta", "db=a", "{\"sensor\":\"m,site=lab\",\"meta\":{}}", Right::Write),
    ("GET", "/api/v1/latest", "db=a", "", Right::Read),
    ("GET", "/api/v1/tail", "db=a", "", Right::Read),
    ("GET", "/api/v1/measurements", "db=a", "", Right::Read),
    ("GET", "/api/v1/tags", "db=a", "", Right::Read),
    ("GET", "/api/v1/tags/{key}", "db=a", "", Right::Read),
    ("GET", "/api/v1/fields", "db=a", "", Right::Read),
    ("GET", "/query", "db=a&q=SELECT+*+FROM+m", "", Right::Read),
    // The statement names another database than the request.
    ("GET", "/query", "db=b&q=SELECT+*+FROM+a..m", "", Right::Read),
    ("GET", "/query", "db=b&q=SHOW+SERIES+ON+a", "", Right::Read),
    ("POST", "/query", "db=a&q=SHOW+FIELD+KEYS", "", Right::Read),
    ("POST", "/query", "db=a&q=SELECT+v+FROM+(SELECT+v+FROM+m)", "", Right::Read),
    ("GET", "/query", "db=a&q=SHOW+MEASUREMENTS%3BSHOW+TAG+KEYS", "", Right::Read),
    ("GET", "/query", "q=SHOW+DATABASES", "", Right::Token),
    ("POST", "/query", "db=a&q=DELETE+FROM+nothing", "", Right::Admin),
    ("POST", "/query", "db=a&q=DROP+SERIES+FROM+nothing", "", Right::Admin),
    ("POST", "/query", "db=a&q=DROP+MEASUREMENT+nothing", "", Right::Admin),
    ("POST", "/query", "q=DROP+DATABASE+{own}", "", Right::Admin),
    // The database of the request may be dropped by more tokens.
    ("POST", "/query", "db=b&q=DROP+DATABASE+{own}", "", Right::Admin),
    ("POST", "/api/v1/flush", "", "", Right::Admin),
    ("GET", "/api/v1/backup", "", "", Right::Admin),
    ("GET", "/api/v1/backup/days", "db=a", "", Right::Admin),
    ("GET", "/api/v1/backup/day", "db=a&day=0", "", Right::Admin),
    ("GET", "/api/v1/backup/sensors", "db=a", "", Right::Admin),
    ("POST", "/api/v1/backup/completed", "began=1", "", Right::Admin),
    ("GET", "/api/v1/jobs", "", "", Right::Admin),
    ("GET", "/api/v1/jobs/{key}", "", "", Right::Admin),
    ("GET", "/api/v1/jobs/refresh/outdated", "db=a", "", Right::Admin),
    ("POST", "/api/v1/jobs/{key}/run", "", "", Right::Admin),
    ("PUT", "/api/v1/renames", "db=a&dry_run=true", r#"{"kind":"measurement","from":"m","to":"w"}"#, Right::Admin),
    ("PUT", "/api/v1/renames", "db=a", r#"{"kind":"tag_key","from":"unused","to":"w"}"#, Right::Admin),
    ("DELETE", "/api/v1/renames", "db=a&dry_run=true&kind=tag_key&from=unused", "", Right::Admin),
    ("GET", "/api/v1/renames", "db=a", "", Right::Admin),
    ("GET", "/api/v1/documents", "db=a&sensor=m,t=x", "", Right::Admin),
    ("GET", "/api/v1/dead-letters", "", "", Right::Admin),
    ("GET", "/api/v1/rejections", "db=a", "", Right::Admin),
    ("DELETE", "/api/v1/rejections", "db=a&through=1", "", Right::Admin),
    ("PUT", "/api/v1/databases/{key}", "dry_run=true", "{}", Right::Admin),
    ("PUT", "/api/v1/databases/{key}", "", "{}", Right::Admin),
    ("GET", "/api/v1/databases/{key}", "", "", Right::Admin),
    ("POST", "/query", "q=CREATE+RETENTION+POLICY+week+ON+a+DURATION+7d+REPLICATION+1", "", Right::Admin),
    ("POST", "/query", "db=b&q=ALTER+RETENTION+POLICY+autogen+ON+a+REPLICATION+1", "", Right::Admin),
    ("POST", "/query", "db=b&q=DROP+RETENTION+POLICY+none+ON+a", "", Right::Admin),
    // A token for a database covers its policies.
    ("POST", "/write", "db=a&rp=week", "m,site=lab v=1", Right::Write),
    ("POST", "/api/v2/write", "bucket=a/week", "m,site=lab v=1", Right::Write),
    ("GET", "/api/v1/readings", "db=a/week&measurement=m", "", Right::Read),
    ("GET", "/query", "db=a&q=SELECT+*+FROM+week.m", "", Right::Read),
    ("GET", "/api/v1/caller", "", "", Right::Token),
    ("GET", "/api/v1/tokens", "", "", Right::Admin),
    ("POST", "/api/v1/tokens", "", "{\"name\":\"made\",\"read\":[\"x\"]}", Right::Admin),
    ("POST", "/api/v1/tokens/{key}/revoke", "", "", Right::Admin),
    ("GET", "/api/v1/overview", "", "", Right::Metrics),
    ("GET", "/api/v1/status", "", "", Right::Metrics),
    ("GET", "/metrics", "", "", Right::Metrics),
];

/// A kind of token: name, arguments, rights in database `a`, and the visible ones of [`DATABASES`].
type Kind = (&'static str, &'static [&'static str], &'static [Right], &'static [&'static str]);

/// The token for all databases may also flush.
const KINDS: &[Kind] = &[
    ("write", &["--write", "a"], &[Right::Token, Right::Write], &["a"]),
    ("read", &["--read", "a"], &[Right::Token, Right::Read], &["a"]),
    ("both", &["--write", "?", "--read", "a*"], &[Right::Token, Right::Write, Right::Read], &["a", "b"]),
    ("elsewhere", &["--write", "b", "--read", "b"], &[Right::Token], &["b"]),
    ("elsewhere-all", &["--admin", "b"], &[Right::Token], &["b"]),
    ("metrics", &["--metrics"], &[Right::Token, Right::Metrics], &[]),
    (
        "pinned",
        &["--write", "*", "--read", "*", "--sensor-tag", "site=lab"],
        &[Right::Token, Right::Write, Right::Read],
        DATABASES,
    ),
    ("admin", &["--admin", "*"], &[Right::Token, Right::Write, Right::Read, Right::Metrics, Right::Admin], DATABASES),
];

/// Shared databases, beside those created per cell.
const DATABASES: &[&str] = &["a", "b", "plant"];

/// Accepted forms of a refusal.
const REFUSED: &[&str] =
    &["none", "malformed", "unknown", "wrong secret", "empty", "revoked", "expired", "rotated away"];

/// A server that requires tokens, tokens of all kinds, and the failures found.
struct Matrix {
    server: Server,
    admin: String,
    tokens: BTreeMap<&'static str, String>,
    cells: usize,
    wrong: Vec<String>,
}

impl Matrix {
    fn new() -> Matrix {
        let (server, admin) = start_with_auth("[[groups]]\nname = \"site\"\nby = \"site\"\n");
        for database in DATABASES {
            with(&admin, "POST", &server.url(&format!("/write?db={database}")), "m,site=lab v=1 1").expect(204);
        }
        let mut tokens = refused_tokens(&server, &admin);
        for (kind, flags, ..) in KINDS {
            tokens.insert(*kind, create(&server, &[&["--name", *kind], *flags].concat()));
        }
        await_status(&server, &tokens["revoked"], 401);
        await_status(&server, &tokens["rotated away"], 401);
        await_status(&server, &tokens["admin"], 200);
        Matrix { server, admin, tokens, cells: 0, wrong: Vec::new() }
    }

    /// Checks that every route in the service's description has a cell.
    fn check_routes(&self) {
        let routes = self.server.fetch("/openapi.json");
        for (path, operations) in routes["paths"].as_object().unwrap() {
            for method in operations.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
                let known = ROUTES.iter().any(|(m, p, ..)| *m == method && p == path);
                assert!(known, "{method} {path} has no cell: what does it need?");
            }
        }
    }

    /// Sends a request with one kind of token and checks its status; without a status, any success will do.
    fn check(&mut self, case: &RouteCase, kind: &str, expected: Option<u16>) {
        let (method, path, query, body, _) = case;
        self.cells += 1;
        let own_database = query.contains(OWN).then(|| self.make_database());
        let query = query.replace(OWN, own_database.as_deref().unwrap_or_default());
        let key = match *path {
            path if path.contains("/sensors/") => "m,site=lab",
            path if path.contains("/jobs/") => "seal",
            "/ui/{key}" => "page.css",
            "/api/v1/tokens/{key}/revoke" => "made",
            _ => "site",
        };
        // This answer never ends; the head shows the status.
        let method = &if *path == "/api/v1/tail" { "HEAD" } else { method };
        let url = self.server.url(&format!("{}?{query}", path.replace("{key}", key).replace("{value}", "lab")));
        let answer = match kind {
            "none" => request(method, &url, body.as_bytes(), &[]).unwrap(),
            kind => with(&self.tokens[kind], method, &url, body),
        };
        if let Some(fault) = answer.header_fault() {
            self.wrong.push(format!("{method} {path}?{query} with {kind}: headers: {fault}"));
        }
        if answer.status == 401 {
            assert!(answer.header("www-authenticate").is_some() && !answer.text().contains("hg_"));
        }
        let is_good = (200..300).contains(&answer.status);
        if expected.map_or(is_good, |expected| answer.status == expected) {
            // Only a permitted drop has dropped the database.
            if own_database
                .is_some_and(|own_database| self.list_databases(&self.admin).contains(&own_database) == is_good)
            {
                self.wrong.push(format!("{query} with {kind}: {}, which is not what happened", answer.status));
            }
        } else {
            let expected = expected.map_or("success".to_owned(), |status| status.to_string());
            self.wrong.push(format!("{method} {path}?{query} with {kind}: {}, not {expected}", answer.status));
        }
    }

    /// Creates a database for one cell.
    fn make_database(&self) -> String {
        let name = format!("a{}", self.cells);
        with(&self.admin, "POST", &self.server.url(&format!("/write?db={name}")), "m,site=lab v=1 1").expect(204);
        assert!(self.list_databases(&self.admin).contains(&name));
        name
    }

    fn list_databases(&self, token: &str) -> Vec<String> {
        let answer = with(token, "GET", &self.server.url("/query?q=SHOW+DATABASES"), "").expect(200).json();
        let rows = answer["results"][0]["series"][0]["values"].as_array().cloned().unwrap_or_default();
        rows.iter().map(|row| row[0].as_str().unwrap().to_owned()).collect()
    }
}

/// Tokens that must be refused, by their defect.
fn refused_tokens(server: &Server, admin: &str) -> BTreeMap<&'static str, String> {
    let mut tokens = BTreeMap::new();
    for kind in ["revoked", "rotated away"] {
        let name = kind.replace(' ', "-");
        tokens.insert(kind, create(server, &["--name", &name, "--admin", "*", "--expires", "1h"]));
    }
    // Not by `create`, which would wait until the token is valid: on a slow machine it has expired by then.
    let expired = ["add", "--name", "expired", "--admin", "*", "--expires", "1s"];
    tokens.insert("expired", token_command(&server.data_dir(), &expired).expect_success().stdout.trim().to_owned());
    token_command(&server.data_dir(), &["revoke", "revoked"]).expect_success();
    token_command(&server.data_dir(), &["rotate", "rotated-away"]).expect_success();
    let flipped = |text: &str| text[..text.len() - 1].to_owned() + if text.ends_with('0') { "1" } else { "0" };
    tokens.insert("wrong secret", flipped(admin));
    tokens.insert("unknown", admin.replacen(&admin[3..15], "000000000000", 1));
    tokens.insert("malformed", "secret".to_owned());
    tokens.insert("empty", String::new());
    let is_expired = || token_command(&server.data_dir(), &["list"]).stdout.contains(" expired 2");
    wait_until("one has expired", is_expired);
    tokens
}

#[test]
fn every_route_checks_every_kind_of_token() {
    let mut matrix = Matrix::new();
    matrix.check_routes();
    for cell in ROUTES {
        let needs = cell.4;
        for kind in REFUSED {
            matrix.check(cell, kind, (needs != Right::Nothing).then_some(401));
        }
        for (kind, _, may, _) in KINDS {
            matrix.check(cell, kind, (needs != Right::Nothing && !may.contains(&needs)).then_some(403));
        }
    }
    for (kind, _, _, visible_databases) in KINDS {
        matrix.cells += 1;
        let listed = matrix.list_databases(&matrix.tokens[kind]);
        let of_all: Vec<&str> = DATABASES.iter().copied().filter(|name| listed.iter().any(|one| one == name)).collect();
        if of_all != *visible_databases {
            matrix.wrong.push(format!("SHOW DATABASES with {kind}: {of_all:?}, not {visible_databases:?}"));
        }
    }
    let _ = writeln!(std::io::stderr(), "access: {} cells checked", matrix.cells);
    assert!(matrix.wrong.is_empty(), "{}", matrix.wrong.join("\n"));
}

/// Unknown paths and methods are answered as such without a token, and reveal nothing else.
#[test]
fn unknown_paths_need_no_token() {
    let (server, _) = start_with_auth("");
    get(&server.url("/nothing")).expect(404);
    request("DELETE", &server.url("/metrics"), b"", &[]).unwrap().expect(405);
    request("HEAD", &server.url("/metrics"), b"", &[]).unwrap().expect(401);
}

#[test]
fn a_token_is_accepted_in_every_form_that_clients_send() {
    use base64::Engine;
    // Trace logs contain no secret, either.
    let (server, token) = start_with_auth("[telemetry]\nlog_level = \"trace\"\n");
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
        // The header counts; a token in the URL does not repair a wrong one.
        request(method, &url, body.as_bytes(), &[("Authorization", "Token wrong")]).unwrap().expect(401);
    }
    get(&server.url(&format!("/api/v1/measurements?db=a&p={token}"))).expect(200);
    let visible = format!("{}{}", server.stderr(), with(&token, "GET", &server.url("/metrics"), "").text());
    assert!(!visible.contains(&token[16..]), "the secret is in the log or the metrics");
}

#[test]
fn status_has_an_address_of_its_own() {
    let config = "[status]\nlisten = \"127.0.0.1:0\"\n";
    let (server, admin) = start_with_auth(config);
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

/// Regression: a policy token was refused when `rp` named the policy beside the database.
#[test]
fn a_policy_token_covers_only_its_policy() {
    let (server, admin) = start_with_auth("");
    let run = |statement: &str| {
        let url = server.url(&format!("/query?q={}", statement.replace(' ', "+")));
        assert!(!with(&admin, "POST", &url, "").expect(200).text().contains("error"), "{statement}");
    };
    run("CREATE DATABASE w");
    run("CREATE RETENTION POLICY week ON w DURATION 7d REPLICATION 1");
    run("CREATE RETENTION POLICY month ON w DURATION 30d REPLICATION 1");
    let of_week = create(&server, &["--name", "week", "--write", "w/week", "--read", "w/week"]);
    let of_all = create(&server, &["--name", "all", "--write", "w", "--read", "w"]);
    let check = |(method, path): (&str, String), is_of_week: bool| {
        let body = if method == "POST" { "m v=1" } else { "" };
        for (token, may) in [(&of_all, true), (&of_week, is_of_week)] {
            let answer = with(token, method, &server.url(&path), body);
            assert_eq!(answer.status == 403, !may, "{path}: {} {}", answer.status, answer.text());
            assert!(!may || (answer.status < 300 && !answer.text().contains("error")), "{path}: {}", answer.text());
        }
    };
    for policy in ["week", "month", "autogen"] {
        for asked in [
            ("POST", format!("/write?db=w&rp={policy}")),
            ("POST", format!("/api/v2/write?bucket=w/{policy}")),
            ("POST", format!("/api/v3/write_lp?db=w/{policy}")),
            ("GET", format!("/api/v1/readings?db=w/{policy}&measurement=m")),
            ("GET", format!("/query?db=w&q=SELECT+*+FROM+{policy}.m")),
            ("GET", format!("/query?db=w&rp={policy}&q=SELECT+*+FROM+m")),
            ("GET", format!("/query?db=w&rp={policy}&q=SHOW+FIELD+KEYS")),
            ("GET", format!("/query?q=SELECT+*+FROM+w.{policy}.m")),
            ("GET", format!("/query?db=w&rp=week&q=SELECT+*+FROM+(SELECT+*+FROM+{policy}.m)")),
        ] {
            check(asked, policy == "week");
        }
    }
    // The default policy does not matter.
    for default in ["autogen", "week"] {
        run(&format!("ALTER RETENTION POLICY {default} ON w DEFAULT"));
        for asked in [
            ("POST", "/write?db=w"),
            ("GET", "/api/v1/readings?db=w&measurement=m"),
            ("GET", "/query?db=w&q=SELECT+*+FROM+m"),
            ("GET", "/query?db=w&rp=week&q=SELECT+*+FROM+\"default\".m"),
            ("GET", "/query?db=w&rp=week&q=SHOW+RETENTION+POLICIES"),
        ] {
            check((asked.0, asked.1.replace('"', "%22")), false);
        }
    }
}

/// Regression: a policy admin could change settings of the whole database by the name `w/autogen`, and nest policies.
#[test]
fn a_policy_admin_changes_no_database_settings() {
    let (server, admin) = start_with_auth("");
    let query = |token: &str, statement: &str| {
        let statement = encode(statement);
        with(token, "POST", &server.url(&format!("/query?q={statement}")), "").text().to_owned()
    };
    query(&admin, "CREATE DATABASE w");
    query(&admin, "CREATE RETENTION POLICY week ON w DURATION 7d REPLICATION 1");
    let of_own = create(&server, &["--name", "own", "--admin", "w/autogen"]);
    let of_week = create(&server, &["--name", "week", "--admin", "w/week"]);
    let settings = |token: &str, method: &str, name: &str, body: &str| {
        with(token, method, &server.url(&format!("/api/v1/databases/{name}")), body).status
    };
    for (token, name, status) in [(&of_own, "w%2Fautogen", 403), (&of_week, "w", 403), (&of_week, "w%2Fweek", 200)] {
        assert_eq!(settings(token, "PUT", name, r#"{"seal_form":"columns"}"#), status, "{name}");
        assert_eq!(settings(token, "GET", name, ""), status, "{name}");
    }
    assert_eq!(settings(&admin, "PUT", "w%2Fautogen", "{}"), 200);
    let made = query(&of_week, "CREATE RETENTION POLICY foo ON \"w/week\" DURATION 1d REPLICATION 1");
    assert!(made.contains("database not found: w/week"), "{made}");
    assert!(!query(&admin, "SHOW RETENTION POLICIES ON w").contains("foo"));
}
