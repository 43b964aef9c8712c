//! A closed loop: several senders that each send the next item as soon as the last one was acked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use crate::client::Connection;
use crate::fleet::{Delivery, float};
use crate::stats::{histogram, microseconds};

/// Sends numbered items.
pub trait Sender: Send + 'static {
    /// Sends the item with this number until it is acked. Returns the number of 503 answers.
    fn send(&mut self, number: usize) -> impl Future<Output = Result<usize>> + Send;
}

/// The results of all senders.
pub struct SendResult {
    pub items: usize,
    /// Times from the first attempt of each item to its ack, in microseconds.
    pub acks: Histogram<u64>,
    /// Number of 503 answers.
    pub refused: usize,
    /// Time from the first attempt to the last ack.
    pub took: Duration,
}

/// Sends `count` items, but starts none after `time_max`.
pub async fn send_all<S: Sender>(senders: Vec<S>, count: usize, time_max: Duration) -> Result<SendResult> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut sent = SendResult { items: 0, acks: histogram(), refused: 0, took: Duration::ZERO };
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for mut sender in senders {
        let next = next.clone();
        tasks.spawn(async move {
            let mut acks = histogram();
            let mut refused = 0;
            while started.elapsed() < time_max {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    break;
                }
                let tried = Instant::now();
                refused += sender.send(number).await?;
                acks.saturating_record(microseconds(tried.elapsed()));
            }
            anyhow::Ok((acks, refused, Instant::now()))
        });
    }
    while let Some(task) = tasks.join_next().await {
        let (acks, refused, end) = task??;
        sent.items += usize::try_from(acks.len())?;
        sent.acks.add(acks)?;
        sent.refused += refused;
        sent.took = sent.took.max(end - started);
    }
    ensure!(sent.items > 0, "nothing was acked");
    Ok(sent)
}

/// Posts bodies over one connection.
struct Poster<F> {
    connection: Connection,
    path: &'static str,
    body: Arc<F>,
}

impl<F: Fn(usize) -> Bytes + Send + Sync + 'static> Sender for Poster<F> {
    async fn send(&mut self, number: usize) -> Result<usize> {
        self.connection.deliver(self.path, (self.body)(number)).await
    }
}

/// Readings to post. Their bodies are made while they are sent, which takes the load tester about 50 ns per line, so
/// that a hundred million readings need no memory.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub delivery: Delivery,
    /// The number of the first POST.
    pub first: usize,
    pub posts: usize,
    /// Lines per POST.
    pub lines: i64,
    /// Number of connections, each with one POST at a time.
    pub connections: usize,
    /// Time after which no POST starts.
    pub time_max: Duration,
}

impl Load {
    /// All readings, 5,000 per POST, over 8 connections.
    pub fn all(delivery: Delivery) -> Self {
        let lines = 5000;
        Self { delivery, first: 0, posts: delivery.posts(lines), lines, connections: 8, time_max: Duration::MAX }
    }

    pub async fn send(self, target: &str, path: &'static str) -> Result<SendResult> {
        let Self { delivery, first, lines, .. } = self;
        post_all(target, path, &self, move |number| delivery.body(first + number, lines)).await
    }

    /// Returns the number of readings in this many of its POSTs.
    pub fn readings(&self, posts: usize) -> f64 {
        let end = i64::try_from(self.first + posts).unwrap_or(i64::MAX) * self.lines;
        let begin = i64::try_from(self.first).unwrap_or(i64::MAX) * self.lines;
        float(end.min(self.delivery.fleet.readings()) - begin)
    }
}

/// Posts the bodies of a load, which `body` makes.
pub async fn post_all<F>(target: &str, path: &'static str, load: &Load, body: F) -> Result<SendResult>
where
    F: Fn(usize) -> Bytes + Send + Sync + 'static,
{
    let body = Arc::new(body);
    let mut posters = Vec::with_capacity(load.connections);
    for _ in 0..load.connections {
        posters.push(Poster { connection: Connection::open(target).await?, path, body: body.clone() });
    }
    send_all(posters, load.posts, load.time_max).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Fleet;

    #[test]
    fn the_last_post_has_the_rest_of_the_readings() {
        let load = Load { lines: 10, posts: 3, ..Load::all(Delivery::in_time_order(Fleet::by_minute(5, 5))) };
        assert_eq!([0, 1, 2, 3].map(|posts| load.readings(posts)), [0.0, 10.0, 20.0, 25.0]);
        assert_eq!(Load { first: 2, ..load }.readings(1), 5.0);
    }
}
