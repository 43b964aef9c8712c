//! Caching: clients revalidate each time and get 304 while the answer is unchanged.

use crate::support::prelude::*;

use super::{Client, client_with};

#[track_caller]
fn ask(client: &Client<'_>, path: &str, parameters: &str, known: Option<&str>) -> Answer {
    let headers: Vec<(&str, &str)> = known.into_iter().map(|tag| ("if-none-match", tag)).collect();
    request("GET", &client.url(path, parameters), b"", &headers).expect("an answer")
}

#[test]
fn an_answer_about_the_past_changes_its_etag_only_with_late_data() {
    let client = client_with("caching", "m v=1 1000000000\nm v=2 2000000000");
    for (path, more) in [
        ("/api/v1/readings", "sensor=m"),
        ("/api/v1/readings", "measurement=m&format=csv"),
        ("/api/v1/readings", "sensor=m&limit=1&format=ndjson"),
        ("/api/v1/summary", "sensor=m"),
        ("/api/v1/summary", "measurement=m&format=ndjson"),
    ] {
        let parameters = format!("{more}&from=0&to=1970-01-02T00:00:00Z");
        let first = ask(&client, path, &parameters, None).expect(200);
        assert_eq!(first.header("cache-control"), Some("private, no-cache"), "{more}");
        let tag = first.header("etag").expect("a tag").to_owned();
        let repeated = ask(&client, path, &parameters, Some(&tag)).expect(304);
        assert_eq!((first.header_fault(), repeated.header_fault()), (None, None), "{more}");
        assert_eq!((repeated.text(), repeated.header("etag")), ("", Some(tag.as_str())), "{more}");
        assert_eq!(repeated.header("x-next-cursor"), first.header("x-next-cursor"), "{more}");
        ask(&client, path, &parameters, Some(&format!("\"other\", {tag}"))).expect(304);
        ask(&client, path, &parameters, Some("W/\"other\"")).expect(200);
        client.keep("m v=5,w=1 1000000000");
        let changed = ask(&client, path, &parameters, Some(&tag)).expect(200);
        assert_ne!(changed.header("etag"), Some(tag.as_str()), "{more}");
        client.keep("m v=1,w=2 1000000000");
    }
    // The same readings, with a next part that did not exist before.
    let part = "sensor=m&limit=2&format=ndjson&from=0&to=1970-01-02T00:00:00Z";
    let tag = ask(&client, "/api/v1/readings", part, None).expect(200).header("etag").expect("a tag").to_owned();
    client.keep("m v=9 3000000000");
    ask(&client, "/api/v1/readings", part, Some(&tag)).expect(200);
}

#[test]
fn answers_up_to_now_are_not_cached() {
    let client = client_with("not-kept", "m v=1");
    for (path, parameters) in [
        ("/api/v1/readings", "sensor=m"),
        ("/api/v1/readings", "measurement=m&to=2200-01-01T00:00:00Z"),
        ("/api/v1/summary", "sensor=m&from=-1h"),
        ("/api/v1/latest", ""),
    ] {
        let answer = ask(&client, path, parameters, Some("*")).expect(200);
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path} {parameters}");
        assert_eq!((answer.header("etag"), answer.header_fault()), (None, None), "{path} {parameters}");
    }
}
