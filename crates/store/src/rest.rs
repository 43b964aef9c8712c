//! The remainder that rounding left of a sum, as bytes behind the sum: nearly always two.
//!
//! ```text
//! rest := 0  |  part…                    0 if rounding left nothing
//! part := head:varint significand:zigzag (half of it, rounded down: it is odd)
//! head := gap << 1 | (1 if another part follows)
//! gap  := how far the part's lowest bit lies below that of the part before it; for the first part, below the lowest
//!         bit of the sum, a double. At least 1. If the sum is an infinity, the first gap counts from 2^1200.
//! ```

use crate::bucket::columns::{ColumnsDamage, PackedBytes};
use crate::bucket::exact::{SumPart, SumRest};
use crate::reading::varint::{put_varint, unzigzag, zigzag};

/// Exponent from which the first gap counts if the sum is an infinity: above that of any part.
const BEYOND: i32 = 1200;

/// Appends the remainder of a sum rounded to `sum`.
pub fn put_rest(out: &mut Vec<u8>, sum: f64, rest: &SumRest) {
    let mut before = unit_of(sum);
    let mut parts = rest.parts().peekable();
    if parts.peek().is_none() {
        out.push(0);
    }
    while let Some(part) = parts.next() {
        let gap = u64::from((before - part.exponent()).unsigned_abs());
        put_varint(out, gap << 1 | u64::from(parts.peek().is_some()));
        put_varint(out, zigzag(part.significand() >> 1));
        before = part.exponent();
    }
}

/// Decodes what [`put_rest`] wrote.
pub fn take_rest(bytes: &mut PackedBytes<'_>, sum: f64) -> Result<SumRest, ColumnsDamage> {
    let mut rest = SumRest::default();
    let mut before = unit_of(sum);
    loop {
        let head = bytes.varint()?;
        if head == 0 && rest.is_empty() {
            return Ok(rest);
        }
        let significand = unzigzag(bytes.varint()?);
        let gap = i32::try_from(head >> 1).ok().filter(|gap| *gap > 0);
        let exponent = gap.and_then(|gap| before.checked_sub(gap));
        let part =
            significand.checked_mul(2).zip(exponent).and_then(|(even, exponent)| SumPart::of(even | 1, exponent));
        let part = part.ok_or(ColumnsDamage::Unknown { what: "a part of a sum", found: head })?;
        rest.push(part);
        before = part.exponent();
        if head & 1 == 0 {
            return Ok(rest);
        }
    }
}

/// The exponent of a double's lowest bit.
fn unit_of(double: f64) -> i32 {
    match (double.to_bits() >> 52 & 0x7ff) as i32 {
        0x7ff => BEYOND,
        biased => biased.max(1) - 1075,
    }
}
