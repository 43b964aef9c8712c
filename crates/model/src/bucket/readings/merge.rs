//! The merge of readings into a set: field by field, the greater stamp wins.

use std::sync::Arc;

use super::{FieldColumn, Readings, cell_bytes, text_bytes};
use crate::reading::stamp::SETTLED;
use crate::reading::{Stamp, Value};

/// The outcome of merging a reading whose time the set already holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeOutcome {
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
    /// Merges the fields of a record with this stamp into the reading at `index`. Field by field, the greater stamp
    /// wins. For equal stamps, the greater value wins ([`Value::is_greater`]).
    pub fn merge<'a>(
        &mut self,
        index: usize,
        stamp: Stamp,
        fields: impl Iterator<Item = (&'a Arc<str>, &'a Value)>,
    ) -> MergeOutcome {
        if stamp <= self.stamps.floor() {
            return self.compare(index, fields);
        }
        let mut is_changed = false;
        let mut is_restamped = false;
        let mut has_landed = true;
        for (hint, (name, value)) in fields.enumerate() {
            let column = self.column(name, hint);
            self.columns[column].cells.resize(self.times.len(), None);
            let Some(held) = &self.columns[column].cells[index] else {
                has_landed = false;
                is_restamped = true;
                is_changed = true;
                self.stamps.set(index, column, stamp);
                self.replace(column, index, value);
                continue;
            };
            let held_stamp = self.stamps.get(index, column);
            has_landed &= held_stamp == stamp;
            let wins = stamp > held_stamp || (stamp == held_stamp && value.is_greater(held));
            if !wins {
                continue;
            }
            let differs = held != value;
            is_restamped |= held_stamp != stamp;
            self.stamps.set(index, column, stamp);
            if differs {
                is_changed = true;
                self.replace(column, index, value);
            }
        }
        if is_restamped {
            self.unite_stamps(index);
        }
        if is_changed {
            MergeOutcome::Changed
        } else if is_restamped {
            MergeOutcome::Restamped
        } else if has_landed {
            MergeOutcome::Landed
        } else {
            MergeOutcome::Same
        }
    }

    /// Merges fields whose stamp is at or below the floor, which cannot change the set.
    fn compare<'a>(&self, index: usize, mut fields: impl Iterator<Item = (&'a Arc<str>, &'a Value)>) -> MergeOutcome {
        let is_present = |(name, value): (&Arc<str>, &Value)| {
            let Some(column) = self.columns.iter().position(|column| column.name == *name) else { return false };
            let Some(Some(held)) = self.columns[column].cells.get(index) else { return false };
            // A cell above the floor is later, whatever its value.
            held == value || self.stamps.get(index, column) != SETTLED
        };
        if fields.all(is_present) { MergeOutcome::Same } else { MergeOutcome::Outdated }
    }

    fn replace(&mut self, column: usize, index: usize, value: &Value) {
        let column = &mut self.columns[column];
        let cell = &mut column.cells[index];
        self.bytes += cell_bytes(&column.name, value);
        self.bytes -= cell.as_ref().map_or(0, |old| cell_bytes(&column.name, old));
        self.texts += text_bytes(value);
        self.texts -= cell.as_ref().map_or(0, text_bytes);
        *cell = Some(value.clone());
        self.packed.take();
    }

    /// Stores one stamp for the whole reading if all its cells have the same stamp.
    pub(super) fn unite_stamps(&mut self, index: usize) {
        let has_cell = |column: &FieldColumn| column.cells.get(index).is_some_and(Option::is_some);
        let with_cell = self.columns.iter().enumerate().filter(|(_, column)| has_cell(column));
        let mut stamps = with_cell.map(|(number, _)| self.stamps.get(index, number));
        let Some(first) = stamps.next() else { return };
        if stamps.all(|stamp| stamp == first) {
            self.stamps.set_row(index, first);
        }
    }

    /// Merges another sorted set into this sorted one. Returns true if any reading was added or any value changed.
    pub fn merge_set(&mut self, other: &Self) -> bool {
        let mut has_changed = false;
        let mut has_added = false;
        let mut bounds = self.bounds.clone();
        if bounds.add(&other.bounds) {
            self.set_bounds(&bounds);
        }
        for (row, time) in other.times.iter().enumerate() {
            let Some(index) = self.find(*time) else {
                self.push_row(other, row);
                has_added = true;
                continue;
            };
            for (number, column) in other.columns.iter().enumerate() {
                if let Some(value) = &column.cells[row] {
                    let field = std::iter::once((&column.name, value));
                    has_changed |= self.merge(index, other.stamps.get(row, number), field) == MergeOutcome::Changed;
                }
            }
        }
        if has_changed || has_added {
            self.settle(has_changed);
        }
        has_changed || has_added
    }

    /// A copy in which every cell has a stamp: settled cells get the floor as their stamp. The copy's floor is 0.
    #[must_use]
    pub fn explicit(&self) -> Self {
        let mut copy = self.clone();
        copy.stamps.make_explicit();
        copy
    }

    /// The maximum number of cells of the union with another set, empty ones included.
    #[must_use]
    pub fn cells_with(&self, other: &Self) -> usize {
        let is_new = |(number, column): &(usize, &FieldColumn)| {
            let is_same = |own: &FieldColumn| own.name == column.name;
            !self.columns.get(*number).is_some_and(is_same) && !self.columns.iter().any(is_same)
        };
        let new_columns = other.columns.iter().enumerate().filter(is_new).count();
        (self.times.len() + other.times.len()) * (self.columns.len() + new_columns)
    }

    /// Merges another sorted set into this one, in which every cell must have a stamp ([`Readings::explicit`], or an
    /// empty set). By time and field, the greater stamp wins. A settled cell counts as old as its set's floor.
    pub fn unite(&mut self, other: &Self) {
        if other.stamps.floor() == 0 && other.stamps.oldest() > 0 {
            self.merge_set(other);
        } else {
            self.merge_set(&other.explicit());
        }
    }
}
