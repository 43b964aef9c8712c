//! How `server.memory` is divided: the defaults of all keys that bound memory follow from it. What a key sets is not taken
//! from the others, so that each can be looked up by itself; the sum is told at the start.

use super::Settings;
use super::units::{GIB, KIB, MIB};

/// The least that `server.memory` may be.
pub const MEMORY_LEAST: usize = 64 * MIB;
/// The default where a quarter of the machine is more, and the most that a default ever is.
const MEMORY_DEFAULT_MOST: usize = 512 * MIB;
/// The memory of the program itself: its code as far as it is used, stacks, the runtime, metrics.
const PROGRAM: usize = 20 * MIB;

/// The parts of what is left after [`PROGRAM`], in percent. They add up to 100.
mod percent {
    pub const MEMTABLE: usize = 30;
    pub const CATALOG: usize = 15;
    pub const IN_FLIGHT: usize = 12;
    pub const QUEUE: usize = 5;
    pub const QUERIES: usize = 18;
    pub const SUMMARIES: usize = 4;
    pub const EMBEDDED: usize = 4;
    pub const CONNECTIONS: usize = 4;
    pub const FLUSHES: usize = 8;
}

/// Memory of a connection that waits for its next request.
const CONNECTION: usize = 15 * KIB;

/// The defaults that follow from `server.memory`, in bytes; connections as a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryShares {
    pub memtable: usize,
    pub catalog: usize,
    pub in_flight: usize,
    pub body: usize,
    pub queue: usize,
    pub queries: usize,
    pub request: usize,
    pub token: usize,
    pub summaries: usize,
    pub embedded: usize,
    pub connections: usize,
    pub per_address: usize,
    /// All flushes together: readings taken from the memtable, unpacked and encoded.
    pub flushes: usize,
}

/// The default of `server.memory` on a machine or in a control group with this much.
#[must_use]
pub fn default_memory(machine: Option<usize>) -> usize {
    machine.map_or(MEMORY_DEFAULT_MOST, |bytes| (bytes / 4).clamp(MEMORY_LEAST, MEMORY_DEFAULT_MOST))
}

impl MemoryShares {
    /// The shares of this much memory.
    #[must_use]
    pub fn of(memory: usize) -> Self {
        let rest = memory.saturating_sub(PROGRAM);
        let share = |percent: usize| whole(rest / 100 * percent);
        let (in_flight, queries) = (share(percent::IN_FLIGHT), share(percent::QUERIES));
        let connections = (rest / 100 * percent::CONNECTIONS / CONNECTION).clamp(64, 1024);
        Self {
            memtable: share(percent::MEMTABLE),
            catalog: share(percent::CATALOG),
            in_flight,
            body: (in_flight / 2).min(25 * MIB),
            queue: share(percent::QUEUE).min(GIB),
            queries,
            request: whole(queries / 2),
            token: whole(queries / 4 * 3),
            summaries: share(percent::SUMMARIES),
            embedded: share(percent::EMBEDDED),
            connections,
            per_address: connections / 4,
            flushes: share(percent::FLUSHES),
        }
    }
}

/// Rounded down to a size that reads well.
fn whole(bytes: usize) -> usize {
    let step = if bytes >= 16 * MIB { MIB } else { 64 * KIB };
    bytes / step * step
}

impl Settings {
    /// The bounds of memory that keys set, by key, and what no key sets: they add up to what hourglass may use at most.
    #[must_use]
    pub fn memory_bounds(&self) -> Vec<(&'static str, usize)> {
        let shares = MemoryShares::of(self.server.memory);
        let embedded = if self.store.uri.is_embedded() { self.embedded.cache_bytes } else { 0 };
        vec![
            ("memtable.max_bytes", self.memtable.max_bytes),
            ("catalog.max_bytes", self.catalog.max_bytes),
            ("ingest.bytes_in_flight", self.ingest.bytes_in_flight),
            ("wal.queue_bytes", self.wal.queue_bytes),
            ("query.bytes", self.query.bytes),
            ("query.cache_bytes", self.query.cache_bytes),
            ("embedded.cache_bytes", embedded),
            ("server.connections", self.server.connections * CONNECTION),
            ("flushes", shares.flushes),
            ("program", PROGRAM),
        ]
    }

    /// Bytes that all flushes together may take.
    #[must_use]
    pub fn flush_bytes(&self) -> usize {
        MemoryShares::of(self.server.memory).flushes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_fill_the_memory_and_never_more() {
        use percent::*;
        let all = [MEMTABLE, CATALOG, IN_FLIGHT, QUEUE, QUERIES, SUMMARIES, EMBEDDED, CONNECTIONS, FLUSHES];
        assert_eq!(all.iter().sum::<usize>(), 100);
        for memory in [64, 65, 100, 128, 256, 511, 512, 4096, 1 << 20].map(|mib: usize| mib * MIB) {
            let mut settings = Settings::default();
            settings.server.memory = memory;
            let shares = MemoryShares::of(memory);
            settings.memtable.max_bytes = shares.memtable;
            settings.catalog.max_bytes = shares.catalog;
            settings.ingest.bytes_in_flight = shares.in_flight;
            settings.wal.queue_bytes = shares.queue;
            settings.query.bytes = shares.queries;
            settings.query.cache_bytes = shares.summaries;
            settings.embedded.cache_bytes = shares.embedded;
            settings.server.connections = shares.connections;
            let sum: usize = settings.memory_bounds().iter().map(|(_, bytes)| bytes).sum();
            assert!(sum <= memory && sum > memory / 10 * 9 - 16 * MIB, "{memory}: {sum}");
            assert!(shares.body * 2 <= shares.in_flight && shares.request <= shares.queries, "{shares:?}");
        }
    }

    #[test]
    fn the_default_is_a_quarter_of_the_machine_within_bounds() {
        let of = |mib: usize| default_memory(Some(mib * MIB)) / MIB;
        assert_eq!([of(128), of(512), of(1024), of(8192)], [64, 128, 256, 512]);
        assert_eq!(default_memory(None) / MIB, 512);
    }
}
