//! How the requests of an HTTP/2 connection are run.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

use hyper::rt::Executor;

/// Polls a request once in the task of its connection, and spawns it only if it has to wait.
///
/// By the time a request is handed out, what the socket held of it has been read: a whole batch usually arrives, is
/// checked and is handed on in that one poll. A task per request costs an allocation, a queue and, with idle worker
/// threads, a futex wake; together more than the request itself when it is small.
#[derive(Clone, Copy)]
pub(super) struct InlineFirst;

impl<F> Executor<F> for InlineFirst
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let mut future: Pin<Box<F>> = Box::pin(future);
        // The waker may do nothing: what is pending is polled again by its own task, at once.
        let mut context = Context::from_waker(Waker::noop());
        if future.as_mut().poll(&mut context).is_pending() {
            tokio::spawn(future);
        }
    }
}
