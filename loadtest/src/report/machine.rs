//! What the machine is, from `proc(5)`.

use serde::{Deserialize, Serialize};

/// What the load tester runs on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Cores that it may use.
    pub cores: usize,
    /// What they are.
    pub cpu: String,
    /// Memory in GiB.
    pub memory_gib: u64,
    /// The system's kernel.
    pub kernel: String,
    /// How busy it was before the run, over 1, 5 and 15 minutes.
    pub load_average_before: String,
}

impl Machine {
    /// This one. What is not told stays empty.
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
