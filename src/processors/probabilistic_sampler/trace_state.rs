//! The `ot` member of a W3C trace state, which records how a span was sampled; other members are kept.
//!
//! Rules: <https://www.w3.org/TR/trace-context-2/#tracestate-header> and
//! <https://opentelemetry.io/docs/specs/otel/trace/tracestate-handling/>.

use smallvec::SmallVec;

use super::carrier::Carrier;
use super::threshold::{Randomness, Threshold};

/// Limits of the two specifications, in bytes.
const MAX_LENGTH: usize = 1024;
const MAX_VALUE: usize = 256;
const MAX_KEY: usize = 256;
const MAX_TENANT: usize = 241;
const MAX_SYSTEM: usize = 14;
const MAX_OT: usize = 256;
/// Maximum number of members. Like the Collector, the processor refuses the 32nd member, although the specification
/// allows it.
const MAX_MEMBERS: usize = 31;

type Pairs<'t> = SmallVec<[(&'t str, &'t str); 4]>;

#[derive(Debug, Default)]
pub(super) struct TraceState<'t> {
    /// `rv` and `th`.
    pub(super) sampling: Carrier,
    /// Other keys of the `ot` member.
    others: Pairs<'t>,
    /// Other members.
    members: Pairs<'t>,
}

impl<'t> TraceState<'t> {
    /// Parses a trace state. Returns `None` if the trace state, or `rv` or `th` in it, is invalid.
    pub(super) fn parse(text: &'t str) -> Option<Self> {
        let mut state = TraceState::default();
        if text.len() > MAX_LENGTH {
            return None;
        }
        if text.is_empty() {
            return Some(state);
        }
        for (at, member) in text.split(',').enumerate() {
            if at >= MAX_MEMBERS {
                return None;
            }
            let member = member.trim_matches([' ', '\t']);
            if member.is_empty() {
                continue;
            }
            let (key, value) = member.split_once('=')?;
            if !is_key(key) || !is_value(value) {
                return None;
            }
            match key {
                "ot" => state.read(value)?,
                _ => state.members.push((key, value)),
            }
        }
        Some(state)
    }

    /// Reads the `ot` member. The last of several `ot` members counts.
    fn read(&mut self, text: &'t str) -> Option<()> {
        self.sampling = Carrier::default();
        self.others.clear();
        if text.len() > MAX_OT {
            return None;
        }
        for pair in text.split(';') {
            let (key, value) = pair.split_once(':')?;
            if !is_ot_key(key) || !value.bytes().all(is_ot_char) {
                return None;
            }
            match key {
                "rv" => self.sampling.randomness = Some(Randomness::parse(value)?),
                "th" => self.sampling.threshold = Some(Threshold::parse(value)?),
                _ => self.others.push((key, value)),
            }
        }
        Some(())
    }

    /// Formats the trace state.
    pub(super) fn text(&self) -> String {
        let randomness = self.sampling.randomness.map(Randomness::text);
        let threshold = self.sampling.threshold.map(Threshold::text);
        let own = [("rv", randomness.as_deref()), ("th", threshold.as_deref())];
        let own = own
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)));
        let mut text = String::new();
        for (key, value) in own.chain(self.others.iter().copied()) {
            text.push_str(if text.is_empty() { "ot=" } else { ";" });
            text.push_str(key);
            text.push(':');
            text.push_str(value);
        }
        for (key, value) in &self.members {
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(key);
            text.push('=');
            text.push_str(value);
        }
        text
    }
}

fn is_key(key: &str) -> bool {
    let starts = |part: &str, with_digit: bool| {
        let first = part.bytes().next();
        first
            .is_some_and(|first| first.is_ascii_lowercase() || with_digit && first.is_ascii_digit())
    };
    let rest = |part: &str| {
        part.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/".contains(&byte)
        })
    };
    key.len() <= MAX_KEY
        && match key.split_once('@') {
            Some((tenant, system)) => {
                tenant.len() <= MAX_TENANT
                    && system.len() <= MAX_SYSTEM
                    && starts(tenant, true)
                    && starts(system, false)
                    && rest(tenant)
                    && rest(system)
            }
            None => starts(key, false) && rest(key),
        }
}

fn is_value(value: &str) -> bool {
    let is_char = |byte: u8| matches!(byte, 0x20..=0x2b | 0x2d..=0x3c | 0x3e..=0x7e);
    value.len() <= MAX_VALUE
        && value.bytes().all(is_char)
        && value.bytes().last().is_some_and(|last| last != b' ')
}

fn is_ot_key(key: &str) -> bool {
    key.starts_with(|first: char| first.is_ascii_lowercase())
        && key
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

fn is_ot_char(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_trace_state_members_are_kept() {
        for (before, after) in [
            ("", ""),
            ("a=1", "a=1"),
            ("a=1 , ,b@c= 2", "a=1,b@c= 2"),
            ("a=1,ot=xx:y;th:8", "ot=th:8;xx:y,a=1"),
            ("ot=th:c00;rv:00000000000001", "ot=rv:00000000000001;th:c"),
        ] {
            assert_eq!(TraceState::parse(before).unwrap().text(), after);
        }
    }

    #[test]
    fn invalid_trace_state_is_reported() {
        let many = vec!["a=1"; 32].join(",");
        let long = format!("a={}", "x".repeat(MAX_LENGTH));
        for text in [
            "a",
            "A=1",
            "=1",
            "a=",
            "a=1 2\u{e9}",
            "a==",
            "1a=1",
            "a@=1",
            "a@1=1",
            "ot=",
            "ot=th",
            "ot=th:;",
            "ot=th:",
            "ot=th:123456789012345",
            "ot=th:+1",
            "ot=rv:1",
            "ot=TH:1",
            "ot=rv:0000000000000g",
            "ot=th:1;;",
            "ot=:1",
            &many,
            &long,
        ] {
            assert!(TraceState::parse(text).is_none(), "{text}");
        }
    }
}
