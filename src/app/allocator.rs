//! What the C library's allocator does with memory that was freed.
//!
//! glibc learns from what a program frees: after one buffer of 20 MiB it serves all buffers up to that size from its
//! heaps, of which every thread may have its own, and keeps twice as much at the end of each. One bomb is enough to
//! teach it. Measured with a budget of 64 MiB and 64 decompression bombs at once: the process grew to 176 MiB and
//! stayed there; with fixed thresholds it has 60 to 90 MiB at most and 36 MiB afterwards. What is free in heaps goes back
//! by [`keep_small`], but for the free end of every heap that is not the first: glibc gives that back only when a thread
//! frees there. So there are few heaps, see `arenas`. Other allocators were measured too, see ARCHITECTURE.md.

use std::sync::Arc;
use std::time::Duration;

use tributary_memory::Budget;

/// Fixes the thresholds and the number of heaps. To be called once, before there are threads.
pub fn return_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::configure(arenas());
}

/// How many heaps the threads share: one for every two processors. glibc would make one for each of the first eight
/// threads per processor, of which each keeps holes and 8 MiB at its end. Two threads do not notice each other there:
/// most of what is freed and taken again never leaves the thread. None where `MALLOC_ARENA_MAX` says how many.
fn arenas() -> Option<usize> {
    if std::env::var_os("MALLOC_ARENA_MAX").is_some() {
        return None;
    }
    let processors = std::thread::available_parallelism().ok()?;
    Some(processors.get().div_ceil(2))
}

/// Looks every few seconds whether the process has much more memory than the telemetry it holds, and gives back what is
/// free. For ever; to be spawned.
pub async fn keep_small(budget: Arc<Budget>) {
    // What the process has besides telemetry: when it began, after the last attempt.
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
        // What did not go is in use, by connections say. They may close: it is tried again, but not soon.
        if surplus < last + WORTH_IT && pause > 0 {
            pause -= 1;
            continue;
        }
        // It may take milliseconds.
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

/// The memory of the process in bytes; none where it cannot be read.
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

/// How often to look. A look costs some microseconds.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// How many looks without an attempt follow one that did not help.
const PAUSE: u32 = 3;
/// How much more than at the lowest there must be.
const WORTH_IT: usize = 8 << 20;
/// The usual page. Where pages are larger less is given back.
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
            // SAFETY: `mallopt` takes two integers by value and locks what it changes. A parameter it does not know is
            // no error but a result of 0: then the default stays.
            let _known = unsafe { libc::mallopt(parameter, value) };
        }
    }

    pub(super) fn trim() {
        // SAFETY: `malloc_trim` may be called by any thread at any time (MT-Safe); it touches free memory only.
        let _trimmed = unsafe { libc::malloc_trim(0) };
    }

    /// From this size on, a buffer is a mapping of its own and goes back to the system when it is freed. Above what
    /// batches of a collector in front usually have (2 MiB; at 1 MiB they cost twice the processor time), as a mapping
    /// costs a page fault for every 4 KiB.
    const OWN_MAPPING: c_int = 4 << 20;
    /// What a heap may keep at its end: a few such batches.
    const KEPT_AT_END: c_int = 8 << 20;
}
