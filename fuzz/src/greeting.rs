//! Fuzz target for the detection of the protocol of a connection.

use tributary::fuzzing::server;

use crate::frames::PREFACE;

/// The detected protocol depends on the bytes only, not on their split into pieces.
pub fn greeting(input: &[u8]) {
    let (cuts, said) = input.split_at(input.len().min(4));
    // Most inputs begin with valid first bytes of a protocol.
    let said = match cuts.first() {
        Some(0) => [PREFACE, said].concat(),
        Some(1) => [&PREFACE[..said.len().min(PREFACE.len())], said].concat(),
        Some(2) => [&[0x16, 3, 1], said].concat(),
        _ => said.to_vec(),
    };
    let (mut pieces, mut rest) = (Vec::new(), said.as_slice());
    for cut in cuts {
        let (piece, after) = rest.split_at(usize::from(*cut % 32).min(rest.len()));
        // An empty piece would be read as the end of the connection.
        pieces.extend((!piece.is_empty()).then_some(piece));
        rest = after;
    }
    pieces.extend(rest.chunks(1));
    let found = server::greeting(pieces);
    let expected = match said.as_slice() {
        [0x16, 3, ..] => "TLS",
        bytes if bytes.starts_with(PREFACE) => "HTTP/2",
        [] | [0x16] => "nothing",
        bytes if PREFACE.starts_with(bytes) => "nothing",
        _ => "HTTP/1",
    };
    assert_eq!(found, expected);
    // A port with TLS examines the first four bytes.
    let first = &said[..said.len().min(4)];
    let found = server::first_bytes(first);
    match found {
        "TLS" => assert_eq!(first[0], 0x16),
        "HTTP/2" => assert!(PREFACE.starts_with(first) && first.len() == 4),
        "HTTP/1" => {
            assert!(first.len() == 4 && first.iter().all(|b| matches!(b, b'A'..=b'Z' | b' ')))
        }
        _ => assert!(first.first() != Some(&0x16) && first != b"POST"),
    }
}
