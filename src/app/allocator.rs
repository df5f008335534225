//! Settings of the C library's allocator for freed memory.
//!
//! glibc adapts to freed buffers: after one freed buffer of 20 MiB, glibc serves all buffers up to
//! that size from its heaps and keeps twice as much at the end of each heap. Every thread may have
//! a heap of its own, so one decompression bomb is enough to inflate the process. Measured with a
//! budget of 64 MiB and 64 concurrent decompression bombs: the process grew to 176 MiB and stayed
//! there. With fixed thresholds the process has 60 to 90 MiB at most and 36 MiB afterwards.
//!
//! [`keep_small`] returns free memory in heaps to the system. The free end of a heap is an exception,
//! except for the first heap: glibc trims it only when a thread frees memory in the heap. The number
//! of heaps is therefore kept small, see `arenas`. docs/decisions/0036-the-systems-allocator.md compares other allocators.

use std::sync::Arc;
use std::time::Duration;

use tributary_memory::Budget;

/// Fixes the thresholds and the number of heaps. Call this once, before other threads start.
pub fn return_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::configure(arenas());
}

/// Returns the number of heaps that threads share: one for every two processors. By default glibc
/// creates a heap for each of the first eight threads per processor, and each heap keeps holes and
/// 8 MiB at its end. Sharing costs little, because most freed memory is reused by the same thread.
/// Returns `None` if `MALLOC_ARENA_MAX` sets the number.
fn arenas() -> Option<usize> {
    if std::env::var_os("MALLOC_ARENA_MAX").is_some() {
        return None;
    }
    let processors = std::thread::available_parallelism().ok()?;
    Some(processors.get().div_ceil(2))
}

/// Checks every few seconds whether the process has much more memory than the telemetry in the
/// budget, and returns free memory to the system. Never ends unless the memory cannot be read;
/// spawn it as a task.
pub async fn keep_small(budget: Arc<Budget>) {
    // Memory of the process without telemetry, at the start and after the last attempt.
    let Some(mut lowest) = resident_bytes() else {
        return;
    };
    let mut last = lowest;
    let mut pause = 0;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let surplus = surplus(&budget);
        lowest = lowest.min(surplus);
        if surplus < lowest + WORTH_IT {
            continue;
        }
        // The remaining memory is in use, for example by connections. Try again later, after
        // connections have closed.
        if surplus < last + WORTH_IT && pause > 0 {
            pause -= 1;
            continue;
        }
        // Trimming may take milliseconds.
        if tokio::task::spawn_blocking(trim).await.is_err() {
            return;
        }
        last = self::surplus(&budget);
        pause = if surplus.saturating_sub(last) < WORTH_IT {
            PAUSE
        } else {
            0
        };
    }
}

fn surplus(budget: &Budget) -> usize {
    let resident = resident_bytes().unwrap_or_default();
    resident.saturating_sub(budget.used())
}

/// Returns the memory of the process in bytes, or `None` if it cannot be read.
fn resident_bytes() -> Option<usize> {
    // proc_pid_statm(5): sizes in pages, the second is the resident set.
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = pages.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages.saturating_mul(PAGE))
}

fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::trim();
}

/// Interval between two checks. A check costs some microseconds.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Number of checks to skip after an attempt without success.
const PAUSE: u32 = 3;
/// Growth above the lowest value that makes an attempt worthwhile, in bytes.
const WORTH_IT: usize = 8 << 20;
/// The usual page size. With larger pages, less memory is returned.
const PAGE: usize = 4 << 10;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(
    unsafe_code,
    reason = "the only way to tell glibc from within the process; the environment is read before it starts"
)]
mod glibc {
    use libc::{M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, c_int};

    pub(super) fn configure(arenas: Option<usize>) {
        let arenas = arenas.and_then(|count| c_int::try_from(count).ok());
        for (parameter, value) in [
            (M_MMAP_THRESHOLD, Some(OWN_MAPPING)),
            (M_TRIM_THRESHOLD, Some(KEPT_AT_END)),
            (M_ARENA_MAX, arenas),
        ] {
            let Some(value) = value else { continue };
            // SAFETY: `mallopt` takes two integers by value and locks what it changes. For an
            // unknown parameter, `mallopt` returns 0 and the default stays.
            let _known = unsafe { libc::mallopt(parameter, value) };
        }
    }

    pub(super) fn trim() {
        // SAFETY: `malloc_trim` may be called by any thread at any time (MT-Safe); it touches free memory only.
        let _trimmed = unsafe { libc::malloc_trim(0) };
    }

    /// Size from which a buffer is a mapping of its own, which is returned to the system as soon as
    /// it is freed. The threshold is above the usual size of a batch from another collector (2
    /// MiB), because a mapping costs a page fault for every 4 KiB: with a threshold of 1 MiB such
    /// batches take twice the processor time.
    const OWN_MAPPING: c_int = 4 << 20;
    /// Free memory that a heap may keep at its end: a few batches of the usual size.
    const KEPT_AT_END: c_int = 8 << 20;
}
