//! Listeners that come and go in turn: what they cost those who write, and the server's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::Listeners;
use super::listener::Listener;
use super::writing::{DATABASE, Writing, Written};
use crate::process;
use crate::run::target::Target;
use crate::stats::{median, percentile_ms};

/// Writes before anything is measured.
const WARM_UP: Duration = Duration::from_secs(3);
/// Wait of a client that found no room, since the one before it had not left yet.
const BACK_OFF: Duration = Duration::from_millis(5);
/// Maximum time of a round, in rounds as they were meant.
const LONGEST: u32 = 10;

/// The figures of all rounds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Churn {
    /// Of the server that nobody listens to.
    pub alone: Side,
    /// Of the other one.
    pub heard: Side,
    /// Clients that listened.
    pub clients: usize,
    /// Those of them to which no reading came while they listened.
    pub deaf: usize,
    /// Answers 503 to clients that came before another one had left.
    pub full: usize,
    /// Bytes that they got.
    pub bytes: usize,
    /// Seconds in which they came and went.
    pub seconds: f64,
}

/// The figures of a server.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Side {
    pub posts: usize,
    /// Number of 503 answers to POSTs.
    pub refused: usize,
    /// Of each round: median and 99th percentile of the time to an ack, in milliseconds.
    pub p50_ms: Vec<f64>,
    pub p99_ms: Vec<f64>,
    /// Peak of resident memory before the rounds, and in each of them, in MiB.
    pub peak_before_mib: u64,
    pub peak_mib: Vec<u64>,
}

impl Side {
    fn add(&mut self, written: &Written, peak_mib: u64) {
        self.posts += written.acks.len();
        self.refused += written.refused;
        self.p50_ms.push(percentile_ms(&written.acks, 50));
        self.p99_ms.push(percentile_ms(&written.acks, 99));
        self.peak_mib.push(peak_mib);
    }

    /// How far the peak of memory rose in the rounds, in MiB.
    pub fn grown_mib(&self) -> u64 {
        self.peak_mib.iter().max().copied().unwrap_or_default().saturating_sub(self.peak_before_mib)
    }
}

impl Churn {
    /// The 99th percentile of acks with listeners, in those without: of the medians of the rounds.
    pub fn ratio(&self) -> f64 {
        median(self.heard.p99_ms.iter().copied()) / median(self.alone.p99_ms.iter().copied()).max(f64::MIN_POSITIVE)
    }
}

/// Writes to one server after the other, and lets clients listen to one of them.
pub async fn measure(options: &Listeners, alone: &Target, heard: &Target) -> Result<Churn> {
    let load = (options.rate, options.lines);
    let mut churn = Churn::default();
    for (target, side) in [(alone, &mut churn.alone), (heard, &mut churn.heard)] {
        let writing = Writing::start(&target.address, load);
        tokio::time::sleep(WARM_UP).await;
        writing.end().await?;
        side.peak_before_mib = process::resident_mib(pid(target)?)?;
    }
    for round in 0..options.rounds {
        // What grows in the course of the run is on both sides alike.
        let order = if round % 2 == 0 { [false, true] } else { [true, false] };
        for is_heard in order {
            let target = if is_heard { heard } else { alone };
            process::forget_peak(pid(target)?)?;
            let writing = Writing::start(&target.address, load);
            if is_heard {
                let clients = options.clients * (round + 1) / options.rounds - options.clients * round / options.rounds;
                come_and_go(options, target, clients, &mut churn).await?;
            } else {
                tokio::time::sleep(options.round.0).await;
            }
            let (written, peak) = (writing.end().await?, process::resident_mib(pid(target)?)?);
            let side = if is_heard { &mut churn.heard } else { &mut churn.alone };
            side.add(&written, peak);
        }
        let of = |figures: &[f64]| figures.last().copied().unwrap_or_default();
        println!(
            "round {}: p99 of acks {:.2} ms without listeners, {:.2} ms with; {} clients have come and gone",
            round + 1,
            of(&churn.alone.p99_ms),
            of(&churn.heard.p99_ms),
            churn.clients
        );
    }
    Ok(churn)
}

fn pid(target: &Target) -> Result<u32> {
    Ok(target.processes().first().context("no process")?.1)
}

/// What the clients of a round share.
struct Turns {
    address: String,
    clients: usize,
    next: AtomicUsize,
    /// How long each listens.
    stay: Duration,
    deadline: Instant,
}

/// Lets so many clients listen, `at_once` of them at a time, each as long as the others, in about the time of a round.
async fn come_and_go(options: &Listeners, target: &Target, clients: usize, churn: &mut Churn) -> Result<()> {
    let (at_once, round, begun) = (options.at_once.min(clients), options.round.0, Instant::now());
    let stay = round.mul_f64(crate::stats::to_f64(at_once) / crate::stats::to_f64(clients.max(1)));
    let deadline = begun + round * LONGEST;
    let next = AtomicUsize::new(0);
    let turns = Arc::new(Turns { address: target.address.clone(), clients, next, stay, deadline });
    let mut tasks = JoinSet::new();
    for _ in 0..at_once {
        tasks.spawn(listen_in_turn(turns.clone()));
    }
    while let Some(task) = tasks.join_next().await {
        let heard = task??;
        churn.clients += heard.clients;
        churn.deaf += heard.deaf;
        churn.full += heard.full;
        churn.bytes += heard.bytes;
    }
    churn.seconds += begun.elapsed().as_secs_f64();
    Ok(())
}

async fn listen_in_turn(turns: Arc<Turns>) -> Result<Churn> {
    let mut heard = Churn::default();
    while turns.next.fetch_add(1, Ordering::Relaxed) < turns.clients {
        let mut listener = loop {
            ensure!(Instant::now() < turns.deadline, "clients have found no room for too long");
            match Listener::open(&turns.address, DATABASE).await? {
                Some(listener) => break listener,
                None => {
                    heard.full += 1;
                    tokio::time::sleep(BACK_OFF).await;
                }
            }
        };
        let mut readings = 0_usize;
        let hear = async {
            loop {
                let line = listener.next_line().await?;
                heard.bytes += line.len() + 1;
                readings += usize::from(line.starts_with("data: "));
            }
        };
        match tokio::time::timeout(turns.stay, hear).await {
            Ok(ended) => return ended,
            Err(_) => heard.clients += 1,
        }
        heard.deaf += usize::from(readings == 0);
    }
    Ok(heard)
}
