use proptest::prelude::*;
use tributary::batch::{Decoded, Signal};
use tributary::wire;

use crate::generator::nested_log;
use crate::{items, request};

/// Accepts what prost accepts, refuses what prost refuses, and counts what prost would have decoded. Groups are the
/// documented exception.
fn assert_same_as_prost(signal: Signal, request: &[u8]) {
    match (
        wire::validate(signal, request),
        Decoded::decode(signal, request),
    ) {
        (Ok(count), Ok(decoded)) => {
            assert_eq!(count, items(&decoded));
            assert_eq!(count, wire::count(signal, request));
        }
        (Err(malformed), _) if malformed.reason.contains("group") => {}
        (Err(malformed), Ok(_)) => panic!("prost accepts: {malformed}"),
        (Ok(_), Err(error)) => panic!("prost refuses: {error}"),
        (Err(malformed), Err(_)) => assert!(malformed.offset <= request.len()),
    }
}

proptest! {
    #[test]
    fn any_legal_encoding_is_accepted_and_counted((signal, request) in request()) {
        prop_assert!(wire::validate(signal, &request).is_ok());
        assert_same_as_prost(signal, &request);
    }

    #[test]
    fn a_damaged_request_is_judged_as_prost_judges_it(
        (signal, mut request) in request(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        if request.is_empty() {
            return Ok(());
        }
        assert_same_as_prost(signal, &request[..cut.index(request.len())]);
        for (at, byte) in damage {
            let at = at.index(request.len());
            let before = request[at];
            for damaged in [byte, before ^ 1, before ^ 0x80, before.wrapping_add(1)] {
                request[at] = damaged;
                assert_same_as_prost(signal, &request);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_judged_as_prost_judges_them(
        signal in 0..4_usize,
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0x0a), Just(0x12), 0..16_u8], 0..40),
    ) {
        assert_same_as_prost(Signal::ALL[signal], &bytes);
    }
}

#[test]
fn nesting_is_limited_where_prost_limits_it() {
    let text = [0x0a, 1, b'x'];
    let unknown = [0x78, 1];
    let mut accepted = 0;
    for maps in 0..4 {
        for lists in 38..52 {
            for innermost in [&[][..], &text, &unknown, &[0x0a, 1, 0xff]] {
                let request = nested_log(lists, maps, innermost);
                assert_same_as_prost(Signal::Logs, &request);
                accepted += usize::from(wire::validate(Signal::Logs, &request).is_ok());
            }
        }
    }
    assert!(accepted > 50, "{accepted} requests were below the limit");
}

#[test]
fn nesting_without_end_is_refused_without_overflowing_the_stack() {
    let request = nested_log(20_000, 0, &[]);
    let malformed = wire::validate(Signal::Logs, &request).unwrap_err();
    assert!(malformed.reason.contains("100 levels"), "{malformed}");
}
