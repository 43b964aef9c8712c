//! Tokens: rights and quotas.

mod audit;
mod command;
mod forms;
mod ingest;
mod lines;
mod matrix;
mod pins;
mod quotas;
mod rejections;
mod terms;

use crate::support::prelude::*;

/// Runs `hourglass token` with these arguments on the data directory of an embedded store.
pub fn token_command(data_dir: &Path, words: &[&str]) -> CommandOutput {
    run_program(program().arg("token").args(words).arg("--data-dir").arg(data_dir))
}

/// Creates a token, waits until it is valid, and returns its text.
#[track_caller]
pub fn create(server: &Server, words: &[&str]) -> String {
    let token =
        token_command(&server.data_dir(), &[&["add"][..], words].concat()).expect_success().stdout.trim().to_owned();
    wait_until("the token is valid", || [200, 403].contains(&status_of(server, &token)));
    token
}

fn status_of(server: &Server, token: &str) -> u16 {
    with(token, "GET", &server.url("/api/v1/measurements?db=waits"), "").status
}

#[track_caller]
pub fn with(token: &str, method: &str, url: &str, body: &str) -> Answer {
    request(method, url, body.as_bytes(), &[("Authorization", &format!("Token {token}"))]).unwrap()
}

/// Waits until requests with the token get this status.
#[track_caller]
pub fn await_status(server: &Server, token: &str, status: u16) {
    wait_until("the service knows the token", || status_of(server, token) == status);
}

/// Starts a server that requires tokens; returns it with its admin token.
pub fn start_with_auth(config: &str) -> (Server, String) {
    let server = Launch::embedded().config(config).env("HOURGLASS_AUTH_FIRST_TOKEN", "true").start();
    let token = server.first_token().expect("a token in the banner");
    get(&server.url("/api/v1/measurements")).expect(401);
    (server, token)
}
