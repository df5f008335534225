//! What the C library's allocator does with memory that was freed.
//!
//! glibc learns from what a program frees: after one buffer of 20 MiB it serves all buffers up to that size from its
//! heaps, of which every thread may have its own, and keeps twice as much at the end of each. One bomb is enough to
//! teach it. Measured with a budget of 64 MiB and 64 decompression bombs at once: the process grew to 176 MiB and
//! stayed there; with fixed thresholds it has 76 MiB at most and 32 MiB afterwards. Other allocators were measured too:
//! mimalloc keeps more when idle, jemalloc takes minutes to build.

/// Fixes the thresholds. To be called once, before there are threads.
pub fn return_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::fix_thresholds();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(
    unsafe_code,
    reason = "the only way to tell glibc from within the process; the environment is read before it starts"
)]
mod glibc {
    use libc::{M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, c_int};

    pub(super) fn fix_thresholds() {
        for (parameter, bytes) in [
            (M_MMAP_THRESHOLD, OWN_MAPPING),
            (M_TRIM_THRESHOLD, KEPT_AT_END),
        ] {
            // SAFETY: `mallopt` takes two integers by value, has no other arguments, and locks what it changes.
            // A parameter it does not know is no error but a result of 0: then the default stays.
            let _known = unsafe { libc::mallopt(parameter, bytes) };
        }
    }

    /// From this size on, a buffer is a mapping of its own and goes back to the system when it is freed. Far above
    /// what requests usually have, as a mapping costs a page fault for every 4 KiB.
    const OWN_MAPPING: c_int = 1 << 20;
    /// What a heap may keep at its end.
    const KEPT_AT_END: c_int = 2 << 20;
}
