//! Limit of open files and sockets of the process.

/// Raises the soft limit of open files to the hard limit, as every Go program does. Shells and
/// service managers set a low soft limit, usually 1024, for the sake of old programs. Every
/// connection is an open file, so a single client could exhaust the limit. Call this once, before
/// other threads start.
pub fn allow_as_many_as_possible() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        // If the call fails (macOS has a lower maximum), the limit stays.
        let _raised = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: maximum,
                maximum,
            },
        );
    }
}
