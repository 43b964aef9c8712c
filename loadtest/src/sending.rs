//! A closed loop: several senders that each send the next body as soon as the last one was acked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use tokio::task::JoinSet;

use crate::client::Connection;

/// Sends numbered items.
pub trait Sender: Send + 'static {
    /// Sends the item with this number until it is acked. Returns the number of 503 answers.
    fn send(&mut self, number: usize) -> impl Future<Output = Result<usize>> + Send;

    /// Waits before the next item.
    fn rest(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// The results of all senders.
pub struct Sent {
    /// Times from the first attempt of each item to its ack.
    pub latencies: Vec<Duration>,
    /// Number of 503 answers.
    pub refused: usize,
    /// Time from the first attempt to the last ack.
    pub took: Duration,
}

/// Sends `count` items.
pub async fn send_all<S: Sender>(senders: Vec<S>, count: usize) -> Result<Sent> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut sent = Sent { latencies: Vec::with_capacity(count), refused: 0, took: Duration::ZERO };
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for sender in senders {
        tasks.spawn(send_next(sender, next.clone(), count));
    }
    while let Some(task) = tasks.join_next().await {
        let (latencies, refused) = task??;
        sent.latencies.extend(latencies);
        sent.refused += refused;
    }
    sent.took = started.elapsed();
    Ok(sent)
}

async fn send_next<S: Sender>(mut sender: S, next: Arc<AtomicUsize>, count: usize) -> Result<(Vec<Duration>, usize)> {
    let (mut latencies, mut refused) = (Vec::new(), 0);
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= count {
            return Ok((latencies, refused));
        }
        let started = Instant::now();
        refused += sender.send(number).await?;
        latencies.push(started.elapsed());
        sender.rest().await;
    }
}

/// Posts bodies over one connection.
struct Poster {
    connection: Connection,
    path: String,
    bodies: Arc<Vec<Bytes>>,
}

impl Sender for Poster {
    async fn send(&mut self, number: usize) -> Result<usize> {
        self.connection.deliver(&self.path, self.bodies[number].clone()).await
    }
}

/// Posts all bodies over this many connections.
pub async fn post_all(target: &str, path: &str, bodies: &Arc<Vec<Bytes>>, connections: usize) -> Result<Sent> {
    let mut posters = Vec::with_capacity(connections);
    for _ in 0..connections {
        let connection = Connection::open(target).await?;
        posters.push(Poster { connection, path: path.to_owned(), bodies: bodies.clone() });
    }
    send_all(posters, bodies.len()).await
}
