//! A closed-loop load that generates each body when it sends it, so that a hundred million readings need no memory.
//! Generating a line takes about 50 ns of the load tester's time, which is not part of any latency.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use crate::bodies::Fleet;
use crate::client::Connection;
use crate::run::recorder::{histogram, microseconds};
use crate::servers::http::Product;

/// What is sent.
#[derive(Debug, Clone)]
pub struct Load {
    pub fleet: Fleet,
    /// The number of the first reading.
    pub first: usize,
    /// Maximum number of readings.
    pub readings: usize,
    /// Lines per POST.
    pub lines: usize,
    /// Number of connections, each with one POST at a time.
    pub connections: usize,
    /// After this time no new POST starts.
    pub longest: Duration,
}

/// The results of a load.
pub struct Loaded {
    pub readings: usize,
    /// Number of 503 answers.
    pub refused: usize,
    /// Time from the first attempt to the last ack.
    pub took: Duration,
    /// Times from the first attempt of each POST to its ack, in microseconds.
    pub acks: Histogram<u64>,
}

struct Shared {
    load: Load,
    begun: Instant,
    next: AtomicUsize,
    loaded: Mutex<Loaded>,
}

impl Load {
    /// The first reading of this POST, relative to the first of all, and its number of readings; `None` at the end.
    fn part(&self, number: usize, elapsed: Duration) -> Option<(usize, usize)> {
        let before = number.checked_mul(self.lines)?;
        (before < self.readings && elapsed < self.longest).then(|| (before, self.lines.min(self.readings - before)))
    }

    pub async fn send(self, target: &str) -> Result<Loaded> {
        ensure!(self.lines > 0 && self.connections > 0 && self.fleet.sensors > 0, "nothing to send");
        let mut connections = Vec::with_capacity(self.connections);
        for _ in 0..self.connections {
            connections.push(Connection::open(target).await?);
        }
        let loaded = Loaded { readings: 0, refused: 0, took: Duration::ZERO, acks: histogram() };
        let (begun, next) = (Instant::now(), AtomicUsize::new(0));
        let shared = Arc::new(Shared { load: self, begun, next, loaded: Mutex::new(loaded) });
        let mut tasks = JoinSet::new();
        for connection in connections {
            tasks.spawn(send_next(connection, shared.clone()));
        }
        while let Some(task) = tasks.join_next().await {
            task??;
        }
        let shared = Arc::into_inner(shared).ok_or_else(|| anyhow::anyhow!("a connection is still at work"))?;
        let loaded = shared.loaded.into_inner().unwrap_or_else(PoisonError::into_inner);
        ensure!(loaded.readings > 0, "nothing was acked");
        Ok(loaded)
    }
}

async fn send_next(mut connection: Connection, shared: Arc<Shared>) -> Result<()> {
    let path = Product::Hourglass.write_path("ns");
    loop {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        let Some((before, lines)) = shared.load.part(number, shared.begun.elapsed()) else { return Ok(()) };
        let body = shared.load.fleet.body(shared.load.first + before, lines);
        let tried = Instant::now();
        let refused = connection.deliver(&path, body).await?;
        let acked = Instant::now();
        let mut loaded = shared.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.readings += lines;
        loaded.refused += refused;
        loaded.took = acked - shared.begun;
        loaded.acks.saturating_record(microseconds(acked - tried));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_until_the_readings_or_the_time_are_over() {
        let fleet = Fleet { sensors: 1, interval_s: 1 };
        let longest = Duration::from_secs(8);
        let load = Load { fleet, first: 7, readings: 25, lines: 10, connections: 1, longest };
        let parts: Vec<_> = (0..4).map(|number| load.part(number, Duration::ZERO)).collect();
        assert_eq!(parts, [Some((0, 10)), Some((10, 10)), Some((20, 5)), None]);
        assert_eq!(load.part(0, longest), None);
        let endless = Load { readings: usize::MAX, ..load };
        assert_eq!(endless.part(1_000_000, Duration::ZERO), Some((10_000_000, 10)));
    }
}
