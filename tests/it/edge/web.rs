//! Web pages of other origins.

use crate::access::{create, start_with_auth};
use crate::support::prelude::*;

fn ask(server: &Server, method: &str, path: &str, origin: &str) -> Answer {
    let headers = [("origin", origin), ("access-control-request-method", "POST")];
    let body: &[u8] = if method == "POST" { b"m v=1 1" } else { b"" };
    request(method, &server.url(path), body, &headers).unwrap()
}

#[test]
fn only_listed_origins_may_send_requests() {
    let config = "[cors]\norigins = \"https://dash.example.org, http://localhost:3000\"\n";
    let server = Launch::embedded().config(config).start();
    for (origin, known) in [
        ("https://dash.example.org", true),
        ("http://localhost:3000", true),
        ("https://dash.example.org:8443", false),
        ("https://evil.example.org", false),
        ("http://dash.example.org", false),
        ("null", false),
    ] {
        let allowed = known.then_some(origin);
        let written = if known { 204 } else { 403 };
        for (method, path, status) in
            [("POST", "/write", written), ("GET", "/api/v1/sensors", 200), ("GET", "/nowhere", 404)]
        {
            let answer = ask(&server, method, path, origin).expect(status);
            assert_eq!(answer.header("access-control-allow-origin"), allowed, "{origin} {path}");
            assert!(answer.headers.get_all("vary").iter().any(|vary| vary == "origin"), "{origin} {path}");
            assert_eq!(answer.header("access-control-allow-credentials"), None);
        }
        let preflight = ask(&server, "OPTIONS", "/write", origin);
        assert_eq!(preflight.status == 204, known, "{origin}: {}", preflight.status);
        if known {
            let headers = preflight.header("access-control-allow-headers").unwrap();
            assert!(headers.contains("authorization") && headers.contains("content-encoding"), "{headers}");
            assert_eq!(preflight.header("access-control-allow-methods"), Some("GET, POST"));
        }
    }
}

#[test]
fn no_origin_is_allowed_by_default() {
    let server = Launch::embedded().start();
    let answer = ask(&server, "GET", "/api/v1/sensors", "https://dash.example.org").expect(200);
    assert_eq!((answer.header("access-control-allow-origin"), answer.header("vary")), (None, None));
    assert_eq!(ask(&server, "OPTIONS", "/write", "https://dash.example.org").status, 405);
}

