//! Sends as a device does: line protocol over HTTP, again if it was not acknowledged.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use tokio::sync::watch;

use crate::app::jobs;
use crate::app::post::{PostAnswer, Service, Target};

/// How often something is sent that the service does not take, and the pause between.
const TRIES: usize = 150;
const PAUSE: Duration = Duration::from_millis(200);

/// A client of the demo's own service.
#[derive(Clone)]
pub struct Sender {
    target: Arc<Target>,
    /// True once the service stops.
    told: watch::Receiver<bool>,
}

impl Sender {
    /// For the service at `http://HOST:PORT`.
    pub fn new(base: &str, told: watch::Receiver<bool>) -> anyhow::Result<Self> {
        Ok(Self { target: Arc::new(Target::of(&Service { url: base.to_owned(), ..Service::default() })?), told })
    }

    /// Whether the service stops, and nothing more is to be sent.
    pub fn is_told(&self) -> bool {
        *self.told.borrow()
    }

    /// Sends lines with times in milliseconds. A rejected line is none of a device's business: all others are kept.
    ///
    /// # Errors
    /// If they were not acknowledged, and have to be sent again.
    pub fn write(&self, lines: &str) -> anyhow::Result<()> {
        match self.target.post("/write?precision=ms", lines.as_bytes())? {
            PostAnswer { status: 204 | 400, .. } => Ok(()),
            answer => bail!("{answer}"),
        }
    }

    /// Sends lines until they are acknowledged, none of which may be rejected.
    ///
    /// # Errors
    /// If they are not within half a minute, or the service stops.
    pub fn write_for_sure(&self, lines: &str) -> anyhow::Result<()> {
        let mut tries = 0;
        loop {
            tries += 1;
            let refused = match self.target.post("/write?precision=ms", lines.as_bytes()) {
                Ok(PostAnswer { status: 204, .. }) => return Ok(()),
                Ok(answer @ PostAnswer { status: 429 | 503, .. }) => anyhow::anyhow!("{answer}"),
                Ok(answer) => bail!("{answer}"),
                Err(error) => error,
            };
            if tries == TRIES || self.is_told() {
                return Err(refused);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Describes sensors, with lines as `hourglass sensors import` takes them.
    pub fn describe(&self, lines: &str) -> anyhow::Result<()> {
        match self.target.post_as("/api/v1/meta", "application/x-ndjson", lines.as_bytes())? {
            PostAnswer { status: 200, .. } => Ok(()),
            answer => bail!("{answer}"),
        }
    }

    /// Has the database keep values of another type than their field's beside it, or reject them.
    pub fn set_drift(&self, drift: &str) -> anyhow::Result<()> {
        let settings = serde_json::json!({ "drift": drift }).to_string();
        match self.target.put("/api/v1/databases/default", settings.as_bytes())? {
            PostAnswer { status: 200, .. } => Ok(()),
            answer => bail!("{answer}"),
        }
    }

    /// Has the service store what it has, and seal every day that is over.
    pub fn seal(&self) -> anyhow::Result<()> {
        match self.target.post("/api/v1/flush", b"")? {
            PostAnswer { status: 204, .. } => {}
            answer => bail!("{answer}"),
        }
        jobs::run(&self.target, "seal", |_| !self.is_told())?;
        Ok(())
    }
}
