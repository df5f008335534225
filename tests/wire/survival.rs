//! The redaction processor on a random request. Also used by the fuzz targets.

use bytes::Bytes;
use tributary::batch::{Batch, Signal};
use tributary::pipeline::Processor;
use tributary::processors::redaction::Config;
use tributary::wire;

use crate::generator::{Entropy, Generator};

/// The processor with this configuration.
pub(crate) fn processor(config: &str, signal: Signal) -> Box<dyn Processor> {
    let config: Config = serde_yaml::from_str(config).unwrap();
    crate::sieve::processor(&config, signal)
}

/// What is planted wherever there is text.
pub(crate) const PLANTED: &str = "jane.roe@example.com";
const EVERYTHING: &str = "
allow_all_keys: true
detectors: [email]
scan: [all]
unknown_fields: drop
";

/// Nothing planted survives, what comes out is valid, and a second time nothing changes. If there is a signal inside, all
/// bytes in values are requests of it, and listed as such under some of the keys that they stand under.
pub(crate) fn survives_nowhere(signal: Signal, inside: Option<Signal>, entropy: &[u8]) {
    let mut generator = Generator::new(true);
    generator.planted = Some((PLANTED, &["schema_url"]));
    generator.embedded = inside;
    let request = Bytes::from(generator.request(signal, &mut Entropy(entropy)));
    let mut config = EVERYTHING.to_owned();
    if let Some(inside) = inside {
        let entries = ["", "key: a, ", "key: b, ", "key: c, "];
        let entries = entries.map(|key| format!("{{{key}signal: {inside}}}"));
        config.push_str(&format!("embedded_otlp: [{}]", entries.join(", ")));
    }
    let processor = processor(&config, signal);
    let items = wire::validate(signal, &request).unwrap();
    let batch = Batch::new(signal, items, request.clone());
    let Ok(redacted) = processor.process(batch) else {
        // Random references seldom lead anywhere.
        assert!(signal == Signal::Profiles || inside == Some(Signal::Profiles));
        return;
    };
    let mut redacted = redacted.unwrap();
    let output = redacted.wire().to_bytes();
    let planted = |bytes: &[u8]| {
        let mut parts = bytes.windows(PLANTED.len());
        parts.any(|part| part == PLANTED.as_bytes())
    };
    assert!(!planted(&output), "it survived");
    assert_eq!(wire::validate(signal, &output), Ok(redacted.items()));
    let again = processor.process(redacted.clone()).unwrap().unwrap();
    assert_eq!(again.into_wire().to_bytes().as_ptr(), output.as_ptr());
}
