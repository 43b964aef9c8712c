//! Checks that retries create no duplicates: sends the same batch twice, as after a lost answer, and once more after an
//! orderly stop.

use anyhow::Result;

use super::reading::{FIELDS, HOUR_MS, Range, Reading, yesterday};
use super::writer::Subject;

const SENSORS: u32 = 10;
/// Number of readings per sensor, one per minute.
const MINUTES: u32 = 100;

/// The numbers of readings that a system counts.
#[derive(Debug, Clone, Default)]
pub struct Retries {
    /// Distinct readings.
    pub readings: u64,
    /// Count after sending twice.
    pub count_after_retry: f64,
    /// Count after an orderly restart and sending once more.
    pub count_after_restart: f64,
    /// Values of one field that the system returns at the end.
    pub returned: u64,
}

/// Sends the same readings three times.
pub async fn prove(subject: &mut Subject<'_>) -> Result<Retries> {
    let from = yesterday();
    let range = Range { from, to: from + 2 * HOUR_MS };
    // Each reading is half a minute past a minute, so that none is on the border of two hours.
    let reading = |number: u32| Reading {
        sensor: number % SENSORS,
        time: from + i64::from(number / SENSORS) * 60_000 + 30_000,
        temp: f64::from(2000 + number) / 100.0,
        humidity: Some(f64::from(number % 100)),
    };
    let readings: Vec<Reading> = (0..SENSORS * MINUTES).map(reading).collect();
    subject.write(&readings).await?;
    subject.write(&readings).await?;
    let count_after_retry = count(subject, range).await?;
    subject.system.restart().await?;
    subject.write(&readings).await?;
    let count_after_restart = count(subject, range).await?;
    let samples = subject.samples(range).await?;
    let returned = samples.iter().filter(|sample| sample.field == FIELDS[0]).count();
    Ok(Retries {
        readings: u64::try_from(readings.len())?,
        count_after_retry,
        count_after_restart,
        returned: u64::try_from(returned)?,
    })
}

async fn count(subject: &mut Subject<'_>, range: Range) -> Result<f64> {
    subject.make_visible().await?;
    let windows = subject.windows(range).await?;
    Ok(windows.iter().filter(|window| window.field == FIELDS[0]).map(|window| window.count).sum())
}
