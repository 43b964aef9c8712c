//! Checks that acked readings survive: a steady stream of writes, `kill -9` at a random time, a restart, and reading
//! everything back. Readings without an ack are sent again after the restart, as a careful client does.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::LocalSet;
use tokio::time::MissedTickBehavior;

use super::reading::{FIELDS, Range, Reading, Sample, sensor_name, yesterday};
use super::writer::{Subject, Writer};
use crate::fleet::pseudorandom;
use crate::servers::system::Victim;

/// Number of concurrent writers, each with its own sensors.
const WRITERS: u32 = 4;
/// Sensors per writer.
const SENSORS: u32 = 5;
/// Seconds of readings in a batch, one per sensor and second.
const SECONDS: i64 = 4;
/// Time between two batches of a writer.
const PACE: Duration = Duration::from_millis(20);
/// Minimum time of the stream before the kill, in milliseconds.
const STREAM_MIN_MS: i64 = 1000;
/// Time for which the stream continues if the service survives the kill.
const OUTAGE: Duration = Duration::from_millis(500);
/// Maximum time until readings written after the restart are visible. VictoriaMetrics caches empty answers for some
/// seconds.
const VISIBLE_MAX: Duration = Duration::from_secs(60);
/// Time after which a reading that is still missing is lost, once the resent ones are visible.
const GRACE: Duration = Duration::from_secs(2);

/// The results of one kill.
#[derive(Debug, Clone, Default)]
pub struct Cycle {
    /// The killed process.
    pub killed: String,
    /// Milliseconds from the start of the stream to the kill.
    pub after_ms: u64,
    /// Milliseconds from the restart until the system answers queries.
    pub recovery_ms: u64,
    /// Readings that were acked before the kill, or by a service that survived it.
    pub acked: u64,
    /// Readings without an ack that were resent after the restart, and are missing or incomplete one minute after their
    /// ack.
    pub resent_lost: u64,
    /// Readings acked before the kill that are missing or incomplete when the resent ones are visible.
    pub lost: u64,
    /// Milliseconds from the ack of the oldest lost reading to the kill.
    pub lost_acked_ms_before: u64,
    /// Readings with another value.
    pub wrong_values: u64,
    /// Readings that are returned more than once.
    pub duplicates: u64,
}

/// The results of all kills.
#[derive(Debug, Default)]
pub struct Crashes {
    pub cycles: Vec<Cycle>,
    /// Acked readings that are missing after the last cycle and an orderly stop.
    pub lost_at_end: u64,
    /// Readings that are returned more than once after the last cycle.
    pub duplicates_at_end: u64,
}

/// The readings sent in a cycle, each with the time of its ack before the kill, if it was acked.
#[derive(Default)]
struct SentReadings(BTreeMap<(String, i64), (Reading, Option<Instant>)>);

/// The differences between what is stored and what was acked.
#[derive(Debug, Default, PartialEq, Eq)]
struct Comparison {
    lost: u64,
    resent_lost: u64,
    wrong_values: u64,
    duplicates: u64,
    /// Time of the ack of the oldest lost reading.
    oldest_lost_ack: Option<Instant>,
}

/// The batches of one writer.
struct WriterResult {
    acked: Vec<(Instant, Vec<Reading>)>,
    unanswered: Vec<Reading>,
}

/// Kills the system `cycles` times, each after a stream of at most this length.
pub async fn prove(subject: &mut Subject<'_>, cycles: usize, stream: Duration, seed: u64) -> Result<Crashes> {
    let stream_max_ms = i64::try_from(stream.as_millis())?.max(STREAM_MIN_MS);
    let from = yesterday();
    let mut time = from;
    let mut all = SentReadings::default();
    let mut crashes = Crashes::default();
    for number in 0..cycles {
        let victim = victim(subject, number);
        let random = pseudorandom(seed.cast_signed().wrapping_add(i64::try_from(number)?));
        let stream_ms = (STREAM_MIN_MS + random % (stream_max_ms - STREAM_MIN_MS + 1)).unsigned_abs();
        let (cycle, sent, after) = run_cycle(subject, time, victim, stream_ms).await?;
        println!(
            "  {} killed after {} ms: {} acked, {} lost, {} duplicates",
            cycle.killed, cycle.after_ms, cycle.acked, cycle.lost, cycle.duplicates
        );
        crashes.cycles.push(cycle);
        all.0.extend(sent.0);
        time = after;
    }
    subject.system.restart().await?;
    let found = all.compare(&subject.samples(Range { from, to: time }).await?);
    crashes.lost_at_end = found.lost + found.resent_lost;
    crashes.duplicates_at_end = found.duplicates;
    Ok(crashes)
}

