//! Measures the time from the ack of a reading to its arrival at each listener, while other readings are written.

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
/// Maximum wait for events after the last ack.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum time from an ack to an arrival.
const DELAY_MAX_MS: f64 = 1000.0;
/// Prefix of the event of a timed reading.
const PROBE: &str = "data: {\"sensor\":\"probe\"";
const FIELD: &str = "\"number\":";

/// Measures one listener, a quarter of the maximum, and the maximum. Returns the missed targets.
pub async fn measure(options: &Listeners, system: &System<'_>, results: &mut Results) -> Result<Vec<String>> {
    let mut counts = vec![1, options.at_once.div_ceil(4), options.at_once];
    counts.dedup();
    let mut faults = Vec::new();
    for count in counts {
        println!("{count} listeners");
        faults.extend(measure_listeners(options, system, count, results).await?);
    }
    Ok(faults)
}

/// A report of a listener.
enum Report {
    /// The number of a timed reading, and the time of its arrival.
    Arrived(usize, Instant),
    /// The server skipped events.
    Missed,
}

async fn measure_listeners(
    options: &Listeners,
    system: &System<'_>,
    count: usize,
    results: &mut Results,
) -> Result<Vec<String>> {
    let address = system.address()?;
    let readings = usize::try_from(options.round.0.as_millis() / PACE.as_millis())?.max(1);
    // The channel is large enough for all reports.
    let (sender, mut reports) = mpsc::channel(2 * count * readings + count);
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        tasks.spawn(report(open(address).await?, sender.clone()));
    }
    drop(sender);
    let writing = BackgroundWrites::start(options, system)?;
    let acks = write(address, readings).await?;
    let mut times = histogram();
    let mut arrived = 0;
    let mut before_ack = 0;
    let mut missed = 0;
    let deadline = Instant::now() + PATIENCE;
    while arrived < count * readings {
        let Ok(report) = tokio::time::timeout_at(deadline.into(), reports.recv()).await else { break };
        match report {
            Some(Report::Arrived(number, time)) => {
                let Some(ack) = acks.get(number) else { bail!("a reading that was never written") };
                arrived += 1;
                before_ack += usize::from(time < *ack);
                times.saturating_record(microseconds(time.saturating_duration_since(*ack)));
            }
            Some(Report::Missed) => missed += 1,
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

/// Opens a listener. Retries while earlier listeners are still connected.
async fn open(address: &str) -> Result<Listener> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(listener) = Listener::open(address).await? {
            return Ok(listener);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bail!("no room for {PATIENCE:?}")
}

/// Reports the arrival of every timed reading, until the receiver is dropped.
async fn report(mut listener: Listener, sender: mpsc::Sender<Report>) -> Result<()> {
    loop {
        let line = listener.next_line().await?;
        let report = if let Some(event) = line.strip_prefix(PROBE) {
            let digits = event.split(FIELD).nth(1).context("an event without its number")?;
            let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
            Report::Arrived(digits.parse()?, Instant::now())
        } else if line == "event: missed" {
            Report::Missed
        } else {
            continue;
        };
        if sender.send(report).await.is_err() {
            return Ok(());
        }
    }
}

/// Writes the timed readings, and returns the time of each ack.
async fn write(address: &str, readings: usize) -> Result<Vec<Instant>> {
    let mut connection = Connection::open(address).await?;
    let mut acks = Vec::with_capacity(readings);
    let mut clock = tokio::time::interval(PACE);
    for number in 0..readings {
        clock.tick().await;
        connection.deliver("/write?db=bench", Bytes::from(format!("probe number={number}i"))).await?;
        acks.push(Instant::now());
    }
    Ok(acks)
}
