//! Gives space back to the disk: asks for it, and tells how far it is. `app` does it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::App;
use super::errors::{ApiError, Dialect};
use super::influx_query::Address;
use super::parameters::{By, Pairs, Parameters};
use super::params;
use crate::access::Event;
use crate::clock::now_ns;
use crate::reading::time::write_rfc3339;

/// The longest wait for a round in one request: shorter than clients wait for an answer.
const WAIT: Duration = Duration::from_secs(5);

/// Shared by the task that compacts and those who ask it.
#[derive(Debug, Clone)]
pub struct Compacting(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    done: Mutex<CompactingDone>,
    asked: AtomicBool,
    /// Whether MongoDB's `compact` was asked for, too.
    runs: AtomicBool,
    wake: tokio::sync::Notify,
    /// The number of rounds that have begun, and of those that have ended.
    rounds: watch::Sender<(u64, u64)>,
}

/// What was compacted since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompactingDone {
    /// Compactions that gave space back.
    pub times: u64,
    /// Bytes that they gave back.
    pub given_back: u64,
    /// Rows copied by the one under way, or the last one.
    pub rows: u64,
    /// When the last round ended: wall-clock time in nanoseconds.
    pub ended: Option<i64>,
    /// Why the last round had no effect.
    pub error: Option<String>,
    /// Bytes of each collection of MongoDB, or of the embedded file.
    pub spaces: Vec<SpaceOf>,
}

/// Bytes that something takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpaceOf {
    /// The collection, or the file.
    pub name: String,
    pub bytes: u64,
    /// Bytes of them that hold nothing.
    pub free: u64,
}

/// What a round is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactRound {
    /// Somebody asked for it.
    pub asked: bool,
    /// MongoDB's `compact` is to run, too.
    pub runs: bool,
}

impl Default for Compacting {
    fn default() -> Self {
        Self(Arc::new(Shared {
            done: Mutex::default(),
            asked: AtomicBool::new(false),
            runs: AtomicBool::new(false),
            wake: tokio::sync::Notify::new(),
            rounds: watch::channel((0, 0)).0,
        }))
    }
}

impl Compacting {
    /// What was done so far.
    #[must_use]
    pub fn done(&self) -> CompactingDone {
        self.0.done.lock().clone()
    }

    /// Whether a round is under way.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let (begun, ended) = *self.0.rounds.borrow();
        begun > ended
    }

    /// Asks for a round. Returns its number, for [`Compacting::wait`].
    fn ask(&self, runs: bool) -> u64 {
        // Before the number is read: the round with this number begins after this.
        self.0.runs.fetch_or(runs, Ordering::SeqCst);
        self.0.asked.store(true, Ordering::SeqCst);
        let round = self.0.rounds.borrow().0 + 1;
        self.0.wake.notify_one();
        round
    }

    async fn wait(&self, round: u64, longest: Duration) -> bool {
        let mut rounds = self.0.rounds.subscribe();
        let ended = rounds.wait_for(|(_, ended)| *ended >= round);
        tokio::time::timeout(longest, ended).await.is_ok_and(|ended| ended.is_ok())
    }

    /// Waits until it is time for a round, or somebody asks for one.
    pub async fn next(&self, pause: Option<Duration>) -> CompactRound {
        match pause {
            Some(pause) => drop(tokio::time::timeout(pause, self.0.wake.notified()).await),
            None => self.0.wake.notified().await,
        }
        self.0.rounds.send_modify(|(begun, _)| *begun += 1);
        let asked = self.0.asked.swap(false, Ordering::SeqCst);
        CompactRound { asked, runs: self.0.runs.swap(false, Ordering::SeqCst) }
    }

    /// Changes what is told.
    pub fn tell(&self, change: impl FnOnce(&mut CompactingDone)) {
        change(&mut self.0.done.lock());
    }

    /// A round has ended.
    pub fn end_round(&self, error: Option<String>) {
        self.tell(|done| (done.ended, done.error) = (Some(now_ns()), error));
        self.0.rounds.send_modify(|(_, ended)| *ended += 1);
    }
}

/// `POST /api/v1/compact`: 200 once it is done; 202 with the number of the round while it is under way. With that number as
/// `round`, waits for it again.
pub async fn compact(
    State(app): State<Arc<App>>,
    Extension(by): By,
    Extension(address): Address,
    query: Pairs,
) -> Response {
    let asked = Parameters::of(&app, query, params::COMPACT, by.clone()).and_then(|parameters| {
        let invalid = |_| ApiError::Bad("parameter round is invalid: use the value of `round` unchanged".to_owned());
        let round: Option<u64> = parameters.get("round").map(str::parse).transpose().map_err(invalid)?;
        Ok((round, parameters.get("run") == Some("true")))
    });
    let (round, runs) = match asked {
        Ok(asked) => asked,
        Err(error) => return error.respond(Dialect::Native),
    };
    let round = round.unwrap_or_else(|| {
        let (statement, outcome) = ("COMPACT".to_owned(), "begun".to_owned());
        app.audit.note(&Event::Change { by: &by, address, statement, database: "", outcome });
        app.compacting.ask(runs)
    });
    let ended = app.compacting.wait(round, WAIT).await;
    let mut body = shown(&app.compacting);
    body["round"] = json!(round.to_string());
    (if ended { StatusCode::OK } else { StatusCode::ACCEPTED }, Json(body)).into_response()
}

/// What was compacted since the start.
pub fn shown(compacting: &Compacting) -> Value {
    let CompactingDone { times, given_back, rows, ended, error, spaces } = compacting.done();
    let ended = ended.map(|at| {
        let mut text = String::new();
        write_rfc3339(&mut text, at);
        text
    });
    let spaces: Vec<Value> = spaces
        .iter()
        .map(|SpaceOf { name, bytes, free }| json!({ "name": name, "bytes": bytes, "free_bytes": free }))
        .collect();
    json!({
        "running": compacting.is_running(), "rows": rows, "times": times, "given_back_bytes": given_back, "spaces": spaces,
        "ended": ended, "error": error,
    })
}
