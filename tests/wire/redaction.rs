//! The redaction processor on random requests: no planted secret remains.

use std::sync::LazyLock;

use bytes::Bytes;
use proptest::prelude::*;
use tributary::pipeline::Processor;
use tributary::pipeline::batch::Batch;
use tributary_otlp::Signal;
use tributary_otlp::strings::StringLocation;

use crate::generator::{Entropy, Generator};
use crate::survival::{PLANTED, processor, survives_nowhere};

proptest! {
    #[test]
    fn planted_secrets_are_removed_in_one_run(
        entropy in prop::collection::vec(any::<u8>(), 0..3000),
        signal in 0..4_usize,
        inside in prop::option::of(0..4_usize),
    ) {
        survives_nowhere(Signal::ALL[signal], inside.map(|inside| Signal::ALL[inside]), &entropy);
    }
}

/// A profile that a fuzzer found.
#[test]
fn second_run_keeps_the_fuzzed_profile_unchanged() {
    let entropy = [
        0xae, 0xcc, 0x0d, 0xc3, 0x69, 0xc7, 0xf5, 0xe5, 0xee, 0x18, 0xb9, 0x00, 0x40, 0x6d, 0xd6,
    ];
    survives_nowhere(Signal::Profiles, Some(Signal::Traces), &entropy);
}

#[test]
fn most_consistent_profiles_are_passed_on() {
    const TRIES: usize = 64;
    let mut passed = 0;
    for seed in 1..=TRIES as u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut byte = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        let entropy: Vec<u8> = (0..1000).map(|_| byte()).collect();
        passed += survives_nowhere(Signal::Profiles, None, &entropy);
    }
    // Three configurations per request.
    assert!(passed >= 27 * TRIES / 10, "{passed} of {}", 3 * TRIES);
}

/// One processor per place, which scans only this place; then a processor that scans all places, and a processor that
/// only reports.
fn processors(signal: Signal) -> &'static [Box<dyn Processor>] {
    static ALL: [LazyLock<Vec<Box<dyn Processor>>>; 4] = [
        LazyLock::new(|| each_place(Signal::Traces)),
        LazyLock::new(|| each_place(Signal::Metrics)),
        LazyLock::new(|| each_place(Signal::Logs)),
        LazyLock::new(|| each_place(Signal::Profiles)),
    ];
    match signal {
        Signal::Traces => &ALL[0],
        Signal::Metrics => &ALL[1],
        Signal::Logs => &ALL[2],
        Signal::Profiles => &ALL[3],
    }
}

fn each_place(signal: Signal) -> Vec<Box<dyn Processor>> {
    let names = StringLocation::ALL.iter().map(|place| place.name());
    let scans = names.chain(["all", "all, all"]);
    let yaml = |scan: &str| {
        let mode = if scan.contains(',') {
            "report"
        } else {
            "redact"
        };
        format!("{{allow_all_keys: true, detectors: [email], scan: [{scan}], mode: {mode}}}")
    };
    scans.map(|scan| processor(&yaml(scan), signal)).collect()
}

fn planted(bytes: &[u8]) -> usize {
    let parts = bytes.windows(PLANTED.len());
    parts.filter(|part| *part == PLANTED.as_bytes()).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn only_selected_places_are_changed(
        entropy in prop::collection::vec(any::<u8>(), 0..3000),
        signal in 0..3_usize,
    ) {
        let signal = [Signal::Traces, Signal::Metrics, Signal::Logs][signal];
        let mut generator = Generator::new(true);
        generator.planted = Some((PLANTED, &["schema_url"]));
        let request = Bytes::from(generator.request(signal, &mut Entropy(&entropy)));
        let items = tributary_otlp::validate(signal, &request).unwrap();
        let run = |processor: &dyn Processor, request: Bytes| {
            let batch = Batch::new(signal, items, request);
            processor.process(batch).unwrap().unwrap().into_wire().to_bytes()
        };
        let [places @ .., all, report] = processors(signal) else {
            unreachable!();
        };
        prop_assert_eq!(run(&**report, request.clone()).as_ptr(), request.as_ptr());
        let everywhere = run(&**all, request.clone());
        let mut one_by_one = request.clone();
        let mut taken = 0;
        for place in places {
            taken += planted(&request) - planted(&run(&**place, request.clone()));
            one_by_one = run(&**place, one_by_one);
        }
        prop_assert_eq!(taken, planted(&request) - planted(&everywhere));
        prop_assert_eq!(one_by_one, everywhere);
    }
}
