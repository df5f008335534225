//! Parses scalars in OTLP/JSON strings.

use base64::Engine;
use base64::alphabet;
use base64::engine::DecodePaddingMode::Indifferent;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

/// Parses an integer in decimal notation; fraction and exponent are allowed if the value is integral: `12`,
/// `-3`, `1.50e1`.
pub(super) fn integer(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if is_digits(digits) {
        if let Ok(value) = text.parse::<i64>() {
            return Some(value.into());
        }
        // `i128::MAX` gives the "out of range" error, which is better than "invalid" for a large number.
        return Some(text.parse().unwrap_or(i128::MAX));
    }
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (digits, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    if !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let significant = [whole, fraction].concat();
    let significant = significant.trim_start_matches('0');
    let kept = significant.trim_end_matches('0');
    if kept.is_empty() {
        return Some(0);
    }
    let dropped = i32::try_from(significant.len() - kept.len()).ok()?;
    let power = exponent
        .checked_sub(i32::try_from(fraction.len()).ok()?)?
        .checked_add(dropped)?;
    let scale = 10_i128.checked_pow(u32::try_from(power).ok()?)?;
    let value = kept.parse::<i128>().ok()?.checked_mul(scale)?;
    Some(if digits.len() < text.len() {
        -value
    } else {
        value
    })
}

/// Converts a JSON number to an integer, if it is integral.
pub(super) fn integral(value: f64) -> Option<i128> {
    // Larger values are out of range for all 64-bit types; smaller ones convert exactly.
    (value.fract() == 0.0 && value.abs() < 1e20).then_some(value as i128)
}

/// Parses a double: `NaN`, `Infinity`, `-Infinity`, or a JSON number.
pub(super) fn double(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        // serde_json checks JSON's grammar and the range of doubles; Rust's parser checks neither. serde_json skips
        // white space, so the ends are checked here.
        _ if text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
            && text.ends_with(|c: char| c.is_ascii_digit()) =>
        {
            serde_json::from_str(text).ok()
        }
        _ => None,
    }
}

/// Decodes hexadecimal digits in either case and appends the bytes; `false` if the text is invalid.
pub(super) fn hex(text: &str, out: &mut Vec<u8>) -> bool {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    for [high, low] in pairs {
        let (Some(high), Some(low)) = (nibble(*high), nibble(*low)) else {
            return false;
        };
        out.push(high << 4 | low);
    }
    rest.is_empty()
}

/// Decodes base64 (standard or URL-safe alphabet, padded or not) and appends the bytes; `false` if the text
/// is invalid.
pub(super) fn base64(text: &str, out: &mut Vec<u8>) -> bool {
    const CONFIG: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(Indifferent);
    const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
    const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, CONFIG);
    if text.contains(['-', '_']) {
        URL_SAFE.decode_vec(text, out).is_ok()
    } else {
        STANDARD.decode_vec(text, out).is_ok()
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_exact_in_every_notation() {
        for (text, value) in [
            ("0", 0),
            ("-0", 0),
            ("007", 7),
            ("-12", -12),
            ("1e3", 1000),
            ("1E+3", 1000),
            ("-1.50e1", -15),
            ("100e-2", 1),
            ("0.0", 0),
            ("0e999999999", 0),
            ("18446744073709551615", i128::from(u64::MAX)),
            ("1844674407370955161.5e1", i128::from(u64::MAX)),
        ] {
            assert_eq!(integer(text), Some(value), "{text}");
        }
        for text in [
            "", "-", "+1", "1.5", "1e-1", "1e", "e1", ".5", "5.", " 1", "1 ", "0x1", "1_0",
        ] {
            assert_eq!(integer(text), None, "{text:?}");
        }
        for text in ["1e99", "1e2147483647", "1e99999999999", "1e-2147483648"] {
            assert_eq!(integer(text), None, "{text:?}");
        }
    }

    #[test]
    fn doubles_accept_three_names_and_json_grammar() {
        assert!(double("NaN").is_some_and(f64::is_nan));
        assert_eq!(double("-Infinity"), Some(f64::NEG_INFINITY));
        assert_eq!(double("-1.5e3"), Some(-1500.0));
        for text in [
            "", "nan", "inf", "+1", " 1", "1 ", "1e400", "1.", "0x10", "null",
        ] {
            assert_eq!(double(text), None, "{text:?}");
        }
    }
}
