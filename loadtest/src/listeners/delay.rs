//! How soon listeners hear: the time from a reading's ack to its arrival at each of them, while other readings are written.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::listener::Listener;
use super::{BackgroundWrites, Listeners};
use crate::client::Connection;
use crate::report::Results;
use crate::servers::system::System;
use crate::stats::{histogram, microseconds, quantile_ms, to_f64};

/// Time between two readings whose arrival is timed.
const PACE: Duration = Duration::from_millis(50);
/// Maximum wait for what is on its way after the last ack.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum time from an ack to an arrival.
const DELAY_MAX_MS: f64 = 1000.0;
/// What an event of such a reading begins with.
const PROBE: &str = "data: {\"sensor\":\"probe\"";
const FIELD: &str = "\"number\":";

/// Measures one listener, a few, and as many as may. Returns the missed targets.
pub async fn measure(options: &Listeners, system: &System<'_>, results: &mut Results) -> Result<Vec<String>> {
    let mut counts = vec![1, options.at_once.div_ceil(4), options.at_once];
    counts.dedup();
    let mut faults = Vec::new();
    for count in counts {
        println!("{count} listeners");
        faults.extend(hear_all(options, system, count, results).await?);
    }
    Ok(faults)
}

/// What a listener tells.
enum Told {
    Heard(usize, Instant),
    Missed,
}

async fn hear_all(
    options: &Listeners,
    system: &System<'_>,
    count: usize,
    results: &mut Results,
) -> Result<Vec<String>> {
    let address = system.address()?;
    let readings = usize::try_from(options.round.0.as_millis() / PACE.as_millis())?.max(1);
    // As large as everything that can be told.
    let (tell, mut told) = mpsc::channel(2 * count * readings + count);
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        tasks.spawn(hear(let_in(address).await?, tell.clone()));
    }
    drop(tell);
    let writing = BackgroundWrites::start(options, system)?;
    let acks = write(address, readings).await?;
    let mut times = histogram();
    let mut arrived = 0;
    let mut before_ack = 0;
    let mut missed = 0;
    let deadline = Instant::now() + PATIENCE;
    while arrived < count * readings {
        let Ok(news) = tokio::time::timeout_at(deadline.into(), told.recv()).await else { break };
        match news {
            Some(Told::Heard(number, at)) => {
                let Some(ack) = acks.get(number) else { bail!("a reading that was never written") };
                arrived += 1;
                before_ack += usize::from(at < *ack);
                times.saturating_record(microseconds(at.saturating_duration_since(*ack)));
            }
            Some(Told::Missed) => missed += 1,
            None => break,
        }
    }
    writing.end().await?;
    let row = format!("{count} listeners");
    for (column, value) in [
        ("timed readings", to_f64(readings)),
        ("arrived", to_f64(arrived)),
        ("before the answer", to_f64(before_ack)),
        ("told of a miss", to_f64(missed)),
        ("from ack to arrival, p50 ms", quantile_ms(&times, 0.5)),
        ("p99 ms", quantile_ms(&times, 0.99)),
        ("max ms", quantile_ms(&times, 1.0)),
    ] {
        results.add("how soon", &row, column, value);
    }
    let mut faults = Vec::new();
    if arrived != count * readings {
        faults.push(format!("{arrived} of {} readings arrived at {row}", count * readings));
    }
    if quantile_ms(&times, 1.0) > DELAY_MAX_MS {
        faults.push(format!("a reading came to one of {row} more than {DELAY_MAX_MS} ms after its ack"));
    }
    Ok(faults)
}

/// Those who listened before may not have left yet.
async fn let_in(address: &str) -> Result<Listener> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(listener) = Listener::open(address).await? {
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
        connection.deliver("/write?db=bench", Bytes::from(format!("probe number={number}i"))).await?;
        acks.push(Instant::now());
    }
    Ok(acks)
}
