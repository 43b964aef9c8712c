//! Readings older than the retention are refused, hidden and deleted. Policies are databases of their own.

mod carried;
mod expiry;
mod late;
mod policies;
mod settings;
mod summaries;

use crate::support::prelude::*;

/// Frequent checks and flushes, so that the floor rises.
const CONFIG: &str = r#"
[page]
max_readings = 8
[flush]
interval = "200ms"
quiet = "50ms"
[sensors]
write_interval = "200ms"
[retention]
interval = "100ms"
"#;

/// Creates a store that no other test uses.
type NewStore = fn() -> String;

const STORES: [NewStore; 2] = [|| "embedded".to_owned(), || mongod().uri(&fresh_database_name())];

fn start(store: &str) -> Server {
    Launch::with_store(store).config(CONFIG).start()
}

/// Sends a statement by POST.
#[track_caller]
fn answer(server: &Server, parameters: &str, statement: &str) -> Answer {
    let body = format!("q={}", encode(statement));
    let form = [("content-type", "application/x-www-form-urlencoded")];
    post(&server.url(&format!("/query?epoch=ns&{parameters}")), body, &form)
}

/// Returns the result, and a notice if there is one.
#[track_caller]
fn ask(server: &Server, parameters: &str, statement: &str) -> Value {
    let answer = answer(server, parameters, statement).expect(200);
    let mut result = answer.json()["results"][0].take();
    if let Some(notice) = answer.header("x-hourglass-notice") {
        result["notice"] = notice.into();
    }
    result
}

/// Runs a statement that must succeed without a notice.
#[track_caller]
fn run(server: &Server, statement: &str) {
    let result = ask(server, "", statement);
    assert_eq!(result, serde_json::json!({"statement_id": 0}), "{statement}");
}

/// Returns the column after the time, in order of time.
#[track_caller]
fn values(server: &Server, parameters: &str, statement: &str) -> Vec<i64> {
    let result = ask(server, parameters, statement);
    assert!(result["error"].is_null(), "{statement}: {result}");
    let rows = result["series"][0]["values"].as_array().cloned().unwrap_or_default();
    rows.iter().map(|row| row[1].as_i64().expect("a whole number")).collect()
}

#[track_caller]
fn database_settings(server: &Server, name: &str) -> Value {
    let name = encode(name);
    server.fetch(&format!("/api/v1/databases/{name}"))
}
