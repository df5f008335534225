//! Fuzz target for the pages of the `prometheus` exporter.

use tributary_otlp::Signal;
use tributary::fuzzing::exporters::pages;

use crate::generator::{Entropy, Generator};

/// For any metrics, the pages are valid in all formats, have no duplicate series, and have the same
/// number of series.
pub fn prometheus(input: &[u8]) {
    let Some((choices, input)) = input.split_first() else {
        return;
    };
    // The input if it is a valid request; otherwise two generated requests, of which the second may
    // continue series of the first.
    let requests = match tributary_otlp::validate(Signal::Metrics, input) {
        Ok(_) => vec![input.to_vec(), input.to_vec()],
        Err(_) => {
            let generator = Generator::new(false);
            let mut entropy = Entropy(input);
            let first = generator.request(Signal::Metrics, &mut entropy);
            vec![first, generator.request(Signal::Metrics, &mut entropy)]
        }
    };
    if let Err(why) = pages(*choices, requests.iter().map(Vec::as_slice)) {
        panic!("{why}");
    }
}
