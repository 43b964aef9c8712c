//! Damage met since the log was opened: each place is counted once, and its bytes are kept in
//! quarantine. A group that a power cut tore looks alike but never was acked; it is told apart.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use super::disk::{Disk, DiskFile};
use super::quarantine;
use super::scan::Hole;
use super::shared::Segment;

/// How many places are kept apart in memory and in quarantine. More are only counted, so that a
/// disk that rots all over is not met with a million files.
const PLACES_MAX: usize = 1000;

/// Bytes that hold no record though records stand behind them, or a segment without a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The segment's file name.
    pub segment: String,
    /// Where in the file it begins.
    pub offset: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// Nothing shows that these bytes had ever been synced: most likely a power cut tore the last
    /// group that was being written, and nothing acked is lost.
    pub torn: bool,
    /// The name under `quarantine/` where the bytes are kept; `None` when that failed.
    pub kept_as: Option<String>,
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
    count: u64,
    bytes: u64,
}

impl Register {
    /// The hole is in the list, counted, and its bytes are in quarantine if that was possible.
    pub(super) fn hole(&self, disk: &dyn Disk, file: &dyn DiskFile, segment: &Segment, hole: &Hole) {
        if !self.enter(&segment.name, hole.start) {
            return;
        }
        let name = format!("{}.{}", segment.name, hole.start);
        let is_kept =
            quarantine::holds(disk, &name) || quarantine::copy(disk, file, hole.start, hole.end, &name).is_ok();
        self.add(Damage {
            segment: segment.name.clone(),
            offset: hole.start,
            bytes: hole.end - hole.start,
            torn: hole.start >= segment.sure,
            kept_as: is_kept.then_some(name),
        });
    }

    /// Whatever it is, it is in the list and counted.
    pub(super) fn add(&self, damage: Damage) {
        let mut met = self.lock();
        if !damage.torn {
            met.count += 1;
            met.bytes += damage.bytes;
        }
        if met.list.len() < PLACES_MAX {
            met.list.push(damage);
        }
    }

    pub(super) fn list(&self) -> Vec<Damage> {
        self.lock().list.clone()
    }

    /// Places and bytes of what was synced and is damaged.
    pub(super) fn counts(&self) -> (u64, u64) {
        let met = self.lock();
        (met.count, met.bytes)
    }

    /// Whether the place is new. Beyond the bound it is only counted, perhaps twice.
    fn enter(&self, segment: &str, offset: u64) -> bool {
        let mut met = self.lock();
        if met.places.len() >= PLACES_MAX {
            met.count += 1;
            return false;
        }
        met.places.insert((segment.to_owned(), offset))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Met> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
