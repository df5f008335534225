//! Numbers in the notation of Go, because labels contain numbers: `le="1e+06"` and `le="1000000"` are two series.

use std::io::Write as _;

/// Appends a number as Go's `strconv.FormatFloat(value, 'g', -1, 64)` writes it, with Prometheus'
/// names for infinities and NaN.
pub fn float(value: f64, output: &mut Vec<u8>) {
    // Most values are counts.
    if value.abs() < 1e6 && value.trunc() == value {
        integer(value as i64, output);
        return;
    }
    if !value.is_finite() {
        let text: &[u8] = match value {
            _ if value.is_nan() => b"NaN",
            f64::INFINITY => b"+Inf",
            _ => b"-Inf",
        };
        output.extend_from_slice(text);
        return;
    }
    let start = output.len();
    // The shortest digits that round-trip. Writing to memory does not fail.
    let _ = write!(output, "{value:e}");
    let Some(at) = output.iter().skip(start).position(|byte| *byte == b'e') else {
        return;
    };
    let exponent = output.get(start + at + 1..).unwrap_or_default();
    let exponent = std::str::from_utf8(exponent).unwrap_or_default();
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        output.truncate(start);
        let _ = write!(output, "{value}");
    } else {
        output.truncate(start + at);
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(output, "e{sign}{:02}", exponent.unsigned_abs());
    }
}

/// Appends a number in OpenMetrics' format: with a point or an exponent.
pub fn open_metrics_float(value: f64, output: &mut Vec<u8>) {
    let start = output.len();
    float(value, output);
    let written = output.get(start..).unwrap_or_default();
    if value.is_finite() && !written.iter().any(|byte| matches!(byte, b'.' | b'e')) {
        output.extend_from_slice(b".0");
    }
}

/// Appends a signed integer.
pub fn integer(value: i64, output: &mut Vec<u8>) {
    if value < 0 {
        output.push(b'-');
    }
    unsigned(value.unsigned_abs(), output);
}

/// Appends an unsigned integer.
pub fn unsigned(mut value: u64, output: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        if let Some(digit) = digits.get_mut(at) {
            *digit = b'0' + (value % 10) as u8;
        }
        value /= 10;
        if value == 0 {
            break;
        }
    }
    output.extend_from_slice(digits.get(at..).unwrap_or_default());
}

/// Parses a number as Prometheus does: a decimal number, `Inf` or `NaN` in any case. `None` for other texts and for
/// numbers that are too large.
pub fn parse(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    let first = text.as_bytes().first().copied().unwrap_or_default();
    let is_word = |text: &str| text.bytes().any(|byte| byte.eq_ignore_ascii_case(&b'n'));
    match value {
        // Go has no signed NaN.
        value if value.is_nan() => (!matches!(first, b'+' | b'-')).then_some(f64::NAN),
        value if value.is_infinite() => is_word(text).then_some(value),
        value => Some(value),
    }
}

/// Returns a number in OpenMetrics' format; `None` if the text is not a number.
pub fn normal(text: &str) -> Option<String> {
    let mut output = Vec::new();
    open_metrics_float(parse(text)?, &mut output);
    String::from_utf8(output).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts produced by Go.
    #[test]
    fn numbers_are_formatted_as_in_go() {
        for (value, expected) in [
            (0.0, "0"),
            (1.0, "1"),
            (-3.0, "-3"),
            (0.005, "0.005"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (2.5, "2.5"),
            (100_000.0, "100000"),
            (1_000_000.0, "1e+06"),
            (123_456_789.0, "1.23456789e+08"),
            (123_456.5, "123456.5"),
            (1e21, "1e+21"),
            (-2.5e-300, "-2.5e-300"),
            (0.1 + 0.2, "0.30000000000000004"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            let mut output = Vec::new();
            float(value, &mut output);
            assert_eq!(String::from_utf8(output).unwrap(), expected);
        }
    }

    #[test]
    fn open_metrics_wants_a_point() {
        for (value, expected) in [
            (1.0, "1.0"),
            (1e6, "1e+06"),
            (0.5, "0.5"),
            (f64::INFINITY, "+Inf"),
        ] {
            let mut output = Vec::new();
            open_metrics_float(value, &mut output);
            assert_eq!(String::from_utf8(output).unwrap(), expected);
        }
    }

    #[test]
    fn whole_numbers_are_written_in_full() {
        for value in [0, 7, 10, -1, i64::MAX, i64::MIN] {
            let mut output = Vec::new();
            integer(value, &mut output);
            assert_eq!(String::from_utf8(output).unwrap(), value.to_string());
        }
    }
}
