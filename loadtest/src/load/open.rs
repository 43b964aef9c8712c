//! An open loop: POSTs are due at a rate even if the server does not keep up. Latencies count from when a POST was due,
//! so that a slow answer does not hide that later POSTs had to wait.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use hdrhistogram::Histogram;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::{JoinHandle, JoinSet};

use crate::client::{Answer, Connection};
use crate::stats::{histogram, microseconds, quantile_ms, to_f64};

/// Time before the first POST, in which connections are opened and bodies are made.
const HEAD_START: Duration = Duration::from_millis(500);
/// Maximum wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Wait after a broken connection, and after a 503 without `Retry-After`.
const BACK_OFF: Duration = Duration::from_millis(100);
/// Maximum wait by a `Retry-After`; longer values are shortened.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);
/// Grace period after the last due POST, in which overdue ones are still sent and repeated.
const GRACE: Duration = Duration::from_secs(15);
/// Maximum numbers of POSTs that are built in advance, and that wait for a free connection.
const PREPARED_MAX: usize = 64;
const WAITING_MAX: usize = 16_384;
/// Maximum delay by the load tester itself, at the 99th percentile.
const OWN_LAG_MAX_MS: f64 = 10.0;

/// The kind of failure when the scenario dropped the connection, which is not an error of the server.
const DROPPED: &str = "dropped by the scenario";

/// A load on a schedule.
#[derive(Debug, Clone)]
pub struct OpenLoop {
    /// Host and port.
    pub target: String,
    /// Path and query.
    pub path: String,
    pub connections: usize,
    /// POSTs per second.
    pub rate: f64,
    /// Time for which POSTs are due.
    pub duration: Duration,
    /// The interval at which all connections are dropped.
    pub reconnect_every: Option<Duration>,
}

/// The outcome of a POST.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Never sent: earlier ones were not acked.
    #[default]
    Unsent,
    /// Sent, but not acked: it may be stored or not.
    Unknown,
    Acked,
}

pub struct LoadResult {
    /// The outcome of each POST, by its number.
    pub outcomes: Vec<Outcome>,
    /// Times from the due time of a POST to its ack, in microseconds.
    pub acks: Histogram<u64>,
    /// Times from the last attempt to the ack, which a closed loop would report.
    pub service: Histogram<u64>,
    /// Delays by the load tester itself, from the time when a POST was due and a connection was free to the first
    /// attempt.
    pub own_lag: Histogram<u64>,
    /// The acks of each second.
    pub seconds: Vec<Histogram<u64>>,
    /// Number of acks within the duration.
    pub acked_in_time: usize,
    /// Failed attempts, by status or kind.
    pub errors: BTreeMap<String, u64>,
    /// All attempts.
    pub tries: u64,
    pub last_ack: Instant,
}

struct Post {
    number: usize,
    due: Instant,
    body: Bytes,
}

impl LoadResult {
    fn new(begin: Instant) -> Self {
        Self {
            outcomes: Vec::new(),
            acks: histogram(),
            service: histogram(),
            own_lag: histogram(),
            seconds: Vec::new(),
            acked_in_time: 0,
            errors: BTreeMap::new(),
            tries: 0,
            last_ack: begin,
        }
    }

    /// Returns the number of POSTs that were not acked.
    pub fn unacked_posts(&self) -> usize {
        self.outcomes.iter().filter(|outcome| **outcome != Outcome::Acked).count()
    }

    /// Returns the 99th percentile in milliseconds; the maximum if a POST was never acked, which exceeds any bound.
    pub fn p99_ms(&self) -> f64 {
        quantile_ms(&self.acks, if self.unacked_posts() > 0 { 1.0 } else { 0.99 })
    }

    /// Returns the share of failed attempts, without those whose connection the scenario dropped.
    #[expect(clippy::cast_precision_loss, reason = "a count of attempts")]
    pub fn error_share(&self) -> f64 {
        let failed: u64 = self.errors.iter().filter(|(kind, _)| *kind != DROPPED).map(|(_, count)| count).sum();
        failed as f64 / self.tries.max(1) as f64
    }

    /// Returns the reason why the figures may not be valid for the server, if there is one.
    pub fn doubt(&self) -> Option<String> {
        let lag = quantile_ms(&self.own_lag, 0.99);
        (lag > OWN_LAG_MAX_MS).then(|| {
            format!(
                "DOUBT: the load tester itself sent 1 of 100 POSTs {lag:.1} ms late or more although a connection was free; \
                 these latencies are not the server's alone"
            )
        })
    }

