//! How the requests of an HTTP/2 connection are run.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use hyper::rt::Executor;

/// Polls a cheap request once in the task of its connection, and spawns it only if it has to wait.
///
/// By the time a request is handed out, what the socket held of it has been read: a whole batch usually arrives, is
/// checked and is handed on in that one poll. A task per request costs an allocation, a queue and, with idle worker
/// threads, a futex wake; together more than a small request itself. Requests that take long are spawned, so that one
/// busy connection can use all cores.
#[derive(Clone, Default)]
pub(super) struct InlineFirst(Arc<Costs>);

/// What the requests of one connection have cost.
#[derive(Default)]
struct Costs {
    requests: AtomicU32,
    /// Nanoseconds of the last first poll.
    last: AtomicU64,
}

impl<F> Executor<F> for InlineFirst
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let costs = &*self.0;
        let look_again = costs
            .requests
            .fetch_add(1, Relaxed)
            .is_multiple_of(LOOK_AGAIN);
        if costs.last.load(Relaxed) > DEAR.as_nanos() as u64 && !look_again {
            tokio::spawn(future);
            return;
        }
        let mut future: Pin<Box<F>> = Box::pin(future);
        // The waker may do nothing: what is pending is polled again by its own task, at once.
        let mut context = Context::from_waker(Waker::noop());
        let began = Instant::now();
        let done = future.as_mut().poll(&mut context).is_ready();
        let cost = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        costs.last.store(cost, Relaxed);
        if !done {
            tokio::spawn(future);
        }
    }
}

/// Above this, spawning costs less than one part in twenty.
const DEAR: Duration = Duration::from_micros(100);
/// One request in so many is run inline in any case, to see what they cost now.
const LOOK_AGAIN: u32 = 64;
