//! Fuzz target for reading request bodies.

use std::collections::VecDeque;

use bytes::Bytes;
use tributary::pipeline::batch::Code;
use tributary::fuzzing::receiver::{Pieces, read};
use tributary_memory::Budget;

use crate::generator::Entropy;

/// A body is read the same for any split into chunks. After a refusal no memory is taken; otherwise
/// the permit covers the bytes.
pub fn framing(input: &[u8]) {
    let (decisions, body) = input.split_at(input.len().min(16));
    let mut entropy = Entropy(decisions);
    let (grpc, declared, tight) = (
        entropy.below(2) == 0,
        entropy.below(2) == 1,
        entropy.below(4) == 3,
    );
    let limit = usize::from(entropy.byte()) * 16;
    let budget = Budget::new(if tight { 1024 } else { 1 << 20 });
    let mut pieces = VecDeque::new();
    let mut rest = body;
    while !rest.is_empty() {
        let decision = usize::from(entropy.byte());
        let left = !entropy.0.is_empty();
        let length = if left {
            decision.min(rest.len())
        } else {
            rest.len()
        };
        let (piece, after) = rest.split_at(length);
        pieces.push_back(Bytes::copy_from_slice(piece));
        rest = after;
    }
    let result = read(Pieces { pieces, declared }, grpc, limit, &budget);
    let expected = if grpc {
        message(body, limit)
    } else if body.len() <= limit {
        Ok((false, body))
    } else {
        Err(Code::ResourceExhausted)
    };
    match (result.unwrap(), expected) {
        (Ok((flag, bytes, permit)), Ok(expected)) => {
            assert_eq!((flag, &bytes[..]), expected);
            assert!(permit.bytes() >= bytes.len() && permit.bytes() == budget.used());
        }
        (Ok(_), Err(code)) => panic!("taken, and not {code:?}"),
        (Err(nack), Err(code)) => {
            assert!(
                nack.code == code || tight && nack.code == Code::ResourceExhausted,
                "{nack}"
            );
        }
        (Err(nack), Ok(_)) => assert!(tight && nack.code == Code::ResourceExhausted, "{nack}"),
    }
    assert_eq!(budget.used(), 0);
}

/// Parses exactly one message ("Length-Prefixed-Message" of gRPC over HTTP/2).
fn message(body: &[u8], limit: usize) -> Result<(bool, &[u8]), Code> {
    let Some((&[flag, a, b, c, d], message)) = body.split_first_chunk() else {
        return Err(Code::Internal);
    };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    match (flag, length) {
        (2.., _) => Err(Code::Internal),
        (_, length) if length > limit => Err(Code::ResourceExhausted),
        (_, length) if length != message.len() => Err(Code::Internal),
        _ => Ok((flag == 1, message)),
    }
}
