//! pprof has one build id, OTLP one for each kind.

use super::super::names;

/// The attribute for a build id: a GNU one is hexadecimal digits, in whole bytes and in lower case. What else there is
/// comes from Go, whose ids are any text.
pub(super) fn attribute(build_id: &str) -> &'static str {
    let digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match build_id.len().is_multiple_of(2) && build_id.as_bytes().iter().all(digit) {
        true => names::BUILD_ID_GNU,
        false => names::BUILD_ID_GO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_of_hexadecimal_digits_is_a_gnu_one_and_others_are_of_go() {
        assert_eq!(attribute("a9f5c1d0"), names::BUILD_ID_GNU);
        for other in ["aZb/c_d/e/f", "A9F5", "a9f"] {
            assert_eq!(attribute(other), names::BUILD_ID_GO);
        }
    }
}
