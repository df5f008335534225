//! Regular expressions of the user's: written for the Collector, which has the syntax of RE2.

use std::borrow::Cow;
use std::ops::Range;

use regex::{Regex, RegexBuilder};

use super::Unscannable;

/// The most memory that one compiled pattern may take, in bytes; so much again may be used while it searches.
const SIZE: usize = 4 << 20;

/// The most bytes that are searched for all matches of a pattern in one text. One search is linear in the text, but each match
/// begins another, which for patterns such as `.*x|.` goes through all the rest again (documentation of the crate `regex`,
/// "Iterating over matches"). This is some seconds, and 4096 matches in a text of 1 MiB.
const SEARCHED: usize = 1 << 32;

/// A regular expression in the syntax of RE2 (<https://github.com/google/re2/wiki/Syntax>). Whether it matches takes time
/// linear in the text, whatever the pattern; finding all matches takes bounded time, and what would take longer is an error.
#[derive(Debug, Clone)]
pub struct Pattern {
    regex: Regex,
    /// Which group is what was looked for: `value` if there is one, otherwise all of it.
    group: usize,
    /// The most bytes that are searched in one text.
    searched: usize,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    ///
    /// What is wrong with it, or that it is too large.
    pub fn new(pattern: &str) -> Result<Pattern, String> {
        let regex = RegexBuilder::new(&translate(pattern))
            .size_limit(SIZE)
            .dfa_size_limit(SIZE)
            .build()
            .map_err(|error| match error {
                regex::Error::CompiledTooBig(limit) => {
                    format!("is too large: it would take more than {limit} bytes of memory")
                }
                error => format!("is not a regular expression: {error}"),
            })?;
        let named = regex.capture_names().position(|name| name == Some("value"));
        Ok(Pattern {
            regex,
            group: named.unwrap_or(0),
            searched: SEARCHED,
        })
    }

    /// Whether it matches anywhere.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The text with every match replaced by what `replacement` makes of it; borrowed if there is none. Empty matches
    /// are left alone.
    ///
    /// # Errors
    ///
    /// [`Unscannable::TooManyMatches`].
    pub fn replace_all<'t>(
        &self,
        text: &'t str,
        mut replacement: impl FnMut(&str) -> String,
    ) -> Result<Cow<'t, str>, Unscannable> {
        let mut output = String::new();
        let mut copied = 0;
        let mut left = self.most(text);
        for found in self.regex.find_iter(text) {
            left = left.checked_sub(1).ok_or(Unscannable::TooManyMatches)?;
            if found.is_empty() {
                continue;
            }
            output.push_str(text.get(copied..found.start()).unwrap_or_default());
            output.push_str(&replacement(found.as_str()));
            copied = found.end();
        }
        if copied == 0 {
            return Ok(Cow::Borrowed(text));
        }
        output.push_str(text.get(copied..).unwrap_or_default());
        Ok(Cow::Owned(output))
    }

    /// Where its value stands in the text: one range per match, in order.
    pub(super) fn values(&self, text: &str) -> Result<Vec<Range<usize>>, Unscannable> {
        let mut values = Vec::new();
        let mut left = self.most(text);
        let mut add = |value: Option<regex::Match<'_>>| {
            left = left.checked_sub(1).ok_or(Unscannable::TooManyMatches)?;
            values.extend(
                value
                    .map(|value| value.range())
                    .filter(|range| !range.is_empty()),
            );
            Ok(())
        };
        match self.group {
            0 => self
                .regex
                .find_iter(text)
                .try_for_each(|found| add(Some(found)))?,
            group => {
                let mut captures = self.regex.captures_iter(text);
                captures.try_for_each(|captures| add(captures.get(group)))?;
            }
        }
        Ok(values)
    }

    /// How many matches are looked for in a text.
    fn most(&self, text: &str) -> usize {
        (self.searched / text.len().max(1)).max(1)
    }
}

/// Says in our engine's syntax what the pattern says in RE2's: the classes `\d`, `\s`, `\w` and `\b` know ASCII only;
/// `\<`, `\>` and braces that count nothing are plain text; `\Q...\E` quotes; inside brackets `[`, `&&`, `--` and `~~` are
/// plain text too.
fn translate(pattern: &str) -> String {
    let mut output = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(first) = rest.chars().next() {
        let (taken, piece): (usize, Cow<'_, str>) = match first {
            '\\' => escape(rest, in_class),
            '[' if !in_class => {
                in_class = true;
                // A bracket that closes right after the opening is plain text in both.
                let opening = ["[^]", "[]", "[^"]
                    .into_iter()
                    .find(|opening| rest.starts_with(opening))
                    .unwrap_or("[");
                (opening.len(), opening.replace(']', "\\]").into())
            }
            '[' if rest.starts_with("[:") => match rest.find(":]") {
                Some(end) => (end + 2, rest.get(..end + 2).unwrap_or_default().into()),
                None => (1, "\\[".into()),
            },
            '[' => (1, "\\[".into()),
            ']' => {
                in_class = false;
                (1, "]".into())
            }
            '&' | '~' if in_class => (1, format!("\\{first}").into()),
            '-' if in_class && rest.starts_with("--") => (1, "\\-".into()),
            '{' if !in_class && !counts(rest) => (1, "\\{".into()),
            other => (other.len_utf8(), String::from(other).into()),
        };
        output.push_str(&piece);
        rest = rest.get(taken..).unwrap_or_default();
    }
    output
}