/// Runs one cycle with timestamps starting at `from`. Also returns the readings sent, and the time after them.
async fn run_cycle(
    subject: &mut Subject<'_>,
    from: i64,
    victim: Victim,
    stream_ms: u64,
) -> Result<(Cycle, SentReadings, i64)> {
    let is_over = Rc::new(Cell::new(false));
    let mut writers = Vec::new();
    for number in 0..WRITERS {
        writers.push(stream(subject.writer().await?, number, from, is_over.clone()));
    }
    let local = LocalSet::new();
    let writers: Vec<_> = writers.into_iter().map(|writer| local.spawn_local(writer)).collect();
    let (kill_time, writer_results) = local.run_until(kill(subject, victim, stream_ms, &is_over, writers)).await?;

    let mut sent = SentReadings::default();
    let mut resent = Vec::new();
    for WriterResult { acked, unanswered } in writer_results {
        for (ack_time, readings) in acked {
            sent.add(&readings, Some(ack_time));
        }
        resent.extend(unanswered);
    }
    let started = Instant::now();
    subject.system.start_again().await.context("starting again after kill -9")?;
    // Add one more reading of each sensor, which shows when writes after the restart become visible.
    let times = sent.0.keys().map(|(_, time)| *time).chain(resent.iter().map(|reading| reading.time));
    let last = times.max().unwrap_or(from) + 1000;
    resent.extend((0..WRITERS).flat_map(|writer| batch(writer, last)).filter(|reading| reading.time == last));
    sent.add(&resent, None);
    let to = last + 1000;
    let range = Range { from, to };
    subject.samples(range).await?;
    let recovery_ms = millis(started.elapsed());
    subject.write(&resent).await?;
    let found = compare_when_visible(subject, &sent, range).await?;
    let acked = sent.0.values().filter(|(_, acked)| acked.is_some()).count();
    let before = found.oldest_lost_ack.map_or(Duration::ZERO, |acked| kill_time.saturating_duration_since(acked));
    let cycle = Cycle {
        killed: victim.name().to_owned(),
        after_ms: stream_ms,
        recovery_ms,
        acked: u64::try_from(acked)?,
        resent_lost: found.resent_lost,
        lost: found.lost,
        lost_acked_ms_before: millis(before),
        wrong_values: found.wrong_values,
        duplicates: found.duplicates,
    };
    Ok((cycle, sent, to))
}

/// Returns the process to kill in a cycle. For hourglass on MongoDB, it is each in turn, and both.
fn victim(subject: &Subject<'_>, cycle: usize) -> Victim {
    match (subject.system.peer.product(), subject.system.peer.has_mongod()) {
        (Some(_), true) => [Victim::Server, Victim::Mongod, Victim::All][cycle % 3],
        (Some(_), false) => Victim::Server,
        (None, _) => Victim::Mongod,
    }
}

/// Runs the writers, kills, and collects their results.
async fn kill(
    subject: &mut Subject<'_>,
    victim: Victim,
    stream_ms: u64,
    is_over: &Rc<Cell<bool>>,
    writers: Vec<tokio::task::JoinHandle<Result<WriterResult>>>,
) -> Result<(Instant, Vec<WriterResult>)> {
    tokio::time::sleep(Duration::from_millis(stream_ms)).await;
    let survives = victim == Victim::Mongod && subject.system.peer.is_hourglass();
    is_over.set(!survives);
    let kill_time = Instant::now();
    subject.system.kill(victim)?;
    if survives {
        tokio::time::sleep(OUTAGE).await;
        is_over.set(true);
    }
    let mut writer_results = Vec::new();
    for writer in writers {
        writer_results.push(writer.await??);
    }
    Ok((kill_time, writer_results))
}

