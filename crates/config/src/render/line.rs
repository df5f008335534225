//! One line of a source for display: cut to a window, with masked secrets and carets underneath.

use crate::report::Report;
use crate::sensitive;
use crate::sensitive::{MASK, Sensitivity};
use crate::source::{SourceText, Span};

/// Maximum displayed length of a line, in characters.
const WINDOW: usize = 100;

/// Number of displayed characters to the left of the caret.
const CHARACTERS_BEFORE_CARET: usize = 40;

pub(super) struct Shown {
    pub text: String,
    pub indent: String,
    pub carets: String,
}

impl Shown {
    /// Returns `None` if there is no such line, or if no part of the line may be shown.
    pub(super) fn new(report: &Report, source: &SourceText, span: Span) -> Option<Self> {
        if source.hidden {
            return None;
        }
        let letters: Vec<char> = source.line(span.line)?.chars().collect();
        let mut hidden = hidden_ranges(report, &letters, span);
        if let Some(whole) = enclosed(source, &letters, span) {
            hidden.retain(|range| range.1 <= whole);
            hidden.push((whole, letters.len()));
        }
        let caret = usize::try_from(span.column).ok()?.saturating_sub(1);
        let length = usize::try_from(span.length).unwrap_or(usize::MAX).max(1);
        let caret_end = caret
            .saturating_add(length)
            .min(letters.len().max(caret + 1));
        let mut start = 0;
        if letters.len() > WINDOW {
            start = caret
                .saturating_sub(CHARACTERS_BEFORE_CARET)
                .min(letters.len() - WINDOW);
        }
        let end = (start + WINDOW).min(letters.len());

        let mut shown = Shown {
            text: String::new(),
            indent: String::new(),
            carets: String::new(),
        };
        if start > 0 {
            shown.put("...", start..start, caret..caret_end);
        }
        let mut index = start;
        while index < end {
            if let Some((from, to)) = hidden
                .iter()
                .find(|(from, to)| (*from..*to).contains(&index))
            {
                shown.put(MASK, *from..*to, caret..caret_end);
                index = *to;
                continue;
            }
            let letter = letters.get(index).copied().unwrap_or(' ');
            let letter = if letter.is_control() { ' ' } else { letter };
            let text = letter.encode_utf8(&mut [0; 4]).to_owned();
            shown.put(&text, index..index + 1, caret..caret_end);
            index += 1;
        }
        if end < letters.len() {
            shown.text.push_str("...");
        }
        if shown.carets.is_empty() {
            // Something is missing at the end of the line.
            shown.carets.push('^');
        }
        Some(shown)
    }

    /// Appends the text for a range of letters, and the carets or blanks underneath.
    fn put(&mut self, text: &str, letters: std::ops::Range<usize>, caret: std::ops::Range<usize>) {
        self.text.push_str(text);
        let width: usize = text.chars().map(width).sum();
        let meant = letters.start < caret.end && caret.start < letters.end;
        if meant {
            self.carets.push_str(&"^".repeat(width));
        } else if letters.end <= caret.start {
            self.indent.push_str(&" ".repeat(width));
        }
    }
}

/// Returns the ranges of the line that must be masked, from left to right.
fn hidden_ranges(report: &Report, letters: &[char], span: Span) -> Vec<(usize, usize)> {
    let mut ranges = Vec::new();
    for secret in report.secrets() {
        if (secret.source, secret.line) != (span.source, span.line) {
            continue;
        }
        let from = usize::try_from(secret.column)
            .unwrap_or(1)
            .saturating_sub(1);
        let length = usize::try_from(secret.length).unwrap_or(usize::MAX);
        let to = from.saturating_add(length).min(letters.len());
        if from < to && !is_reference(letters, from, to) {
            ranges.push((from, to));
        }
    }
    let text: String = letters.iter().collect();
    for secret in sensitive::in_urls(&text) {
        let letters_before = |at: usize| text.get(..at).map_or(0, |text| text.chars().count());
        ranges.push((letters_before(secret.start), letters_before(secret.end)));
    }
    if let Some(from) = after_sensitive_key(letters) {
        // In a flow mapping, the text after the value is masked too, because the end of the value is hard to find.
        if from < letters.len() && !is_reference(letters, from, letters.len()) {
            ranges.retain(|(start, _)| *start < from);
            for range in &mut ranges {
                range.1 = range.1.min(from);
            }
            ranges.push((from, letters.len()));
        }
    }
    ranges.sort_unstable();
    // If two ranges overlap, the first range covers both.
    ranges.dedup_by(|next, earlier| {
        let overlap = next.0 < earlier.1;
        if overlap {
            earlier.1 = earlier.1.max(next.1);
        }
        overlap
    });
    ranges
}

