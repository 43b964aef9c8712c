//! Damage met since the log was opened: each place is counted once, said once in the service's log,
//! and its bytes are kept in quarantine. What a power cut tore looks alike but never was acked; it
//! is told apart.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use super::disk::{Disk, DiskFile};
use super::quarantine;
use super::scan::Hole;

/// How many places are kept apart in memory and in quarantine. More are only counted, so that a
/// disk that rots all over is not met with a million files.
const PLACES_MAX: usize = 1000;

/// What is known of bytes that hold no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A write that was cut short, as a power cut or a kill leaves it: nobody was told of it, as far
    /// as can be known.
    Torn,
    /// The last group that was written, whole and then changed, perhaps synced before: it may have
    /// been acked.
    InDoubt,
    /// They were synced: what they held was acked.
    Damaged,
}

impl Verdict {
    /// The verdict on a hole of a segment that was surely synced up to there.
    pub(super) fn of(hole: &Hole, sure: u64) -> Self {
        match hole {
            hole if hole.start < sure => Self::Damaged,
            hole if hole.lacks_sector => Self::Torn,
            _ => Self::InDoubt,
        }
    }
}

/// Bytes that hold no record though something was written there, or a segment without a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The segment's file name.
    pub segment: String,
    /// Where in the file it begins.
    pub offset: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// What is known of them.
    pub verdict: Verdict,
    /// The name under `quarantine/` where the bytes are kept; `None` when that failed.
    pub kept_as: Option<String>,
}

impl Damage {
    /// A whole segment whose records are lost.
    pub(super) fn of_segment(segment: String, bytes: u64, kept_as: Option<String>) -> Self {
        Self { segment, offset: 0, bytes, verdict: Verdict::Damaged, kept_as }
    }

    /// Said once, whenever it is met.
    fn warn(&self) {
        let Self { segment, offset, bytes, kept_as, .. } = self;
        let kept = kept_as.as_deref().unwrap_or("nowhere: the disk refused it");
        match self.verdict {
            Verdict::Torn => {
                tracing::info!(
                    segment,
                    offset,
                    bytes,
                    kept,
                    "the log ends with a write that was cut short; it was not acked"
                );
            }
            Verdict::InDoubt => tracing::error!(
                segment,
                offset,
                bytes,
                kept,
                "bytes at the end of the log hold no record, and may be readings that were acked; they are kept in its folder quarantine"
            ),
            Verdict::Damaged => tracing::error!(
                segment,
                offset,
                bytes,
                kept,
                "the log is damaged, and readings that were acked may be missing; what it held there is kept in its folder quarantine"
            ),
        }
    }
}

/// How much was met, by verdict: places and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Places that were synced.
    pub damaged: u64,
    /// Bytes of them.
    pub damaged_bytes: u64,
    /// Places that may have been acked.
    pub in_doubt: u64,
    /// Bytes of them.
    pub in_doubt_bytes: u64,
    /// Writes that were cut short.
    pub torn: u64,
    /// Bytes of them.
    pub torn_bytes: u64,
}

impl Counts {
    fn add(&mut self, verdict: Verdict, bytes: u64) {
        let (count, sum) = match verdict {
            Verdict::Damaged => (&mut self.damaged, &mut self.damaged_bytes),
            Verdict::InDoubt => (&mut self.in_doubt, &mut self.in_doubt_bytes),
            Verdict::Torn => (&mut self.torn, &mut self.torn_bytes),
        };
        *count += 1;
        *sum += bytes;
    }
}

/// All damage met so far.
#[derive(Default)]
pub(super) struct Register {
    met: Mutex<Met>,
}

#[derive(Default)]
struct Met {
    places: HashSet<(String, u64)>,
    list: Vec<Damage>,
    counts: Counts,
}

impl Register {
    /// The hole is in the list, counted, and its bytes are in quarantine if that was possible, which
    /// is returned. The segment was surely synced up to there.
    pub(super) fn hole(&self, disk: &dyn Disk, file: &dyn DiskFile, segment: &str, sure: u64, hole: &Hole) -> bool {
        let (verdict, bytes) = (Verdict::of(hole, sure), hole.end - hole.start);
        if !self.enter(segment, hole.start, verdict, bytes) {
            return false;
        }
        let name = format!("{segment}.{}", hole.start);
        let is_kept =
            quarantine::holds(disk, &name) || quarantine::copy(disk, file, hole.start, hole.end, &name).is_ok();
        let (segment, kept_as) = (segment.to_owned(), is_kept.then_some(name));
        self.add(Damage { segment, offset: hole.start, bytes, verdict, kept_as });
        is_kept
    }

    /// Whatever it is, it is in the list, counted, and told.
    pub(super) fn add(&self, damage: Damage) {
        damage.warn();
        let mut met = self.lock();
        met.counts.add(damage.verdict, damage.bytes);
        if met.list.len() < PLACES_MAX {
            met.list.push(damage);
        }
    }

    pub(super) fn list(&self) -> Vec<Damage> {
        self.lock().list.clone()
    }

    pub(super) fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Whether the place is new. Beyond the bound it is only counted, perhaps twice.
    fn enter(&self, segment: &str, offset: u64, verdict: Verdict, bytes: u64) -> bool {
        let mut met = self.lock();
        if met.places.len() >= PLACES_MAX {
            met.counts.add(verdict, bytes);
            return false;
        }
        met.places.insert((segment.to_owned(), offset))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Met> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
