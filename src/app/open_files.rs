//! Limit of open files and sockets of the process.

/// Raises the soft limit of open files to the hard limit, as every Go program does. Shells and
/// service managers set a low soft limit, usually 1024, for the sake of old programs. Every
/// connection is an open file, so a single client could exhaust the limit. Call this once, before
/// other threads start.
pub fn allow_as_many_as_possible() {
    #[cfg(unix)]
    limit::raise();
}

#[cfg(unix)]
#[allow(
    unsafe_code,
    reason = "there is no other way to ask the system; both calls get a pointer to a value on the stack"
)]
mod limit {
    use libc::{RLIMIT_NOFILE, getrlimit, rlimit, setrlimit};

    pub(super) fn raise() {
        let mut limit = rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: `limit` is valid for writes, and lives longer than the call.
        if unsafe { getrlimit(RLIMIT_NOFILE, &raw mut limit) } != 0 {
            return;
        }
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` is valid for reads, and lives longer than the call. If the call fails
        // (macOS has a lower maximum), the limit stays.
        let _raised = unsafe { setrlimit(RLIMIT_NOFILE, &raw const limit) };
    }
}
