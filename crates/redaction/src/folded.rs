//! Folds look-alike spellings into ASCII: full-width letters and digits, typographic spaces and dashes, invisible
//! characters, and JSON escapes. Detectors search the folded text, and hits are mapped back to the original text.

use std::ops::Range;

/// Printable ASCII from `!` to `~`. Full-width forms have the same order (Unicode, U+FF01 to U+FF5E).
const PRINTABLE: &str = "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~";

/// A folded text with the origin of its parts.
#[derive(Debug, Default)]
pub(super) struct Folded {
    pub(super) text: String,
    /// Positions in the folded text and in the original, on both sides of each changed part; in order.
    steps: Vec<(usize, usize)>,
}

impl Folded {
    /// Returns the range in the original of a range in the folded text.
    pub(super) fn origin(&self, span: &Range<usize>) -> Range<usize> {
        // Characters removed before the beginning or after the end do not belong to the range.
        let start = self.place(
            self.steps.partition_point(|step| step.0 <= span.start),
            span.start,
        );
        let behind = self.steps.partition_point(|step| step.0 < span.end);
        let end = match self.steps.get(behind) {
            Some((place, origin)) if *place == span.end => *origin,
            _ => self.place(behind, span.end),
        };
        start..end.max(start)
    }

    /// Returns the position after a number of steps.
    fn place(&self, steps: usize, place: usize) -> usize {
        let step = steps.checked_sub(1).and_then(|last| self.steps.get(last));
        step.map_or(place, |(from, origin)| origin + (place - from))
    }

    fn put(&mut self, original: &str, copied: &mut usize, part: Range<usize>, plain: &str) {
        self.text
            .push_str(original.get(*copied..part.start).unwrap_or_default());
        self.steps.push((self.text.len(), part.start));
        self.text.push_str(plain);
        self.steps.push((self.text.len(), part.end));
        *copied = part.end;
    }

    fn finish(mut self, original: &str, copied: usize) -> Option<Self> {
        self.text
            .push_str(original.get(copied..).unwrap_or_default());
        (copied > 0).then_some(self)
    }
}

/// Folds look-alike characters into ASCII; `None` if the text has no such characters.
pub(super) fn wide(text: &str) -> Option<Folded> {
    let (mut folded, mut copied) = (Folded::default(), 0);
    for (at, character) in text.char_indices() {
        if let Some(plain) = ascii(character) {
            folded.put(text, &mut copied, at..at + character.len_utf8(), plain);
        }
    }
    folded.finish(text, copied)
}

/// Replaces JSON escapes (RFC 8259, section 7); `None` if the text has no escapes.
pub(super) fn unescaped(text: &str) -> Option<Folded> {
    let (mut folded, mut copied) = (Folded::default(), 0);
    let mut at = 0;
    while let Some(rest) = text.as_bytes().get(at..)
        && let Some(found) = memchr::memchr(b'\\', rest)
    {
        at += found;
        let Some((character, length)) = escape(text.get(at..).unwrap_or_default()) else {
            at += 1;
            continue;
        };
        let mut bytes = [0; 4];
        let plain = match ascii(character) {
            Some(plain) => plain,
            None => character.encode_utf8(&mut bytes),
        };
        folded.put(text, &mut copied, at..at + length, plain);
        at += length;
    }
    folded.finish(text, copied)
}

/// Decodes percent-encoding (RFC 3986, section 2.1) in any character set; invalid UTF-8 separates texts. `plus`
/// replaces a plus sign: by a space in forms, by itself elsewhere. Returns `None` for a text without encoded
/// characters.
pub(super) fn unquoted(text: &str, plus: char) -> Option<Folded> {
    let bytes = text.as_bytes();
    let (mut folded, mut copied, mut encoded) = (Folded::default(), 0, false);
    let mut at = 0;
    while let Some(found) = bytes
        .get(at..)
        .and_then(|rest| memchr::memchr2(b'%', b'+', rest))
    {
        at += found;
        if bytes.get(at) == Some(&b'+') {
            if plus != '+' {
                folded.put(text, &mut copied, at..at + 1, plus.encode_utf8(&mut [0; 4]));
            }
            at += 1;
            continue;
        }
        let mut plain = Vec::new();
        while let Some(byte) = bytes.get(at + 3 * plain.len()..).and_then(octet) {
            plain.push(byte);
        }
        if plain.is_empty() {
            at += 1;
            continue;
        }
        encoded = true;
        let mut octets = plain.as_slice();
        while let Some(first) = octets.utf8_chunks().next() {
            for character in first.valid().chars() {
                let mut buffer = [0; 4];
                let shown = ascii(character).unwrap_or(character.encode_utf8(&mut buffer));
                let length = 3 * character.len_utf8();
                folded.put(text, &mut copied, at..at + length, shown);
                at += length;
            }
            if !first.invalid().is_empty() {
                let length = 3 * first.invalid().len();
                folded.put(text, &mut copied, at..at + length, "\u{fffd}");
                at += length;
            }
            let read = first.valid().len() + first.invalid().len();
            octets = octets.get(read..).unwrap_or_default();
        }
    }
    if !encoded {
        return None;
    }
    folded.finish(text, copied)
}

