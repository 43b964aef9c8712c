//! The bounds by which a histogram counts a field, as the kinds of its sensors declare them.

use std::sync::Arc;

use crate::bucket::Meta;
use crate::kinds::Kinds;
use crate::query::engine::memory::CHOOSE;
use crate::query::selector::Selector;
use crate::query::{Budget, Query, QueryError};

/// The declared bounds of a field.
#[derive(Debug)]
pub enum DeclaredBounds {
    /// No selected sensor with the field has a kind that declares bounds.
    Missing,
    Same(Arc<[f64]>),
    /// Selected sensors have different bounds.
    Different,
}

impl Query {
    /// Returns the bounds of a field that the kinds of the selected sensors declare.
    ///
    /// # Errors
    /// If the store fails, or the budget is exhausted.
    pub async fn declared_bounds(
        &self,
        budget: &Budget,
        database: &str,
        selector: &Selector,
        field: &str,
        kinds: &Kinds,
    ) -> Result<DeclaredBounds, QueryError> {
        let chosen = || self.engine.choose(budget, database, selector);
        let chosen = self.in_turn(budget, database, chosen).await?;
        let mut found = DeclaredBounds::Missing;
        for some in chosen.entries.chunks(CHOOSE) {
            for entry in some.iter().filter(|entry| entry.family(field).is_some()) {
                let kind = match &entry.meta {
                    Some(meta) => kinds.kind_of(&entry.stored, meta),
                    None => kinds.kind_of(&entry.stored, &Meta::default()),
                };
                let Some(bounds) = kind.and_then(|kind| kind.buckets.get(field)) else { continue };
                match &found {
                    DeclaredBounds::Missing => found = DeclaredBounds::Same(bounds.clone()),
                    DeclaredBounds::Same(held) if held == bounds => {}
                    _ => return Ok(DeclaredBounds::Different),
                }
            }
            budget.pause().await?;
        }
        Ok(found)
    }
}
