//! Damage found since the WAL was opened. Each place is counted and logged once, and its bytes are copied to
//! quarantine. A write torn by a power cut looks similar but was never acked, so it is counted separately.

use std::collections::HashSet;

use parking_lot::Mutex;

use super::disk::{Disk, DiskFile};
use super::quarantine;
use super::scan::Hole;

/// Maximum number of places that are listed and copied to quarantine. Further places are only counted, so that a
/// failing disk does not produce a million files.
const PLACES_MAX: usize = 1000;

/// The assessment of bytes without a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// An interrupted write, left by a power cut or a kill. It was most likely not acked.
    Torn,
    /// A change in the last written group, which was complete. The group may have been synced and acked.
    InDoubt,
    /// A change in synced bytes, which were acked.
    Damaged,
}

impl Verdict {
    /// The verdict on a hole. Everything before `synced_end` was synced.
    pub(super) fn from_hole(hole: &Hole, synced_end: u64) -> Self {
        match hole {
            hole if hole.start < synced_end => Self::Damaged,
            hole if hole.lacks_sector => Self::Torn,
            _ => Self::InDoubt,
        }
    }
}

/// Written bytes without a record, or a segment without a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The segment's file name.
    pub segment: String,
    /// File offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// The assessment of the bytes.
    pub verdict: Verdict,
    /// The copy's file name in `quarantine/`; `None` if the copy failed.
    pub kept_as: Option<String>,
}

impl Damage {
    /// A whole segment whose records are lost.
    pub(super) fn of_segment(segment: String, bytes: u64, kept_as: Option<String>) -> Self {
        Self { segment, offset: 0, bytes, verdict: Verdict::Damaged, kept_as }
    }

    /// The damage of a hole, without a copy in quarantine. Everything before `synced_end` was synced.
    pub(super) fn of_hole(segment: &str, synced_end: u64, hole: &Hole) -> Self {
        let offset = hole.start;
        let bytes = hole.end - hole.start;
        Self {
            segment: segment.to_owned(),
            offset,
            bytes,
            verdict: Verdict::from_hole(hole, synced_end),
            kept_as: None,
        }
    }

    fn warn(&self) {
        let Self { segment, offset, bytes, kept_as, .. } = self;
        let kept = kept_as.as_deref().unwrap_or("nowhere; the copy to quarantine failed");
        match self.verdict {
            Verdict::Torn => {
                tracing::info!(
                    segment,
                    offset,
                    bytes,
                    kept,
                    "the WAL ends with an interrupted write; it was not acked"
                );
            }
            Verdict::InDoubt => tracing::error!(
                segment,
                offset,
                bytes,
                kept,
                "unreadable bytes at the end of the WAL; they may be readings that were acked; a copy is in the WAL's folder quarantine"
            ),
            Verdict::Damaged => tracing::error!(
                segment,
                offset,
                bytes,
                kept,
                "the WAL is damaged; readings that were acked may be missing; a copy of the bytes is in the WAL's folder quarantine"
            ),
        }
    }
}

/// The number of places and bytes, by verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Places that were synced.
    pub damaged: u64,
    /// Bytes in damaged places.
    pub damaged_bytes: u64,
    /// Places that may have been acked.
    pub in_doubt: u64,
    /// Bytes in places in doubt.
    pub in_doubt_bytes: u64,
    /// Interrupted writes.
    pub torn: u64,
    /// Bytes in interrupted writes.
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

/// All damage found so far.
#[derive(Default)]
pub(super) struct DamageRegister(Mutex<FoundDamage>);

#[derive(Default)]
struct FoundDamage {
    /// The segment and offset of each listed place.
    places: HashSet<(String, u64)>,
    list: Vec<Damage>,
    counts: Counts,
}

impl DamageRegister {
    /// Logs, counts and lists the hole, and copies its bytes to quarantine. Returns true if the copy exists. Everything
    /// before `synced_end` was synced.
    pub(super) fn add_hole(
        &self,
        disk: &dyn Disk,
        file: &dyn DiskFile,
        segment: &str,
        synced_end: u64,
        hole: &Hole,
    ) -> bool {
        let damage = Damage::of_hole(segment, synced_end, hole);
        if !self.enter(&damage) {
            return false;
        }
        let name = format!("{segment}.{}", hole.start);
        let is_kept =
            quarantine::holds(disk, &name) || quarantine::copy(disk, file, hole.start..hole.end, &name).is_ok();
        self.add(Damage { kept_as: is_kept.then_some(name), ..damage });
        is_kept
    }

    /// Logs, counts and lists damage of any kind.
    pub(super) fn add(&self, damage: Damage) {
        damage.warn();
        let mut found = self.0.lock();
        found.counts.add(damage.verdict, damage.bytes);
        if found.list.len() < PLACES_MAX {
            found.list.push(damage);
        }
    }

    pub(super) fn list(&self) -> Vec<Damage> {
        self.0.lock().list.clone()
    }

    pub(super) fn counts(&self) -> Counts {
        self.0.lock().counts
    }

    /// Returns true if the place is new. After [`PLACES_MAX`] places, others are only counted, possibly more than once.
    fn enter(&self, damage: &Damage) -> bool {
        let mut found = self.0.lock();
        if found.places.len() >= PLACES_MAX {
            found.counts.add(damage.verdict, damage.bytes);
            return false;
        }
        found.places.insert((damage.segment.clone(), damage.offset))
    }
}