/// Decodes the percent-encoded byte at the beginning of a text.
fn octet(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(16 * digit(*high)? + digit(*low)?).ok()
}

/// Folds a character to ASCII: variants of ASCII characters, spaces and dashes; invisible characters become empty.
fn ascii(character: char) -> Option<&'static str> {
    Some(match character {
        '\u{ff01}'..='\u{ff5e}' => {
            let at = (u32::from(character) - 0xff01) as usize;
            PRINTABLE.get(at..=at)?
        }
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => " ",
        '\u{2010}'..='\u{2015}' | '\u{2212}' => "-",
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' => "",
        _ => return None,
    })
}

/// Decodes the escape at the beginning of a text. Returns the character and the length of the escape.
fn escape(text: &str) -> Option<(char, usize)> {
    let plain = match text.as_bytes().get(1)? {
        b'u' => return unicode(text),
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'"' => '"',
        b'/' => '/',
        b'\\' => '\\',
        _ => return None,
    };
    Some((plain, 2))
}

/// Decodes `\u` and four digits, or two such escapes for a surrogate pair.
fn unicode(text: &str) -> Option<(char, usize)> {
    let unit = |text: &str| {
        let digits = text.strip_prefix("\\u")?.get(..4)?;
        let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        plain
            .then(|| u16::from_str_radix(digits, 16).ok())
            .flatten()
    };
    let first = unit(text)?;
    let second = text.get(6..).and_then(unit);
    let units = [first, second.unwrap_or_default()];
    Some(match char::decode_utf16(units).next()? {
        Ok(character) => (character, 6 * character.len_utf16()),
        Err(_) => (char::REPLACEMENT_CHARACTER, 6),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin<'t>(original: &'t str, folded: &Folded, part: &str) -> &'t str {
        let start = folded.text.find(part).unwrap();
        &original[folded.origin(&(start..start + part.len()))]
    }

    #[test]
    fn look_alikes_are_folded_to_ascii() {
        let text = "a\u{a0}\u{ff11}\u{ff12}\u{200b}\u{2011}\u{ad}x\u{ff5e}\u{ff01}\u{feff}";
        let folded = wide(text).unwrap();
        assert_eq!(folded.text, "a 12-x~!");
        assert_eq!(origin(text, &folded, "12"), "\u{ff11}\u{ff12}");
        assert_eq!(origin(text, &folded, "2-"), "\u{ff12}\u{200b}\u{2011}");
        assert_eq!(origin(text, &folded, "x"), "x");
        assert_eq!(
            origin(text, &folded, "a 12-x~!"),
            text.trim_end_matches('\u{feff}')
        );
        assert!(wide("\u{e9}t\u{e9}, \u{4e00}").is_none());
    }

    #[test]
    fn percent_encoding_is_decoded_with_positions() {
        let text = "a+%40b%2Fc%E9 %C3%A9%zz%4";
        let folded = unquoted(text, ' ').unwrap();
        assert_eq!(folded.text, "a @b/c\u{fffd} \u{e9}%zz%4");
        assert_eq!(origin(text, &folded, "@b/"), "%40b%2F");
        assert_eq!(origin(text, &folded, "\u{e9}"), "%C3%A9");
        assert_eq!(
            unquoted(text, '+').unwrap().text,
            folded.text.replacen(' ', "+", 1)
        );
        assert!(unquoted("a+b 100%", ' ').is_none());
    }

    #[test]
    fn escapes_are_decoded_like_json() {
        let text = r#"\"a\u0040b\/\n\\ \ud83d\ude00 \ud83d x \u12 \q \uFF11"#;
        let folded = unescaped(text).unwrap();
        assert_eq!(folded.text, "\"a@b/\n\\ \u{1f600} \u{fffd} x \\u12 \\q 1");
        assert_eq!(origin(text, &folded, "@"), r"\u0040");
        assert_eq!(origin(text, &folded, "a@b/"), r"a\u0040b\/");
        assert_eq!(origin(text, &folded, "\u{1f600}"), r"\ud83d\ude00");
        assert!(unescaped(r"C:\Users\jane").is_none());
    }
}
