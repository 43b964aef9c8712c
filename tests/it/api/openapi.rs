//! `/openapi.json` describes every endpoint, and every described endpoint is served.

use crate::support::prelude::*;

use super::shared;

fn document() -> Value {
    shared().fetch("/openapi.json")
}

fn endpoints(document: &Value) -> BTreeSet<(String, String)> {
    let mut operations = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for method in methods.as_object().expect("methods").keys() {
            operations.insert((method.to_uppercase(), path.clone()));
        }
    }
    operations
}

/// Fills the names in braces of a path.
fn target(path: &str) -> String {
    path.replace("{key}", if path.starts_with("/ui/") { "page.css" } else { "k" })
}

/// Returns the method of a request; HEAD for endless answers.
fn send_method<'a>(method: &'a str, path: &str) -> &'a str {
    if path == "/api/v1/tail" { "HEAD" } else { method }
}

#[test]
fn every_listed_endpoint_is_described_and_served() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    let listed = get(&shared().url("/")).expect(200).text().to_owned();
    let lines = listed.lines().skip(2).map(|line| {
        let mut words = line.split_whitespace().map(str::to_owned);
        (words.next().expect("a method"), words.next().expect("a path"))
    });
    assert_eq!(lines.collect::<BTreeSet<_>>(), endpoints(&document));
    assert!(endpoints(&document).len() >= 20);
    for (method, path) in endpoints(&document) {
        let answer = request(send_method(&method, &path), &shared().url(&target(&path)), b"", &[]).expect("an answer");
        let answers = &document["paths"][&path][method.to_lowercase()]["responses"];
        assert!(answers[answer.status.to_string()].is_object(), "{method} {path}: {} is not described", answer.status);
        let is_served = answer.status != 405 && !String::from_utf8_lossy(&answer.body).contains("no endpoint");
        assert!(is_served, "{method} {path} is not served");
    }
}

/// Describes refusals before routing, and requests without a token.
#[test]
fn refusals_before_routing_are_described() {
    let document = document();
    let answers = |method: &str, path: &str| document["paths"][path][method.to_lowercase()]["responses"].clone();
    let many: Vec<(String, String)> = (0..65).map(|n| (format!("x-{n}"), "x".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (&**name, &**value)).collect();
    let guarded = Launch::embedded().config("[auth]\nfirst_token = true\n").start();
    for (method, path) in endpoints(&document) {
        let described = answers(&method, &path);
        let target = target(&path);
        let refused = request(&method, &shared().url(&target), b"", &many).expect("an answer").expect(431);
        assert!(refused.json()["error"].is_string() && described["431"].is_object(), "{method} {path}");
        assert!(described["400"].is_object(), "{method} {path}: a head may be refused");
        let stranger = request(&method, &guarded.url(&target), b"", &[]).expect("an answer");
        let has_token_answers = ["401", "403", "503"].iter().all(|status| described[*status].is_object());
        assert_eq!(stranger.status == 401, described["401"].is_object(), "{method} {path}: {}", stranger.status);
        assert!(stranger.status != 401 || has_token_answers, "{method} {path}");
        if stranger.status == 401 {
            assert!(stranger.header("www-authenticate").is_some(), "{method} {path}");
            assert!(described["401"]["headers"]["WWW-Authenticate"].is_object(), "{method} {path}");
        }
        // Only requests that bring readings are subject to quotas. Prometheus gets a 503 instead.
        let brings_readings = method == "POST"
            && path != "/api/v1/write"
            && ["write", "ingest", "v1/readings", "v1/metrics"].iter().any(|part| path.contains(part));
        assert_eq!(described["429"].is_object(), brings_readings, "{method} {path}");
    }
}

/// Endpoints name unknown parameters, so described ones must not be named.
#[test]
fn every_described_parameter_is_accepted() {
    let document = document();
    let mut count = 0;
    for (method, path) in endpoints(&document).into_iter().filter(|(method, _)| method == "GET") {
        let operation = &document["paths"][&path][method.to_lowercase()];
        let parameters = operation["parameters"].as_array().expect("parameters").iter();
        for parameter in parameters.filter(|parameter| parameter["in"] == "query") {
            assert!(parameter["description"].is_string(), "{path} {parameter}");
            let name = parameter["name"].as_str().expect("a name").replace("tag.KEY", "tag.k");
            let url = shared().url(&format!("{}?{name}=", target(&path)));
            let answer = request(send_method(&method, &path), &url, b"", &[]).expect("an answer");
            // Successful answers may be binary.
            let text = if answer.status == 400 { answer.text() } else { "" };
            assert!(!text.contains("unknown parameter"), "{path} {name}: {text}");
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
}

/// Regression: some endpoints ignored unknown parameters, and errors before an endpoint was found had another form than
/// its own.
#[test]
fn every_endpoint_refuses_in_the_form_of_its_clients() {
    let document = document();
    let csv = [("content-type", "text/csv")];
    let mut refused = 0;
    for (method, path) in endpoints(&document) {
        let is_v2 = path.starts_with("/api/v2/");
        let is_native = path.starts_with("/api/v1/") && path != "/api/v1/write";
        let check = |answer: Answer, what: &str| {
            let body = answer.json();
            let is_right = match (is_v2, is_native) {
                (true, _) => body["message"].is_string() && body["code"].is_string(),
                (_, true) => body["error"].is_string() && body["code"].is_string(),
                _ => body["error"].is_string(),
            };
            assert!(is_right, "{method} {path}, {what}: {body}");
            body["code"].as_str().map(str::to_owned)
        };
        let url = shared().url(&target(&path));
        let wrong = request("TRACE", &url, b"", &[]).expect("an answer").expect(405);
        let allowed = wrong.header("allow").expect("allow").to_owned();
        assert!(allowed.split(',').any(|one| one == method), "{method} {path}: {allowed}");
        check(wrong, "wrong method");
        let missing = request(&method, &format!("{url}/no/such/endpoint"), b"", &[]).expect("an answer").expect(404);
        check(missing, "no endpoint");
        if is_native {
            let sent = request(&method, &format!("{url}?colour=red"), b"", &[]).expect("an answer").expect(400);
            assert!(sent.text().contains("unknown parameter"), "{method} {path}: {}", sent.text());
            assert_eq!(check(sent, "unknown parameter").as_deref(), Some("invalid"), "{method} {path}");
        }
        let media = document["paths"][&path][method.to_lowercase()]["requestBody"]["content"].as_object();
        let is_json_only = media.is_some_and(|media| media.keys().all(|name| name.contains("json")));
        if is_native && is_json_only && path != "/api/v1/readings" {
            let answer = request(&method, &url, b"a,b\n", &csv).expect("an answer").expect(415);
            assert_eq!(check(answer, "CSV").as_deref(), Some("unsupported_media_type"), "{method} {path}");
            refused += 1;
        }
    }
    assert!(refused > 5, "{refused}");
}

#[test]
fn every_bad_request_is_answered_in_json() {
    for (path, status) in [("/query?q=1&q=2", 400), ("/api/v1/tags/%ff", 400), ("/ping?verbose=1&verbose=1", 204)] {
        let answer = get(&shared().url(path)).expect(status);
        if status == 400 {
            assert!(answer.json()["error"].is_string(), "{path}: {}", answer.text());
        }
    }
}
