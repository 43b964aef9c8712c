//! What rounding left of a sum, as bytes behind it: nearly always two of them.
//!
//! ```text
//! rest := 0  |  part…                    0 where rounding left nothing
//! part := head:varint significand:zigzag (its half, rounded down: it is odd)
//! head := gap << 1 | (1 another part comes)
//! gap  := by how much the part's lowest bit lies below that of the part before it, at first below the last bit that the sum,
//!         a double, has room for; at least 1. Of a sum that is an infinity, below 2^1200.
//! ```

use crate::bucket::columns::{Bytes, Damage};
use crate::bucket::exact::{Part, Rest};
use crate::reading::varint::{put_varint, unzigzag, zigzag};

/// The exponent that the first part of a sum beyond the range of doubles is counted from: above all that a part has.
const BEYOND: i32 = 1200;

/// Adds what rounding to this double left.
pub(super) fn put_rest(out: &mut Vec<u8>, sum: f64, rest: &Rest) {
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

/// Takes it again.
pub(super) fn take_rest(bytes: &mut Bytes<'_>, sum: f64) -> Result<Rest, Damage> {
    let mut rest = Rest::default();
    let mut before = unit_of(sum);
    loop {
        let head = bytes.varint()?;
        if head == 0 && rest.is_empty() {
            return Ok(rest);
        }
        let significand = unzigzag(bytes.varint()?);
        let gap = i32::try_from(head >> 1).ok().filter(|gap| *gap > 0);
        let exponent = gap.and_then(|gap| before.checked_sub(gap));
        let part = significand.checked_mul(2).zip(exponent).and_then(|(even, exponent)| Part::of(even | 1, exponent));
        let part = part.ok_or(Damage::Unknown { what: "a part of a sum", found: head })?;
        rest.push(part);
        before = part.exponent();
        if head & 1 == 0 {
            return Ok(rest);
        }
    }
}

/// The exponent of the last bit that a double has room for.
fn unit_of(double: f64) -> i32 {
    match (double.to_bits() >> 52 & 0x7ff) as i32 {
        0x7ff => BEYOND,
        biased => biased.max(1) - 1075,
    }
}
