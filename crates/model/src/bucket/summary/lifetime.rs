//! Summaries over all stored readings of a sensor, kept in its document (MongoDB's Computed pattern). They are for
//! people only: no query uses them, because readings that were stored after the fold are missing.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::Summary;
use crate::reading::Hour;

/// The lifetime summaries of a sensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Lifetime {
    /// The wall-clock time at which the fold began, in nanoseconds, a whole number of milliseconds. It includes every
    /// reading that was stored by then.
    pub as_of: i64,
    /// The hours from that of the first reading to that of the last one. A deletion outside them changes nothing.
    pub hours: Range<Hour>,
    /// The summaries of numeric fields, in order of names.
    pub fields: Vec<(Arc<str>, Summary)>,
}

/// A fold of summaries in order of time.
#[derive(Debug, Clone, Default)]
pub struct LifetimeFold {
    hours: Option<Range<Hour>>,
    fields: BTreeMap<Arc<str>, Summary>,
}

impl LifetimeFold {
    /// Adds the summaries of an hour, or of several, which are later than all added before.
    pub fn add(&mut self, hours: Range<Hour>, summaries: &[(Arc<str>, Summary)]) {
        let start = self.hours.as_ref().map_or(hours.start, |held| held.start);
        self.hours = Some(start..hours.end);
        for (name, summary) in summaries {
            match self.fields.get_mut(name) {
                Some(held) => held.unite(summary),
                None => drop(self.fields.insert(name.clone(), summary.clone())),
            }
        }
    }

    /// Returns the summaries of the first `fields_max` fields; `None` without readings.
    #[must_use]
    pub fn finish(self, as_of: i64, fields_max: usize) -> Option<Lifetime> {
        let fields = self.fields.into_iter().take(fields_max).collect();
        Some(Lifetime { as_of, hours: self.hours?, fields })
    }
}
