//! Receivers that poll files.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::pipeline::{Component, Undelivered};
use futures_util::future::BoxFuture;

/// A source that is polled. Its data stays in the source until it has been delivered, so stopping a
/// poll loses nothing.
pub(super) trait Poll: Send + 'static {
    /// Polls once, and forwards the data found. When `stop` is cancelled, data in flight is
    /// delivered before the poll ends.
    fn poll(&mut self, stop: &CancellationToken) -> impl Future<Output = ()> + Send;
}

/// Polls from the start to the shutdown of the component. A poll that takes longer than the
/// interval delays the next poll.
pub(super) struct Polling<L> {
    waiting: Option<L>,
    initial_delay: Duration,
    interval: Duration,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl<L: Poll> Polling<L> {
    /// Creates a component that polls at an interval, which must not be zero.
    pub(super) fn new(source: L, initial_delay: Duration, interval: Duration) -> Self {
        Polling {
            waiting: Some(source),
            initial_delay,
            interval,
            stop: CancellationToken::new(),
            task: None,
        }
    }
}

impl<L: Poll> Component for Polling<L> {
    fn start(&mut self) {
        let Some(mut source) = self.waiting.take() else {
            return;
        };
        let stop = self.stop.clone();
        let mut ticks = interval_at(Instant::now() + self.initial_delay, self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.task = Some(tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    _ = ticks.tick() => {}
                }
                source.poll(&stop).await;
            }
        }));
    }

    fn shutdown(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            self.stop.cancel();
            if let Some(mut task) = self.task
                && timeout_at(deadline, &mut task).await.is_err()
            {
                task.abort();
            }
            Undelivered::default()
        })
    }
}
