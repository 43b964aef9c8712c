//! The bounds by which the summaries of a set of readings count values by range. A set keeps its bounds in every form, so
//! that all writers of stored readings keep the counts without knowing any configuration.

use super::Readings;
use crate::bucket::stamps::Stamps;
use crate::bucket::summary::Summary;
use crate::bucket::summary::distribution::FieldBounds;

impl Readings {
    /// The bounds of the summaries' distributions.
    #[must_use]
    pub fn bounds(&self) -> &FieldBounds {
        &self.bounds
    }

    /// Replaces the bounds, and recounts the distributions of fields whose bounds differ.
    pub fn set_bounds(&mut self, bounds: &FieldBounds) {
        let old = std::mem::replace(&mut self.bounds, bounds.clone());
        if old == self.bounds {
            return;
        }
        for column in self.columns.iter_mut().filter(|column| old.get(&column.name) != bounds.get(&column.name)) {
            column.summary = Summary::fold_within(column.cells.iter().flatten(), bounds.get(&column.name));
        }
    }

    /// A set without readings that has the floor and the bounds of this one.
    pub(super) fn empty_copy(&self) -> Self {
        let stamps = Stamps::all_settled(0, self.stamps.floor());
        Self { stamps, bounds: self.bounds.clone(), ..Self::default() }
    }
}
