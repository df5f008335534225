//! What the wire path promises, checked against prost on random requests in every legal encoding.

// A test crate: a panic is a finding.
#![allow(clippy::unwrap_used, clippy::panic)]

mod attributes;
mod filter;
mod generator;
mod oracle;
mod partition;
mod rebuild;
mod redaction;
mod sieve;
mod split;
mod stamp;
mod strings;
mod survival;
mod validate;
mod view;

use std::sync::LazyLock;

use generator::{Entropy, Generator};
use proptest::prelude::*;
use tributary::batch::Signal;

static TAME: LazyLock<Generator> = LazyLock::new(|| Generator::new(false));
static WILD: LazyLock<Generator> = LazyLock::new(|| Generator::new(true));

/// A valid request of any signal, in any legal encoding.
fn request() -> impl Strategy<Value = (Signal, Vec<u8>)> {
    let entropy = prop::collection::vec(any::<u8>(), 0..3000);
    (0..4_usize, any::<bool>(), entropy).prop_map(|(signal, wild, entropy)| {
        let signal = Signal::ALL[signal];
        let generator = if wild { &WILD } else { &TAME };
        (signal, generator.request(signal, &mut Entropy(&entropy)))
    })
}
