//! Fuzz target for the guard of HTTP/2 connections.

use std::collections::BTreeSet;

use tributary_net::server::frames::FrameTracker;

use crate::generator::Entropy;

/// The tracker counts the same frames as a parser of the whole connection, for any split of the
/// bytes. The number of tracked streams stays within its limit.
pub fn frames(input: &[u8]) {
    let (decisions, bytes) = input.split_at(input.len().min(16));
    let whole = [PREFACE, bytes].concat();
    let mut entropy = Entropy(decisions);
    let mut guard = FrameTracker::default();
    let (mut control, mut rest) = (0, whole.as_slice());
    while !rest.is_empty() {
        // When the decisions are used up, the rest of the input is one piece.
        let length = match usize::from(entropy.byte()) {
            0 => rest.len(),
            length => length.min(rest.len()),
        };
        let (piece, after) = rest.split_at(length);
        control += guard.feed(piece).control;
        rest = after;
    }
    assert!(!guard.is_foreign());
    let expected = read(bytes);
    assert_eq!(
        (control, guard.streams()),
        (expected.control, expected.streams.len())
    );
    // The same bytes, tracked as sent by the server.
    let mut sender = FrameTracker::default();
    let at_once = sender.sent(bytes, 1);
    let (one, two) = bytes.split_at(bytes.len() / 2);
    let mut split = FrameTracker::default();
    let (one, two) = (split.sent(one, 1), split.sent(two, 1));
    assert_eq!(at_once.control, one.control + two.control);
    assert_eq!(at_once.answers, one.answers + two.answers);
    assert_eq!(sender.unsent(), split.unsent());
    assert_eq!(sender.may_insert(), sender.unsent() == 0);
}

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Default)]
struct Read {
    control: u32,
    streams: BTreeSet<u32>,
}

/// Parses the frames of a complete connection (RFC 9113, 4.1 and 6).
fn read(mut bytes: &[u8]) -> Read {
    let mut read = Read::default();
    let mut last = 0;
    while let [a, b, c, kind, flags, s0, s1, s2, s3, payload @ ..] = bytes {
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        let stream = u32::from_be_bytes([s0 & 0x7f, *s1, *s2, *s3]);
        let (ends, padded) = (flags & 1 != 0, flags & 8 != 0);
        let counts = match kind {
            0 => !ends && (length == 0 || padded && length <= 256),
            1 if stream > last => {
                last = stream;
                let fits = read.streams.len() < 1 << 14;
                if fits {
                    read.streams.insert(stream);
                }
                !fits
            }
            3 => {
                read.streams.remove(&stream);
                true
            }
            _ => true,
        };
        read.control += u32::from(counts);
        bytes = payload.get(length..).unwrap_or_default();
    }
    read
}
