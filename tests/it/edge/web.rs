//! Web pages of other origins.

use crate::support::http::{Answer, request};
use crate::support::server::{Launch, Server};

fn ask(server: &Server, method: &str, path: &str, origin: &str) -> Answer {
    let headers = [("origin", origin), ("access-control-request-method", "POST")];
    let body: &[u8] = if method == "POST" { b"m v=1 1" } else { b"" };
    request(method, &server.url(path), body, &headers).unwrap()
}

#[test]
fn pages_of_listed_origins_may_ask_and_no_others() {
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
        for (method, path, status) in
            [("POST", "/write", 204), ("GET", "/api/v1/sensors", 200), ("GET", "/nowhere", 404)]
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
fn nobody_may_ask_by_default() {
    let server = Launch::embedded().start();
    let answer = ask(&server, "POST", "/write", "https://dash.example.org").expect(204);
    assert_eq!((answer.header("access-control-allow-origin"), answer.header("vary")), (None, None));
    assert_eq!(ask(&server, "OPTIONS", "/write", "https://dash.example.org").status, 405);
}
