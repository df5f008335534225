//! The redaction processor on a random request. Also used by the fuzz targets.

use std::sync::{LazyLock, OnceLock};

use bytes::Bytes;
use tributary::pipeline::Processor;
use tributary::pipeline::batch::Batch;
use tributary::processors::redaction::Config;
use tributary_otlp::Signal;

use crate::generator::{Entropy, Generator};

pub(crate) fn processor(config: &str, signal: Signal) -> Box<dyn Processor> {
    let config: Config = serde_yaml::from_str(config).unwrap();
    crate::sieve::processor(&config, signal)
}

/// Personal data inserted into the texts of a request.
pub(crate) const PLANTED: &str = "jane.roe@example.com";
/// Detectors only; the Collector's rules as well; and both with actions whose output changes every time.
const CONFIGS: [&str; 3] = [
    "
allow_all_keys: true
detectors: [email]
scan: [all]
unknown_fields: drop
",
    "
allow_all_keys: true
blocked_values: ['jane\\.roe']
allowed_values: ['^[ab]$', '^text\\.7$']
redact_all_types: true
detectors: [email]
scan: [all]
unknown_fields: drop
",
    "
allow_all_keys: true
blocked_values: ['jane\\.roe']
allowed_values: ['^[ab]$']
blocked_key_patterns: ['^c$']
redact_all_types: true
summary: debug
scan: [all]
unknown_fields: drop
",
];
/// The last configuration writes summaries, which add up.
const ADDS_UP: usize = 2;

/// Asserts that no planted secret remains, that the output is valid, and that a second run changes nothing. With an
/// inner signal, all bytes values are requests of this signal, and some of their keys are configured as such. Profiles
/// from an even number of decisions are consistent. Returns the number of configurations that passed the request on.
pub(crate) fn survives_nowhere(signal: Signal, inside: Option<Signal>, entropy: &[u8]) -> usize {
    let mut generator = Generator::new(true);
    generator.planted = Some((PLANTED, &["schema_url"]));
    generator.embedded = inside;
    generator.sensible = entropy.len().is_multiple_of(2);
    let request = Bytes::from(generator.request(signal, &mut Entropy(entropy)));
    let passed = processors(signal, inside).iter().enumerate();
    let passed = passed.filter(|(config, processor)| {
        passes_nothing_on(&***processor, signal, inside, &request, *config == ADDS_UP)
    });
    passed.count()
}

/// Whether the request is passed on, without any planted secret.
fn passes_nothing_on(
    processor: &dyn Processor,
    signal: Signal,
    inside: Option<Signal>,
    request: &Bytes,
    adds_up: bool,
) -> bool {
    let items = tributary_otlp::validate(signal, request).unwrap();
    let batch = Batch::new(signal, items, request.clone());
    let Ok(redacted) = processor.process(batch) else {
        // Random references are rarely valid.
        assert!(signal == Signal::Profiles || inside == Some(Signal::Profiles));
        return false;
    };
    let redacted = redacted.unwrap();
    let output = redacted.wire().to_bytes();
    let planted = |bytes: &[u8]| {
        let mut parts = bytes.windows(PLANTED.len());
        parts.any(|part| part == PLANTED.as_bytes())
    };
    assert!(!planted(&output), "it survived");
    assert_eq!(
        tributary_otlp::validate(signal, &output),
        Ok(redacted.items())
    );
    let again = processor.process(redacted.clone()).unwrap().unwrap();
    let again = again.into_wire().to_bytes();
    if !adds_up {
        assert_eq!(again.as_ptr(), output.as_ptr());
    }
    assert!(!planted(&again));
    true
}

/// The processors of all configurations, made once for each pair of signals.
fn processors(signal: Signal, inside: Option<Signal>) -> &'static [Box<dyn Processor>] {
    type All = LazyLock<Vec<OnceLock<Vec<Box<dyn Processor>>>>>;
    static ALL: All = LazyLock::new(|| (0..20).map(|_| OnceLock::new()).collect());
    let at = 5 * signal.index() + inside.map_or(4, Signal::index);
    ALL[at].get_or_init(|| {
        let configs = CONFIGS.iter().map(|config| {
            let mut config = (*config).to_owned();
            if let Some(inside) = inside {
                let entries = ["", "key: a, ", "key: b, ", "key: c, "];
                let entries = entries.map(|key| format!("{{{key}signal: {inside}}}"));
                config.push_str(&format!("embedded_otlp: [{}]", entries.join(", ")));
            }
            processor(&config, signal)
        });
        configs.collect()
    })
}
