//! Maps the single build id of pprof to the attributes of OTLP.

use super::super::names;

/// Returns the attribute for a build id. Pairs of lower-case hexadecimal digits are a GNU build id; any other
/// text is Go's.
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
    fn hexadecimal_build_id_is_gnu_and_other_is_go() {
        assert_eq!(attribute("a9f5c1d0"), names::BUILD_ID_GNU);
        for other in ["aZb/c_d/e/f", "A9F5", "a9f"] {
            assert_eq!(attribute(other), names::BUILD_ID_GO);
        }
    }
}
