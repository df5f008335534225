//! The replaceable connection from a receiver to its pipelines.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::{Instant, sleep};

use super::Consumer;
use crate::pipeline::batch::{Batch, Nack};
use futures_util::future::BoxFuture;

/// Connects a receiver to its pipelines. A reload that leaves the receiver unchanged points the switch to the new
/// pipelines, so that no client connection closes.
pub struct Switch {
    current: ArcSwap<Destination>,
}

/// Target of a switch. Its reference count shows whether requests still pass through it.
pub(crate) struct Destination(Arc<dyn Consumer>);

impl Switch {
    /// Creates a switch that points to `consumer`.
    pub fn new(consumer: Arc<dyn Consumer>) -> Arc<Self> {
        Arc::new(Switch {
            current: ArcSwap::from_pointee(Destination(consumer)),
        })
    }

    /// Points to the target of `other`, and returns the previous target.
    pub(crate) fn follow(&self, other: &Switch) -> Arc<Destination> {
        self.current.swap(other.current.load_full())
    }
}

impl Consumer for Switch {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        let destination = self.current.load_full();
        Box::pin(async move { destination.0.consume(batch).await })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        vec![self.current.load().0.clone()]
    }
}

impl Destination {
    /// Waits until the last request has passed, or until `deadline`.
    pub(crate) async fn emptied(self: Arc<Self>, deadline: Instant) {
        // Requests take milliseconds, and a reload is rare, so polling is cheap.
        const POLL_INTERVAL: Duration = Duration::from_millis(5);
        while Arc::strong_count(&self) > 1 && Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::testing::{Scripted, spans};

    #[tokio::test(start_paused = true)]
    async fn requests_in_flight_keep_their_target() {
        let old = Scripted::slow(Duration::from_secs(2));
        let new = Scripted::new([]);
        let switch = Switch::new(old.clone());
        let far = Instant::now() + Duration::from_secs(60);

        let in_flight = switch.consume(spans(["first"]));
        let replaced = switch.follow(&Switch::new(new.clone()));
        switch.consume(spans(["second"])).await.unwrap();
        let start = Instant::now();
        let (taken, ()) = tokio::join!(in_flight, replaced.emptied(far));
        taken.unwrap();

        assert!(
            start.elapsed() >= Duration::from_secs(2),
            "did not wait for the first request"
        );
        assert_eq!(
            (old.span_names(), new.span_names()),
            (vec!["first".into()], vec!["second".into()])
        );
    }
}
