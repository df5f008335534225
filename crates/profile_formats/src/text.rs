//! Lines of text files.

use std::borrow::Cow;

/// Iterates over lines with their numbers, from 1. Invalid UTF-8 becomes U+FFFD, so that a strange name costs nothing else.
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, Cow<'_, str>)> {
    let lines = bytes.split(|byte| *byte == b'\n');
    (1..).zip(lines.map(|line| String::from_utf8_lossy(line.trim_ascii_end())))
}

/// Returns the beginning of a text file without its blank lines and comments.
pub(crate) fn first_line(bytes: &[u8]) -> &[u8] {
    const LONGEST: usize = 4096;
    let start = bytes.get(..LONGEST).unwrap_or(bytes);
    let mut lines = start.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let line = lines.find(|line| !line.is_empty() && !line.starts_with(b"#"));
    line.unwrap_or_default()
}

/// Returns the hexadecimal numbers of a line that begin with `0x`.
pub(crate) fn addresses(text: &str) -> Option<Vec<u64>> {
    let words = text.split_ascii_whitespace();
    let address = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    words.map(address).collect()
}

/// Parses four numbers as in `1: 2 [3: 4]`, and returns the rest of the line.
pub(crate) fn four_numbers(text: &str) -> Option<([i64; 4], &str)> {
    let (a, rest) = text.split_once(':')?;
    let (b, rest) = rest.split_once('[')?;
    let (c, rest) = rest.split_once(':')?;
    let (d, rest) = rest.split_once(']')?;
    let mut numbers = [0; 4];
    for (number, text) in numbers.iter_mut().zip([a, b, c, d]) {
        *number = text.trim().parse().ok()?;
    }
    Some((numbers, rest.trim()))
}

/// Estimates all allocations from sampled ones: a sample of a mean size `bytes / objects` was taken with the probability
/// `1 - exp(-size / rate)`. As in pprof, fractions are cut off.
pub(crate) fn unsampled(objects: i64, bytes: i64, rate: i64) -> (i64, i64) {
    if objects == 0 || bytes == 0 {
        return (0, 0);
    }
    if rate <= 1 {
        return (objects, bytes);
    }
    let mean = bytes as f64 / objects as f64;
    let scale = 1.0 / (1.0 - (-mean / rate as f64).exp());
    (
        (objects as f64 * scale) as i64,
        (bytes as f64 * scale) as i64,
    )
}
