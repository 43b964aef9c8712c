//! Builds POSTs from lines, each with the time when it is due. Threads build them in advance and hand them over on
//! time, so that the senders only send.

use std::io::Write;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::sync::mpsc;

use super::faults::Lines;
use super::random::Random;
use super::readings::{Entry, Sensor};
use super::scenario::Scenario;
use super::schedule::Schedule;

/// Approximate maximum size of all POSTs that are built in advance.
const AHEAD_BYTES: usize = 32 << 20;
/// Minimum and maximum number of POSTs that are built in advance.
const AHEAD: (usize, usize) = (16, 16_384);
/// Approximate size of a line.
const LINE_BYTES: usize = 128;

/// A request to send.
#[derive(Debug, Clone)]
pub struct Post {
    /// Counted from 0.
    pub number: usize,
    /// The number of readings.
    pub lines: u64,
    /// When it is due, since the run began.
    pub due: Duration,
    /// The latest timestamp up to this POST, in nanoseconds.
    pub reached: i64,
    /// Line protocol, possibly compressed.
    pub body: Bytes,
}

/// All POSTs of a run, in order.
pub struct Posts {
    lines: Lines,
    schedule: Schedule,
    lines_per_post: usize,
    posts_twice: f64,
    gzip: bool,
    random: Random,
    number: usize,
    lines_before: u64,
    /// The POST to send again, if there is one; its entries are those of the last one built.
    last: Option<Post>,
    entries: Vec<Entry>,
}

impl Posts {
    pub fn new(scenario: &Scenario, schedule: Schedule, seed: u64, start: i64) -> Self {
        Self {
            lines: Lines::new(scenario, seed, start),
            schedule,
            lines_per_post: scenario.lines,
            posts_twice: scenario.faults.posts_twice,
            gzip: scenario.gzip,
            random: Random::new(seed, &[u64::MAX, 3]),
            number: 0,
            lines_before: 0,
            last: None,
            entries: Vec::new(),
        }
    }

    /// The next POST with the entries of its lines; `None` at the end of the run.
    pub fn next(&mut self) -> Result<Option<(Post, &[Entry])>> {
        let Some(due) = self.schedule.due(self.lines_before) else { return Ok(None) };
        let (post, is_copy) = match self.last.take() {
            Some(last) => (Post { number: self.number, due, ..last }, true),
            None => (self.make(due)?, false),
        };
        self.number += 1;
        self.lines_before += post.lines;
        if !is_copy && self.random.is(self.posts_twice) {
            self.last = Some(post.clone());
        }
        Ok(Some((post, &self.entries)))
    }

    pub fn key(&self, sensor: Sensor) -> String {
        self.lines.key(sensor)
    }

    fn make(&mut self, due: Duration) -> Result<Post> {
        let mut body = Vec::with_capacity(self.lines_per_post * LINE_BYTES);
        self.entries.clear();
        for _ in 0..self.lines_per_post {
            let entry = self.lines.next_line(&mut body);
            self.entries.push(entry);
        }
        let lines = u64::try_from(self.lines_per_post)?;
        let body = if self.gzip { compressed(&body)? } else { Bytes::from(body) };
        Ok(Post { number: self.number, lines, due, reached: self.lines.now(), body })
    }
}

fn compressed(body: &[u8]) -> Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    encoder.write_all(body)?;
    Ok(Bytes::from(encoder.finish()?))
}

/// Starts two threads: one builds POSTs in advance, up to the limits, the other hands each over when it is due.
pub fn start(mut posts: Posts, begin: Instant) -> mpsc::Receiver<Post> {
    let ahead = (AHEAD_BYTES / (posts.lines_per_post * LINE_BYTES)).clamp(AHEAD.0, AHEAD.1);
    let (made, ready) = sync_channel(ahead);
    std::thread::spawn(move || make_all(&mut posts, &made));
    start_made(ready, begin)
}

/// Starts a thread that hands over each POST when it is due. A thread's sleep is accurate to about 50 µs, tokio's only
/// to a millisecond.
pub fn start_made(ready: impl IntoIterator<Item = Post> + Send + 'static, begin: Instant) -> mpsc::Receiver<Post> {
    // POSTs wait here if no sender is free; each keeps the time when it was due.
    let (on_time, taken) = mpsc::channel(AHEAD.0);
    std::thread::spawn(move || hand_over(ready, &on_time, begin));
    taken
}

/// Ends when all POSTs are built, or when the receiver is gone.
fn make_all(posts: &mut Posts, made: &SyncSender<Post>) {
    while let Ok(Some((post, _))) = posts.next() {
        if made.send(post).is_err() {
            return;
        }
    }
}

fn hand_over(ready: impl IntoIterator<Item = Post>, on_time: &mpsc::Sender<Post>, begin: Instant) {
    for post in ready {
        let early = (begin + post.due).saturating_duration_since(Instant::now());
        if !early.is_zero() {
            std::thread::sleep(early);
        }
        if on_time.blocking_send(post).is_err() {
            return;
        }
    }
}
