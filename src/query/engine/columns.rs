//! What a list of sensors says for a name of metadata, as numbers side by side. Looking metadata up takes about 0.15 us per sensor,
//! most of it waiting for memory; numbers side by side are read in order.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;

use super::directory::DirectoryEntry;
use crate::query::{Budget, HeldBytes, QueryError};

/// Most names of which a list keeps a column, of 4 to 8 bytes per sensor.
const COLUMNS_MAX: usize = 8;

/// Sensors in key order.
#[derive(Debug, Default)]
pub struct SensorList {
    entries: Vec<DirectoryEntry>,
    /// By name, those made last at the end.
    columns: Mutex<Vec<(Box<str>, Arc<Column>)>>,
}

/// The texts of a name, numbered.
#[derive(Debug)]
struct Column {
    /// For each sensor the number of its text; a sensor without the name has the empty one.
    numbers: Vec<u32>,
    /// For each number the place of a sensor that has its text.
    places: Vec<u32>,
}

/// Which sensors of a list pass a test of one name.
#[derive(Debug)]
pub struct Passing {
    column: Arc<Column>,
    /// By number of the text.
    passes: Vec<bool>,
    _held: HeldBytes,
}

impl Passing {
    /// Whether the sensor at a place passes.
    pub fn has(&self, place: usize) -> bool {
        self.passes[self.column.numbers[place] as usize]
    }
}

impl From<Vec<DirectoryEntry>> for SensorList {
    fn from(entries: Vec<DirectoryEntry>) -> Self {
        Self { entries, columns: Mutex::default() }
    }
}

impl Deref for SensorList {
    type Target = [DirectoryEntry];

    fn deref(&self) -> &Self::Target {
        &self.entries
    }
}

impl SensorList {
    /// Tests what the sensors say for a name, each text once. Other names that stand for a sensor are not looked at.
    ///
    /// # Errors
    /// If the budget is exhausted.
    pub fn passing(&self, budget: &Budget, name: &str, test: impl Fn(&str) -> bool) -> Result<Passing, QueryError> {
        // A column that the list does not keep belongs to the request.
        let mut held = budget.hold(self.entries.len() * size_of::<u32>())?;
        let column = self.column(budget, name);
        held.grow(column.places.len())?;
        let text = |place: &u32| self.entries[*place as usize].tag(name).unwrap_or_default();
        let tests = || column.places.iter().map(|place| test(&text(place))).collect();
        let passes = budget.run_unpaused(column.places.len(), tests);
        Ok(Passing { column, passes, _held: held })
    }

    fn column(&self, budget: &Budget, name: &str) -> Arc<Column> {
        let columns = || self.columns.lock();
        if let Some((_, known)) = columns().iter().find(|(known, _)| **known == *name) {
            return known.clone();
        }
        let column = Arc::new(budget.run_unpaused(self.entries.len(), || Column::of(&self.entries, name)));
        let mut columns = columns();
        columns.retain(|(known, _)| **known != *name);
        if columns.len() == COLUMNS_MAX {
            columns.remove(0);
        }
        columns.push((name.into(), column.clone()));
        column
    }
}

impl Column {
    fn of(entries: &[DirectoryEntry], name: &str) -> Self {
        let (mut by_text, mut places) = (HashMap::new(), Vec::new());
        let number = |(place, entry)| {
            *by_text.entry(DirectoryEntry::tag(entry, name).unwrap_or_default()).or_insert_with(|| {
                places.push(place as u32);
                places.len() as u32 - 1
            })
        };
        let numbers = entries.iter().enumerate().map(number).collect();
        Self { numbers, places }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Caller;
    use crate::bucket::Meta;
    use crate::query::budget::Budgets;
    use crate::query::options::unbounded_settings;
    use crate::reading::Sensor;

    fn list() -> SensorList {
        let entry = |number: usize| {
            let site = |site: &str| Arc::new(Meta::change(1, false, [("site".into(), Some(site.into()))]));
            let tags = [("sensor".to_owned(), number.to_string()), ("meta.site".to_owned(), "lab".to_owned())];
            let tags = tags.into_iter().take(1 + usize::from(number % 4 == 3));
            let meta = [None, Some(site("\"lab\"")), Some(site("7")), Some(site("\"roof\""))][number % 4].clone();
            let sensor = Sensor::new("climate", tags).expect("distinct tags");
            DirectoryEntry { meta, ..DirectoryEntry::bare(Arc::new(sensor)) }
        };
        (0..9).map(entry).collect::<Vec<_>>().into()
    }

    /// A tag of the same name wins over metadata, and what is missing counts as empty.
    #[test]
    fn a_column_passes_whom_a_look_at_each_sensor_passes() {
        let list = list();
        let budget = Budgets::new(unbounded_settings()).begin(&Caller::Anybody, "");
        for wanted in ["lab", "7", "roof", "", "no"] {
            let passing = list.passing(&budget, "meta.site", |text| text == wanted).expect("it fits");
            for (place, entry) in list.iter().enumerate() {
                let text = entry.tag("meta.site").unwrap_or_default();
                assert_eq!(passing.has(place), text == wanted, "{wanted:?} at {place}");
            }
        }
        assert_eq!(list.column(&budget, "meta.site").places, [0, 1, 2], "lab is one text, of metadata or of a tag");
    }

    #[test]
    fn a_list_keeps_the_columns_of_the_names_asked_for_last() {
        let list = list();
        let budget = Budgets::new(unbounded_settings()).begin(&Caller::Anybody, "");
        (0..COLUMNS_MAX + 3).for_each(|n| drop(list.column(&budget, &format!("meta.{n}"))));
        let kept: Vec<String> = list.columns.lock().iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(kept, (3..COLUMNS_MAX + 3).map(|n| format!("meta.{n}")).collect::<Vec<_>>());
    }
}
