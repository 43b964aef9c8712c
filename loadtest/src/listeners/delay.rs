//! How soon listeners hear: the time from a reading's ack to its arrival at each of them, while other readings are written.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Listeners;
use super::listener::Listener;
use super::writing::{DATABASE, Writing};
use crate::client::Connection;
use crate::run::target::Target;
use crate::stats::percentile_ms;

/// Time between two readings whose arrival is timed.
const PACE: Duration = Duration::from_millis(50);
/// Maximum wait for what is on its way after the last ack.
const PATIENCE: Duration = Duration::from_secs(10);
/// What an event of such a reading begins with.
const PROBE: &str = "data: {\"sensor\":\"probe\"";
const FIELD: &str = "\"number\":";

/// The figures of a number of listeners.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Delay {
    pub listeners: usize,
    /// Timed readings.
    pub readings: usize,
    /// Their arrivals, at all listeners together.
    pub arrived: usize,
    /// Those that came before the answer to the POST did.
    pub before_ack: usize,
    /// Times that listeners were told that they had missed something.
    pub missed: usize,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

/// Measures one listener, a few, and as many as may.
pub async fn measure(options: &Listeners, target: &Target) -> Result<Vec<Delay>> {
    let mut counts = vec![1, options.at_once.div_ceil(4), options.at_once];
    counts.dedup();
    let mut delays = Vec::new();
    for count in counts {
        let delay = of(options, target, count).await?;
        println!("{count} listeners: a reading arrives {:.1} ms after its ack (p99)", delay.p99_ms);
        delays.push(delay);
    }
    Ok(delays)
}

/// What a listener tells.
enum Told {
    Heard(usize, Instant),
    Missed,
}

async fn of(options: &Listeners, target: &Target, count: usize) -> Result<Delay> {
    let readings = usize::try_from(options.round.0.as_millis() / PACE.as_millis())?.max(1);
    // As large as everything that can be told.
    let (tell, mut told) = mpsc::channel(2 * count * readings + count);
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        tasks.spawn(hear(let_in(&target.address).await?, tell.clone()));
    }
    drop(tell);
    let writing = Writing::start(&target.address, (options.rate, options.lines));
    let acks = write(&target.address, readings).await?;
    let (mut delay, mut times) = (Delay { listeners: count, readings, ..Delay::default() }, Vec::new());
    let deadline = Instant::now() + PATIENCE;
    while delay.arrived < count * readings {
        let Ok(news) = tokio::time::timeout_at(deadline.into(), told.recv()).await else { break };
        match news {
            Some(Told::Heard(number, at)) => {
                let Some(ack) = acks.get(number) else { bail!("a reading that was never written") };
                delay.arrived += 1;
                delay.before_ack += usize::from(at < *ack);
                times.push(at.saturating_duration_since(*ack));
            }
            Some(Told::Missed) => delay.missed += 1,
            None => break,
        }
    }
    writing.end().await?;
    [delay.p50_ms, delay.p99_ms, delay.max_ms] = [50, 99, 100].map(|percent| percentile_ms(&times, percent));
    Ok(delay)
}

/// Those who listened before may not have left yet.
async fn let_in(address: &str) -> Result<Listener> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(listener) = Listener::open(address, DATABASE).await? {
            return Ok(listener);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bail!("no room for {PATIENCE:?}")
}

/// Tells of every timed reading when it came, until nobody asks any more.
async fn hear(mut listener: Listener, tell: mpsc::Sender<Told>) -> Result<()> {
    loop {
        let line = listener.next_line().await?;
        let news = if let Some(event) = line.strip_prefix(PROBE) {
            let digits = event.split(FIELD).nth(1).context("an event without its number")?;
            let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
            Told::Heard(digits.parse()?, Instant::now())
        } else if line == "event: missed" {
            Told::Missed
        } else {
            continue;
        };
        if tell.send(news).await.is_err() {
            return Ok(());
        }
    }
}

/// When each reading was acked.
async fn write(address: &str, readings: usize) -> Result<Vec<Instant>> {
    let (mut connection, mut acks) = (Connection::open(address).await?, Vec::with_capacity(readings));
    let mut clock = tokio::time::interval(PACE);
    for number in 0..readings {
        clock.tick().await;
        connection.deliver(&format!("/write?db={DATABASE}"), Bytes::from(format!("probe number={number}i"))).await?;
        acks.push(Instant::now());
    }
    Ok(acks)
}
