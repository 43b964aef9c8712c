//! The forms in which tokens are sent, the status address, and tokens for one retention policy.

use crate::support::prelude::*;

use super::{create, start_with_auth, with};

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
        assert_eq!(settings(token, "PATCH", name, r#"{"seal_form":"columns"}"#), status, "{name}");
        assert_eq!(settings(token, "GET", name, ""), status, "{name}");
    }
    assert_eq!(settings(&admin, "PATCH", "w%2Fautogen", "{}"), 200);
    let made = query(&of_week, "CREATE RETENTION POLICY foo ON \"w/week\" DURATION 1d REPLICATION 1");
    assert!(made.contains("database not found: w/week"), "{made}");
    assert!(!query(&admin, "SHOW RETENTION POLICIES ON w").contains("foo"));
}
