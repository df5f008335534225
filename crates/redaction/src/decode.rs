//! Finds texts in base64 (RFC 4648), one level deep, contiguous or wrapped into lines.

use std::ops::Range;

use super::detect::{credentials, run};
use super::find;

/// Minimum size of decoded base64: 12 bytes, one byte more than the shortest address.
const MIN_DECODED_LENGTH: usize = 12;

/// Calls `found` with each run that decodes to a text, and with the decoded text.
pub(super) fn decoded(text: &str, mut found: impl FnMut(Range<usize>, &str)) {
    if text.len() >= MIN_DECODED_LENGTH {
        base64(text.as_bytes(), &mut found);
    }
}

/// Decodes runs of either alphabet. Both alphabets contain characters that also separate words, such as the segments of
/// a path, so the parts of a run are decoded separately as well.
fn base64(text: &[u8], found: &mut impl FnMut(Range<usize>, &str)) {
    let part = |byte: u8| BASE64.get(usize::from(byte)) == Some(&true);
    let mut lines = Lines::default();
    each_run(text, part, |start, token| {
        if !lines.continue_with(text, start, token) {
            lines.decode(text, found);
            lines.begin(start, token);
        }
        if token.len() < MIN_DECODED_LENGTH {
            return;
        }
        base64_token(text, start, token, found);
        for separators in [&b"/"[..], b"+/-_"] {
            if !token.iter().any(|byte| separators.contains(byte)) {
                continue;
            }
            let mut at = start;
            for piece in token.split(|byte| separators.contains(byte)) {
                base64_token(text, at, piece, found);
                at += piece.len() + 1;
            }
        }
    });
    lines.decode(text, found);
}

/// Minimum length of a line that may continue on the next line. MIME lines have 76 characters, PEM lines 64;
/// with 32, words and ids on separate lines are not joined.
const LINE: usize = 32;

/// Maximum number of bytes between two lines: a line break, escaped or encoded, and indentation.
const BREAK: usize = 40;

/// Consecutive lines of base64 that form one text.
#[derive(Default)]
struct Lines {
    start: usize,
    /// Length of a prefix of the first line that is not base64, as in `/secrets/LS0t...`, in bytes.
    prefix: usize,
    end: usize,
    /// Length of the last line, in bytes.
    last: usize,
    joined: Vec<u8>,
    count: usize,
}

impl Lines {
    fn begin(&mut self, start: usize, token: &[u8]) {
        let separator = token.iter().rposition(|byte| b"/_-+".contains(byte));
        self.prefix = separator
            .filter(|at| token.len() - at > LINE)
            .map_or(0, |at| at + 1);
        self.joined.clear();
        if token.len() >= LINE {
            self.joined.extend(token);
        }
        self.start = start;
        self.last = token.len();
        self.end = start + token.len();
        self.count = 1;
    }

    /// Adds a run if it is the next line. Returns true for a run that was added, and for a part of the break before the
    /// next line.
    fn continue_with(&mut self, text: &[u8], start: usize, token: &[u8]) -> bool {
        if self.count == 0 || self.last < LINE || start > self.end + BREAK {
            return false;
        }
        let between = text.get(self.end..start).unwrap_or_default();
        // An escaped or encoded line break ends in letters of base64: `\nTUlJ`, `%0ATUlJ`.
        let endings: &[&[u8]] = match between.last() {
            Some(b'\\') => &[b"n", b"r"],
            Some(b'%') => &[b"0A", b"0D", b"0a", b"0d"],
            _ => &[],
        };
        let ending = endings.iter().find(|ending| token.starts_with(ending));
        let skipped = ending.map_or(0, |ending| ending.len());
        let line = token.get(skipped..).unwrap_or_default();
        // Spaces without a line break separate lines only if the previous line has the usual length.
        let broken =
            skipped > 0 || self.last >= 60 || between.iter().any(|byte| b"\r\n".contains(byte));
        let blank = |byte: &u8| b" \t\r\n\\%rn0ADad".contains(byte);
        if between.is_empty() || !broken || !between.iter().all(blank) {
            return false;
        }
        if !line.is_empty() {
            self.joined.extend(line);
            self.last = line.len();
            self.end = start + token.len();
            self.count += 1;
        }
        true
    }

    /// Decodes the lines, if there are several.
    fn decode(&mut self, text: &[u8], found: &mut impl FnMut(Range<usize>, &str)) {
        let count = std::mem::take(&mut self.count);
        if count < 2 {
            return;
        }
        let padding = run(text, self.end, |byte| byte == b'=').len().min(2);
        let mut look = |from: usize| {
            let joined = self.joined.get(from..).unwrap_or_default();
            let plain = credentials::base64(joined).unwrap_or_default();
            if is_readable(&plain) {
                let plain = String::from_utf8_lossy(&plain);
                found(self.start + from..self.end + padding, &plain);
            }
        };
        look(0);
        if self.prefix > 0 {
            look(self.prefix);
        }
    }
}

fn base64_token(
    text: &[u8],
    start: usize,
    token: &[u8],
    found: &mut impl FnMut(Range<usize>, &str),
) {
    if token.len() < MIN_DECODED_LENGTH {
        return;
    }
    let mut short = [0; 96];
    let long;
    let plain = if token.len() <= short.len() / 3 * 4 {
        match credentials::base64_into(token, &mut short) {
            Some(length) => short.get(..length).unwrap_or_default(),
            None => return,
        }
    } else {
        long = credentials::base64(token).unwrap_or_default();
        &long
    };
    if !is_readable(plain) {
        return;
    }
    let padding = run(text, start + token.len(), |byte| byte == b'=')
        .len()
        .min(2);
    // Other bytes may separate the texts.
    let plain = String::from_utf8_lossy(plain);
    found(start..start + token.len() + padding, &plain);
}

/// Whether decoded bytes are readable text. Most words and ids decode to meaningless bytes. A hit needs a run of ASCII
/// as long as the shortest hit; any other text must be completely valid UTF-8.
fn is_readable(plain: &[u8]) -> bool {
    let shown = |byte: &u8| matches!(byte, b' '..=b'~');
    let mut length = 0;
    let long = plain.iter().any(|byte| {
        length = if shown(byte) { length + 1 } else { 0 };
        length == find::MIN_TEXT_LENGTH
    });
    long || std::str::from_utf8(plain).is_ok_and(|text| !text.chars().any(char::is_control))
}

/// Bytes that belong to either base64 alphabet.
const BASE64: [bool; 256] = {
    let mut part = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        part[byte as usize] =
            byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
        byte += 1;
    }
    part
};

#[inline]
fn each_run(text: &[u8], part: impl Fn(u8) -> bool, mut each: impl FnMut(usize, &[u8])) {
    let mut at = 0;
    while at < text.len() {
        let found = run(text, at, &part);
        if !found.is_empty() {
            each(at, found);
        }
        at += found.len();
        at += run(text, at, |byte| !part(byte)).len();
    }
}
