//! The sensors of a database by spelling.
//!
//! Most clients send their sensors in the same order every time. So each sensor remembers the sensor that followed it,
//! and lookups try that one first: with very many sensors, a hash lookup is a cache miss.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rapidhash::fast::RandomState;

use super::sensor::KnownSensor;
use crate::bucket::Renames;

/// A map from canonical keys and other spellings to sensors.
#[derive(Debug, Default)]
pub struct Spellings {
    known: HashMap<Box<str>, Arc<KnownSensor>, RandomState>,
    /// Each sensor once, at the index [`KnownSensor::slot`].
    slots: Vec<Option<Arc<KnownSensor>>>,
    /// The other spellings by the sensor's slot.
    others: HashMap<u32, Vec<Box<str>>>,
    /// Free slots, left by deleted sensors.
    free: Vec<u32>,
    /// The renames that the other spellings depend on.
    renames: Option<Renames>,
}

impl Spellings {
    /// Returns the sensor with this spelling, unless it was deleted.
    pub fn get(&self, spelling: &str) -> Option<&Arc<KnownSensor>> {
        self.known.get(spelling).filter(|known| !known.is_superseded())
    }

    /// Returns the sensor with this spelling, even if it is marked as deleted.
    pub fn get_even_deleted(&self, spelling: &str) -> Option<&Arc<KnownSensor>> {
        self.known.get(spelling)
    }

    /// Returns the sensor with this spelling if it is the last known successor of `previous`.
    pub fn get_successor(&self, previous: &KnownSensor, spelling: &str) -> Option<&Arc<KnownSensor>> {
        let guess = self.slots.get(previous.successor.load(Ordering::Relaxed) as usize)?.as_ref()?;
        (*guess.sensor.key == *spelling && !guess.is_superseded()).then_some(guess)
    }

    /// Iterates over all spellings of sensors that are not deleted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<KnownSensor>)> {
        let known = self.known.iter().map(|(spelling, known)| (&**spelling, known));
        known.filter(|(_, known)| !known.is_superseded())
    }

    /// Iterates over all sensors, once per spelling, including those marked as deleted.
    pub fn values(&self) -> impl Iterator<Item = &Arc<KnownSensor>> {
        self.known.values()
    }

    /// Iterates over the sensors in these slots. Slots past the end are ignored.
    pub fn range(&self, slots: std::ops::Range<usize>) -> impl Iterator<Item = &Arc<KnownSensor>> {
        let end = slots.end.min(self.slots.len());
        self.slots[slots.start.min(end)..end].iter().flatten()
    }

    /// Returns the number of slots, free ones included.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Adds the sensor that `make` creates for its slot.
    pub fn add(&mut self, key: Box<str>, make: impl FnOnce(u32) -> KnownSensor) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("sensor ids have 32 bits, so slots fit in 32 bits")
        });
        let known = Arc::new(make(slot));
        self.slots[slot as usize] = Some(known.clone());
        self.known.insert(key, known);
    }

    /// Adds another spelling of a sensor that is in the map.
    pub fn add_spelling(&mut self, spelling: &str, known: &Arc<KnownSensor>) {
        self.known.insert(spelling.into(), known.clone());
        self.others.entry(known.slot).or_default().push(spelling.into());
    }

    /// Returns the renames that the spellings depend on.
    pub fn renames(&self) -> Option<&Renames> {
        self.renames.as_ref()
    }

    /// Sets the renames and removes all other spellings, which may stand for different sensors now.
    pub fn set_renames(&mut self, renames: Option<Renames>) {
        self.renames = renames;
        for (slot, spellings) in self.others.drain() {
            if let Some(Some(known)) = self.slots.get(slot as usize) {
                known.forget_spellings(&spellings);
            }
            for spelling in spellings {
                // The spelling may be the key of another sensor by now.
                if self.known.get(&spelling).is_some_and(|known| known.slot == slot) {
                    self.known.remove(&spelling);
                }
            }
        }
    }

    /// Removes a sensor. Returns true if it was in the map.
    pub fn remove(&mut self, sensor: &KnownSensor) -> bool {
        let Some(slot) = self.slots.get_mut(sensor.slot as usize) else { return false };
        let Some(removed) = slot.take_if(|known| known.id == sensor.id) else { return false };
        self.free.push(removed.slot);
        let spellings = self.others.remove(&removed.slot).unwrap_or_default();
        for spelling in spellings.iter().chain([&removed.sensor.key]) {
            // The spelling may belong to a newer sensor by now.
            if self.known.get(spelling).is_some_and(|known| known.id == removed.id) {
                self.known.remove(spelling);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::catalog::sensor::{CatalogState, SensorIds};
    use crate::reading::Sensor;

    fn sensor(number: u8) -> Sensor {
        Sensor::new("m", [("s".to_owned(), number.to_string())]).expect("distinct keys")
    }

    fn sensor_key(number: u8) -> Box<str> {
        sensor(number).key
    }

    proptest! {
        /// For any order of additions and removals and any remembered successor, a guess is the sensor with that
        /// spelling or nothing.
        #[test]
        fn a_guess_is_right_or_none(steps in proptest::collection::vec((0..4_u8, 0..12_u8, 0..12_u8), 0..200)) {
            let mut spellings = Spellings::default();
            let mut model = BTreeMap::new();
            for (id, (kind, one, other)) in steps.into_iter().enumerate() {
                let id = u32::try_from(id).expect("few");
                match kind {
                    0 => {
                        if let std::collections::btree_map::Entry::Vacant(free) = model.entry(one) {
                            let sensor = sensor(one);
                            let state = Arc::new(CatalogState::new(usize::MAX, crate::kinds::Kinds::default()));
                            let account = state.bytes.account(None);
                            let make = |slot| KnownSensor::new(sensor, SensorIds { id, slot, shard: 0 }, state, &account);
                            spellings.add(sensor_key(one), make);
                            free.insert(id);
                        }
                    }
                    1 => {
                        let known = spellings.get(&sensor_key(one)).cloned();
                        let is_removed = known.is_some_and(|known| spellings.remove(&known));
                        prop_assert_eq!(is_removed, model.remove(&one).is_some());
                    }
                    _ => {
                        let found = |number: u8| spellings.get(&sensor_key(number)).map(|known| known.id);
                        prop_assert_eq!(found(one), model.get(&one).copied());
                        let Some(before) = spellings.get(&sensor_key(one)) else { continue };
                        let guess = || spellings.get_successor(before, &sensor_key(other)).map(|known| known.id);
                        prop_assert!(guess().is_none() || guess() == found(other));
                        if let Some(successor) = spellings.get(&sensor_key(other)) {
                            before.note_successor(successor);
                            prop_assert_eq!(guess(), found(other));
                        }
                    }
                }
            }
            prop_assert!(spellings.slots.len() <= 12, "slots are reused");
        }
    }
}
