//! The encoding of a sum's rounding remainder, which follows the sum. It nearly always takes two bytes.
//!
//! ```text
//! rest := 0  |  part…                    0 if the sum is exact
//! part := head:varint significand:zigzag (halved and rounded down, because it is odd)
//! head := gap << 1 | (1 if another part follows)
//! gap  := distance in bits from the lowest bit of the part before to the lowest bit of this part. The first part
//!         counts from the lowest bit of the sum, a double. At least 1. If the sum is infinite, it counts from 2^1200.
//! ```

use crate::bucket::columns::{ColumnsDamage, PackedBytes};
use crate::bucket::exact::{SumPart, SumRest};
use crate::reading::varint::{put_varint, unzigzag, zigzag};

/// Exponent from which the first gap counts if the sum is infinite. Above the exponent of any part.
const INFINITE_SUM_EXPONENT: i32 = 1200;

/// Appends the remainder of a sum that was rounded to `sum`.
pub fn put_rest(out: &mut Vec<u8>, sum: f64, rest: &SumRest) {
    let mut exponent_before = lowest_exponent(sum);
    let mut parts = rest.parts().peekable();
    if parts.peek().is_none() {
        out.push(0);
    }
    while let Some(part) = parts.next() {
        let gap = u64::from((exponent_before - part.exponent()).unsigned_abs());
        put_varint(out, gap << 1 | u64::from(parts.peek().is_some()));
        put_varint(out, zigzag(part.significand() >> 1));
        exponent_before = part.exponent();
    }
}

/// Decodes a remainder that [`put_rest`] wrote.
pub fn take_rest(bytes: &mut PackedBytes<'_>, sum: f64) -> Result<SumRest, ColumnsDamage> {
    let mut rest = SumRest::default();
    let mut exponent_before = lowest_exponent(sum);
    loop {
        let head = bytes.varint()?;
        if head == 0 && rest.is_empty() {
            return Ok(rest);
        }
        let significand = unzigzag(bytes.varint()?);
        let gap = i32::try_from(head >> 1).ok().filter(|gap| *gap > 0);
        let exponent = gap.and_then(|gap| exponent_before.checked_sub(gap));
        let part = significand
            .checked_mul(2)
            .zip(exponent)
            .and_then(|(even, exponent)| SumPart::from_parts(even | 1, exponent));
        let part = part.ok_or(ColumnsDamage::Unknown { what: "a part of a sum", found: head })?;
        rest.push(part);
        exponent_before = part.exponent();
        if head & 1 == 0 {
            return Ok(rest);
        }
    }
}

/// Returns the exponent of a double's lowest bit.
fn lowest_exponent(double: f64) -> i32 {
    match (double.to_bits() >> 52 & 0x7ff) as i32 {
        0x7ff => INFINITE_SUM_EXPONENT,
        biased => biased.max(1) - 1075,
    }
}
