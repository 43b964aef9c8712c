//! Readings at a steady rate, whatever the answers take.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{LINES, now_s, site};
use crate::client::Connection;

/// Connections that take turns.
const CONNECTIONS: usize = 8;

/// All sensors in turn, at a rate.
#[derive(Debug, Clone)]
pub struct Paced {
    /// Host and port.
    pub address: String,
    pub sensors: usize,
    /// Readings per second.
    pub rate: usize,
}

/// Sends until `meanwhile` is over. Returns the time from when each POST was due to its ack, and what that returned.
pub async fn sent<T>(paced: &Paced, meanwhile: impl Future<Output = T>) -> Result<(Vec<Duration>, T)> {
    let (stop, is_over) = watch::channel(false);
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for place in 0..CONNECTIONS {
        tasks.spawn(send(paced.clone(), place, begun, is_over.clone()));
    }
    let done = meanwhile.await;
    stop.send_replace(true);
    let mut latencies = Vec::new();
    while let Some(task) = tasks.join_next().await {
        latencies.extend(task??);
    }
    Ok((latencies, done))
}

async fn send(paced: Paced, place: usize, begun: Instant, is_over: watch::Receiver<bool>) -> Result<Vec<Duration>> {
    let mut connection = Connection::open(&paced.address).await?;
    let between = Duration::from_secs_f64(crate::stats::to_f64(LINES) / crate::stats::to_f64(paced.rate));
    let mut latencies = Vec::new();
    let mut number = place;
    loop {
        let due = begun + between * u32::try_from(number)?;
        tokio::time::sleep_until(due.into()).await;
        if *is_over.borrow() {
            return Ok(latencies);
        }
        let from = number * LINES % paced.sensors;
        let fraction = format!("{:09}", number % 1_000_000_000);
        let body = body(from..paced.sensors.min(from + LINES), now_s()?, &fraction);
        connection.deliver("/write?db=bench&precision=ns", body).await?;
        latencies.push(due.elapsed());
        number += CONNECTIONS;
    }
}

/// A reading of each of these sensors at a time: in seconds, or with the digits of a fraction behind them.
pub fn body(sensors: Range<usize>, at: i64, fraction: &str) -> Bytes {
    let mut body = Vec::with_capacity(sensors.len() * 80);
    for sensor in sensors {
        let (tenths, site) = (sensor * 7 % 300, site(sensor));
        let line =
            format!("climate,sensor=s{sensor:06},tagged={site} temp={}.{} {at}{fraction}\n", tenths / 10, tenths % 10);
        body.extend_from_slice(line.as_bytes());
    }
    Bytes::from(body)
}
