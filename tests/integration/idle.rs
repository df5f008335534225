//! A collector with nothing to do is small enough to run beside every process.

use crate::harness::{Backend, Collector, grpc_to, yaml};

/// What a sidecar may have resident when idle. Without optimizations there is twice as much code.
const BOUND: u64 = if cfg!(debug_assertions) { 14 } else { 10 } << 20;

#[tokio::test]
async fn an_idle_collector_gives_back_the_code_of_its_start() {
    let backend = Backend::start().await;
    let configuration = yaml(&[("batch", "{}")], &[("otlp_grpc", &grpc_to(&backend, ""))]);
    let configuration = configuration + "  telemetry: {logs: {level: debug}}\n";
    let collector = Collector::start(&configuration).await;
    smaller_than_the_bound(&collector, 0).await;
    let before = collector.lines().len();
    collector
        .reload(&(configuration + "# again\n"))
        .await
        .unwrap();
    smaller_than_the_bound(&collector, before).await;
}

/// The code that ran at start is given back right after the collector says that it is ready, and it says so: in a line
/// after the first `from` ones.
async fn smaller_than_the_bound(collector: &Collector, from: usize) {
    let message = "Gave back the code that ran at start";
    collector
        .wait_for_line(message, from, |line| line.message() == message)
        .await;
    let memory = collector.memory();
    assert!(memory < BOUND, "{memory}");
}
