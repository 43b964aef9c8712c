//! Stamps order writes. Every WAL record has a stamp, and a stored cell has the stamp of the record that wrote it. The
//! value with the greatest stamp wins, regardless of the order in which values reach the store.
//!
//! ```text
//! stamp := milliseconds since the epoch (44 bits)  random bits of this opening of the WAL (8)  counter (12)
//! ```
//!
//! A stamp is also the record's sequence in its WAL: no two records of one WAL have the same stamp.

/// The write order of a WAL record; the upper 44 bits are milliseconds since the epoch.
pub type Stamp = u64;

/// Older than every stamp: marks cells at or below their page's floor.
pub const SETTLED: Stamp = 0;

/// Bits below the milliseconds.
pub const LOW_BITS: u32 = 20;
/// Bits of the counter, which carries into the random bits.
const COUNTER_BITS: u32 = 12;

/// The first stamp of a millisecond since the epoch.
#[must_use]
pub const fn first_stamp(millis: u64) -> Stamp {
    millis << LOW_BITS
}

/// The milliseconds since the epoch of a stamp.
#[must_use]
pub const fn stamp_millis(stamp: Stamp) -> u64 {
    stamp >> LOW_BITS
}

/// The bits of a stamp below the milliseconds.
#[must_use]
pub const fn low_bits(stamp: Stamp) -> u64 {
    stamp & ((1 << LOW_BITS) - 1)
}

/// The first stamp of a millisecond for an opening of a WAL with these random bits.
#[must_use]
pub const fn opening_stamp(millis: u64, random: u8) -> Stamp {
    first_stamp(millis) | (random as u64) << COUNTER_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_in_the_order_of_their_milliseconds() {
        let now = 1_800_000_000_000;
        assert!(opening_stamp(now, 255) + 4000 < opening_stamp(now + 1, 0));
        assert_eq!((stamp_millis(opening_stamp(now, 7) + 3), low_bits(opening_stamp(now, 7) + 3)), (now, 7 << 12 | 3));
        assert!(i64::try_from(first_stamp((1 << 43) - 1)).is_ok(), "they fit into what BSON has, until the year 2248");
    }
}
