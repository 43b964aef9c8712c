//! Counts of a field's numbers by range (a histogram), for fields with declared bounds.

use std::sync::Arc;

/// Maximum number of bounds of a field.
pub const BOUNDS_MAX: usize = 64;

/// The number of values in each range. Range 0 lies below the first bound, range `i` from bound `i - 1` (included) to
/// bound `i` (excluded), and the last range from the last bound on. Integers are placed by their nearest `f64`.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    bounds: Arc<[f64]>,
    counts: Box<[u64]>,
}

/// A field's name and its bounds.
pub type BoundedField = (Arc<str>, Arc<[f64]>);

/// The bounds that fields have, by field; `None` if no field has any, so that most sensors pay nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FieldBounds(Option<Arc<[BoundedField]>>);

/// Returns true for 1 to [`BOUNDS_MAX`] finite, ascending numbers.
#[must_use]
pub fn are_bounds(bounds: &[f64]) -> bool {
    (1..=BOUNDS_MAX).contains(&bounds.len())
        && bounds.iter().all(|bound| bound.is_finite())
        && bounds.windows(2).all(|pair| pair[0] < pair[1])
}

impl Distribution {
    /// A distribution without values.
    #[must_use]
    pub fn new(bounds: Arc<[f64]>) -> Self {
        let counts = vec![0; bounds.len() + 1].into();
        Self { bounds, counts }
    }

    /// Restores a distribution; `None` for invalid bounds, or another number of counts than one more than bounds.
    #[must_use]
    pub fn from_counts(bounds: Arc<[f64]>, counts: Vec<u64>) -> Option<Self> {
        let is_valid = are_bounds(&bounds) && counts.len() == bounds.len() + 1;
        is_valid.then(|| Self { bounds, counts: counts.into() })
    }

    /// The bounds, in ascending order.
    #[must_use]
    pub fn bounds(&self) -> &Arc<[f64]> {
        &self.bounds
    }

    /// The counts, one more than bounds.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The number of all counted values.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Counts a value.
    pub fn push(&mut self, value: f64) {
        let range = self.bounds.partition_point(|bound| *bound <= value);
        self.counts[range] += 1;
    }

    /// Adds the counts of another distribution if it has the same bounds. Otherwise returns false and adds nothing.
    pub fn unite(&mut self, other: &Self) -> bool {
        let is_same = Arc::ptr_eq(&self.bounds, &other.bounds) || self.bounds == other.bounds;
        if is_same {
            let pairs = self.counts.iter_mut().zip(&other.counts);
            pairs.for_each(|(count, other)| *count = count.saturating_add(*other));
        }
        is_same
    }

    /// The index of the range in which a percentile of the counted values lies, by the same rank as that of exact
    /// percentiles; `None` without values.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub fn percentile(&self, percent: f64) -> Option<usize> {
        let rank = (self.total() as f64 * percent / 100.0 + 0.5).floor().max(1.0);
        let mut below = 0;
        self.counts.iter().position(|count| {
            below += count;
            below as f64 >= rank
        })
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.counts)
    }
}

/// Bounds are finite.
impl Eq for FieldBounds {}

impl FieldBounds {
    /// The bounds of fields. Each field's first bounds count.
    #[must_use]
    pub fn new(fields: impl IntoIterator<Item = BoundedField>) -> Self {
        let mut all: Vec<BoundedField> = Vec::new();
        for (name, bounds) in fields {
            if all.iter().all(|(known, _)| *known != name) {
                all.push((name, bounds));
            }
        }
        Self((!all.is_empty()).then(|| all.into()))
    }

    /// Returns true if no field has bounds.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The fields with their bounds.
    pub fn fields(&self) -> impl Iterator<Item = &BoundedField> {
        self.0.iter().flat_map(|fields| fields.iter())
    }

    /// The bounds of a field.
    #[must_use]
    pub fn get(&self, field: &str) -> Option<&Arc<[f64]>> {
        self.fields().find(|(name, _)| **name == *field).map(|(_, bounds)| bounds)
    }

    /// Adds the bounds of fields that have none here. Returns true if there were any.
    pub fn add(&mut self, other: &Self) -> bool {
        if other.fields().all(|(name, _)| self.get(name).is_some()) {
            return false;
        }
        *self = Self::new(self.fields().chain(other.fields()).cloned());
        true
    }
}

#[cfg(test)]
mod tests;
