//! Sends POSTs when they are due, one at a time per connection, and repeats each until it is acked.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;

use super::posts::Post;
use super::recorder::Recorder;
use super::trying::{Line, Tried};

/// Wait after a broken connection, and after a 503 without `Retry-After`.
const BACK_OFF: Duration = Duration::from_millis(100);
/// Maximum wait by a `Retry-After`; longer values are shortened.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);
/// Grace period after the duration, in which overdue POSTs are still sent and repeated.
pub const GRACE: Duration = Duration::from_secs(15);

/// The kind of failure when the scenario dropped the connection, which is not an error of the server.
pub const DROPPED: &str = "dropped by the scenario";

#[derive(Debug, Clone)]
pub struct Sending {
    /// Host and port.
    pub target: String,
    /// Path and query.
    pub path: String,
    /// Whether bodies are compressed.
    pub gzip: bool,
    pub connections: usize,
    /// Maximum wait for an answer.
    pub timeout: Duration,
    /// The interval at which all connections are dropped.
    pub reconnect_every: Option<Duration>,
    /// The start of the run.
    pub begin: Instant,
    /// How long POSTs are due.
    pub duration: Duration,
}

pub type Shared = Arc<Mutex<Recorder>>;

pub fn with<T>(shared: &Shared, work: impl FnOnce(&mut Recorder) -> T) -> T {
    // A panic ends the run anyway, so poisoning does not matter.
    work(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Sends all POSTs from the channel, until it is closed or the grace period ends.
pub async fn send_all(sending: &Sending, posts: Receiver<Post>, shared: &Shared) -> anyhow::Result<()> {
    let posts = Arc::new(tokio::sync::Mutex::new(posts));
    let mut tasks = JoinSet::new();
    for _ in 0..sending.connections {
        let sender = Sender {
            sending: sending.clone(),
            shared: shared.clone(),
            line: Line::new(&sending.target),
            drop_at: sending.reconnect_every.map(|every| sending.begin + every),
        };
        tasks.spawn(sender.work(posts.clone()));
    }
    while let Some(task) = tasks.join_next().await {
        task?;
    }
    Ok(())
}

struct Sender {
    sending: Sending,
    shared: Shared,
    line: Line,
    drop_at: Option<Instant>,
}

/// What to do after an attempt.
enum Then {
    Done,
    Again(Duration),
    GiveUp,
}

impl Sender {
    async fn work(mut self, posts: Arc<tokio::sync::Mutex<Receiver<Post>>>) {
        // Connects before anything is due, so that connecting is not part of the first latency.
        let _ = self.line.ready().await;
        let end = self.sending.begin + self.sending.duration + GRACE;
        loop {
            let free = Instant::now();
            // One sender waits on the channel, the others for the lock.
            let taken = tokio::time::timeout_at(end.into(), async { posts.lock().await.recv().await }).await;
            let Ok(Some(post)) = taken else { break };
            if Instant::now() >= end {
                break;
            }
            self.deliver(&post, free, end).await;
        }
        let reconnects = self.line.opened.saturating_sub(1);
        with(&self.shared, |recorder| recorder.reconnects += reconnects);
    }

    /// Sends a POST until it is acked or rejected permanently, or until the grace period ends.
    async fn deliver(&mut self, post: &Post, free: Instant, end: Instant) {
        self.drop_if_due(Instant::now());
        with(&self.shared, |recorder| recorder.tried(post, free, Instant::now()));
        loop {
            let wait = match self.once(post, end).await {
                Then::Done => return,
                Then::Again(wait) if Instant::now() + wait < end => wait,
                _ => return with(&self.shared, |recorder| recorder.given_up += 1),
            };
            tokio::time::sleep(wait).await;
            self.drop_if_due(Instant::now());
        }
    }

    async fn once(&mut self, post: &Post, end: Instant) -> Then {
        with(&self.shared, |recorder| recorder.tries += 1);
        let tried = match self.line.ready().await {
            Err(how) => return self.broken(&how),
            Ok(()) => Instant::now(),
        };
        let patience = end.min(tried + self.sending.timeout);
        let (path, body) = (&self.sending.path, post.body.clone());
        let until = self.drop_at.unwrap_or(patience).min(patience);
        let answer = self.line.post(path, body, self.sending.gzip, until).await;
        let now = Instant::now();
        match answer {
            Tried::Answered(answer) if matches!(answer.status, 200 | 204) => {
                with(&self.shared, |recorder| recorder.acked(post, tried, now));
                Then::Done
            }
            Tried::Answered(answer) => {
                with(&self.shared, |recorder| recorder.failed(&answer.status.to_string(), now));
                let asked = answer.header("retry-after").and_then(|seconds| seconds.parse().ok());
                let wait = asked.map_or(BACK_OFF, Duration::from_secs).min(RETRY_AFTER_MAX);
                // A client may send again if the readings were not accepted, or if the outcome is unknown.
                if matches!(answer.status, 429 | 500..) { Then::Again(wait) } else { Then::GiveUp }
            }
            Tried::Broken(_) if self.drop_if_due(now) => {
                with(&self.shared, |recorder| recorder.failed(DROPPED, now));
                Then::Again(Duration::ZERO)
            }
            Tried::Broken(how) => self.broken(&how),
        }
    }

    fn broken(&self, how: &str) -> Then {
        with(&self.shared, |recorder| recorder.failed(how, Instant::now()));
        Then::Again(BACK_OFF)
    }

    /// Drops the connection if that is due; returns whether it was.
    fn drop_if_due(&mut self, now: Instant) -> bool {
        let (Some(drop_at), Some(every)) = (self.drop_at, self.sending.reconnect_every) else { return false };
        if now < drop_at {
            return false;
        }
        self.line.hang_up();
        let mut next = drop_at;
        while next <= now {
            next += every;
        }
        self.drop_at = Some(next);
        true
    }
}