    fn set_outcome(&mut self, number: usize, outcome: Outcome) {
        if self.outcomes.len() <= number {
            self.outcomes.resize(number + 1, Outcome::Unsent);
        }
        self.outcomes[number] = outcome;
    }
}

impl OpenLoop {
    /// Starts to send the bodies when they are due, until there are no more or the duration is over. Has a thread of its
    /// own, so that other work does not delay it.
    pub fn start(self, bodies: impl Iterator<Item = Bytes> + Send + 'static) -> JoinHandle<Result<LoadResult>> {
        tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(self.send(bodies))
        })
    }

    async fn send(self, bodies: impl Iterator<Item = Bytes> + Send + 'static) -> Result<LoadResult> {
        let begin = Instant::now() + HEAD_START;
        let end = begin.checked_add(self.duration + GRACE);
        let load_result = Arc::new(std::sync::Mutex::new(LoadResult::new(begin)));
        let posts = Arc::new(Mutex::new(self.spawn_scheduler(bodies, begin)));
        let mut tasks = JoinSet::new();
        for _ in 0..self.connections {
            let sender = Sender {
                open_loop: self.clone(),
                begin,
                end: end.unwrap_or(begin + Duration::from_secs(86_400)),
                load_result: load_result.clone(),
                connection: None,
                drop_at: self.reconnect_every.map(|every| begin + every),
            };
            tasks.spawn(sender.work(posts.clone()));
        }
        while let Some(task) = tasks.join_next().await {
            task?;
        }
        // Count POSTs that were due and never sent.
        let mut posts = posts.lock().await;
        posts.close();
        let mut load_result =
            update(&load_result, |load_result| std::mem::replace(load_result, LoadResult::new(begin)));
        while let Ok(post) = posts.try_recv() {
            load_result.set_outcome(post.number, Outcome::Unsent);
        }
        Ok(load_result)
    }

    /// Starts two threads: one makes bodies in advance, the other hands each over when it is due. A thread's sleep is
    /// accurate to about 50 µs, tokio's only to a millisecond.
    fn spawn_scheduler(&self, bodies: impl Iterator<Item = Bytes> + Send + 'static, begin: Instant) -> Receiver<Post> {
        let (made, ready) = sync_channel(PREPARED_MAX);
        std::thread::spawn(move || bodies.map(|body| made.send(body)).find(Result::is_err));
        let (on_time, posts) = channel(WAITING_MAX);
        let rate = self.rate;
        let duration = self.duration;
        std::thread::spawn(move || {
            for (number, body) in ready.into_iter().enumerate() {
                let after = Duration::from_secs_f64(to_f64(number) / rate);
                if after >= duration {
                    return;
                }
                let due = begin + after;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                if on_time.blocking_send(Post { number, due, body }).is_err() {
                    return;
                }
            }
        });
        posts
    }
}