/// Whether the range is a reference such as `${env:NAME}`, which names a secret without revealing it. A reference with
/// a default may reveal the secret.
fn is_reference(letters: &[char], from: usize, to: usize) -> bool {
    let text: String = letters.get(from..to).unwrap_or_default().iter().collect();
    let text = text.trim().trim_matches(['"', '\'']);
    text.strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'))
        .is_some_and(|inner| !inner.contains(":-") && !inner.starts_with("yaml:"))
}

/// Returns the start of the value of the first sensitive key.
fn after_sensitive_key(letters: &[char]) -> Option<usize> {
    let mut start = 0;
    for (index, letter) in letters.iter().enumerate() {
        match letter {
            ':' | '=' => {
                let key: String = letters.get(start..index)?.iter().collect();
                if sensitive::of_key(&key).is_some() {
                    let rest = letters.get(index + 1..)?;
                    let blanks = rest.iter().take_while(|letter| letter.is_whitespace());
                    return Some(index + 1 + blanks.count());
                }
                start = index + 1;
            }
            '{' | ',' => start = index + 1,
            _ => {}
        }
    }
    None
}

/// Number of lines above a line that are searched for its enclosing keys.
const MAX_LINES_SEARCHED: u32 = 4096;

/// Returns the first secret letter of a line below a sensitive key. The values of headers are secret under any name. In
/// a text of several lines, only the first line has a name.
fn enclosed(source: &SourceText, letters: &[char], span: Span) -> Option<usize> {
    if source.inline {
        return None;
    }
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let blanks = letters
        .iter()
        .take_while(|letter| letter.is_whitespace())
        .count();
    let mut indent = blanks;
    let mut is_entry = letters.get(blanks) == Some(&'-');
    let mut lines: Vec<&str> = Vec::new();
    let above = span.line.saturating_sub(1);
    let first = above.saturating_sub(MAX_LINES_SEARCHED);
    let (skip, take) = (
        usize::try_from(first).ok()?,
        usize::try_from(above - first).ok()?,
    );
    lines.extend(source.text.lines().skip(skip).take(take));
    for line in lines.into_iter().rev() {
        let text = line.trim_start();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        // The entries of a list may have the same indentation as their key.
        let outer = indentation(line) < indent
            || (indentation(line) == indent && is_entry && !text.starts_with('-'));
        if !outer {
            continue;
        }
        indent = indentation(line);
        is_entry = text.starts_with('-');
        let key = text.split(':').next().unwrap_or_default();
        match sensitive::below_key(key) {
            Some(Sensitivity::Value) => return Some(blanks),
            Some(Sensitivity::Map) => return Some(behind_name(letters).unwrap_or(blanks)),
            None => {}
        }
    }
    None
}

/// Returns the first letter of the value in `name: value`.
fn behind_name(letters: &[char]) -> Option<usize> {
    let colon = letters.iter().position(|letter| *letter == ':')?;
    let rest = letters.get(colon + 1..)?;
    let blanks = rest.iter().take_while(|letter| letter.is_whitespace());
    let blanks = blanks.count();
    (blanks > 0 || rest.is_empty()).then_some(colon + 1 + blanks)
}

