//! The encoding of distributions and their bounds, for summaries and readings of fields with declared bounds.
//!
//! ```text
//! distributions := bounds count:varint…           per summary: its bounds, and one more count than bounds
//! bounds        := length:varint f64…             little-endian; length 0 for a summary without a distribution
//! field bounds  := names bounds…                  names: count:varint (length:varint bytes)…
//! ```

use std::sync::Arc;

use crate::bucket::columns::{ColumnsDamage, PackedBytes};
use crate::bucket::summary::distribution::{BOUNDS_MAX, Distribution, FieldBounds, are_bounds};
use crate::reading::varint::{put_texts, put_varint};

fn put_bounds(out: &mut Vec<u8>, bounds: &[f64]) {
    put_varint(out, bounds.len() as u64);
    bounds.iter().for_each(|bound| out.extend_from_slice(&bound.to_le_bytes()));
}

fn take_bounds(bytes: &mut PackedBytes<'_>) -> Result<Vec<f64>, ColumnsDamage> {
    let unknown = |found| ColumnsDamage::Unknown { what: "bounds", found };
    let length = bytes.varint()?;
    let count = usize::try_from(length).ok().filter(|count| *count <= BOUNDS_MAX).ok_or_else(|| unknown(length))?;
    let (bounds, _) = bytes.take(count * size_of::<f64>())?.as_chunks();
    let bounds: Vec<f64> = bounds.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
    if bounds.is_empty() || are_bounds(&bounds) { Ok(bounds) } else { Err(unknown(length)) }
}

/// Appends the distribution of a summary.
pub(crate) fn put(out: &mut Vec<u8>, distribution: Option<&Distribution>) {
    let Some(distribution) = distribution else { return put_bounds(out, &[]) };
    put_bounds(out, distribution.bounds());
    distribution.counts().iter().for_each(|count| put_varint(out, *count));
}

/// Decodes what [`put`] wrote. `last` has the bounds of the distribution before, which nearly all share.
///
/// # Errors
/// [`ColumnsDamage`]
pub(crate) fn take(bytes: &mut PackedBytes<'_>, last: &mut Arc<[f64]>) -> Result<Option<Distribution>, ColumnsDamage> {
    let bounds = take_bounds(bytes)?;
    if bounds.is_empty() {
        return Ok(None);
    }
    if **last != *bounds {
        *last = bounds.into();
    }
    let counts: Result<Vec<u64>, ColumnsDamage> = (0..=last.len()).map(|_| bytes.varint()).collect();
    Ok(Distribution::from_counts(last.clone(), counts?))
}

/// Appends the bounds of fields.
pub(crate) fn put_fields(out: &mut Vec<u8>, bounds: &FieldBounds) {
    let fields: Vec<_> = bounds.fields().collect();
    put_texts(out, fields.iter().map(|(name, _)| &**name));
    fields.iter().for_each(|(_, bounds)| put_bounds(out, bounds));
}

/// Decodes what [`put_fields`] wrote.
///
/// # Errors
/// [`ColumnsDamage`]
pub(crate) fn take_fields(bytes: &mut PackedBytes<'_>) -> Result<FieldBounds, ColumnsDamage> {
    let mut fields = Vec::new();
    for name in bytes.texts()? {
        fields.push((Arc::from(name), take_bounds(bytes)?.into()));
    }
    Ok(FieldBounds::new(fields))
}