fn update<T>(load_result: &std::sync::Mutex<LoadResult>, work: impl FnOnce(&mut LoadResult) -> T) -> T {
    // A panic ends the run anyway, so poisoning does not matter.
    work(&mut load_result.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

struct Sender {
    open_loop: OpenLoop,
    begin: Instant,
    end: Instant,
    load_result: Arc<std::sync::Mutex<LoadResult>>,
    connection: Option<Connection>,
    drop_at: Option<Instant>,
}

/// The next step after an attempt.
enum NextStep {
    Done,
    Again(Duration),
    GiveUp,
}

impl Sender {
    /// Sends POSTs one at a time, until there are no more or the grace period is over.
    async fn work(mut self, posts: Arc<Mutex<Receiver<Post>>>) {
        // Connects before anything is due, so that connecting is not part of the first latency.
        let _ = self.connect().await;
        loop {
            let free = Instant::now();
            // One sender waits on the channel, the others for the lock.
            let taken = tokio::time::timeout_at(self.end.into(), async { posts.lock().await.recv().await }).await;
            let Ok(Some(post)) = taken else { return };
            self.drop_if_due(Instant::now());
            let lag = Instant::now().saturating_duration_since(free.max(post.due));
            update(&self.load_result, |load_result| {
                load_result.set_outcome(post.number, Outcome::Unknown);
                load_result.own_lag.saturating_record(microseconds(lag));
            });
            while let NextStep::Again(wait) = self.attempt(&post).await {
                if Instant::now() + wait >= self.end {
                    break;
                }
                tokio::time::sleep(wait).await;
                self.drop_if_due(Instant::now());
            }
        }
    }

    /// Opens a connection, unless one is open that the server has not closed.
    async fn connect(&mut self) -> Result<()> {
        if self.connection.as_ref().is_none_or(Connection::is_closed) {
            self.connection = Some(Connection::open(&self.open_loop.target).await?);
        }
        Ok(())
    }

    async fn attempt(&mut self, post: &Post) -> NextStep {
        update(&self.load_result, |load_result| load_result.tries += 1);
        if let Err(error) = self.connect().await {
            return self.record_failure(&error_kind(&error), NextStep::Again(BACK_OFF));
        }
        let tried = Instant::now();
        let patience = self.end.min(tried + PATIENCE);
        let until = self.drop_at.unwrap_or(patience).min(patience);
        let Some(connection) = &mut self.connection else { return NextStep::GiveUp };
        let answer = connection.post(&self.open_loop.path, post.body.clone());
        let answer = match tokio::time::timeout_at(until.into(), answer).await {
            Ok(Ok(answer)) => answer,
            broken => {
                self.connection = None;
                if self.drop_if_due(Instant::now()) {
                    return self.record_failure(DROPPED, NextStep::Again(Duration::ZERO));
                }
                let kind = broken.map_or_else(|_| "timed out".to_owned(), |broken| failure_kind(&broken));
                return self.record_failure(&kind, NextStep::Again(BACK_OFF));
            }
        };
        if matches!(answer.status, 200 | 204) {
            self.record_ack(post, tried);
            return NextStep::Done;
        }
        let seconds = answer.header("retry-after").and_then(|seconds| seconds.parse().ok());
        let wait = seconds.map_or(BACK_OFF, Duration::from_secs).min(RETRY_AFTER_MAX);
        // A client may send again if the readings were not accepted, or if the outcome is unknown.
        let next = if matches!(answer.status, 429 | 500..) { NextStep::Again(wait) } else { NextStep::GiveUp };
        self.record_failure(&answer.status.to_string(), next)
    }

    fn record_ack(&self, post: &Post, tried: Instant) {
        let now = Instant::now();
        let latency = microseconds(now - post.due);
        let since_begin = now.saturating_duration_since(self.begin);
        let second = usize::try_from(since_begin.as_secs()).unwrap_or_default();
        update(&self.load_result, |load_result| {
            load_result.set_outcome(post.number, Outcome::Acked);
            load_result.acks.saturating_record(latency);
            load_result.service.saturating_record(microseconds(now - tried));
            load_result.acked_in_time += usize::from(since_begin <= self.open_loop.duration);
            load_result.last_ack = load_result.last_ack.max(now);
            if load_result.seconds.len() <= second {
                load_result.seconds.resize_with(second + 1, histogram);
            }
            load_result.seconds[second].saturating_record(latency);
        });
    }

    fn record_failure(&self, kind: &str, next: NextStep) -> NextStep {
        update(&self.load_result, |load_result| *load_result.errors.entry(kind.to_owned()).or_default() += 1);
        next
    }

    /// Drops the connection if that is due. Returns true if it was.
    fn drop_if_due(&mut self, now: Instant) -> bool {
        let (Some(drop_at), Some(every)) = (self.drop_at, self.open_loop.reconnect_every) else { return false };
        if now < drop_at {
            return false;
        }
        self.connection = None;
        let mut next = drop_at;
        while next <= now {
            next += every;
        }
        self.drop_at = Some(next);
        true
    }
}

fn failure_kind(broken: &Result<Answer>) -> String {
    broken.as_ref().map_or_else(error_kind, |answer| answer.status.to_string())
}

/// The kind of connection error.
fn error_kind(error: &anyhow::Error) -> String {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    match io.map(std::io::Error::kind) {
        Some(ErrorKind::ConnectionRefused) => "connection refused".to_owned(),
        Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => "connection reset".to_owned(),
        Some(kind) => kind.to_string(),
        None => format!("{error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers each request as `answer` says for the number of earlier requests and the time since the start: with a
    /// head, after a wait.
    async fn serve(answer: impl Fn(usize, Duration) -> (&'static str, Duration) + Send + Sync + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new((answer, std::sync::Mutex::new(0), Instant::now()));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let shared = shared.clone();
                tokio::spawn(async move {
                    let mut read = Vec::new();
                    loop {
                        let Some(end) = request_end(&read) else {
                            let mut part = [0; 4096];
                            match stream.read(&mut part).await {
                                Ok(0) | Err(_) => return,
                                Ok(length) => read.extend_from_slice(&part[..length]),
                            }
                            continue;
                        };
                        read.drain(..end);
                        let number = {
                            let mut count = shared.1.lock().unwrap();
                            *count += 1;
                            *count - 1
                        };
                        let (head, wait) = shared.0(number, shared.2.elapsed());
                        tokio::time::sleep(wait).await;
                        if stream.write_all(format!("HTTP/1.1 {head}\r\n\r\n").as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        address
    }

    /// The end of the first request, if it is complete.
    fn request_end(read: &[u8]) -> Option<usize> {
        let head = read.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let text = String::from_utf8_lossy(&read[..head]).to_lowercase();
        let length = text.split("content-length:").nth(1)?.split("\r\n").next()?.trim().parse::<usize>().ok()?;
        (read.len() >= head + length).then_some(head + length)
    }

    /// Sends 100 POSTs per second for two seconds over four connections.
    async fn run_load(target: String, reconnect_every: Option<Duration>) -> LoadResult {
        let path = "/write".to_owned();
        let duration = Duration::from_secs(2);
        let open_loop = OpenLoop { target, path, connections: 4, rate: 100.0, duration, reconnect_every };
        open_loop.start(std::iter::repeat(Bytes::from_static(b"a line"))).await.unwrap().unwrap()
    }

    /// A server that does not answer for 600 ms: the four POSTs under way wait, and so do the sixty that become due
    /// meanwhile. A closed loop would see only four slow ones of two hundred.
    #[tokio::test]
    async fn a_stall_is_seen_by_all_that_were_due_meanwhile() {
        let from = Duration::from_millis(1100);
        let to = Duration::from_millis(1700);
        let stalls =
            move |_, at: Duration| ("204 No Content", if at > from { to.saturating_sub(at) } else { Duration::ZERO });
        let load_result = run_load(serve(stalls).await, None).await;
        assert_eq!((load_result.outcomes.len(), load_result.unacked_posts()), (200, 0));
        let slow = |histogram: &Histogram<u64>| histogram.count_between(100_000, u64::MAX);
        let acks = slow(&load_result.acks);
        let service = slow(&load_result.service);
        assert!(acks >= 40 && service <= 8, "{acks} waited, {service} were answered slowly");
    }

    #[tokio::test]
    async fn a_503_is_sent_again_and_its_latency_counts_from_the_first_time() {
        let refuses = |number, _| match number {
            5 => ("503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0", Duration::ZERO),
            9 => ("400 Bad Request\r\ncontent-length: 0", Duration::ZERO),
            _ => ("204 No Content", Duration::ZERO),
        };
        let load_result = run_load(serve(refuses).await, None).await;
        assert_eq!((load_result.errors.get("503"), load_result.errors.get("400")), (Some(&1), Some(&1)));
        assert_eq!((load_result.tries, load_result.unacked_posts(), load_result.acks.len()), (201, 1, 199));
        assert!(load_result.acks.max() >= 1_000_000 && load_result.service.max() < 900_000);
        assert!(load_result.p99_ms() >= 1000.0, "a POST that was never acked exceeds the 99th percentile");
    }

    /// All connections break while they wait for an answer: every POST is sent again.
    #[tokio::test]
    async fn a_dropped_connection_is_opened_again_and_its_post_sent_again() {
        let waits = |_, _| ("204 No Content", Duration::from_millis(30));
        let load_result = run_load(serve(waits).await, Some(Duration::from_millis(500))).await;
        let dropped = load_result.errors.get(DROPPED).copied().unwrap_or(0);
        assert_eq!(load_result.unacked_posts(), 0);
        assert!(dropped >= 4 && load_result.tries == 200 + dropped, "{:?}", load_result.errors);
        assert!(load_result.error_share() < 0.001);
    }
}
