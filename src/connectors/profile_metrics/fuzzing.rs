//! A window of requests without the rest of a connector.

use std::sync::Arc;

use metrics::Counter;
use tokio::time::Instant;

use super::measure::{Bounds, measure};
use super::requests::served;
use super::series::Series;
use super::window::Window;
use super::write;
use tributary_memory::Budget;
use tributary_otlp::Signal;

const MOST_RESOURCES: usize = 3;

/// Returns the metrics of a window with these profiles requests and the given number of functions; `None` if a
/// request breaks the rules of its dictionary or exceeds a limit.
pub fn profile_metrics(requests: &[&[u8]], functions: usize) -> Option<Vec<u8>> {
    let (mut window, mut series) = empty();
    let mut memory = Budget::new(usize::MAX / 2).empty_permit();
    let keys = ["service.name".to_owned()];
    for request in requests {
        let bounds = Bounds::of(request.len());
        for measured in measure(request, &keys, bounds, &mut memory).ok()? {
            window.add(measured, &mut series, MOST_RESOURCES);
        }
    }
    Some(write::request(&window, functions))
}

/// Returns the metrics of a window with a request of traces or metrics.
pub fn request_metrics(signal: Signal, request: &[u8], names: &[String]) -> Vec<u8> {
    let (mut window, mut series) = empty();
    for served in served(signal, request, names) {
        window.serve(served, &mut series, MOST_RESOURCES);
    }
    write::request(&window, 0)
}

fn empty() -> (Window, Series) {
    let budget: Arc<Budget> = Budget::new(1 << 20);
    let window = Window {
        due: Instant::now(),
        start: 1,
        end: 2,
        resources: Default::default(),
        requests: Default::default(),
        items: 0,
        senders: Default::default(),
        bytes: 0,
        permit: budget.empty_permit(),
        others: Vec::new(),
    };
    (window, Series::new(1 << 20, &budget, &Counter::noop()))
}
