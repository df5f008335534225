//! A collector with nothing to do is small enough to run beside every process.

use tokio::time::sleep;

use crate::harness::{Backend, Collector, GLANCE, grpc_to, within, yaml};

/// What a sidecar may have resident when idle. Without optimizations there is twice as much code.
const BOUND: u64 = if cfg!(debug_assertions) { 14 } else { 10 } << 20;

#[tokio::test]
async fn an_idle_collector_gives_back_the_code_of_its_start() {
    let backend = Backend::start().await;
    let configuration = yaml(&[("batch", "{}")], &[("otlp_grpc", &grpc_to(&backend, ""))]);
    let collector = Collector::start(&configuration).await;
    smaller_than_the_bound(&collector).await;
    collector
        .reload(&(configuration + "# again\n"))
        .await
        .unwrap();
    smaller_than_the_bound(&collector).await;
}

/// The code that ran at start is given back right after the collector says that it is ready.
async fn smaller_than_the_bound(collector: &Collector) {
    within("few pages resident", async {
        while collector.memory() >= BOUND {
            sleep(GLANCE).await;
        }
    })
    .await;
}
