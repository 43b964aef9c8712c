//! Logs a deletion by value in parts. A part is a record of sensors and timestamps.

use super::EditError;
use crate::faults;
use crate::ingest::{DeletedTimes, Ingest, Mark};
use crate::reading::Sensor;

/// Maximum bytes of a sensor in a record, without its key.
const SENSOR_BYTES_MAX: usize = 64;
/// Maximum bytes of a timestamp in a record.
const TIME_BYTES_MAX: usize = 10;

/// Logs timestamps in parts, and waits until each part is carried out.
pub struct DeletedParts<'a> {
    ingest: &'a Ingest,
    /// The time of the request, in nanoseconds since the epoch.
    now: i64,
    database: &'a str,
    mark: &'a Mark,
    /// The sensors of the next part with their timestamps, each sensor once.
    waiting: Vec<(Sensor, Vec<i64>)>,
    bytes: usize,
    max_bytes: usize,
}

impl<'a> DeletedParts<'a> {
    pub fn new(ingest: &'a Ingest, now: i64, database: &'a str, mark: &'a Mark) -> Self {
        Self { ingest, now, database, mark, waiting: Vec::new(), bytes: 0, max_bytes: ingest.options.part_bytes() }
    }

    /// Adds timestamps of a sensor. The calls for one sensor must be consecutive.
    pub async fn add(&mut self, sensor: &Sensor, times: &[i64]) -> Result<(), EditError> {
        let mut remaining = times;
        while !remaining.is_empty() {
            if self.waiting.last().is_none_or(|(last, _)| last.key != sensor.key) {
                let bytes = 2 * sensor.key.len() + SENSOR_BYTES_MAX;
                if self.bytes > 0 && self.bytes + bytes + TIME_BYTES_MAX > self.max_bytes {
                    self.flush().await?;
                }
                self.bytes += bytes;
                self.waiting.push((sensor.clone(), Vec::new()));
            }
            let room = (self.max_bytes.saturating_sub(self.bytes) / TIME_BYTES_MAX).max(1).min(remaining.len());
            let (fitting, rest) = remaining.split_at(room);
            if let Some((_, times)) = self.waiting.last_mut() {
                times.extend(fitting);
            }
            self.bytes += fitting.len() * TIME_BYTES_MAX;
            remaining = rest;
            if self.bytes + TIME_BYTES_MAX > self.max_bytes {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Logs the collected part, and waits until it is carried out.
    pub async fn flush(&mut self) -> Result<(), EditError> {
        self.bytes = 0;
        let mut sensors = Vec::with_capacity(self.waiting.len());
        for (sensor, mut times) in self.waiting.drain(..) {
            times.sort_unstable();
            times.dedup();
            sensors.push(DeletedTimes { sensor, times: times.into() });
        }
        if !sensors.is_empty() {
            faults::halt_at("part_resolved").await;
            self.ingest.submitter.delete_cells(self.database, self.now, sensors, self.mark).await?;
            faults::point("part_deleted");
        }
        Ok(())
    }
}
