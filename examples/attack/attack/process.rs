//! Measurements of the collector's process, and the limits of this process.

use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit on open files to the most that this user may have, because attacks open many connections.
pub fn raise_limit_on_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // After a failure, attacks open fewer connections.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// The memory of a process.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    pid: u32,
}

impl Memory {
    /// Starts to watch the memory of a process. Its peak is reset where the system allows that.
    pub fn watch(pid: u32) -> Result<Self, String> {
        let memory = Memory { pid };
        memory.peak()?;
        // proc_pid_clear_refs(5): 5 resets the peak. Only the owner of the process has the permission.
        let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
        Ok(memory)
    }

    /// The peak of the memory in bytes, without mapped files, which the kernel may drop.
    pub fn peak(self) -> Result<u64, String> {
        let path = format!("/proc/{}/status", self.pid);
        let status = std::fs::read_to_string(&path)
            .map_err(|error| format!("cannot read the collector's memory from {path}: {error}"))?;
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
            number.ok_or_else(|| format!("{path} has no {name}"))
        };
        let (peak, files): (u64, u64) = (kib("VmHWM:")?, kib("RssFile:")?);
        Ok(peak.saturating_sub(files) * 1024)
    }
}

/// The size of a file in bytes.
pub fn size(path: &Path) -> Result<u64, String> {
    let metadata = std::fs::metadata(path);
    let metadata = metadata.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(metadata.len())
}
