//! Random requests of any signal.

use std::sync::LazyLock;

use proptest::prelude::*;
use tributary_otlp::Signal;

use crate::generator::{Entropy, Generator};

static TAME: LazyLock<Generator> = LazyLock::new(|| Generator::new(false));
static WILD: LazyLock<Generator> = LazyLock::new(|| Generator::new(true));

/// Generates a valid request of any signal, in any legal encoding.
pub(crate) fn request() -> impl Strategy<Value = (Signal, Vec<u8>)> {
    let entropy = prop::collection::vec(any::<u8>(), 0..3000);
    (0..4_usize, any::<bool>(), entropy).prop_map(|(signal, wild, entropy)| {
        let signal = Signal::ALL[signal];
        let generator = if wild { &WILD } else { &TAME };
        (signal, generator.request(signal, &mut Entropy(&entropy)))
    })
}