/// Regression: pages of any site could write to a service on the visitor's machine.
#[test]
fn cross_site_pages_change_nothing() {
    let server = Launch::embedded().start();
    let own_url = server.url("");
    for (origin, site, changes) in [
        (None, None, true),
        (None, Some("cross-site"), false),
        (Some(&*own_url), None, true),
        (Some(&*own_url), Some("same-origin"), true),
        // A proxy may change the host, which the browser does not know.
        (Some("https://ours.example"), Some("same-origin"), true),
        (Some("https://evil.example"), None, false),
        (Some(&*own_url), Some("cross-site"), false),
        (Some("http://127.0.0.1:1"), Some("same-site"), false),
        (Some("http://127.0.0.1:1"), None, false),
        (Some("null"), None, false),
    ] {
        let headers: Vec<_> = [("origin", origin), ("sec-fetch-site", site)]
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect();
        for (path, body) in [
            ("/write", "m v=1 1"),
            ("/api/v2/write?bucket=d", "m v=1 1"),
            ("/api/v1/readings", r#"{"sensor":"s","value":1}"#),
            ("/query?q=CREATE%20DATABASE%20d", ""),
            ("/api/v1/flush", ""),
        ] {
            let status = request("POST", &server.url(path), body.as_bytes(), &headers).unwrap().status;
            assert_eq!(status < 300, changes, "{headers:?} {path}: {status}");
            assert!(changes || status == 403, "{headers:?} {path}: {status}");
        }
    }
}

/// Regression: pages of `cors.origins` could manage tokens, which only the service's own page may do.
#[test]
fn tokens_are_refused_from_other_origins() {
    let (server, admin) = start_with_auth("[cors]\norigins = \"https://app.example\"\n");
    let authorization = format!("Token {admin}");
    let cross_request = |method: &str, path: &str, body: &str, (origin, site): (&str, &str)| {
        let headers = [
            ("authorization", &*authorization),
            ("origin", origin),
            ("sec-fetch-site", site),
            ("content-type", "text/plain"),
        ];
        request(method, &server.url(path), body.as_bytes(), &headers).unwrap()
    };
    let new = r#"{"name":"gw","write":["a"]}"#;
    for page in [("https://app.example", "cross-site"), ("https://app.example", "same-site")] {
        for (path, body) in [("/api/v1/tokens", new), ("/api/v1/tokens/", new), ("/api/v1/tokens/first/revoke", "")] {
            let answer = cross_request("POST", path, body, page).expect(403);
            assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
            let error = answer.json()["error"].to_string();
            assert!(error.contains("use a page of the service's own origin"), "{error}");
        }
        // Otherwise CORS applies as configured.
        let answer = cross_request("GET", "/api/v1/sensors", "", page).expect(200);
        assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
        cross_request("POST", "/write?db=a", "m v=1 1", page).expect(204);
    }
    cross_request("GET", "/api/v1/tokens", "", ("https://app.example", "cross-site")).expect(403);
    for (path, status) in [("/api/v1/tokens", 405), ("/api/v1/tokens/gw/revoke", 405), ("/api/v1/sensors", 204)] {
        assert_eq!(ask(&server, "OPTIONS", path, "https://app.example").status, status, "{path}");
    }
    cross_request("POST", "/api/v1/tokens", new, (&server.url(""), "same-origin")).expect(201);
}

/// Returns the text of the answers to one raw request.
fn raw_answers(address: std::net::SocketAddr, request: impl AsRef<[u8]>) -> String {
    let mut raw = Raw::open(address);
    raw.send(request);
    raw.rest()
}

/// Regression: answers lacked `nosniff` and cache headers. This covers answers before routing, `access::matrix` the
/// rest.
#[test]
fn refusals_before_routing_have_the_headers_of_every_answer() {
    let config = "[cors]\norigins = \"https://dash.example.org\"\n[tcp]\nlisten = \"127.0.0.1:0\"\n";
    let server = Launch::embedded().config(config).start();
    for (method, path, status) in
        [("GET", "/nowhere", 404), ("DELETE", "/write", 405), ("OPTIONS", "/write", 204), ("HEAD", "/", 200)]
    {
        let answer = ask(&server, method, path, "https://dash.example.org").expect(status);
        assert_eq!(answer.header_fault(), None, "{method} {path}");
    }
    let many = "x: y\r\n".repeat(70);
    let close = "connection: close\r\n";
    for (request, status) in [
        ("GET /ping HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET /ping HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n".to_owned(), 400),
        (format!("GET /ping HTTP/1.1\r\nhost: localhost\r\n{many}\r\n"), 431),
        (format!("GET /ping HTTP/1.1\r\nhost: localhost\r\n{close}authorization: a\r\nauthorization: b\r\n\r\n"), 400),
        (
            format!(
                "POST /write HTTP/1.1\r\nhost: localhost\r\n{close}content-encoding: br\r\ncontent-length: 0\r\n\r\n"
            ),
            415,
        ),
    ] {
        let raw_answers = raw_answers(server.address(), &request);
        assert!(raw_answers.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {raw_answers}");
        assert_eq!(raw_answers.matches("x-content-type-options: nosniff\r\n").count(), 1, "{request}: {raw_answers}");
        assert_eq!(raw_answers.matches("cache-control: no-store\r\n").count(), 1, "{request}: {raw_answers}");
    }
    let raw_answers = raw_answers(server.scheme_address("tcp"), "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(raw_answers.contains("\r\nx-content-type-options: nosniff\r\n"), "{raw_answers}");
}

/// Regression: the first of two `Authorization` headers counted, while a proxy may check the last one.
#[test]
fn two_credentials_are_refused() {
    let (server, admin) = start_with_auth("[server]\nhttp2 = true\n");
    let reader = create(&server, &["--name", "reader", "--read", "*"]);
    let forms = [format!("Token {admin}"), format!("Bearer {reader}"), "Basic eDp5".to_owned(), String::new()];
    let http1 = server.address();
    for path in ["/api/v1/sensors", "/metrics", "/ping", "/nowhere"] {
        for first in &forms {
            for second in &forms {
                let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
                let raw_answers =
                    raw_answers(http1, format!("{head}authorization: {first}\r\nAuthorization: {second}\r\n\r\n"));
                assert!(raw_answers.starts_with("HTTP/1.1 400 "), "{path} {first} {second}: {raw_answers}");
                assert!(raw_answers.contains("more than one Authorization header"), "{raw_answers}");
            }
        }
    }
    // In the URL, too.
    let url = server.url(&format!("/api/v1/sensors?p={admin}"));
    request("GET", &url, b"", &[]).unwrap().expect(200);
    request("GET", &format!("{url}&p={reader}"), b"", &[]).unwrap().expect(401);
}

fn status_for(address: std::net::SocketAddr, method: &str, path: &str, host: &str) -> String {
    let raw_answers = raw_answers(
        address,
        format!("{method} {path} HTTP/1.1\r\n{host}connection: close\r\ncontent-length: 0\r\n\r\n"),
    );
    raw_answers.strip_prefix("HTTP/1.1 ").unwrap_or(&raw_answers).chars().take(3).collect()
}

const OURS: &[&str] = &["localhost", "LOCALHOST:8086", "127.0.0.1", "127.0.0.1:1", "[::1]:8086", "192.168.1.5:8086"];
const THEIRS: &[&str] =
    &["evil.example", "evil.example:8086", "localhost.evil.example", "127.0.0.1.evil.example", "", "x@localhost"];

/// Regression: a page whose host name resolved to 127.0.0.1 had the service's own origin and could read everything.
#[test]
fn dns_rebinding_reads_no_data() {
    let server = Launch::embedded().config("[server]\nhosts = \"ts.example.org, *.pods\"\n").start();
    let data = [
        ("GET", "/api/v1/sensors", "200"),
        ("GET", "/query?q=SHOW+DATABASES", "200"),
        ("GET", "/metrics", "200"),
        ("POST", "/write", "204"),
        ("POST", "/api/v2/write?bucket=d", "204"),
        ("POST", "/query?q=CREATE+DATABASE+d", "200"),
        ("POST", "/api/v1/flush", "204"),
    ];
    let named = ["ts.example.org:8086", "TS.example.org", "a.pods"];
    for (method, path, status) in data {
        let ours = OURS.iter().chain(&named).map(|host| (host, status));
        for (host, status) in ours.chain(THEIRS.iter().map(|host| (host, "403"))) {
            let found = status_for(server.address(), method, path, &format!("host: {host}\r\n"));
            assert_eq!(found, status, "{path} {host}");
        }
        // The request target counts, not the header.
        let target = format!("http://evil.example{path}");
        assert_eq!(status_for(server.address(), method, &target, "host: localhost\r\n"), "403", "{path}");
    }
    for path in ["/", "/openapi.json", "/settings", "/health", "/ready"] {
        assert_eq!(status_for(server.address(), "GET", path, "host: evil.example\r\n"), "200", "{path}");
    }
    let refused = raw_answers(
        server.address(),
        "GET /api/v1/sensors HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n",
    );
    assert!(refused.contains("evil.example") && refused.contains("server.hosts"), "{refused}");
    let old = raw_answers(server.address(), "GET /api/v1/sensors HTTP/1.0\r\n\r\n");
    assert!(old.starts_with("HTTP/1.0 200 "), "{old}");
    let text = request("GET", &server.url("/metrics"), b"", &[]).unwrap().expect(200);
    assert!(text.text().contains("hourglass_access_denied_total{reason=\"host\"} 50"), "{}", text.text());
}

/// Over HTTP/2 the name is in `:authority`.
#[test]
fn host_names_are_checked_over_http2() {
    let server = Launch::embedded().config("[server]\nhttp2 = true\n").start();
    let ask = |host: &str| {
        // :method GET, :scheme http, and literal :path and :authority (RFC 7541, 6.2.2).
        let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        let head = [&[0x82, 0x86, 0x04][..], &text("/metrics"), &[0x01], &text(host)].concat();
        let length = u8::try_from(head.len()).unwrap();
        let mut raw = Raw::open(server.address());
        raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
        raw.send([&[0, 0, length, 1, 5, 0, 0, 0, 1], &*head].concat());
        // The first octet of the answer's head: a table index, 8 for 200.
        let mut frame = [0; 9];
        loop {
            std::io::Read::read_exact(&mut raw.0, &mut frame).unwrap();
            let mut payload = vec![0; usize::from(frame[1]) << 8 | usize::from(frame[2])];
            std::io::Read::read_exact(&mut raw.0, &mut payload).unwrap();
            if frame[3] == 1 {
                return payload[0];
            }
        }
    };
    assert_eq!((ask("localhost:8086"), ask("127.0.0.1")), (0x88, 0x88));
    assert_eq!((ask("evil.example"), ask("evil.example:8086")), (0x48, 0x48));
}

/// Pages have no token, so names matter only without tokens and on the status address.
#[test]
fn host_names_are_checked_without_tokens() {
    let (server, admin) = start_with_auth("[status]\nlisten = \"127.0.0.1:0\"\n");
    for host in OURS.iter().chain(&THEIRS[..4]) {
        let host = format!("host: {host}\r\n");
        assert_eq!(status_for(server.address(), "GET", "/api/v1/sensors", &host), "401");
        let known = format!("{host}authorization: Token {admin}\r\n");
        assert_eq!(status_for(server.address(), "GET", "/api/v1/sensors", &known), "200");
    }
    let status = server.status();
    for path in ["/metrics", "/api/v1/status"] {
        assert_eq!(status_for(status, "GET", path, "host: 10.0.0.7:8087\r\n"), "200", "{path}");
        assert_eq!(status_for(status, "GET", path, "host: hourglass:8087\r\n"), "403", "{path}");
    }
    for path in ["/health", "/ready"] {
        assert_eq!(status_for(status, "GET", path, "host: hourglass:8087\r\n"), "200", "{path}");
    }
}

/// Regression: any page could load /api/v1/readings as a script or image. Cross-site reads need a listed origin.
#[test]
fn cross_site_pages_read_nothing() {
    let config = "[cors]\norigins = \"https://dash.example.org\"\n[status]\nlisten = \"127.0.0.1:0\"\n";
    let server = Launch::embedded().config(config).start();
    let status = server.stdout().split("metrics: ").nth(1).and_then(|rest| rest.split(')').next()).unwrap().to_owned();
    let data = [server.url("/api/v1/sensors"), server.url("/query?q=SHOW+DATABASES"), status];
    let open = ["/", "/openapi.json", "/health", "/nowhere"].map(|path| server.url(path));
    for (site, mode, origin, reads) in [
        ("cross-site", "no-cors", None, false),
        ("cross-site", "cors", Some("https://evil.example"), false),
        ("cross-site", "cors", Some("null"), false),
        ("cross-site", "navigate", None, false),
        ("cross-site", "cors", Some("https://dash.example.org"), true),
        ("same-site", "no-cors", None, true),
        ("same-origin", "cors", None, true),
        // The address bar and bookmarks.
        ("none", "navigate", None, true),
    ] {
        let named = [("sec-fetch-site", Some(site)), ("sec-fetch-mode", Some(mode)), ("origin", origin)];
        let headers: Vec<_> = named.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        for url in &data {
            for method in ["GET", "HEAD"] {
                let status = request(method, url, b"", &headers).unwrap().status;
                assert_eq!(status, if reads { 200 } else { 403 }, "{method} {url} {headers:?}");
            }
        }
        for url in &open {
            assert_ne!(request("GET", url, b"", &headers).unwrap().status, 403, "{url} {headers:?}");
        }
    }
}

/// Returns the address of the last refusal in the audit log.
fn refused_address(server: &Server) -> String {
    let text = std::fs::read_to_string(server.data_dir().join("audit.log")).unwrap_or_default();
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap_or("{}")).unwrap();
    last["address"].as_str().unwrap_or_default().to_owned()
}

/// Headers, and the logged address with a trusted and an untrusted sender.
type Forwarded = (&'static [(&'static str, &'static str)], &'static str, &'static str);

/// Regression: behind a proxy, all clients were logged and limited as one address.
#[test]
fn only_a_trusted_proxy_names_its_clients() {
    let forwarded: &[Forwarded] = &[
        (&[], "127.0.0.1", "127.0.0.1"),
        (&[("x-forwarded-for", "198.51.100.1")], "198.51.100.1", "127.0.0.1"),
        // The client claims another address.
        (&[("x-forwarded-for", "203.0.113.1, 198.51.100.2")], "198.51.100.2", "127.0.0.1"),
        (
            &[("x-forwarded-for", "203.0.113.1"), ("x-forwarded-for", "198.51.100.3, 10.1.2.3")],
            "198.51.100.3",
            "127.0.0.1",
        ),
        (&[("x-forwarded-for", "203.0.113.1, junk")], "127.0.0.1", "127.0.0.1"),
        (&[("forwarded", "for=203.0.113.1"), ("x-real-ip", "203.0.113.1")], "127.0.0.1", "127.0.0.1"),
    ];
    let limits = "connections_per_address = 4\n";
    let trusting = format!("[server]\n{limits}trusted_proxies = \"127.0.0.0/8, 10.0.0.0/8\"\n");
    let trusting = start_with_auth(&trusting).0;
    let doubting = start_with_auth(&format!("[server]\n{limits}")).0;
    for (headers, client, peer) in forwarded {
        for (server, expected) in [(&trusting, client), (&doubting, peer)] {
            request("GET", &server.url("/api/v1/sensors"), b"", headers).unwrap().expect(401);
            assert_eq!(refused_address(server), *expected, "{headers:?}");
        }
    }
    let open = |server: &Server| {
        let mut many: Vec<Raw> = (0..8).map(|_| Raw::open(server.address())).collect();
        let ping = "GET /ping HTTP/1.1\r\nhost: localhost\r\n\r\n";
        many.iter_mut()
            .map(|raw| raw.try_send(ping) && raw.head().starts_with("HTTP/1.1 204"))
            .filter(|is_served| *is_served)
            .count()
    };
    // Connections of earlier requests may still count.
    wait_until("the connections are bounded", || open(&doubting) == 4);
    assert_eq!(open(&trusting), 8);
}

/// Grafana's proxy on the same machine is answered, and one warning says that it gives access without a token.
#[test]
fn a_proxy_without_tokens_causes_one_warning() {
    let warnings = |server: &Server| server.stderr().matches("but this service requires no token").count();
    let server = Launch::embedded().start();
    let headers = [("x-forwarded-for", "198.51.100.1")];
    request("GET", &server.url("/api/v1/sensors"), b"", &[]).unwrap().expect(200);
    request("GET", &server.url("/ping"), b"", &headers).unwrap().expect(204);
    assert_eq!(warnings(&server), 0);
    for _ in 0..5 {
        request("GET", &server.url("/api/v1/sensors"), b"", &headers).unwrap().expect(200);
        request("POST", &server.url("/write"), b"m v=1", &headers).unwrap().expect(204);
    }
    wait_until("it warns", || warnings(&server) > 0);
    assert_eq!(warnings(&server), 1);
    // A configured proxy causes no warning.
    let server = Launch::embedded().config("[server]\ntrusted_proxies = \"127.0.0.1\"\n").start();
    request("GET", &server.url("/api/v1/sensors"), b"", &headers).unwrap().expect(200);
    assert_eq!(warnings(&server), 0);
}
