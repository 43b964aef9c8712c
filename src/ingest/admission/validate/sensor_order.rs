//! Guesses the sensor of the next line.

use std::sync::Arc;

use super::request_sensor::RequestSensor;
use crate::catalog::{KnownSensor, SensorsRead};

/// Guesses a line's sensor from the order of sensors in earlier requests, as long as most guesses are right.
pub(super) struct SensorOrder {
    /// The sensor of the previous line.
    pub(super) last: Option<usize>,
    /// The remaining number of wrong guesses. A right guess adds one.
    pub(super) patience: u8,
}

impl SensorOrder {
    pub(super) const PATIENCE: u8 = 16;

    /// Returns the sensor with that spelling.
    pub(super) fn find<'s>(
        &mut self,
        sensors: &'s SensorsRead<'_>,
        locals: &[RequestSensor],
        spelling: &str,
    ) -> Option<&'s Arc<KnownSensor>> {
        let Some(before) = self.last.map(|last| &*locals[last].known) else { return sensors.get(spelling) };
        if self.patience > 0 {
            let guess = sensors.get_successor(before, spelling);
            if guess.is_some() {
                self.patience = Self::PATIENCE.min(self.patience + 1);
                return guess;
            }
            self.patience -= 1;
        }
        sensors.get(spelling).inspect(|found| before.note_successor(found))
    }
}
