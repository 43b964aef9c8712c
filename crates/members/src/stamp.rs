//! Stamps and the clock that issues them.

/// The time of an event, as read by the caller. The core has no clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of the boot clock, which never steps and includes suspends.
    pub boot_ms: u64,
    /// Milliseconds since the epoch, as the store's clock tells them.
    pub wall_ms: u64,
}

/// The order of a record: milliseconds (44 bits), random bits (8) and a counter (12) that carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub u64);

const LOW_BITS: u32 = 20;

impl Stamp {
    /// The stamp below all others.
    pub const ZERO: Self = Self(0);

    /// Returns the first stamp of a millisecond.
    pub fn from_ms(ms: u64) -> Self {
        Self(ms << LOW_BITS)
    }

    /// Returns the millisecond of the stamp.
    pub fn ms(self) -> u64 {
        self.0 >> LOW_BITS
    }

    /// Returns the stamp after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the stamp before this one.
    pub fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// Issues the stamps of one opening. It follows the store's time and whatever greater stamps it hears of.
#[derive(Clone, Debug)]
pub struct StampClock {
    greatest: Stamp,
    random: u8,
    lead_max_ms: u64,
}

impl StampClock {
    /// Makes a clock above `last`, the last stamp of the WAL. It is never raised by others to more than `lead_max_ms`
    /// ahead of the store's time.
    pub fn new(last: Stamp, random: u8, lead_max_ms: u64) -> Self {
        Self { greatest: last, random, lead_max_ms }
    }

    /// Returns a stamp that no stamp issued or heard of so far exceeds.
    pub fn greatest(&self, now: Now) -> Stamp {
        self.greatest.max(Stamp::from_ms(now.wall_ms))
    }

    /// Raises the clock to a stamp of another instance.
    pub fn hear(&mut self, now: Now, stamp: Stamp) {
        let cap = Stamp::from_ms(now.wall_ms + self.lead_max_ms);
        self.greatest = self.greatest.max(stamp.min(cap));
    }

    /// Raises the clock to the floor, however far that is: no record may arrive at or below it.
    pub fn raise_to_floor(&mut self, floor: Stamp) {
        self.greatest = self.greatest.max(floor);
    }

    /// Issues the next stamp, above `above`. Returns `None` if that would exceed `not_after`.
    pub fn issue(&mut self, now: Now, above: Option<Stamp>, not_after: Option<Stamp>) -> Option<Stamp> {
        let by_time = Stamp(Stamp::from_ms(now.wall_ms).0 | u64::from(self.random) << 12);
        let stamp = by_time.max(self.greatest.next()).max(above.unwrap_or_default().next());
        if not_after.is_some_and(|bound| stamp > bound) {
            return None;
        }
        self.greatest = stamp;
        Some(stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now { boot_ms: 5, wall_ms: 1_000_000 };

    #[test]
    fn heard_stamps_raise_the_clock_up_to_a_cap() {
        let mut clock = StampClock::new(Stamp::ZERO, 7, 30_000);
        clock.hear(NOW, Stamp::from_ms(1_020_000));
        assert_eq!(clock.issue(NOW, None, None).unwrap().ms(), 1_020_000);
        clock.hear(NOW, Stamp::from_ms(9_000_000));
        assert_eq!(clock.issue(NOW, None, None).unwrap().ms(), 1_030_000);
        clock.hear(NOW, Stamp::from_ms(1));
        assert_eq!(clock.greatest(NOW).ms(), 1_030_000);
    }

    #[test]
    fn a_stamp_is_above_all_before_it_and_within_its_bounds() {
        let mut clock = StampClock::new(Stamp::from_ms(1_000_500), 7, 30_000);
        let first = clock.issue(NOW, None, None).unwrap();
        assert!(first > Stamp::from_ms(1_000_500));
        let stray = clock.issue(NOW, Some(Stamp::from_ms(1_000_900)), None).unwrap();
        assert_eq!(stray, Stamp::from_ms(1_000_900).next());
        assert_eq!(clock.issue(NOW, None, Some(stray)), None, "a refusal issues nothing");
        assert_eq!(clock.issue(NOW, None, Some(stray.next())), Some(stray.next()));
    }
}
