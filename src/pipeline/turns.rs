//! Limits CPU-heavy work to one task per core, off the threads that serve sockets. More tasks would not be faster and
//! would use more memory. All receivers, processors and connectors share the limit.

use std::sync::LazyLock;

use tokio::sync::Semaphore;

use tributary_net::server::cores;

static TURNS: LazyLock<Semaphore> = LazyLock::new(|| {
    // Tests with paused time must not wait for each other, because the paused clock would advance.
    let turns = if cfg!(test) { 1 << 20 } else { cores() };
    Semaphore::new(turns)
});

/// Size in bytes from which work on every byte runs off the threads that serve sockets. Decompressing so many bytes
/// takes about 1 ms with LZ4 and 10 ms with gzip.
pub(crate) const BLOCKING_BYTES: usize = 256 << 10;

/// Runs `work` on `bytes` bytes, on another thread if there are many. See [`on_a_turn`].
pub(crate) async fn on_a_turn_if_large<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if bytes <= BLOCKING_BYTES {
        return Some(work());
    }
    on_a_turn(work).await
}

/// Runs `work` on a blocking thread when a turn is free. Returns `None` if the process ends. Work that has begun
/// finishes even if its caller stops waiting. `work` must not wait for another turn, which could deadlock.
///
/// # Panics
/// Panics if `work` panics.
pub(crate) async fn on_a_turn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let turn = TURNS.acquire().await.ok()?;
    let run = move || {
        let _turn = turn;
        work()
    };
    match tokio::task::spawn_blocking(run).await {
        Ok(done) => Some(done),
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => None,
        },
    }
}
