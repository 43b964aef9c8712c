//! Writes at a steady rate, from a thread of their own: listeners that read share no core's turn with the clock of acks.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use tokio::task::{JoinHandle, JoinSet};

use crate::client::Connection;

/// The database.
pub const DATABASE: &str = "listened";
/// Connections, each with one POST at a time.
const CONNECTIONS: u32 = 8;
const SENSORS: u32 = 1000;

/// Writes that go on.
pub struct Writing {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Written>>,
}

/// What came of them.
#[derive(Debug, Default)]
pub struct Written {
    /// Times from when a POST was due, or from its first attempt if it was the load tester that was late, to its ack.
    pub acks: Vec<Duration>,
    /// Number of 503 answers.
    pub refused: usize,
}

impl Writing {
    /// Begins to send `rate` readings per second, `lines` in each POST. Readings have no timestamps, as of a device without a clock.
    pub fn start(address: &str, (rate, lines): (u32, u32)) -> Self {
        let (stop, address) = (Arc::new(AtomicBool::new(false)), address.to_owned());
        let told = stop.clone();
        let thread = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(write(address, Duration::from_secs(1) * lines / rate, lines, told))
        });
        Self { stop, thread }
    }

    /// Ends them.
    pub async fn end(mut self) -> Result<Written> {
        self.stop.store(true, Ordering::Relaxed);
        (&mut self.thread).await?
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

async fn write(address: String, every: Duration, lines: u32, stop: Arc<AtomicBool>) -> Result<Written> {
    let (begun, mut tasks) = (Instant::now(), JoinSet::new());
    for first in 0..CONNECTIONS {
        let connection = Connection::open(&address).await?;
        tasks.spawn(send(connection, (begun, every), (first, lines), stop.clone()));
    }
    let mut written = Written::default();
    while let Some(task) = tasks.join_next().await {
        let Written { acks, refused } = task??;
        written.acks.extend(acks);
        written.refused += refused;
    }
    Ok(written)
}

async fn send(
    mut connection: Connection,
    (begun, every): (Instant, Duration),
    (first, lines): (u32, u32),
    stop: Arc<AtomicBool>,
) -> Result<Written> {
    let (mut written, mut number) = (Written::default(), first);
    while !stop.load(Ordering::Relaxed) {
        let due = begun + every * number;
        let is_late = Instant::now() > due;
        tokio::time::sleep_until(due.into()).await;
        // A timer that rings late is no latency of the server; a connection that was busy is.
        let since = if is_late { due } else { Instant::now() };
        let path = format!("/write?db={DATABASE}");
        written.refused += connection.deliver(&path, body(number.wrapping_mul(lines), lines)).await?;
        written.acks.push(since.elapsed());
        number += CONNECTIONS;
    }
    Ok(written)
}

fn body(first: u32, lines: u32) -> Bytes {
    let mut text = String::with_capacity(64 * lines as usize);
    for number in first..first.saturating_add(lines) {
        let (sensor, temp) = (number % SENSORS, 2000 + number % 900);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "climate,sensor=s{sensor:04},site=a temp={}.{:02},humidity={}",
            temp / 100,
            temp % 100,
            30 + number % 60
        );
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_its_lines() {
        let text = String::from_utf8(body(1999, 2).to_vec()).unwrap();
        let first = "climate,sensor=s0999,site=a temp=21.99,humidity=49";
        assert_eq!(text.lines().collect::<Vec<_>>(), [first, "climate,sensor=s0000,site=a temp=22.00,humidity=50"]);
    }
}
