use std::convert::Infallible;

use proptest::prelude::*;
use tributary_otlp::room::Unbounded;
use tributary_otlp::strings::{
    Rewriter, StringLocation, StringLocations, Tables, TextDecision, rewrite,
};
use tributary_otlp::{Decoded, Signal};

use crate::generator::{Entropy, Generator};

// Repeated twice, the text is too long for an id.
const SECRET: &str = "s3cr3t-99";
const OTHER: &str = "<taken out>";
/// Fields that are not inspected, or are inspected elsewhere.
const SPARED: &[&str] = &[
    "schema_url",
    "string_table",
    "original_payload",
    "original_payload_format",
];

/// Replaces the secret by another text, or removes the string.
struct Test {
    remove: bool,
}

impl Rewriter for Test {
    type Refusal = Infallible;

    fn text(&mut self, _: StringLocation, text: &[u8]) -> Result<TextDecision, Infallible> {
        let text = std::str::from_utf8(text).unwrap();
        Ok(match (text.contains(SECRET), self.remove) {
            (false, _) => TextDecision::Keep,
            (true, false) => TextDecision::Replace(text.replace(SECRET, OTHER)),
            (true, true) => TextDecision::Remove,
        })
    }
}

fn generator(planted: &'static str, wild: bool, spared: &'static [&'static str]) -> Generator {
    let mut generator = Generator::new(wild);
    generator.overlong = false;
    generator.planted = Some((planted, spared));
    generator
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

fn entropy() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..3000)
}

proptest! {
    /// The expected result is the request generated with the other text, byte by byte.
    #[test]
    fn only_matching_strings_change(
        entropy in entropy(), signal in 0..4_usize, wild in any::<bool>(),
    ) {
        const KEPT: &[&str] = &["schema_url", "string_table", "original_payload",
            "original_payload_format", "unknown"];
        let signal = Signal::ALL[signal];
        let make = |planted| generator(planted, wild, KEPT).request(signal, &mut Entropy(&entropy));
        let request = make(SECRET);
        let expected = make(OTHER);
        let tables = Tables::new(StringLocations::ALL, false);
        let output = rewrite(&tables, signal, &request, &Unbounded, &mut Test { remove: false }).unwrap();
        prop_assert_eq!(output.is_some(), request != expected);
        prop_assert_eq!(output.as_deref().unwrap_or(&request), &expected[..]);
        prop_assert_eq!(rewrite(&tables, signal, &expected, &Unbounded, &mut Test { remove: false }), Ok(None));
    }

    #[test]
    fn secret_is_removed_from_every_place_and_unknown_field(
        entropy in entropy(), signal in 0..4_usize, remove in any::<bool>(),
    ) {
        let signal = Signal::ALL[signal];
        let mut generator = generator(SECRET, true, SPARED);
        generator.overlong = true;
        let request = generator.request(signal, &mut Entropy(&entropy));
        let tables = Tables::new(StringLocations::ALL, true);
        let output = rewrite(&tables, signal, &request, &Unbounded, &mut Test { remove }).unwrap();
        let output = output.map_or(request, Into::into);
        prop_assert!(!contains(&output, SECRET));
        prop_assert!(tributary_otlp::check(signal, &output).is_ok());
        prop_assert_eq!(rewrite(&tables, signal, &output, &Unbounded, &mut Test { remove }), Ok(None));
        if !remove {
            generator.planted = Some((OTHER, SPARED));
            let expected = generator.request(signal, &mut Entropy(&entropy));
            let decoded = |request: &[u8]| format!("{:?}", Decoded::decode(signal, request).unwrap());
            prop_assert_eq!(decoded(&output), decoded(&expected));
        }
    }
}

#[test]
fn unselected_places_stay_unchanged() {
    let entropy: Vec<u8> = (0..3000_u32).map(|at| ((at * 7919) >> 3) as u8).collect();
    for signal in Signal::ALL {
        let request = generator(SECRET, true, SPARED).request(signal, &mut Entropy(&entropy));
        let tables = Tables::new(StringLocations::default(), false);
        let output = rewrite(
            &tables,
            signal,
            &request,
            &Unbounded,
            &mut Test { remove: false },
        );
        assert_eq!(output, Ok(None));
    }
}
