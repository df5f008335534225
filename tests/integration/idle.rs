//! An idle collector is small enough to run beside every process.

use tokio::time::sleep;

use crate::harness::{Backend, Collector, POLL_INTERVAL, grpc_to, within, yaml};

/// Maximum private memory of an idle sidecar in bytes. Unoptimized builds need more.
const BOUND: u64 = if cfg!(debug_assertions) { 6 } else { 4 } << 20;

/// Maximum resident memory of an idle sidecar in bytes, including the pages of its program.
const RESIDENT: u64 = 10 << 20;

#[tokio::test]
async fn idle_collector_releases_the_code_of_its_start() {
    let backend = Backend::start().await;
    let configuration = yaml(&[("batch", "{}")], &[("otlp_grpc", &grpc_to(&backend, ""))]);
    let collector = Collector::start(&configuration).await;
    wait_until_small(&collector).await;
    collector
        .reload(&(configuration + "# again\n"))
        .await
        .unwrap();
    wait_until_small(&collector).await;
}

/// Waits until the collector has released the code of its start, which happens right after it is ready.
async fn wait_until_small(collector: &Collector) {
    let is_small = || {
        let (own, file_pages) = (collector.memory(), collector.file_pages());
        let given_back = match cfg!(debug_assertions) {
            // Without optimizations so much code is resident that only the difference is meaningful.
            true => file_pages < collector.peak_memory(),
            false => own + file_pages < RESIDENT,
        };
        own < BOUND && given_back
    };
    within("memory to be small again", async {
        while !is_small() {
            sleep(POLL_INTERVAL).await;
        }
    })
    .await;
}
