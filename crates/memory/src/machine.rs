//! Memory of the machine, within the limits of control groups.

use std::path::Path;

/// Returns the memory limit of this process's cgroup or, without a limit, the memory of the machine, in bytes. Falls
/// back to 1 GiB if neither can be read.
pub fn machine_memory() -> u64 {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let cgroup = cgroup_limit(Path::new("/sys/fs/cgroup"), &groups);
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let kib = text
                .strip_prefix("MemTotal:")?
                .split_whitespace()
                .next()?
                .parse::<u64>()
                .ok()?;
            Some(kib * 1024)
        });
    cgroup.into_iter().chain(machine).min().unwrap_or(1 << 30)
}

/// Returns the lowest limit of the cgroups of a process, from the text of `/proc/self/cgroup`. A container sees its own
/// group as the root. A service of systemd is in a nested group, and the groups above it limit it too.
///
/// Without a limit, cgroup v1 reports a huge number and v2 the word `max`.
fn cgroup_limit(root: &Path, groups: &str) -> Option<u64> {
    let number = |path: &Path| {
        let text = std::fs::read_to_string(path).ok()?;
        text.trim().parse::<u64>().ok()
    };
    // The root is always included: in a container, the listed path may be the host's, which the container does not see.
    let lines = groups.lines().chain(["0::/", "0:memory:/"]);
    let limits = lines.filter_map(|line| {
        let (_, group) = line.split_once(':')?;
        let (controllers, path) = group.split_once(':')?;
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let group = root.join(path.trim_start_matches('/'));
        let groups = group
            .ancestors()
            .take_while(|group| group.starts_with(&root));
        groups.filter_map(|group| number(&group.join(file))).min()
    });
    limits.min()
}

#[cfg(test)]
mod tests;