/// Writes a batch every [`PACE`] until the kill. An earlier error is an error of the run.
async fn stream(mut writer: Writer, number: u32, from: i64, is_over: Rc<Cell<bool>>) -> Result<WriterResult> {
    let mut pace = tokio::time::interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut acked = Vec::new();
    for batch in 0.. {
        pace.tick().await;
        if is_over.get() {
            break;
        }
        let readings = self::batch(number, from + batch * SECONDS * 1000);
        // Do not wait for the driver, which would search another primary for half a minute.
        let outcome = tokio::select! {
            outcome = writer.write(&readings) => outcome,
            () = await_end(&is_over) => return Ok(WriterResult { acked, unanswered: readings }),
        };
        match outcome {
            Ok(()) => acked.push((Instant::now(), readings)),
            Err(_) if is_over.get() => return Ok(WriterResult { acked, unanswered: readings }),
            Err(error) => return Err(error.context("a write failed before the kill")),
        }
    }
    Ok(WriterResult { acked, unanswered: Vec::new() })
}

/// Returns shortly after the kill, so that all earlier answers are read.
async fn await_end(is_over: &Cell<bool>) {
    while !is_over.get() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// Returns a batch of a writer that starts at a time. The values of a sensor repeat only after a long time.
fn batch(writer: u32, from: i64) -> Vec<Reading> {
    let readings_of_second = |second: i64| {
        (0..SENSORS).map(move |sensor| {
            let time = from + second * 1000;
            let number = u32::try_from((time / 1000).rem_euclid(6000)).unwrap_or(0);
            let temp = f64::from(1000 + number) / 100.0;
            let humidity = Some(f64::from(number % 100));
            Reading { sensor: writer * SENSORS + sensor, time, temp, humidity }
        })
    };
    (0..SECONDS).flat_map(readings_of_second).collect()
}

/// Waits until writes after the restart are visible, and compares.
async fn compare_when_visible(subject: &mut Subject<'_>, sent: &SentReadings, range: Range) -> Result<Comparison> {
    let deadline = Instant::now() + VISIBLE_MAX;
    let mut seen = None;
    loop {
        subject.make_visible().await?;
        let found = sent.compare(&subject.samples(range).await?);
        if found.resent_lost == 0 && seen.is_none() {
            seen = Some(Instant::now());
        }
        let is_lost = seen.is_some_and(|seen: Instant| seen.elapsed() > GRACE) || Instant::now() > deadline;
        if found.lost + found.resent_lost == 0 || is_lost {
            return Ok(found);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

impl SentReadings {
    fn add(&mut self, readings: &[Reading], acked: Option<Instant>) {
        for reading in readings {
            self.0.insert((sensor_name(reading.sensor), reading.time), (*reading, acked));
        }
    }

    /// Expects every reading exactly once, because those that were sent again are acked now.
    fn compare(&self, samples: &[Sample]) -> Comparison {
        let mut returned: BTreeMap<(&str, i64, &str), Vec<f64>> = BTreeMap::new();
        for sample in samples {
            returned.entry((&sample.sensor, sample.time, &sample.field)).or_default().push(sample.value);
        }
        let mut found = Comparison::default();
        for ((sensor, time), (reading, acked)) in &self.0 {
            let values =
                |field: &'static str| returned.get(&(sensor.as_str(), *time, field)).map_or(&[][..], Vec::as_slice);
            if FIELDS.iter().any(|field| values(field).is_empty()) {
                found.lost += u64::from(acked.is_some());
                found.resent_lost += u64::from(acked.is_none());
                found.oldest_lost_ack = [found.oldest_lost_ack, *acked].into_iter().flatten().min();
            }
            let differs = |(field, value): (&'static str, f64)| values(field).iter().any(|found| *found != value);
            found.wrong_values += u64::from(reading.values().any(differs));
            found.duplicates += u64::from(FIELDS.iter().any(|field| values(field).len() > 1));
        }
        found
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_different_and_duplicate_readings_are_distinguished() {
        let readings = batch(0, 0);
        let mut sent = SentReadings::default();
        let acked = Instant::now();
        sent.add(&readings, Some(acked));
        let mut samples: Vec<Sample> = Vec::new();
        for reading in &readings {
            for (field, value) in reading.values() {
                let sensor = sensor_name(reading.sensor);
                samples.push(Sample { sensor, time: reading.time, field: field.to_owned(), value });
            }
        }
        assert_eq!(sent.compare(&samples), Comparison::default());
        // One reading without humidity, one with another value, one twice.
        samples.remove(1);
        samples[1].value += 1.0;
        samples.push(samples[9].clone());
        assert_eq!(
            sent.compare(&samples),
            Comparison { lost: 1, resent_lost: 0, wrong_values: 1, duplicates: 1, oldest_lost_ack: Some(acked) }
        );
    }
}
