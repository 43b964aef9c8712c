//! Decodes the distributions of summaries, which their fields' summaries hold as `{ bounds: […], counts: […] }`.

use std::sync::Arc;

use bson::raw::{RawArray, RawBsonRef, RawDocument};

use super::decode::{Detail, get};
use super::elements::items;
use crate::bucket::summary::distribution::{Distribution, FieldBounds, are_bounds};
use crate::names::from_key;

fn part(summary: &RawDocument) -> Result<Option<&RawDocument>, Detail> {
    match summary.get("distribution").map_err(|e| e.to_string())? {
        None => Ok(None),
        Some(distribution) => Ok(Some(distribution.as_document().ok_or("distribution is not a document")?)),
    }
}

fn bounds(distribution: &RawDocument) -> Result<Arc<[f64]>, Detail> {
    let bounds = get(distribution, "bounds")?.as_array().ok_or("distribution.bounds is not an array")?;
    let bounds = items(bounds, "distribution.bounds", |bound| bound.as_f64())?;
    if are_bounds(&bounds) { Ok(bounds.into()) } else { Err("distribution.bounds are not ascending".to_owned()) }
}

fn counts(bounds: &Arc<[f64]>, array: &RawArray) -> Result<Distribution, Detail> {
    let count = |count: RawBsonRef<'_>| {
        let count = count.as_i64().or_else(|| count.as_i32().map(i64::from))?;
        u64::try_from(count).ok()
    };
    let counts = items(array, "distribution.counts", count)?;
    let distribution = Distribution::from_counts(bounds.clone(), counts);
    distribution.ok_or_else(|| "distribution.counts does not have one more element than bounds".to_owned())
}

/// Decodes the distribution of a summary, if it has one.
pub(super) fn distribution(summary: &RawDocument) -> Result<Option<Distribution>, Detail> {
    let Some(part) = part(summary)? else { return Ok(None) };
    let array = get(part, "counts")?.as_array().ok_or("distribution.counts is not an array")?;
    counts(&bounds(part)?, array).map(Some)
}

/// Decodes the distributions of hourly summaries, which share their bounds; empty if there are none.
pub(super) fn hourly_distributions(summaries: &RawDocument) -> Result<Vec<Option<Distribution>>, Detail> {
    let Some(part) = part(summaries)? else { return Ok(Vec::new()) };
    let bounds = bounds(part)?;
    let by_hour = get(part, "counts")?.as_array().ok_or("distribution.counts is not an array")?;
    let decode = |element: bson::error::Result<RawBsonRef<'_>>| match element.map_err(|e| e.to_string())? {
        RawBsonRef::Array(array) => counts(&bounds, array).map(Some),
        RawBsonRef::Null => Ok(None),
        _ => Err("distribution.counts has an element of an unexpected type".to_owned()),
    };
    by_hour.into_iter().map(decode).collect()
}

/// Decodes the bounds of all fields that have distributions in `document.name`. Leaves out damaged ones, because all
/// summaries are recomputed from readings.
pub(super) fn field_bounds(document: &RawDocument, name: &str) -> FieldBounds {
    let Ok(summaries) = document.get_document(name) else { return FieldBounds::default() };
    let of_field = |element: bson::error::Result<(&bson::raw::CStr, RawBsonRef<'_>)>| {
        let (field, summary) = element.ok()?;
        let bounds = bounds(part(summary.as_document()?).ok()??).ok()?;
        Some((Arc::from(from_key(field.as_str())), bounds))
    };
    FieldBounds::new(summaries.into_iter().filter_map(of_field))
}
