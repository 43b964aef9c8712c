//! Checks of the instances' answers between steps.

use std::rc::Rc;

use super::instance::Instance;
use super::names;
use super::oracle::{Record, WrittenValue, same};
use super::store::{Key, list_cells};
use super::world::{KEYS, World};
use crate::bucket::Readings;

impl World {
    /// Returns an instance's answer for a bucket: the stored readings without known deletions, merged with its
    /// unflushed readings.
    fn view(&self, instance: &Instance, key: Key) -> Readings {
        let pages = self.store.read(key, &instance.covers(key));
        let mut sets = pages.iter().map(|page| &page.readings);
        let mut all = sets.next().cloned().unwrap_or_default();
        for set in sets {
            all.merge_set(set);
        }
        all.merge_set(&instance.unflushed(key));
        all
    }

    /// Checks that an instance answers with no value that was never written, that is older than one it has acked, or
    /// that it has deleted.
    pub(crate) fn look(&self, slot: usize) {
        let Some(instance) = &self.running[slot] else { return };
        for key in KEYS {
            let mut found: std::collections::BTreeMap<_, _> =
                list_cells(&self.view(instance, key)).into_iter().collect();
            let (sensor, _) = key;
            for (cell, values) in self.oracle.written_values(key, &names().names()) {
                let found = found.remove(&cell);
                let (time, _) = cell;
                let is_own = |record: &Rc<Record>| instance.own.iter().any(|own| Rc::ptr_eq(own, record));
                let is_late = |record: &Rc<Record>| self.oracle.late.contains(&record.id);
                let own = values.iter().rfind(|written| is_own(&written.record) && !is_late(&written.record));
                // While a deletion is running, the values that it covers may be there or not.
                let is_open = own.is_some_and(|own| {
                    self.oracle.is_deleted(&own.record, sensor, time, |_| true)
                        || self.oracle.can_be_deleted(own, &values, sensor, time)
                });
                let least = own.filter(|_| !is_open).map_or(0, |own| own.record.stamp);
                let is_deleted = |written: &WrittenValue| {
                    let is_known = |deletion: &Record| {
                        is_own_done(instance, deletion)
                            && self.oracle.is_done(deletion)
                            && !self.oracle.late.contains(&deletion.id)
                    };
                    self.oracle.is_deleted(&written.record, sensor, time, is_known)
                };
                let any_late = values.iter().any(|written| is_late(&written.record));
                let is_right = match &found {
                    Some(found) => values.iter().any(|written| {
                        same(found, Some(&written.value))
                            && (any_late || written.record.stamp >= least && !is_deleted(written))
                    }),
                    None => own.is_none() || is_open,
                };
                assert!(is_right, "{key:?} {cell:?}: answered {found:?}, acked {:?}", own.map(|own| &own.record));
            }
            assert!(found.is_empty(), "never written: {found:?}");
        }
    }
}

fn is_own_done(instance: &Instance, deletion: &Record) -> bool {
    let is_same = |other: &Rc<Record>| other.id == deletion.id;
    instance.own.iter().any(is_same) && !instance.deletions.iter().any(|waiting| waiting.id == deletion.id)
}
