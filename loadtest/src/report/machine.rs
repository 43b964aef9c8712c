//! Describes the machine, from `proc(5)`.

use serde::{Deserialize, Serialize};

/// The machine of the load tester.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Number of cores that it may use.
    pub cores: usize,
    /// The CPU model.
    pub cpu: String,
    /// Memory in GiB.
    pub memory_gib: u64,
    /// The kernel version.
    pub kernel: String,
    pub load_average_before: String,
}

impl Machine {
    /// This machine. Unknown values stay empty.
    pub fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let (cpus, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
        let cpu = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
        let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
        let load = read("/proc/loadavg");
        Self {
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            cpu: cpu.trim_start_matches([' ', '\t', ':']).to_owned(),
            memory_gib: kib.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap_or(0) >> 20,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_average_before: load.split_whitespace().take(3).collect::<Vec<_>>().join(" "),
        }
    }
}
