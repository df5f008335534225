//! Redaction: no private data remains in any text or request, and a second run changes nothing.

use std::sync::LazyLock;

use tributary_config::Secret;
use tributary_redaction::{Detector, DetectorAction, DetectorConfig, Hits, ScanOutcome, Scanner, ScannerSettings, sanitize};

use crate::survival::survives_nowhere;
use crate::telemetry::signal_of;

/// The first byte selects the signal, and the signal of embedded requests if there are any. The
/// rest are the decisions of the generator.
pub fn redact(input: &[u8]) {
    if let [signals, entropy @ ..] = input {
        let inside = match signals / 4 % 8 {
            inside @ 0..4 => Some(signal_of(inside)),
            _ => None,
        };
        survives_nowhere(signal_of(*signals), inside, entropy);
    }
}

/// Planted secrets, in brackets, which are found in any context.
const PLANTED: [&str; 6] = [
    "canary@example.com",
    "4111 1111 1111 1111",
    "DE89 3704 0044 0532 0130 00",
    "2001:db8::c0de",
    "postgres://canary:s3cret@db/x",
    "/home/canary",
];

/// Scanners, one per action, without and with decoding.
static SCANNERS: LazyLock<Vec<Scanner>> = LazyLock::new(|| {
    let actions = [
        DetectorAction::Mask,
        DetectorAction::Replace,
        DetectorAction::Hash,
        DetectorAction::Hmac,
        DetectorAction::Partial,
        DetectorAction::Truncate,
    ];
    let scanner = |action, decode| {
        let detectors = Detector::ALL.map(|name| DetectorConfig { name, action });
        Scanner::new(&ScannerSettings {
            detectors: &detectors,
            custom: &[],
            hash_function: None,
            hmac_key: &Secret::from("0123456789abcdef0123456789abcdef"),
            decode,
        })
        .unwrap()
    };
    let both = [false, true].into_iter();
    both.flat_map(|decode| actions.map(|action| scanner(action, decode)))
        .collect()
});

/// The first byte selects the scanner, the second byte the planted secret, and the third byte its
/// position. The rest is the text.
pub fn redaction(input: &[u8]) {
    let [which, what, place, rest @ ..] = input else {
        return;
    };
    let text = String::from_utf8_lossy(rest);
    let scanner = &SCANNERS[usize::from(*which) % SCANNERS.len()];
    check(scanner, &text);
    let planted = PLANTED[usize::from(*what) % PLANTED.len()];
    let place = text.floor_char_boundary(usize::from(*place).min(text.len()));
    let with = format!("{} <{planted}> {}", &text[..place], &text[place..]);
    if let Some(redacted) = check(scanner, &with) {
        assert!(
            !redacted.contains(planted) || text.contains(planted),
            "what was planted is still there"
        );
    }
    for once in [
        sanitize::url(&text),
        sanitize::redis(&text),
        sanitize::memcached(&text),
    ] {
        drop(once);
    }
    let once = sanitize::sql(&text);
    assert_eq!(sanitize::sql(&once), once);
    let once = sanitize::url(&text);
    assert_eq!(sanitize::url(&once), once);
    let _ = sanitize::json(&text);
}

/// Returns the redacted text; `None` if the text cannot be scanned.
fn check(scanner: &Scanner, text: &str) -> Option<String> {
    let mut hits = Hits::default();
    match scanner.scan(text, &mut hits).ok()? {
        ScanOutcome::Clean => {
            assert!(hits.is_empty());
            Some(text.to_owned())
        }
        ScanOutcome::Rewritten(once) => {
            assert!(!hits.is_empty());
            let twice = scanner.scan(&once, &mut Hits::default());
            assert!(
                twice == Ok(ScanOutcome::Clean),
                "redacting again changes something"
            );
            Some(once)
        }
        ScanOutcome::Drop => panic!("no detector drops"),
    }
}
