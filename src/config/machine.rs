//! The memory that is available to this process: that of the machine, or the limit of its control group.

use std::fs;
use std::path::{Path, PathBuf};

/// The mount points and limit files of Linux control groups: version 2, and the memory controller of version 1.
const MOUNTS: [(&str, &str); 2] =
    [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];

/// Returns the bytes of memory that are available to this process, or `None` if the system does not report them.
#[must_use]
pub fn memory() -> Option<usize> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group_limits = group_limits(&groups, |file| fs::read_to_string(file).ok());
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| machine_memory(&text));
    group_limits.into_iter().chain(machine).min()
}

/// Returns the `MemTotal` of `/proc/meminfo`, in bytes.
fn machine_memory(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// Returns the limits of the groups in `/proc/self/cgroup` and of all their parents, each of which limits its children.
/// In a container the named group may not be visible. Then the mount itself is the group of the container.
fn group_limits(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Vec<usize> {
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        parts.next();
        let controllers = parts.next().unwrap_or_default();
        let Some(group) = parts.next() else { continue };
        let (mount, file) = match controllers {
            "" => MOUNTS[0],
            controllers if controllers.split(',').any(|controller| controller == "memory") => MOUNTS[1],
            _ => continue,
        };
        let own = PathBuf::from(mount).join(group.trim_start_matches('/'));
        let groups = own.ancestors().take_while(|folder| folder.starts_with(mount));
        limits.extend(groups.filter_map(|folder| read(&folder.join(file))?.trim().parse::<usize>().ok()));
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_of_all_groups_applies() {
        let files = [
            ("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "268435456\n"),
            ("/sys/fs/cgroup/system.slice/memory.max", "max\n"),
            ("/sys/fs/cgroup/memory.max", "134217728\n"),
        ];
        let read =
            |file: &Path| files.iter().find(|(name, _)| Path::new(name) == file).map(|(_, text)| (*text).to_owned());
        let limits = |groups| group_limits(groups, read).into_iter().min();
        assert_eq!(limits("4:memory:/a/b\n1:cpu:/a\n"), Some(256 << 20), "version 1: of the group around it");
        assert_eq!(limits("0::/system.slice/hourglass.service\n"), Some(128 << 20), "version 2: max is no limit");
        assert_eq!(limits("0::/../../hidden\n"), Some(128 << 20), "a container sees its own group as the mount");
        assert_eq!(limits("1:cpu:/a\n"), None);
        assert_eq!(limits(""), None);
    }

    #[test]
    fn the_memory_of_the_machine_is_parsed() {
        assert_eq!(machine_memory("MemFree: 1 kB\nMemTotal:       24684096 kB\n"), Some(24_684_096 * 1024));
        assert_eq!(machine_memory("nothing"), None);
        assert!(memory().is_some_and(|bytes| bytes > 64 << 20));
    }
}
