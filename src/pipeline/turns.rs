//! Turns at heavy work: off the threads that serve sockets, and as much at once as there are cores. More would be no
//! faster, and hold more memory. All receivers, processors and connectors share them.

use std::sync::LazyLock;

use tokio::sync::Semaphore;

use tributary_net::server::cores;

static TURNS: LazyLock<Semaphore> = LazyLock::new(|| {
    // Tests on paused time must not wait for each other: their clocks would run on.
    let turns = if cfg!(test) { 1 << 20 } else { cores() };
    Semaphore::new(turns)
});

/// Above this many bytes, work on every byte leaves the threads that serve sockets: about a millisecond of LZ4, ten of
/// gzip.
pub(crate) const BLOCKING_BYTES: usize = 256 << 10;

/// Does work on so many bytes, elsewhere if it is much, see [`on_a_turn`].
pub(crate) async fn on_a_turn_if_large<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if bytes <= BLOCKING_BYTES {
        return Some(work());
    }
    on_a_turn(work).await
}

/// Does what takes long on another thread, when it is its turn; nothing comes back when the process ends. Work that has
/// begun goes on when nobody waits for it any more. Who works must not wait for another turn.
///
/// # Panics
/// When the work does.
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
