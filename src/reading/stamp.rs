//! Stamps: "later" as a value. Every record of the log has one, a stored cell knows that of the record that wrote it,
//! and of two values for one cell the greater stamp wins, whatever the order in which they come to the store.
//!
//! ```text
//! stamp := milliseconds since the epoch (44 bits)  random bits of this opening of the log (8)  counter (12)
//! ```
//!
//! A stamp is the record's sequence in its log: no two records of one log have the same. Logs of the form before this one
//! counted from 1; such a sequence is a stamp too, older than every real one.

/// When a record was logged, for comparison. Milliseconds in the upper 44 bits.
pub type Stamp = u64;

/// Older than every stamp: of cells that were stored at or below their page's floor, or before there were stamps.
pub const SETTLED: Stamp = 0;

/// Bits below the milliseconds.
pub const LOW_BITS: u32 = 20;
/// Bits of the counter.
const COUNTER_BITS: u32 = 12;
/// Sequences of the older form lie below: February 1970.
const SEQUENCES_END: Stamp = 1 << 52;

/// The first stamp of a millisecond since the epoch.
#[must_use]
pub const fn first_of(millis: u64) -> Stamp {
    millis << LOW_BITS
}

/// The millisecond that a stamp lies in.
#[must_use]
pub const fn millis_of(stamp: Stamp) -> u64 {
    stamp >> LOW_BITS
}

/// What a stamp has below its milliseconds.
#[must_use]
pub const fn low_of(stamp: Stamp) -> u64 {
    stamp & ((1 << LOW_BITS) - 1)
}

/// The first stamp of a millisecond that an opening of a log with these random bits gives out.
#[must_use]
pub const fn first_for(millis: u64, random: u8) -> Stamp {
    first_of(millis) | (random as u64) << COUNTER_BITS
}

/// Whether it is a sequence of a log of the older form, which had no stamps.
#[must_use]
pub const fn is_sequence(stamp: Stamp) -> bool {
    stamp < SEQUENCES_END
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_in_the_order_of_their_milliseconds() {
        let now = 1_800_000_000_000;
        assert!(first_for(now, 255) + 4000 < first_for(now + 1, 0));
        assert_eq!((millis_of(first_for(now, 7) + 3), low_of(first_for(now, 7) + 3)), (now, 7 << 12 | 3));
        assert!(i64::try_from(first_of((1 << 43) - 1)).is_ok(), "they fit into what BSON has, until the year 2248");
        assert!(is_sequence(1 << 40) && !is_sequence(first_of(now)));
    }
}