/// Returns the width of a letter in terminal columns: two for wide East Asian letters and emoji.
fn width(letter: char) -> usize {
    match u32::from(letter) {
        0x0300..=0x036f | 0x200b..=0x200f => 0,
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff => 2,
        0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 => 2,
        0x1f300..=0x1faff | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the line and the carets under it, for a span in the first line of a text.
    fn shown(text: &str, column: u32, length: u32, secrets: &[(u32, u32)]) -> (String, String) {
        let mut report = Report::default();
        let source = report.add_source(SourceText {
            name: "test".to_owned(),
            text: text.to_owned(),
            inline: false,
            hidden: false,
        });
        let span = |column, length| Span {
            source,
            line: 1,
            column,
            length,
        };
        for (column, length) in secrets {
            report.add_secret(span(*column, *length));
        }
        let at = span(column, length);
        let shown = Shown::new(&report, report.source(at).unwrap(), at).unwrap();
        (shown.text, shown.indent + &shown.carets)
    }

    fn strings(line: &str, carets: &str) -> (String, String) {
        (line.to_owned(), carets.to_owned())
    }

    #[test]
    fn carets_mark_the_value() {
        assert_eq!(shown("a: bcd", 4, 3, &[]), strings("a: bcd", "   ^^^"));
        assert_eq!(shown("a:\tbcd", 4, 3, &[]), strings("a: bcd", "   ^^^"));
        assert_eq!(shown("a: b", 4, u32::MAX, &[]), strings("a: b", "   ^"));
        assert_eq!(shown("a:", 3, 0, &[]), strings("a:", "  ^"));
        let wide = "\u{30ec}\u{30b7}: b";
        assert_eq!(shown(wide, 5, 1, &[]), strings(wide, "      ^"));
    }

    #[test]
    fn long_line_is_truncated_around_the_caret() {
        let text = format!("{}: here {}", "a".repeat(300), "b".repeat(300));
        let (line, carets) = shown(&text, 303, 4, &[]);
        assert_eq!(line.chars().count(), WINDOW + 6);
        let start = carets.find('^').unwrap();
        assert_eq!(&line[start..start + 4], "here");
        assert_eq!(carets.matches('^').count(), 4);
    }

    /// Returns a displayed line of a text of several lines.
    fn line_of(text: &str, line: u32) -> String {
        let mut report = Report::default();
        let source = report.add_source(SourceText {
            name: "test".to_owned(),
            text: text.to_owned(),
            inline: false,
            hidden: false,
        });
        let at = Span {
            source,
            line,
            column: 1,
            length: 1,
        };
        let shown = Shown::new(&report, report.source(at).unwrap(), at).unwrap();
        shown.text.trim_end().to_owned()
    }

    #[test]
    fn invalid_yaml_shows_no_secret() {
        crate::sensitive::hide_values_of_test_schema();
        for (text, line, expected) in [
            (
                "redaction:\n  hmac_key: \"hunter2\n",
                2,
                "  hmac_key: *****",
            ),
            (
                "a:\n  headers: {x-tenant: hunter2, y: [",
                2,
                "  headers: *****",
            ),
            (
                "a:\n  headers:\n    x-tenant: hunter2\n",
                3,
                "    x-tenant: *****",
            ),
            (
                "headers:\n- name: a\n  value: hunter2\n",
                3,
                "  value: *****",
            ),
            ("tls:\n  key_pem: |\n    hunter2: x\n", 3, "    *****"),
            (
                "endpoint: http://a:hunter2@h:43x\n",
                1,
                "endpoint: http://a:*****@h:43x",
            ),
            (
                "url: http://h/?api_key=hunter2&x=1\n",
                1,
                "url: http://h/?api_key=*****",
            ),
            ("headers:\n  a: b\nother:\n  c: d\n", 4, "  c: d"),
        ] {
            assert_eq!(line_of(text, line), expected);
        }
    }

    #[test]
    fn carets_match_the_masked_line() {
        assert_eq!(
            shown("{a: hunter2, b: c}", 14, 1, &[(5, 7)]),
            strings("{a: *****, b: c}", "           ^")
        );
        assert_eq!(
            shown("a: hunter2", 4, 7, &[(4, 7)]),
            strings("a: *****", "   ^^^^^")
        );
        assert_eq!(
            shown("my_token: abc", 1, 8, &[]),
            strings("my_token: *****", "^^^^^^^^")
        );
        for (text, safe) in [
            ("token: ${env:T}", true),
            ("token: \"${file:/t}\"", true),
            ("token: ${env:T:-abc}", false),
            ("token: Bearer ${env:T}", false),
            ("exporters.otlp.pasword=abc", false),
            ("exporters.otlp.timeout=abc", true),
        ] {
            assert_eq!(shown(text, 1, 5, &[]).0 == text, safe, "{text}");
        }
    }
}
