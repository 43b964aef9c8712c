//! Connections that send POSTs when they are due, each one at a time and until it is acked. Knows nothing of what is in
//! them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;

use super::posts::Post;
use super::recorder::Recorder;
use super::trying::{Line, Tried};

/// How long a client waits after a broken connection, and after a 503 that does not say how long.
const BACK_OFF: Duration = Duration::from_millis(100);
/// The longest wait that a `Retry-After` may ask for here.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);
/// How long after the duration POSTs that are behind are still sent, and those under way sent again.
pub const GRACE: Duration = Duration::from_secs(15);

/// How a try failed whose connection the scenario dropped: no error of the server's.
pub const DROPPED: &str = "dropped by the scenario";

/// What senders need to know.
#[derive(Debug, Clone)]
pub struct Sending {
    /// Host and port.
    pub target: String,
    /// Where to, with everything in the query.
    pub path: String,
    /// Whether bodies are compressed.
    pub gzip: bool,
    /// How many connections.
    pub connections: usize,
    /// Longest wait for an answer.
    pub timeout: Duration,
    /// When all connections are dropped, again and again.
    pub reconnect_every: Option<Duration>,
    /// When it all began.
    pub begin: Instant,
    /// For how long POSTs are due.
    pub duration: Duration,
}

/// What senders share.
pub type Shared = Arc<Mutex<Recorder>>;

/// Does something with what is shared.
pub fn with<T>(shared: &Shared, work: impl FnOnce(&mut Recorder) -> T) -> T {
    // A thread that panicked has ended the run anyway.
    work(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Sends all that is handed over, until there is no more or the grace is over.
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
    /// When the connection is dropped next.
    drop_at: Option<Instant>,
}

/// What a client does after a try.
enum Then {
    Done,
    Again(Duration),
    GiveUp,
}

impl Sender {
    async fn work(mut self, posts: Arc<tokio::sync::Mutex<Receiver<Post>>>) {
        // Before anything is due: connecting is no part of the first latency.
        let _ = self.line.ready().await;
        let end = self.sending.begin + self.sending.duration + GRACE;
        loop {
            let free = Instant::now();
            // One waits for the next POST, the others for their turn to wait.
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

    /// Sends it until it is acked, refused for good, or the grace is over.
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
                // What a client may send again: it was not taken, or nobody knows.
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

    /// Drops the connection when it is time to, and says whether it was.
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
