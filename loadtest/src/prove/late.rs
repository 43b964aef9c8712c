//! Checks aggregates with late data: readings arrive for hours that were queried before, and after an orderly stop.
//! Compares counts, sums and means with the exact ones.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::oracle::{AnswerCounts, Oracle};
use super::reading::{HOUR_MS, Range, Reading, yesterday};
use super::writer::Subject;

const SENSORS: u32 = 4;
/// Number of hours. Below 50, because VictoriaMetrics may adjust the ends of longer ranges.
const HOURS: u32 = 24;
/// Every sixth reading of one per minute is late.
const LATE_EVERY: u32 = 6;
/// Maximum time until the answers are right. VictoriaMetrics takes some seconds to drop its cache.
const CORRECT_AFTER_MAX: Duration = Duration::from_secs(35);

/// The answers at each step.
#[derive(Debug, Clone, Default)]
pub struct Late {
    /// The answers before any late reading, queried twice.
    pub on_time: AnswerCounts,
    /// The answers as soon as the late readings are acked and visible.
    pub at_once: AnswerCounts,
    /// Seconds until no answer is wrong; `None` if some still were at the end.
    pub correct_after_s: Option<f64>,
    /// The answers after an orderly stop.
    pub after_restart: AnswerCounts,
}

pub async fn prove(subject: &mut Subject<'_>) -> Result<Late> {
    subject.is_cached = true;
    let from = yesterday();
    let range = Range { from, to: from + i64::from(HOURS) * HOUR_MS };
    let all =
        (0..HOURS * 60).flat_map(|minute| (0..SENSORS).map(move |sensor| (minute, reading(from, sensor, minute))));
    let (late, on_time): (Vec<_>, Vec<_>) = all.partition(|(minute, _)| minute % LATE_EVERY == 0);
    let readings = |minutes: Vec<(u32, Reading)>| minutes.into_iter().map(|(_, reading)| reading).collect::<Vec<_>>();
    let late = readings(late);
    let on_time = readings(on_time);
    let mut oracle = Oracle::default();

    oracle.add(&on_time);
    subject.write(&on_time).await?;
    subject.make_visible().await?;
    oracle.judge(&subject.windows(range).await?);
    subject.system.restart().await?;
    oracle.judge(&subject.windows(range).await?);
    let judged_on_time = oracle.judge(&subject.windows(range).await?);

    oracle.add(&late);
    subject.write(&late).await?;
    subject.make_visible().await?;
    let visible = Instant::now();
    let at_once = oracle.judge(&subject.windows(range).await?);
    let mut counts = at_once;
    while counts.wrong > 0 && visible.elapsed() < CORRECT_AFTER_MAX {
        tokio::time::sleep(Duration::from_millis(250)).await;
        counts = oracle.judge(&subject.windows(range).await?);
    }
    let correct_after_s =
        (counts.wrong == 0).then(|| if at_once.wrong == 0 { 0.0 } else { visible.elapsed().as_secs_f64() });
    subject.system.restart().await?;
    let after_restart = oracle.judge(&subject.windows(range).await?);
    Ok(Late { on_time: judged_on_time, at_once, correct_after_s, after_restart })
}

/// Returns a reading half a minute past a minute, so that none is on the border of two hours.
fn reading(from: i64, sensor: u32, minute: u32) -> Reading {
    let temp = f64::from(1600 + (minute * 7 + sensor * 131) % 1500) / 100.0;
    let humidity = Some(f64::from((minute + sensor) % 100));
    Reading { sensor, time: from + i64::from(minute) * 60_000 + 30_000, temp, humidity }
}
