//! The run itself: starts everything, samples resource usage every second, and waits until everything is in the store.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, ensure};

use super::Planned;
use super::asking::ask_all;
use super::posts::{self, Posts};
use super::progress::Progress;
use super::recorder::Recorder;
use super::schedule::Schedule;
use super::senders::{Sending, Shared, send_all, with};
use super::target::Target;
use super::watching::{Sample, Watched};
use crate::report::machine::Machine;
use crate::report::results::QueryRow;

/// Time before the first POST, in which connections are opened and bodies are generated.
const HEAD_START: Duration = Duration::from_millis(500);

/// The raw results of a run.
pub struct Driven {
    /// The machine's state before the run.
    pub machine: Machine,
    pub began: SystemTime,
    pub schedule: Schedule,
    /// The results of the senders.
    pub recorder: Recorder,
    pub queries: Vec<QueryRow>,
    /// The servers' resource usage by second; the first sample is from before the first POST.
    pub samples: Vec<Option<Sample>>,
    /// The sample after the last ack.
    pub sent: Option<Sample>,
    /// The sample when everything was in the store.
    pub drained: Option<Sample>,
    /// The time between these two.
    pub drain: Duration,
    /// The source of the samples.
    pub watched: Watched,
    /// Bytes that the servers wrote to files during the run.
    pub dirtied_bytes: Option<u64>,
}

pub async fn drive(planned: &Planned, target: &Target) -> Result<Driven> {
    let machine = Machine::this();
    let mut watched = target.watched();
    let scenario = &planned.scenario;
    let schedule = Schedule { rate: scenario.rate(), duration: scenario.duration.0 };
    let posts = Posts::new(scenario, schedule, planned.seed, planned.start);
    // Read the clock only here: creating a hundred thousand devices takes a while.
    let (begin, began) = (Instant::now() + HEAD_START, SystemTime::now() + HEAD_START);
    let shared = Arc::new(Mutex::new(Recorder::new(begin, schedule.duration, planned.start)));
    let sending = sending(planned, target, begin);
    let dirtied_before = watched.dirtied_bytes();
    let asking = ask_all(scenario.clone(), planned.seed, planned.db.clone(), sending.clone(), shared.clone());
    let asking = tokio::spawn(asking);
    let progress = Progress::new(schedule.duration);
    let mut samples = Vec::new();
    tokio::select! {
        sent = send_all(&sending, posts::start(posts, begin), &shared) => sent?,
        () = watch(&mut watched, begin, &shared, &progress, &mut samples) => {}
    }
    let queries = asking.await??;
    // Waits for the end of the last second.
    tokio::time::sleep_until((begin + schedule.duration).into()).await;
    let sent = watched.sample(begin.elapsed()).await;
    samples.push(sent);
    progress.says("waiting until all of it is in the store");
    let last_ack = with(&shared, |recorder| recorder.last_ack);
    ensure!(!last_ack.is_zero(), "nothing was acked: {}", errors(&shared));
    let flushed = Instant::now();
    target.flush().await?;
    let drain = flushed.elapsed();
    let drained = watched.sample(begin.elapsed()).await;
    progress.end();
    let dirtied_bytes = watched.dirtied_bytes().zip(dirtied_before).map(|(after, before)| after - before);
    let empty = Recorder::new(begin, schedule.duration, planned.start);
    let recorder = with(&shared, |recorder| std::mem::replace(recorder, empty));
    Ok(Driven { machine, began, schedule, recorder, queries, samples, sent, drained, drain, watched, dirtied_bytes })
}

fn sending(planned: &Planned, target: &Target, begin: Instant) -> Sending {
    let scenario = &planned.scenario;
    Sending {
        target: target.address.clone(),
        path: format!("/write?db={}&ack={}", super::asking::encoded(&planned.db), scenario.ack.name()),
        gzip: scenario.gzip,
        connections: scenario.connections,
        timeout: scenario.timeout.0,
        reconnect_every: scenario.faults.reconnect_every.map(|every| every.0),
        begin,
        duration: scenario.duration.0,
    }
}

/// Samples at the end of every second. Never returns.
async fn watch(
    watched: &mut Watched,
    begin: Instant,
    shared: &Shared,
    progress: &Progress,
    samples: &mut Vec<Option<Sample>>,
) {
    for second in 0_usize.. {
        let at = begin + Duration::from_secs(u64::try_from(second).unwrap_or(u64::MAX));
        tokio::time::sleep_until(at.into()).await;
        samples.push(watched.sample(begin.elapsed()).await);
        if let Some(over) = second.checked_sub(1) {
            with(shared, |recorder| progress.second(over, recorder));
        }
    }
}

fn errors(shared: &Shared) -> String {
    let told = with(shared, |recorder| {
        recorder.errors.iter().map(|(how, times)| format!("{how} ({times} times)")).collect::<Vec<_>>()
    });
    if told.is_empty() { "no error was seen either".to_owned() } else { told.join(", ") }
}
