//! Late data in aggregates: readings of hours that have been asked about, and stopped in order, before they came.
//! Counts, sums and means are compared with the exact ones.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::oracle::{Judged, Oracle};
use super::reading::{HOUR_MS, Range, Reading, yesterday};
use super::system::System;

/// Whose readings are sent.
const SENSORS: u32 = 4;
/// Of how many hours: below 50, from which on VictoriaMetrics may move the ends of a range to be asked.
const HOURS: u32 = 24;
/// Minute by minute; every sixth comes late.
const LATE: u32 = 6;
/// How long a system may take until its answers are right. VictoriaMetrics looks every few seconds whether to drop what it remembers.
const LONGEST: Duration = Duration::from_secs(35);

/// What a system says at each step.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Late {
    /// Readings that came late.
    pub late_readings: u64,
    /// What it says before anything is late, asked twice.
    pub on_time: Judged,
    /// What it says as soon as late readings are acked and visible.
    pub at_once: Judged,
    /// After how many seconds it says nothing wrong; nothing where it still did at the end of the patience.
    pub right_after_s: Option<f64>,
    /// What it says after a stop in order.
    pub after_restart: Judged,
}

/// Tells it late.
pub async fn prove(system: &mut System<'_>) -> Result<Late> {
    system.is_cached = true;
    let from = yesterday();
    let range = Range { from, to: from + i64::from(HOURS) * HOUR_MS };
    let all =
        (0..HOURS * 60).flat_map(|minute| (0..SENSORS).map(move |sensor| (minute, reading(from, sensor, minute))));
    let (late, on_time): (Vec<_>, Vec<_>) = all.partition(|(minute, _)| minute % LATE == 0);
    let readings = |of: Vec<(u32, Reading)>| of.into_iter().map(|(_, reading)| reading).collect::<Vec<_>>();
    let (late, on_time) = (readings(late), readings(on_time));
    let mut oracle = Oracle::default();

    oracle.add(&on_time);
    system.write(&on_time).await?;
    system.make_visible().await?;
    oracle.judge(&system.windows(range).await?);
    system.restart().await?;
    oracle.judge(&system.windows(range).await?);
    let judged_on_time = oracle.judge(&system.windows(range).await?);

    oracle.add(&late);
    system.write(&late).await?;
    system.make_visible().await?;
    let visible = Instant::now();
    let at_once = oracle.judge(&system.windows(range).await?);
    let mut judged = at_once;
    while judged.wrong > 0 && visible.elapsed() < LONGEST {
        tokio::time::sleep(Duration::from_millis(250)).await;
        judged = oracle.judge(&system.windows(range).await?);
    }
    let right_after_s =
        (judged.wrong == 0).then(|| if at_once.wrong == 0 { 0.0 } else { visible.elapsed().as_secs_f64() });
    system.restart().await?;
    let after_restart = oracle.judge(&system.windows(range).await?);
    let late_readings = u64::try_from(late.len())?;
    Ok(Late { late_readings, on_time: judged_on_time, at_once, right_after_s, after_restart })
}

/// Half a minute past, so that no reading lies on the border of two hours.
fn reading(from: i64, sensor: u32, minute: u32) -> Reading {
    let temp = f64::from(1600 + (minute * 7 + sensor * 131) % 1500) / 100.0;
    let humidity = Some(f64::from((minute + sensor) % 100));
    Reading { sensor, time: from + i64::from(minute) * 60_000 + 30_000, temp, humidity }
}
