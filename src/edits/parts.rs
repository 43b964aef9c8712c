//! The parts of a deletion by value: records of times of sensors.

use super::EditError;
use crate::faults;
use crate::ingest::{DeletedTimes, Ingest, Mark};
use crate::reading::Sensor;

/// The bytes that an element of a record takes beside a sensor's key, and those of a time, at most.
const SENSOR_BYTES: usize = 64;
const TIME_BYTES: usize = 10;

/// Logs times part by part, and waits until each part is carried out.
pub struct DeletedParts<'a> {
    ingest: &'a Ingest,
    /// The time of the request, in nanoseconds since the epoch.
    now: i64,
    database: &'a str,
    mark: &'a Mark,
    /// Each sensor once.
    waiting: Vec<(Sensor, Vec<i64>)>,
    bytes: usize,
    max_bytes: usize,
}

impl<'a> DeletedParts<'a> {
    pub fn new(ingest: &'a Ingest, now: i64, database: &'a str, mark: &'a Mark) -> Self {
        Self { ingest, now, database, mark, waiting: Vec::new(), bytes: 0, max_bytes: ingest.options.part_bytes() }
    }

    /// Adds times of a sensor. Those of one sensor must come one after the other.
    pub async fn add(&mut self, sensor: &Sensor, times: &[i64]) -> Result<(), EditError> {
        let mut left = times;
        while !left.is_empty() {
            if self.waiting.last().is_none_or(|(of, _)| of.key != sensor.key) {
                let bytes = 2 * sensor.key.len() + SENSOR_BYTES;
                if self.bytes > 0 && self.bytes + bytes + TIME_BYTES > self.max_bytes {
                    self.flush().await?;
                }
                self.bytes += bytes;
                self.waiting.push((sensor.clone(), Vec::new()));
            }
            let room = (self.max_bytes.saturating_sub(self.bytes) / TIME_BYTES).max(1).min(left.len());
            let (some, rest) = left.split_at(room);
            if let Some((_, times)) = self.waiting.last_mut() {
                times.extend(some);
            }
            self.bytes += some.len() * TIME_BYTES;
            left = rest;
            if self.bytes + TIME_BYTES > self.max_bytes {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Logs what is waiting.
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
