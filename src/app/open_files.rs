//! How many files and sockets the process may have open.

/// Raises the limit to the highest that an unprivileged process may set, as every Go program does. Shells and service
/// managers set a low one for old programs, mostly 1024, and every connection is an open file: without this a single
/// client could take them all. To be called once, before there are threads.
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
        // SAFETY: `limit` is valid for reads, and lives longer than the call. Where this fails (macOS has another
        // highest value), the limit stays.
        let _raised = unsafe { setrlimit(RLIMIT_NOFILE, &raw const limit) };
    }
}
