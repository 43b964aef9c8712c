//! A database's sensors by spelling. Most clients send their sensors in the same order every time, so each sensor
//! remembers which one followed it: with very many sensors a hash lookup waits for memory, which a right guess avoids.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rapidhash::fast::RandomState;

use super::sensor::KnownSensor;
use crate::bucket::Renames;

/// Sensors by canonical key and by other spellings of it.
#[derive(Debug, Default)]
pub struct Spellings {
    known: HashMap<Box<str>, Arc<KnownSensor>, RandomState>,
    /// Each sensor once, at its [`place`](KnownSensor::place).
    places: Vec<Option<Arc<KnownSensor>>>,
    /// The other spellings of sensors that have some, by the sensor's place.
    others: HashMap<u32, Vec<Box<str>>>,
    /// Places of sensors that were deleted, for reuse.
    free: Vec<u32>,
    /// The renames by which the other spellings were found.
    renames: Option<Renames>,
}

impl Spellings {
    /// The sensor of that spelling, unless it was deleted.
    pub fn get(&self, spelling: &str) -> Option<&Arc<KnownSensor>> {
        self.known.get(spelling).filter(|known| !known.is_superseded())
    }

    /// The sensor of that spelling, including one that is marked as deleted and not yet removed.
    pub fn get_even_deleted(&self, spelling: &str) -> Option<&Arc<KnownSensor>> {
        self.known.get(spelling)
    }

    /// The sensor of that spelling, if it is the one that last followed `before`.
    pub fn get_behind(&self, before: &KnownSensor, spelling: &str) -> Option<&Arc<KnownSensor>> {
        let guess = self.places.get(before.behind.load(Ordering::Relaxed) as usize)?.as_ref()?;
        (*guess.sensor.key == *spelling && !guess.is_superseded()).then_some(guess)
    }

    /// All spellings of sensors that are not deleted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<KnownSensor>)> {
        let known = self.known.iter().map(|(spelling, known)| (&**spelling, known));
        known.filter(|(_, known)| !known.is_superseded())
    }

    /// All sensors, once per spelling, including those that are marked as deleted.
    pub fn values(&self) -> impl Iterator<Item = &Arc<KnownSensor>> {
        self.known.values()
    }

    /// The sensors at these places, or at those of them that there are.
    pub fn at(&self, places: std::ops::Range<usize>) -> impl Iterator<Item = &Arc<KnownSensor>> {
        let end = places.end.min(self.places.len());
        self.places[places.start.min(end)..end].iter().flatten()
    }

    /// One more than the last place.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// Adds a sensor, which is made with its place.
    pub fn add(&mut self, key: Box<str>, known: impl FnOnce(u32) -> KnownSensor) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            u32::try_from(self.places.len() - 1).expect("sensor ids have 32 bits, so places fit in 32 bits")
        });
        let known = Arc::new(known(place));
        self.places[place as usize] = Some(known.clone());
        self.known.insert(key, known);
    }

    /// Adds another spelling of a sensor that is in the map.
    pub fn add_spelling(&mut self, spelling: &str, known: &Arc<KnownSensor>) {
        self.known.insert(spelling.into(), known.clone());
        self.others.entry(known.place).or_default().push(spelling.into());
    }

    /// The renames by which spellings are found.
    pub fn renames(&self) -> Option<&Renames> {
        self.renames.as_ref()
    }

    /// Changes the renames, and forgets all other spellings, which may mean other sensors by now.
    pub fn set_renames(&mut self, renames: Option<Renames>) {
        self.renames = renames;
        for (place, spellings) in self.others.drain() {
            let known = self.places.get(place as usize).and_then(Option::as_ref);
            known.into_iter().for_each(|known| known.forget_spellings(&spellings));
            for spelling in spellings {
                // It may be the key of another sensor by now.
                if self.known.get(&spelling).is_some_and(|there| there.place == place) {
                    self.known.remove(&spelling);
                }
            }
        }
    }

    /// Removes a sensor; returns whether it was in the map.
    pub fn remove(&mut self, gone: &KnownSensor) -> bool {
        let Self { known, places, others, free, .. } = self;
        let Some(place) = places.get_mut(gone.place as usize) else { return false };
        let Some(gone) = place.take_if(|there| there.id == gone.id) else { return false };
        free.push(gone.place);
        let spellings = others.remove(&gone.place).unwrap_or_default();
        for spelling in spellings.iter().chain([&gone.sensor.key]) {
            // The spelling may belong to a newer sensor by now.
            if known.get(spelling).is_some_and(|there| there.id == gone.id) {
                known.remove(spelling);
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
    use crate::catalog::sensor::CatalogState;
    use crate::reading::Sensor;

    fn sensor(number: u8) -> Sensor {
        Sensor::new("m", [("s".to_owned(), number.to_string())]).expect("distinct keys")
    }

    proptest! {
        /// In any order of additions and removals, and for any remembered successor, a guess is the sensor of that
        /// spelling or none.
        #[test]
        fn a_guess_is_right_or_none(steps in proptest::collection::vec((0..4_u8, 0..12_u8, 0..12_u8), 0..200)) {
            let (mut spellings, mut model) = (Spellings::default(), BTreeMap::new());
            for (id, (kind, one, other)) in steps.into_iter().enumerate() {
                let id = u32::try_from(id).expect("few");
                match kind {
                    0 => {
                        if let std::collections::btree_map::Entry::Vacant(free) = model.entry(one) {
                            let sensor = sensor(one);
                            spellings.add(sensor.key.clone(), |place| KnownSensor::new(sensor, (id, place, 0), Arc::new(CatalogState::new(usize::MAX, crate::kinds::Kinds::default()))));
                            free.insert(id);
                        }
                    }
                    1 => {
                        let gone = spellings.get(&sensor(one).key).cloned();
                        prop_assert_eq!(gone.is_some_and(|gone| spellings.remove(&gone)), model.remove(&one).is_some());
                    }
                    _ => {
                        let found = |number: u8| spellings.get(&sensor(number).key).map(|known| known.id);
                        prop_assert_eq!(found(one), model.get(&one).copied());
                        let Some(before) = spellings.get(&sensor(one).key) else { continue };
                        let guess = spellings.get_behind(before, &sensor(other).key).map(|known| known.id);
                        prop_assert!(guess.is_none() || guess == found(other));
                        if let Some(behind) = spellings.get(&sensor(other).key) {
                            before.is_before(behind);
                            let guess = spellings.get_behind(before, &sensor(other).key).map(|known| known.id);
                            prop_assert_eq!(guess, found(other));
                        }
                    }
                }
            }
            prop_assert!(spellings.places.len() <= 12, "places are used again");
        }
    }
}
