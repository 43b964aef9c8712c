//! Background jobs of a server: their state, and runs on request.

use serde_json::Value;

use super::http::{Answer, post};
use super::server::Server;
use super::{TIMEOUT, poll};

pub fn job(server: &Server, name: &str) -> Value {
    server.fetch(&format!("/api/v1/jobs/{name}"))
}

/// Returns a counter or figure of a job; 0 if it has none yet.
pub fn progress(server: &Server, name: &str, figure: &str) -> u64 {
    job(server, name)["progress"][figure].as_u64().unwrap_or(0)
}

pub fn run_url(server: &Server, name: &str) -> String {
    server.url(&format!("/api/v1/jobs/{name}/run"))
}

/// Requests a run once; the answer comes at its end or after some seconds.
pub fn ask_job(server: &Server, name: &str) -> Answer {
    post(&run_url(server, name), "", &[])
}

/// Runs a job and returns its state at the end.
#[track_caller]
pub fn run_job(server: &Server, name: &str) -> Value {
    let mut url = run_url(server, name);
    loop {
        let answer = post(&url, "", &[]);
        let body = answer.json();
        match answer.status {
            200 => return body,
            202 => url = format!("{}?run={}", run_url(server, name), body["run"].as_str().expect("a run")),
            status => panic!("{status}: {body}"),
        }
    }
}

/// Seals every past day, until no log may have older readings; returns the state of the job.
#[track_caller]
pub fn seal(server: &Server) -> Value {
    let mut last = None;
    let sealed = poll(TIMEOUT, || {
        let answer = ask_job(server, "seal");
        let is_done = answer.status == 200;
        let body = answer.json();
        last = Some(body.clone());
        (is_done && body["progress"]["unsettled"] == 0).then_some(body)
    });
    sealed.unwrap_or_else(|| panic!("not all days were sealed: {last:?}"))
}