/// What an escape becomes, and how much of the pattern it is.
fn escape(rest: &str, in_class: bool) -> (usize, Cow<'_, str>) {
    let Some(second) = rest.chars().nth(1) else {
        return (1, "\\".into());
    };
    let piece = match (second, in_class) {
        ('d', true) => "0-9",
        ('d', false) => "[0-9]",
        ('D', _) => "[^0-9]",
        ('w', true) => "0-9A-Za-z_",
        ('w', false) => "[0-9A-Za-z_]",
        ('W', _) => "[^0-9A-Za-z_]",
        ('s', true) => "\\t\\n\\f\\r ",
        ('s', false) => "[\\t\\n\\f\\r ]",
        ('S', _) => "[^\\t\\n\\f\\r ]",
        ('b', false) => "(?-u:\\b)",
        ('<', _) => "<",
        ('>', _) => ">",
        ('Q', false) => {
            let quoted = rest.get(2..).unwrap_or_default();
            let (text, taken) = match quoted.find("\\E") {
                Some(end) => (quoted.get(..end).unwrap_or_default(), end + 4),
                None => (quoted, rest.len()),
            };
            return (taken, regex::escape(text).into());
        }
        ('p' | 'P' | 'x', _) => {
            // `\\p{Greek}`, `\\x{3b1}`: braces that count nothing.
            let braces = rest.get(2..).filter(|rest| rest.starts_with('{'));
            let taken = braces
                .and_then(|rest| rest.find('}'))
                .map_or(2, |end| end + 3);
            return (taken, rest.get(..taken).unwrap_or_default().into());
        }
        _ => {
            let taken = 1 + second.len_utf8();
            return (taken, rest.get(..taken).unwrap_or_default().into());
        }
    };
    (2, piece.into())
}

/// Whether `rest` begins with `{n}`, `{n,}` or `{n,m}`.
fn counts(rest: &str) -> bool {
    let inside = rest.get(1..).and_then(|rest| rest.split_once('}'));
    let Some((inside, _)) = inside else {
        return false;
    };
    let (least, most) = inside.split_once(',').unwrap_or((inside, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !least.is_empty() && digits(least) && digits(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_re2_mean_what_they_mean_there() {
        for (pattern, matching, other) in [
            (r"^\d+$", "123", "\u{0661}\u{0662}"),
            (r"^\w+$", "a_1", "\u{e9}"),
            (r"^[\w-]+$", "a-1", "\u{e9}"),
            (r"\bx\b", "a x b", "axb"),
            (r"\bcaf", "\u{e9}caf", "ecaf"),
            (r"^[^\s]+$", "ab", "a b"),
            (r"^[]a]+$", "]a", "b"),
            (r"^[^]a]+$", "b", "]"),
            (r"^[[a]+$", "[a", "b"),
            (r"^[a&&b]+$", "a&b", "c"),
            (r"^[[:digit:]x]+$", "1x", "y"),
            (r"^\<a\>$", "<a>", "a"),
            (r"^a{b}$", "a{b}", "aab"),
            (r"^a{2,3}$", "aaa", "a"),
            (r"^a{,2}$", "a{,2}", "aa"),
            (r"^\Qa.b\E+$", "a.bb", "axb"),
            (r"^[\d.]+$", "1.2", "a"),
            (r"^\p{Greek}+$", "\u{3b1}", "a"),
            (r"(?i)^k$", "K", "l"),
            (r"^.$", "\u{e9}", "\n"),
            (r"^[\D]$", "a", "1"),
        ] {
            let compiled = Pattern::new(pattern).unwrap();
            assert!(compiled.is_match(matching), "{pattern} on {matching}");
            assert!(!compiled.is_match(other), "{pattern} on {other}");
        }
    }

    #[test]
    fn a_pattern_that_is_wrong_or_too_large_is_refused() {
        assert!(
            Pattern::new("(")
                .unwrap_err()
                .starts_with("is not a regular expression")
        );
        let error = Pattern::new(r"(\p{L}{1000}){1000}").unwrap_err();
        assert!(error.starts_with("is too large"), "{error}");
    }

    #[test]
    fn every_match_is_replaced_and_empty_ones_are_left_alone() {
        let replace = |pattern: &str, text| {
            let pattern = Pattern::new(pattern).unwrap();
            pattern
                .replace_all(text, |found| format!("<{found}>"))
                .unwrap()
                .into_owned()
        };
        assert_eq!(replace("a+", "baab a"), "b<aa>b <a>");
        assert_eq!(replace("x*", "abc"), "abc");
        assert!(matches!(
            Pattern::new("x")
                .unwrap()
                .replace_all("abc", |_| String::new()),
            Ok(Cow::Borrowed("abc"))
        ));
    }

    #[test]
    fn the_group_named_value_is_what_counts() {
        let pattern = Pattern::new("key=(?P<value>[a-z]+)").unwrap();
        let values = pattern.values("key=abc; key=; key=d").unwrap();
        assert_eq!(values, [4..7, 19..20]);
    }

    #[test]
    fn a_search_that_begins_anew_at_every_byte_is_given_up() {
        let text = "a".repeat(1 << 12);
        for pattern in [".*x|.", "(?P<value>.)", "x*"] {
            let mut pattern = Pattern::new(pattern).unwrap();
            assert!(pattern.values(&text).is_ok());
            pattern.searched = 1 << 20;
            assert_eq!(pattern.values(&text), Err(Unscannable::TooManyMatches));
            let replaced = pattern.replace_all(&text, |_| String::new());
            assert_eq!(replaced, Err(Unscannable::TooManyMatches));
            // A text that fits is looked at all the same.
            assert!(pattern.values(&text[..1 << 9]).is_ok());
        }
    }
}
