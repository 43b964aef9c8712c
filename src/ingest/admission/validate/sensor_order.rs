//! Guesses which sensor the next line is of.

use std::sync::Arc;

use super::request_sensor::RequestSensor;
use crate::catalog::{KnownSensor, SensorsRead};

/// Guesses a line's sensor from the order of sensors in earlier requests, as long as the guesses are mostly right.
pub(super) struct SensorOrder {
    /// The sensor of the previous line.
    pub(super) last: Option<usize>,
    /// How many wrong guesses are still allowed; right ones add to it.
    pub(super) patience: u8,
}

impl SensorOrder {
    pub(super) const PATIENCE: u8 = 16;

    /// The sensor of that spelling.
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
