//! Checks of the instances' answers between steps.

use std::rc::Rc;

use super::instance::Instance;
use super::names;
use super::oracle::{Record, same};
use super::store::{Key, cells_of};
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
            let mut found: std::collections::BTreeMap<_, _> = cells_of(&self.view(instance, key)).into_iter().collect();
            for (cell, said) in self.oracle.said(key, &names().names()) {
                let found = found.remove(&cell);
                let at = (key.0, cell.0);
                let is_own = |record: &Rc<Record>| instance.own.iter().any(|own| Rc::ptr_eq(own, record));
                let is_late = |record: &Rc<Record>| self.oracle.late.contains(&record.id);
                let own = said.iter().rfind(|said| is_own(&said.record) && !is_late(&said.record));
                // While a deletion is running, the values that it covers may be there or not.
                let own_gone = own.is_some_and(|own| {
                    self.oracle.is_deleted(&own.record, at, |_| true) || self.oracle.is_perhaps_gone(own, &said, at)
                });
                let least = own.filter(|_| !own_gone).map_or(0, |own| own.record.stamp);
                let is_gone = |said: &crate::buffer::tests::oracle::Said| {
                    let is_known = |by: &Record| {
                        is_own_done(instance, by) && self.oracle.is_done(by) && !self.oracle.late.contains(&by.id)
                    };
                    self.oracle.is_deleted(&said.record, at, is_known)
                };
                let any_late = said.iter().any(|said| is_late(&said.record));
                let is_right = match &found {
                    Some(found) => said.iter().any(|said| {
                        same(found, Some(&said.value)) && (any_late || said.record.stamp >= least && !is_gone(said))
                    }),
                    None => own.is_none() || own_gone,
                };
                assert!(is_right, "{key:?} {cell:?}: answered {found:?}, acked {:?}", own.map(|own| &own.record));
            }
            assert!(found.is_empty(), "never written: {found:?}");
        }
    }
}

fn is_own_done(instance: &Instance, by: &Record) -> bool {
    instance.own.iter().any(|own| own.id == by.id) && !instance.deletions.iter().any(|waiting| waiting.id == by.id)
}
