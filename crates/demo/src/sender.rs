//! An HTTP client that behaves like a device: it sends line protocol, and retries until it is acknowledged.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use ureq::Agent;

use crate::escape_parameter;

/// Maximum number of attempts to send a body.
const ATTEMPTS_MAX: usize = 150;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// Maximum time without data from the service. It must exceed the duration of a flush request.
const TIMEOUT: Duration = Duration::from_secs(330);

/// A client of the service.
#[derive(Clone)]
pub struct Sender {
    agent: Agent,
    base: String,
    is_stopping: Arc<dyn Fn() -> bool + Send + Sync>,
    has_given_up: Arc<AtomicBool>,
}

/// An answer of the service.
struct Answer {
    status: u16,
    text: String,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the service answered {}: {}", self.status, self.text.trim())
    }
}

impl Sender {
    /// Returns a client of the service at `http://HOST:PORT`.
    pub fn new(base: &str, is_stopping: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let config = Agent::config_builder().http_status_as_error(false).proxy(None).max_redirects(0);
        let config = config.timeout_per_read(Some(TIMEOUT)).max_idle_connections(0).build();
        Self {
            agent: config.into(),
            base: base.to_owned(),
            is_stopping: Arc::new(is_stopping),
            has_given_up: Arc::default(),
        }
    }

    /// Returns true if nothing more should be sent.
    pub fn is_stopped(&self) -> bool {
        self.has_given_up.load(Ordering::Relaxed) || (self.is_stopping)()
    }

    /// Stops sending.
    pub fn give_up(&self) {
        self.has_given_up.store(true, Ordering::Relaxed);
    }

    fn post(&self, path: &str, kind: &str, body: &[u8]) -> anyhow::Result<Answer> {
        let request = self.agent.post(format!("{}{path}", self.base)).content_type(kind);
        let mut answer = request.send(body).with_context(|| format!("sending to {}", self.base))?;
        Ok(Answer { status: answer.status().as_u16(), text: answer.body_mut().read_to_string()? })
    }

    /// Sends lines with times in milliseconds. Rejected lines are ignored, as devices do, because all others are kept.
    ///
    /// # Errors
    /// If the lines were not acknowledged and must be sent again.
    pub fn write(&self, lines: &str) -> anyhow::Result<()> {
        match self.post("/write?precision=ms", "text/plain", lines.as_bytes())? {
            Answer { status: 204 | 400, .. } => Ok(()),
            answer => bail!("{answer}"),
        }
    }

    /// Sends lines until they are acknowledged.
    ///
    /// # Errors
    /// If a line is rejected, if they are not acknowledged within half a minute, or if the service stops.
    pub fn write_until_acked(&self, lines: &str) -> anyhow::Result<()> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let refused = match self.post("/write?precision=ms", "text/plain", lines.as_bytes()) {
                Ok(Answer { status: 204, .. }) => return Ok(()),
                Ok(answer @ Answer { status: 429 | 503, .. }) => anyhow::anyhow!("{answer}"),
                Ok(answer) => bail!("{answer}"),
                Err(error) => error,
            };
            if attempts == ATTEMPTS_MAX || self.is_stopped() {
                return Err(refused);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Sets the metadata of sensors, as lines for `hourglass sensor import`.
    pub fn describe(&self, lines: &str) -> anyhow::Result<()> {
        match self.post("/api/v1/meta", "application/x-ndjson", lines.as_bytes())? {
            Answer { status: 200, .. } => Ok(()),
            answer => bail!("{answer}"),
        }
    }

    /// Sets `ingest.drift` of the database, which decides about values of another type than their field's: `keep` or
    /// `reject`.
    pub fn set_drift(&self, drift: &str) -> anyhow::Result<()> {
        let settings = serde_json::json!({ "drift": drift }).to_string();
        let request =
            self.agent.patch(format!("{}/api/v1/databases/default", self.base)).content_type("application/json");
        let answer = request.send(settings.as_bytes())?;
        match answer.status().as_u16() {
            200 => Ok(()),
            status => bail!("the service answered {status}"),
        }
    }

    /// Makes the service flush everything, and seal every past day.
    pub fn seal(&self) -> anyhow::Result<()> {
        match self.post("/api/v1/flush", "text/plain", b"")? {
            Answer { status: 204, .. } => {}
            answer => bail!("{answer}"),
        }
        let first = "/api/v1/jobs/seal/run";
        let mut path = first.to_owned();
        while !self.is_stopped() {
            let answer = self.post(&path, "text/plain", b"")?;
            let Answer { status: status @ (200 | 202), text } = &answer else { bail!("{answer}") };
            if *status == 200 {
                break;
            }
            let body: Value = serde_json::from_str(text).with_context(|| format!("the answer {text}"))?;
            let run = body["run"].as_str().context("the answer has no run")?;
            path = format!("{first}?run={}", escape_parameter(run));
        }
        Ok(())
    }
}
