//! Divides `server.memory`: the defaults of all keys that bound memory are shares of it. A key that is set by itself
//! does not change the shares of the others. The start reports the sum.

use super::Settings;
use super::units::{GIB, KIB, MIB};
use super::value::AUTO;

/// The minimum of `server.memory`.
pub const MEMORY_MIN: usize = 128 * MIB;
/// The maximum default of `server.memory`.
const MEMORY_DEFAULT_MAX: usize = 512 * MIB;
/// The memory of the program itself: used code, stacks, the runtime, metrics, and what the allocator keeps.
const PROGRAM: usize = 40 * MIB;

/// The shares of the memory without [`PROGRAM`], in percent. They add up to 100.
mod percent {
    pub const MEMTABLE: usize = 28;
    pub const CATALOG: usize = 16;
    pub const IN_FLIGHT: usize = 12;
    pub const QUEUE: usize = 5;
    pub const QUERIES: usize = 19;
    pub const SUMMARIES: usize = 4;
    pub const EMBEDDED: usize = 4;
    pub const CONNECTIONS: usize = 4;
    pub const FLUSHES: usize = 8;
}

/// Memory of a connection that waits for its next request.
const CONNECTION: usize = 15 * KIB;

/// Returns the default of `server.memory` for the memory of the machine or control group.
fn default_memory(machine: Option<usize>) -> usize {
    machine.map_or(MEMORY_DEFAULT_MAX, |bytes| (bytes / 4).clamp(MEMORY_MIN, MEMORY_DEFAULT_MAX))
}

/// Gives each key that is "auto" its share of the memory.
pub fn divide_memory(settings: &mut Settings, machine: Option<usize>) {
    fn fill(value: &mut usize, share: usize) {
        if *value == AUTO {
            *value = share;
        }
    }
    let Settings { server, memtable, catalog, ingest, limits, wal, query, embedded, .. } = settings;
    fill(&mut server.memory, default_memory(machine));
    let memory = server.memory;
    fill(&mut memtable.max_bytes, share(memory, percent::MEMTABLE));
    fill(&mut catalog.max_bytes, share(memory, percent::CATALOG));
    fill(&mut wal.queue_bytes, share(memory, percent::QUEUE).min(GIB));
    fill(&mut embedded.cache_bytes, share(memory, percent::EMBEDDED));
    fill(&mut query.cache_bytes, share(memory, percent::SUMMARIES));
    let connections = (available_memory(memory) / 100 * percent::CONNECTIONS / CONNECTION).clamp(64, 1024);
    fill(&mut server.connections, connections);
    fill(&mut server.connections_per_address, (connections / 4).min(server.connections));
    // If only one of two related keys is set, derive the other from it.
    let body_set = if limits.body_bytes == AUTO { 0 } else { limits.body_bytes };
    let in_flight = share(memory, percent::IN_FLIGHT);
    fill(&mut ingest.bytes_in_flight, in_flight.max(2 * body_set));
    fill(&mut limits.body_bytes, (in_flight / 2).min(25 * MIB).min(ingest.bytes_in_flight / 2));
    fill(&mut query.bytes, share(memory, percent::QUERIES));
    fill(&mut query.request_bytes, round_down(query.bytes / 2));
    fill(&mut query.token_bytes, round_down(query.bytes / 4 * 3));
}

/// Returns the memory without [`PROGRAM`].
fn available_memory(memory: usize) -> usize {
    memory.saturating_sub(PROGRAM)
}

/// Returns a share of the rest.
fn share(memory: usize, percent: usize) -> usize {
    round_down(available_memory(memory) / 100 * percent)
}

/// Rounds down to a size that is easy to read.
fn round_down(bytes: usize) -> usize {
    let step = if bytes >= 16 * MIB { MIB } else { 64 * KIB };
    bytes / step * step
}

impl Settings {
    /// Returns the memory limits by key, and those without a key. Their sum is the maximum that hourglass may use.
    #[must_use]
    pub fn memory_bounds(&self) -> Vec<(&'static str, usize)> {
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
            ("flushes", self.flush_bytes()),
            ("program", PROGRAM),
        ]
    }

    /// Returns the maximum bytes of all concurrent flushes: readings from the memtable, unpacked and encoded.
    #[must_use]
    pub fn flush_bytes(&self) -> usize {
        share(self.server.memory, percent::FLUSHES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_fill_the_memory_and_never_exceed_it() {
        use percent::*;
        let all = [MEMTABLE, CATALOG, IN_FLIGHT, QUEUE, QUERIES, SUMMARIES, EMBEDDED, CONNECTIONS, FLUSHES];
        assert_eq!(all.iter().sum::<usize>(), 100);
        for memory in [64, 65, 100, 128, 256, 511, 512, 4096, 1 << 20].map(|mib: usize| mib * MIB) {
            let mut settings = Settings::default();
            settings.server.memory = memory;
            let Settings { server, memtable, catalog, ingest, limits, wal, query, embedded, .. } = &mut settings;
            for key in [
                &mut server.connections,
                &mut memtable.max_bytes,
                &mut catalog.max_bytes,
                &mut ingest.bytes_in_flight,
                &mut limits.body_bytes,
                &mut wal.queue_bytes,
                &mut query.bytes,
                &mut query.request_bytes,
                &mut query.cache_bytes,
                &mut embedded.cache_bytes,
            ] {
                *key = AUTO;
            }
            divide_memory(&mut settings, None);
            let sum: usize = settings.memory_bounds().iter().map(|(_, bytes)| bytes).sum();
            assert!(sum <= memory && sum > memory / 10 * 9 - 16 * MIB, "{memory}: {sum}");
            let Settings { ingest, limits, query, .. } = &settings;
            assert!(limits.body_bytes * 2 <= ingest.bytes_in_flight && query.request_bytes <= query.bytes, "{memory}");
        }
    }

    #[test]
    fn the_default_is_a_quarter_of_the_machine_within_bounds() {
        let default_mib = |mib: usize| default_memory(Some(mib * MIB)) / MIB;
        assert_eq!([128, 512, 1024, 8192].map(default_mib), [128, 128, 256, 512]);
        assert_eq!(default_memory(None) / MIB, 512);
    }
}
