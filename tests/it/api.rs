//! Every endpoint as clients see it, on the embedded store. Most tests share a server.

mod acks;
mod answers;
mod bodies;
mod caching;
mod compression;
mod databases;
mod documents;
mod explain;
mod exports;
mod formats;
mod good_faith;
mod idempotency;
mod influx_query;
mod ingest;
mod json_writes;
mod limits;
mod openapi;
mod query_limits;
mod readings;
mod refusals;
mod sensors;
mod status;
mod summary;
mod undated;
mod writes;

use crate::support::prelude::*;

/// Server with defaults that most tests share, with a database per test.
fn shared() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(|| Launch::embedded().config("[limits]\ndatabases = 1000\n").start())
}

/// One database of a server, as its clients use it.
struct Client<'a> {
    server: &'a Server,
    database: &'a str,
}

/// Returns a database of the shared server; each test uses its own name.
fn client(database: &str) -> Client<'_> {
    Client { server: shared(), database }
}

/// As [`client`], with these lines written.
#[track_caller]
fn client_with<'a>(database: &'a str, lines: &str) -> Client<'a> {
    let client = client(database);
    client.keep(lines);
    client
}

impl Client<'_> {
    /// Writes lines by `POST /write`, in nanoseconds.
    #[track_caller]
    fn write(&self, lines: &str) -> Answer {
        http::post(&self.url("/write", "precision=ns"), lines, &[])
    }

    /// Writes lines and expects all to be kept.
    #[track_caller]
    fn keep(&self, lines: &str) {
        self.write(lines).expect(204);
    }

    #[track_caller]
    fn write_json(&self, body: &str) -> Answer {
        http::post(&self.url("/api/v1/readings", ""), body, &[])
    }

    #[track_caller]
    fn get(&self, path: &str, parameters: &str) -> Answer {
        http::get(&self.url(path, parameters))
    }

    /// Returns a sensor's readings, in nanoseconds. `filter` holds further parameters and may be empty.
    #[track_caller]
    fn readings(&self, sensor: &str, filter: &str) -> Vec<Value> {
        let parameters = format!("epoch=ns&sensor={}&{filter}", encode(sensor));
        let answer = self.get("/api/v1/readings", &parameters).expect(200).json();
        answer["series"][0]["readings"].as_array().unwrap_or_else(|| panic!("{sensor}: {answer}")).clone()
    }

    fn url(&self, path: &str, parameters: &str) -> String {
        let url = format!("{path}?db={}&{parameters}", encode(self.database));
        self.server.url(url.trim_end_matches('&'))
    }
}

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap_or_else(|| panic!("an object: {object}")).keys().map(String::as_str).collect()
}

#[track_caller]
fn text_at<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_else(|| panic!("{key} in {object}"))
}
