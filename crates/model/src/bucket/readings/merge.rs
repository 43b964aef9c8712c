//! Merges readings into a set: field by field the greater stamp wins.

use std::sync::Arc;

use super::{Readings, cell_bytes, text_bytes};
use crate::reading::stamp::SETTLED;
use crate::reading::{Stamp, Value};

/// The outcome of merging a reading whose time the set already holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merged {
    /// A value changed, or was added.
    Changed,
    /// The values are unchanged; at least one has a greater stamp now.
    Restamped,
    /// The set already has this record's reading, from an earlier attempt.
    Landed,
    /// The set has the same values, or later ones.
    Same,
    /// The reading's stamp is at or below the floor and its values differ. Stamps at or below the floor are not stored,
    /// so it is unknown which values are later. Nothing changed.
    Outdated,
}

impl Readings {
    /// Merges fields from a record with this stamp into the reading at `index`. Field by field, the greater stamp wins;
    /// of equal stamps the greater value ([`Value::is_greater`]).
    pub fn merge<'a>(
        &mut self,
        index: usize,
        stamp: Stamp,
        fields: impl Iterator<Item = (&'a Arc<str>, &'a Value)>,
    ) -> Merged {
        if stamp <= self.stamps.floor() {
            return self.compare(index, fields);
        }
        let (mut changed, mut restamped, mut landed) = (false, false, true);
        for (hint, (name, value)) in fields.enumerate() {
            let at = self.column(name, hint);
            self.columns[at].cells.resize(self.times.len(), None);
            let held = self.columns[at].cells[index].as_ref().map(|old| (self.stamps.of(index, at), old));
            landed &= held.is_some_and(|(of, _)| of == stamp);
            let (wins, differs) = match held {
                None => (true, true),
                Some((of, old)) => (stamp > of || (stamp == of && value.is_greater(old)), old != value),
            };
            if !wins {
                continue;
            }
            restamped |= held.is_none_or(|(of, _)| of != stamp);
            self.stamps.set(index, at, stamp);
            if differs {
                changed = true;
                self.replace(at, index, value);
            }
        }
        if restamped {
            self.unite_stamps(index);
        }
        match (changed, restamped, landed) {
            (true, ..) => Merged::Changed,
            (false, true, _) => Merged::Restamped,
            (false, false, true) => Merged::Landed,
            (false, false, false) => Merged::Same,
        }
    }

    fn compare<'a>(&self, index: usize, mut fields: impl Iterator<Item = (&'a Arc<str>, &'a Value)>) -> Merged {
        let is_there = |(name, value): (&Arc<str>, &Value)| {
            let column = self.columns.iter().position(|column| column.name == *name);
            let cell = column.and_then(|at| Some((at, self.columns[at].cells.get(index)?.as_ref()?)));
            // A cell above the floor is later, whatever its value.
            cell.is_some_and(|(at, held)| held == value || self.stamps.of(index, at) != SETTLED)
        };
        if fields.all(is_there) { Merged::Same } else { Merged::Outdated }
    }

    fn replace(&mut self, at: usize, index: usize, value: &Value) {
        let column = &mut self.columns[at];
        let cell = &mut column.cells[index];
        self.bytes += cell_bytes(&column.name, value);
        self.bytes -= cell.as_ref().map_or(0, |old| cell_bytes(&column.name, old));
        self.texts += text_bytes(value);
        self.texts -= cell.as_ref().map_or(0, text_bytes);
        *cell = Some(value.clone());
        self.packed.take();
    }

    /// Stores one stamp for the whole reading if all its cells have the same.
    pub(super) fn unite_stamps(&mut self, index: usize) {
        let there = self.columns.iter().enumerate();
        let there = there.filter(|(_, column)| column.cells.get(index).is_some_and(Option::is_some));
        let mut stamps = there.map(|(at, _)| self.stamps.of(index, at));
        let Some(first) = stamps.next() else { return };
        if stamps.all(|stamp| stamp == first) {
            self.stamps.set_row(index, first);
        }
    }

    /// Merges another sorted set into this sorted one; returns whether any reading or value changed, beyond stamps.
    pub fn merge_set(&mut self, other: &Self) -> bool {
        let (mut changed, mut added) = (false, false);
        for (row, time) in other.times.iter().enumerate() {
            let Some(index) = self.find(*time) else {
                self.push_from(other, row);
                added = true;
                continue;
            };
            for (at, column) in other.columns.iter().enumerate() {
                if let Some(value) = &column.cells[row] {
                    let field = std::iter::once((&column.name, value));
                    changed |= self.merge(index, other.stamps.of(row, at), field) == Merged::Changed;
                }
            }
        }
        if changed || added {
            self.settle(changed);
        }
        changed || added
    }

    /// A copy in which every cell has a stamp: a settled one counts as old as the floor. The floor is then 0.
    #[must_use]
    pub fn explicit(&self) -> Self {
        let mut copy = self.clone();
        copy.stamps.make_explicit();
        copy
    }

    /// Merges another sorted set into this one, in which every cell has a stamp ([`Readings::explicit`], or an empty set): per
    /// time and field the greater stamp wins, where a settled cell counts as old as its set's floor.
    pub fn unite(&mut self, other: &Self) {
        if other.stamps.floor() == 0 && other.stamps.oldest() > 0 {
            self.merge_set(other);
        } else {
            self.merge_set(&other.explicit());
        }
    }
}
