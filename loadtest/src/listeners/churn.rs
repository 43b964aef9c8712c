//! Measures listeners that connect in turn: their cost for writers, and for the memory of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;

use super::listener::Listener;
use super::{BackgroundWrites, Listeners};
use crate::report::Results;
use crate::servers::process;
use crate::servers::system::System;
use crate::stats::{quantile_ms, to_f64};

/// Duration of writes before the measurement.
const WARM_UP: Duration = Duration::from_secs(3);
/// Pause of a client that was refused because an earlier one is still connected.
const BACK_OFF: Duration = Duration::from_millis(5);
/// Maximum duration of a round, as a multiple of the requested one.
const ROUND_FACTOR_MAX: u32 = 10;
/// Maximum ratio of the 99th percentiles of acks, with listeners and without.
const RATIO_MAX: f64 = 1.2;
/// Maximum additional growth of the server's peak memory with listeners.
const GROWTH_MAX_MIB: f64 = 32.0;
const TABLE: &str = "come and go";
const NO_LISTENERS: &str = "nobody listens";

/// The totals of clients.
#[derive(Debug, Default)]
struct Clients {
    /// Clients that listened.
    listened: usize,
    /// Clients that listened and received no reading.
    without_readings: usize,
    /// Answers 503 to clients, because others were still connected.
    refused: usize,
    /// Bytes received.
    bytes: usize,
}

/// Writes to both servers in turn, and lets clients listen to one of them. Returns the missed targets.
pub async fn measure(
    options: &Listeners,
    without_listeners: &System<'_>,
    with_listeners: &System<'_>,
    results: &mut Results,
) -> Result<Vec<String>> {
    let listened = format!("{} listeners at once", options.at_once);
    let mut clients = Clients::default();
    for (system, column) in [(without_listeners, NO_LISTENERS), (with_listeners, &listened)] {
        let writing = BackgroundWrites::start(options, system)?;
        tokio::time::sleep(WARM_UP).await;
        writing.end().await?;
        results.add(TABLE, "peak MiB before", column, process::peak_mib(system.pid()?)?);
    }
    let mut grown = [0.0_f64; 2];
    for round in 0..options.rounds {
        println!("round {}", round + 1);
        // Alternate the order, so that growth during the run affects both sides alike.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for side in order {
            let (system, column) = [(without_listeners, NO_LISTENERS), (with_listeners, listened.as_str())][side];
            process::forget_peak(system.pid()?)?;
            let writing = BackgroundWrites::start(options, system)?;
            if side == 1 {
                let count = options.clients * (round + 1) / options.rounds - options.clients * round / options.rounds;
                listen_in_turns(options, system, count, &mut clients).await?;
            } else {
                tokio::time::sleep(options.round.0).await;
            }
            let load_result = writing.end().await?;
            let peak = process::peak_mib(system.pid()?)?;
            results.add(TABLE, "POSTs acked per round", column, to_f64(usize::try_from(load_result.acks.len())?));
            results.add(TABLE, "ack p50 ms", column, quantile_ms(&load_result.acks, 0.5));
            results.add(TABLE, "ack p99 ms", column, load_result.p99_ms());
            results.add(TABLE, "peak MiB", column, peak);
            let before = results.median(TABLE, "peak MiB before", column).context("no peak")?;
            grown[side] = grown[side].max(peak - before);
        }
    }
    for (row, count) in [
        ("clients that listened", clients.listened),
        ("of these, heard nothing", clients.without_readings),
        ("found no room at first", clients.refused),
        ("bytes that they got", clients.bytes),
    ] {
        results.add(TABLE, row, &listened, to_f64(count));
    }
    let p99 = |column: &str| results.median(TABLE, "ack p99 ms", column).unwrap_or_default();
    Ok(faults(p99(&listened) / p99(NO_LISTENERS), grown[1] - grown[0], options.clients - clients.listened))
}

/// Returns the missed targets.
fn faults(ratio: f64, grown_mib: f64, missing: usize) -> Vec<String> {
    let mut faults = Vec::new();
    if missing > 0 {
        faults.push(format!("{missing} clients did not listen"));
    }
    if ratio > RATIO_MAX {
        faults.push(format!("the p99 of acks is {ratio:.2} times that without listeners, more than {RATIO_MAX}"));
    }
    if grown_mib > GROWTH_MAX_MIB {
        faults.push(format!("listeners took {grown_mib} MiB of memory, more than {GROWTH_MAX_MIB}"));
    }
    faults
}

/// The shared state of the clients of a round.
struct ListeningRound {
    address: String,
    clients: usize,
    next: AtomicUsize,
    /// Time for which each client listens.
    listening_time: Duration,
    deadline: Instant,
}

/// Lets clients listen, `at_once` of them at a time, all for the same time, in about the time of a round.
async fn listen_in_turns(options: &Listeners, system: &System<'_>, clients: usize, sum: &mut Clients) -> Result<()> {
    let at_once = options.at_once.min(clients);
    let round = options.round.0;
    let round_state = Arc::new(ListeningRound {
        address: system.address()?.to_owned(),
        clients,
        next: AtomicUsize::new(0),
        listening_time: round.mul_f64(to_f64(at_once) / to_f64(clients.max(1))),
        deadline: Instant::now() + round * ROUND_FACTOR_MAX,
    });
    let mut tasks = JoinSet::new();
    for _ in 0..at_once {
        tasks.spawn(listen_in_turn(round_state.clone()));
    }
    while let Some(task) = tasks.join_next().await {
        let totals = task??;
        sum.listened += totals.listened;
        sum.without_readings += totals.without_readings;
        sum.refused += totals.refused;
        sum.bytes += totals.bytes;
    }
    Ok(())
}

async fn listen_in_turn(round_state: Arc<ListeningRound>) -> Result<Clients> {
    let mut totals = Clients::default();
    while round_state.next.fetch_add(1, Ordering::Relaxed) < round_state.clients {
        let mut listener = loop {
            ensure!(Instant::now() < round_state.deadline, "clients were refused for too long");
            match Listener::open(&round_state.address).await? {
                Some(listener) => break listener,
                None => {
                    totals.refused += 1;
                    tokio::time::sleep(BACK_OFF).await;
                }
            }
        };
        let mut readings = 0_usize;
        let receive = async {
            loop {
                let line = listener.next_line().await?;
                totals.bytes += line.len() + 1;
                readings += usize::from(line.starts_with("data: "));
            }
        };
        match tokio::time::timeout(round_state.listening_time, receive).await {
            Ok(ended) => return ended,
            Err(_) => totals.listened += 1,
        }
        totals.without_readings += usize::from(readings == 0);
    }
    Ok(totals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_targets_are_reported() {
        assert_eq!(faults(1.1, 30.0, 0), Vec::<String>::new());
        for (faults, expected) in
            [(faults(1.3, 0.0, 0), "1.30 times"), (faults(1.0, 33.0, 0), "33 MiB"), (faults(1.0, 0.0, 2), "2 clients")]
        {
            assert!(faults.len() == 1 && faults[0].contains(expected), "{faults:?}");
        }
    }
}
