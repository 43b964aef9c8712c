//! Reachability of the other openings: probes, silence and suspicion.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::config::Config;
use crate::registry::{FolderId, Opening, Registry};

/// Number of probes whose answers still count.
const PROBES_MAX: usize = 8;

/// The opening of another folder.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Its latest known opening.
    pub(crate) opening: Opening,
    /// The version that both speak. Without one, or without an address, nothing is sent.
    pub(crate) version: Option<u16>,
    has_address: bool,
    /// True from an unanswered part until the next answered probe.
    pub(crate) is_silent: bool,
    /// Time of the last answer that followed a sync.
    pub(crate) reached_ms: u64,
    last_probe_ms: u64,
    probes: VecDeque<u64>,
}

/// All other openings of the registry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers {
    pub(crate) by_folder: BTreeMap<FolderId, Peer>,
}

impl Peers {
    /// Follows the entries of the registry.
    pub(crate) fn update(&mut self, boot_ms: u64, config: &Config, own: FolderId, registry: &Registry) {
        self.by_folder.retain(|folder, _| registry.entry(*folder).is_some());
        for entry in registry.entries.iter().filter(|entry| entry.opening.folder != own) {
            let can_connect = entry.has_address && config.has_address;
            let version = config.protocol.common(entry.protocol).filter(|_| can_connect);
            let peer = self.by_folder.entry(entry.opening.folder).or_insert_with(|| Peer {
                opening: entry.opening,
                version,
                has_address: entry.has_address,
                is_silent: false,
                reached_ms: boot_ms,
                last_probe_ms: 0,
                probes: VecDeque::new(),
            });
            peer.opening = peer.opening.max(entry.opening);
            peer.version = version;
            peer.has_address = entry.has_address;
        }
    }

    /// Notes the sender of a frame: its folder may have been opened again before the registry says so.
    pub(crate) fn notice(&mut self, from: Opening) {
        if let Some(peer) = self.by_folder.get_mut(&from.folder) {
            peer.opening = peer.opening.max(from);
        }
    }

    /// Notes an answer that followed a sync.
    pub(crate) fn mark_reached(&mut self, boot_ms: u64, folder: FolderId) {
        if let Some(peer) = self.by_folder.get_mut(&folder) {
            peer.reached_ms = peer.reached_ms.max(boot_ms);
        }
    }

    /// Notes that a part was not answered in time.
    pub(crate) fn mark_silent(&mut self, opening: Opening) {
        if let Some(peer) = self.by_folder.get_mut(&opening.folder)
            && peer.opening == opening
        {
            peer.is_silent = true;
        }
    }

    /// Notes the answer of a probe, unless the probe was too long ago.
    pub(crate) fn on_probe_answer(&mut self, boot_ms: u64, from: Opening, number: u64) {
        let Some(peer) = self.by_folder.get_mut(&from.folder) else { return };
        if from == peer.opening && peer.probes.contains(&number) {
            peer.probes.retain(|sent| *sent > number);
            peer.is_silent = false;
            peer.reached_ms = peer.reached_ms.max(boot_ms);
        }
    }

    /// Forgets silence in which this process itself stood still.
    pub(crate) fn forgive(&mut self, pause_ms: u64) {
        self.by_folder.values_mut().for_each(|peer| peer.reached_ms += pause_ms);
    }

    /// Returns the folders that are due for a probe, and remembers its number.
    pub(crate) fn due_probes(&mut self, boot_ms: u64, config: &Config, number: u64) -> Vec<FolderId> {
        let mut due = Vec::new();
        for (folder, peer) in self.by_folder.iter_mut().filter(|(_, peer)| peer.version.is_some()) {
            let next_ms = if peer.is_silent {
                peer.last_probe_ms + config.silent_probe_ms
            } else {
                peer.last_probe_ms.max(peer.reached_ms) + config.probe_ms
            };
            if boot_ms >= next_ms {
                peer.last_probe_ms = boot_ms;
                peer.probes.push_back(number);
                if peer.probes.len() > PROBES_MAX {
                    peer.probes.pop_front();
                }
                due.push(*folder);
            }
        }
        due
    }

    /// Returns the listed openings that are not reached. One without an address is not suspected for that.
    pub(crate) fn suspects(&self, boot_ms: u64, config: &Config, registry: &Registry) -> BTreeSet<Opening> {
        let is_unreached = |opening: &Opening| {
            let peer = self.by_folder.get(&opening.folder);
            peer.is_some_and(|peer| peer.has_address && boot_ms >= peer.reached_ms + config.suspect_ms)
        };
        registry.entries.iter().map(|entry| entry.opening).filter(is_unreached).collect()
    }
}
