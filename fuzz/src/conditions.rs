//! Filters: any text for a condition, and conditions on random requests.

use tributary_otlp::Signal;

use crate::generator::Entropy;
use crate::sieve::{
    Condition, Level, Literal, filter as build, filters_like_prost, opposites_do_not_meet,
};
use crate::telemetry::{request, signal_of};

/// The first byte is the signal, the rest a condition. An error is a single line with a position;
/// an accepted condition never drops an item that its negation drops.
pub fn conditions(input: &[u8]) {
    let [signal, text @ ..] = input else {
        return;
    };
    let signal = signal_of(*signal);
    let text = String::from_utf8_lossy(text);
    if let Err(problems) = build(&text, signal) {
        for problem in problems.found() {
            assert!(!problem.message.contains('\n'), "{}", problem.message);
            assert!(
                problem.message.starts_with("character "),
                "{}",
                problem.message
            );
        }
        return;
    }
    if signal != Signal::Profiles {
        // The text of the condition also decides about the request.
        let (_, request, _) = request(&[&[signal as u8; 32], text.as_bytes(), &[7; 64]].concat());
        let request = admitted(signal, request);
        opposites_do_not_meet(&text, signal, &request);
    }
}

/// Filtering on the wire equals decoding, filtering and encoding.
pub fn filter(input: &[u8]) {
    let (signal, request, mut entropy) = request(input);
    if signal != Signal::Profiles {
        let request = admitted(signal, request);
        filters_like_prost(signal, &request, condition(&mut entropy, 3));
    }
}

/// Returns the request as receivers pass it on: repeated singular messages are merged.
fn admitted(signal: Signal, request: Vec<u8>) -> Vec<u8> {
    match tributary_otlp::check(signal, &request) {
        Ok(checked) if checked.repeats_single => {
            tributary_otlp::merge_repeated(signal, &request).unwrap().to_vec()
        }
        _ => request,
    }
}

fn condition(entropy: &mut Entropy<'_>, depth: u8) -> Condition {
    let names = ["a", "b", "c", "d", "", "text.7"];
    let name = names[usize::from(entropy.below(6))];
    let kind = entropy.below(if depth == 0 { 5 } else { 8 });
    if kind < 5 {
        let literal = match entropy.below(3) {
            0 => Literal::Nil,
            1 => Literal::Int(i64::from(entropy.below(3))),
            _ => Literal::Text(names[usize::from(entropy.below(6))]),
        };
        return match kind {
            0 => Condition::Name(name),
            1 => Condition::Attribute(Level::Item, name, literal),
            3 => Condition::Sum(
                name,
                i64::from(entropy.below(4)) - 2,
                i64::from(entropy.below(5)),
            ),
            4 => Condition::Prefix(name),
            _ => {
                let level = [Level::Resource, Level::Scope][usize::from(entropy.below(2))];
                Condition::Attribute(level, name, literal)
            }
        };
    }
    let first = Box::new(condition(entropy, depth - 1));
    match kind {
        5 => Condition::Not(first),
        6 => Condition::Both(first, Box::new(condition(entropy, depth - 1))),
        _ => Condition::Either(first, Box::new(condition(entropy, depth - 1))),
    }
}
