//! The settings of a run, drawn from its seed.

use hourglass_members::{Config, Protocol};

use crate::random::Random;

/// A seeded mistake. The simulation makes it around the core; the core has no trace of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The WAL ignores `not_after`.
    NoNotAfter,
    /// A stray after silence gets an ordinary stamp.
    NoAbove,
    /// The WAL stamps records of requests that are over.
    NoDeadline,
    /// The store is read before the memtables.
    StoreFirst,
    /// A stop closes its entry before the flush.
    ClosedBeforeFlush,
    /// An entry is not listed any more once it was silent for long.
    NoticeEnds,
    /// An owner takes a part that is delivered twice.
    RepeatedNumbers,
    /// Bases of request keys are kept by owners instead of the store.
    KeysAtOwner,
    /// Probes are answered by the network alone.
    ProbeWithoutSync,
}

pub const MISTAKES: [Mistake; 9] = [
    Mistake::NoNotAfter,
    Mistake::NoAbove,
    Mistake::NoDeadline,
    Mistake::StoreFirst,
    Mistake::ClosedBeforeFlush,
    Mistake::NoticeEnds,
    Mistake::RepeatedNumbers,
    Mistake::KeysAtOwner,
    Mistake::ProbeWithoutSync,
];

#[derive(Clone, Debug)]
pub struct Profile {
    pub seed: u64,
    pub mistake: Option<Mistake>,
    pub nodes: usize,
    pub clients: usize,
    /// Length of the part with faults.
    pub active_us: u64,
    /// Mean time between faults; zero for none.
    pub fault_us: u64,
    /// Greatest distance of a clock from the store's.
    pub offset_max_ms: u64,
    pub loss_per_mille: u64,
    pub delay_per_mille: u64,
    pub duplicate_per_mille: u64,
    pub unknown_per_mille: u64,
    /// Share of accesses to the registry that take long.
    pub slow_registry_per_mille: u64,
    pub flush_us: u64,
    pub grace_ms: u64,
    pub has_mixed_versions: bool,
    /// Time until the operator gives up what is away.
    pub retire_us: u64,
    /// True if all queues are tiny.
    pub is_crowded: bool,
    /// `wal.horizon`
    pub horizon_ms: u64,
    /// True for one fault, longer than `cluster.grace`.
    pub has_one_fault: bool,
    /// True for faults of one kind only.
    pub only_fault: Option<usize>,
    /// True if every action is printed.
    pub is_traced: bool,
}

impl Profile {
    pub fn new(seed: u64, mistake: Option<Mistake>) -> Self {
        let mut random = Random::new(seed ^ 0xabcd_ef01);
        let mut pick = |values: &[u64]| values[random.index(values.len())];
        let mut profile = Self {
            is_traced: std::env::var_os("HOURGLASS_SIMULATION_TRACE").is_some(),
            seed,
            mistake,
            nodes: pick(&[2, 3, 3, 4, 5]) as usize,
            clients: pick(&[1, 2, 3]) as usize,
            active_us: pick(&[20, 30, 40]) * 1_000_000,
            fault_us: pick(&[0, 1_000, 2_000, 4_000, 4_000, 8_000]) * 1_000,
            offset_max_ms: pick(&[0, 0, 100, 250, 5_000]),
            loss_per_mille: pick(&[0, 0, 5, 50]),
            delay_per_mille: pick(&[0, 5, 30]),
            duplicate_per_mille: pick(&[0, 10, 100]),
            unknown_per_mille: pick(&[0, 5, 30]),
            flush_us: pick(&[500, 3_000, 15_000]) * 1_000,
            grace_ms: pick(&[6_000, 12_000, 45_000]),
            has_mixed_versions: pick(&[0, 0, 0, 1]) == 1,
            horizon_ms: pick(&[15_000, 3_600_000, 3_600_000]),
            slow_registry_per_mille: pick(&[0, 0, 0, 300]),
            has_one_fault: pick(&[0, 0, 0, 0, 0, 0, 0, 1]) == 1,
            retire_us: pick(&[11, 13, 18, 3_600]) * 1_000_000,
            is_crowded: pick(&[0, 0, 0, 0, 1]) == 1,
            only_fault: (pick(&[0, 1]) == 1).then(|| pick(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) as usize),
        };
        if pick(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]) == 0 {
            // Slow syncs under clocks that are far apart: owners log late, and heard stamps are all that orders writes.
            profile.offset_max_ms = 5_000;
            profile.only_fault = Some(8);
            profile.fault_us = 1_000_000;
            profile.nodes = profile.nodes.min(3);
            profile.clients = 3;
            profile.has_one_fault = false;
        }
        if profile.has_one_fault {
            profile.fault_us = 0;
            profile.has_mixed_versions = false;
            profile.grace_ms = profile.grace_ms.min(12_000);
            profile.active_us = (profile.grace_ms + 40_000) * 1_000;
        }
        profile
    }

    /// Returns a run without faults of its own.
    pub fn quiet() -> Self {
        Self {
            fault_us: 0,
            offset_max_ms: 0,
            loss_per_mille: 0,
            delay_per_mille: 0,
            duplicate_per_mille: 0,
            unknown_per_mille: 0,
            slow_registry_per_mille: 0,
            grace_ms: 45_000,
            has_mixed_versions: false,
            is_crowded: false,
            has_one_fault: false,
            ..Self::new(1, None)
        }
    }

    /// Returns the settings of an instance. `kind` chooses among versions.
    pub fn config(&self, kind: u64) -> Config {
        let mut config = Config { grace_ms: self.grace_ms, ack_timeout_ms: 6_000, ..Config::default() };
        config.horizon_ms = self.horizon_ms;
        if self.is_crowded {
            config.appends_max = 5;
            config.peer_bytes_max = 40;
            config.requests_max = 3;
            config.questions_max = 8;
        }
        if self.has_mixed_versions {
            let versions = [(1, 1), (1, 2), (1, 2), (2, 2), (1, 1)][kind as usize % 5];
            config.protocol = Protocol { lowest: versions.0, highest: versions.1 };
            config.has_address = kind % 5 != 4;
        }
        config
    }

    /// Returns the settings after an upgrade that ends all differences.
    pub fn final_config(&self) -> Config {
        self.config(1)
    }
}
