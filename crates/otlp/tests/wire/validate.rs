use proptest::prelude::*;
use tributary_otlp::Signal;
use tributary_otlp::edit::put_delimited;

use crate::oracle::validates_like_prost;
use crate::request;

proptest! {
    #[test]
    fn any_legal_encoding_is_accepted_and_counted((signal, request) in request()) {
        prop_assert!(tributary_otlp::validate(signal, &request).is_ok());
        validates_like_prost(signal, &request);
    }

    #[test]
    fn damaged_request_is_accepted_like_prost(
        (signal, mut request) in request(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        if request.is_empty() {
            return Ok(());
        }
        validates_like_prost(signal, &request[..cut.index(request.len())]);
        for (at, byte) in damage {
            let at = at.index(request.len());
            let before = request[at];
            for damaged in [byte, before ^ 1, before ^ 0x80, before.wrapping_add(1)] {
                request[at] = damaged;
                validates_like_prost(signal, &request);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_accepted_or_refused_like_prost(
        signal in 0..4_usize,
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0x0a), Just(0x12), 0..16_u8], 0..40),
    ) {
        validates_like_prost(Signal::ALL[signal], &bytes);
    }
}

#[test]
fn nesting_limit_matches_prost() {
    let text = [0x0a, 1, b'x'];
    let unknown = [0x78, 1];
    // kvlist_value { values { key: "k" value { string_value: "x" } } }
    let attribute = [0x32, 10, 0x0a, 8, 0x0a, 1, b'k', 0x12, 3, 0x0a, 1, b'x'];
    let mut accepted = 0;
    for maps in 0..4 {
        for lists in 38..52 {
            for innermost in [&[][..], &text, &unknown, &attribute, &[0x0a, 1, 0xff]] {
                let request = nested_log(lists, maps, innermost);
                validates_like_prost(Signal::Logs, &request);
                accepted += usize::from(tributary_otlp::validate(Signal::Logs, &request).is_ok());
            }
        }
    }
    assert!(accepted > 50, "{accepted} requests were below the limit");
}

#[test]
fn packed_scalars_are_validated_like_prost() {
    for (field, kind) in [
        (&[0x32, 8, 1, 2, 3, 4, 5, 6, 7, 8][..], 9), // bucket_counts of a HistogramDataPoint
        (&[0x32, 7, 1, 2, 3, 4, 5, 6, 7], 9),
        (&[0x32, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9], 9),
        (&[0x31, 1, 2, 3, 4, 5, 6, 7, 8], 9),
        (&[0x30, 1], 9),
        (&[0x42, 5, 0x12, 3, 1, 0xff, 1], 10), // positive.bucket_counts of an ExponentialHistogramDataPoint
        (&[0x42, 5, 0x12, 3, 1, 2, 0xff], 10),
        (&[0x42, 2, 0x10, 1], 10),
    ] {
        let mut request = field.to_vec();
        for number in [1, kind, 2, 2, 1] {
            request = framed(number << 3, &request);
        }
        validates_like_prost(Signal::Metrics, &request);
    }
}

#[test]
fn unbounded_nesting_is_refused_without_stack_overflow() {
    let request = nested_log(20_000, 0, &[]);
    let malformed = tributary_otlp::validate(Signal::Logs, &request).unwrap_err();
    assert!(malformed.reason.contains("100 levels"), "{malformed}");
}

/// Returns a log record whose body has `lists` nested lists, then `maps` nested maps, then `innermost`.
fn nested_log(lists: usize, maps: usize, innermost: &[u8]) -> Vec<u8> {
    let mut value = innermost.to_vec();
    for _ in 0..maps {
        // kvlist_value { values { value { .. } } }
        for tag in [0x12, 0x0a, 0x32] {
            value = framed(tag, &value);
        }
    }
    for _ in 0..lists {
        // array_value { values { .. } }
        for tag in [0x0a, 0x2a] {
            value = framed(tag, &value);
        }
    }
    // resource_logs { scope_logs { log_records { body { .. } } } }
    for tag in [0x2a, 0x12, 0x12, 0x0a] {
        value = framed(tag, &value);
    }
    value
}

fn framed(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    put_delimited(u32::from(tag >> 3), body, &mut message);
    message
}
