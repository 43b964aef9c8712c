//! The beats of other openings, as one instance sees them on its own boot clock.

use std::collections::BTreeMap;

use crate::config::Config;
use crate::registry::{FolderId, Opening, Registry};

/// The last change of a beat.
#[derive(Clone, Copy, Debug)]
struct Beat {
    beat: u64,
    changed_boot_ms: u64,
}

/// Remembers when beats changed, and since when the registry was read without a gap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observer {
    beats: BTreeMap<Opening, Beat>,
    /// Folders of the view without an entry, and the time when the entry was missed.
    absent: BTreeMap<FolderId, u64>,
    reading_since_ms: u64,
    last_read_ms: u64,
}

impl Observer {
    /// Notes one read of the registry.
    pub(crate) fn observe(&mut self, boot_ms: u64, config: &Config, registry: &Registry) {
        if self.last_read_ms == 0 || boot_ms > self.last_read_ms + config.copy_age_max_ms {
            self.reading_since_ms = boot_ms;
        }
        self.last_read_ms = boot_ms;
        self.beats.retain(|opening, _| registry.entries.iter().any(|entry| entry.opening == *opening));
        for entry in &registry.entries {
            let current = Beat { beat: entry.beat, changed_boot_ms: boot_ms };
            let known = self.beats.entry(entry.opening).or_insert(current);
            if known.beat != entry.beat {
                *known = current;
            }
        }
        self.absent.retain(|folder, _| registry.active.contains(folder) && registry.entry(*folder).is_none());
        for folder in registry.active.iter().filter(|folder| registry.entry(**folder).is_none()) {
            self.absent.entry(*folder).or_insert(boot_ms);
        }
    }

    /// Forgets all silence: this process stood still and cannot tell it from its own.
    pub(crate) fn restart(&mut self, boot_ms: u64) {
        self.beats.values_mut().for_each(|beat| beat.changed_boot_ms = boot_ms);
        self.absent.values_mut().for_each(|since| *since = boot_ms);
        self.reading_since_ms = boot_ms;
    }

    /// Returns true if the beat of an opening changed lately.
    pub(crate) fn is_moving(&self, boot_ms: u64, config: &Config, opening: Opening) -> bool {
        self.beats.get(&opening).is_some_and(|beat| boot_ms < beat.changed_boot_ms + config.beat_moving_ms)
    }

    /// Returns true if an opening's beat has stood for a time in which the registry was read without a gap.
    pub(crate) fn has_stood(&self, boot_ms: u64, opening: Opening, time_ms: u64) -> bool {
        self.beats.get(&opening).is_some_and(|beat| self.covers(boot_ms, beat.changed_boot_ms, time_ms))
    }

    /// Returns true if a folder of the view has had no entry for such a time.
    pub(crate) fn is_absent(&self, boot_ms: u64, folder: FolderId, time_ms: u64) -> bool {
        self.absent.get(&folder).is_some_and(|since| self.covers(boot_ms, *since, time_ms))
    }

    fn covers(&self, boot_ms: u64, since_ms: u64, time_ms: u64) -> bool {
        boot_ms >= since_ms.max(self.reading_since_ms) + time_ms
    }
}
