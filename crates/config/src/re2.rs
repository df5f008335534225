//! Regular expressions in the syntax of RE2 (<https://github.com/google/re2/wiki/Syntax>), which configurations for the
//! Collector use. Go's package `regexp` has the same syntax.

use std::borrow::Cow;

use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use thiserror::Error;

/// Maximum memory of a compiled pattern, in bytes. Searches may use the same amount again.
const SIZE: usize = 4 << 20;

/// Reason why a pattern cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PatternError {
    /// The pattern has a syntax error.
    #[error("is not a valid regular expression: {0}")]
    Syntax(String),
    /// The compiled pattern would be too large.
    #[error("is too large: the compiled pattern exceeds {0} bytes of memory")]
    TooLarge(usize),
}

impl From<regex::Error> for PatternError {
    fn from(error: regex::Error) -> Self {
        match error {
            regex::Error::CompiledTooBig(limit) => PatternError::TooLarge(limit),
            // The earlier lines show the translated pattern.
            error => {
                let text = error.to_string();
                let last = text.lines().last().unwrap_or_default();
                PatternError::Syntax(last.trim_start_matches("error: ").to_owned())
            }
        }
    }
}

/// Compiles a pattern.
pub fn compile(pattern: &str) -> Result<Regex, PatternError> {
    let regex = RegexBuilder::new(&translate(pattern))
        .size_limit(SIZE)
        .dfa_size_limit(SIZE)
        .build()?;
    Ok(regex)
}

/// Compiles patterns that are searched together.
pub fn compile_all<T: AsRef<str>>(patterns: &[T]) -> Result<RegexSet, PatternError> {
    let translated = patterns.iter().map(|pattern| translate(pattern.as_ref()));
    // Each pattern of the set may have the maximum size.
    let set = RegexSetBuilder::new(translated)
        .size_limit(SIZE.saturating_mul(patterns.len().max(1)))
        .dfa_size_limit(SIZE)
        .build()?;
    Ok(set)
}

/// Compiles patterns into one pattern that matches if any of them does; `None` if there are no patterns. Its groups
/// have no names.
pub fn compile_any<T: AsRef<str>>(patterns: &[T]) -> Result<Option<Regex>, PatternError> {
    let mut all = Vec::with_capacity(patterns.len());
    for pattern in patterns {
        // Separate compilation first ensures that no pattern closes the brackets of another pattern.
        compile(pattern.as_ref())?;
        all.push(format!("(?:{})", unnamed(&translate(pattern.as_ref()))));
    }
    if all.is_empty() {
        return Ok(None);
    }
    let regex = RegexBuilder::new(&all.join("|"))
        .size_limit(SIZE.saturating_mul(all.len()))
        .dfa_size_limit(SIZE)
        .build()?;
    Ok(Some(regex))
}

/// Removes the group names of a translated pattern, because several patterns may use the same names.
fn unnamed(pattern: &str) -> String {
    let mut output = String::with_capacity(pattern.len());
    let (mut rest, mut in_class) = (pattern, false);
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '\\' => 1 + rest.chars().nth(1).map_or(0, char::len_utf8),
            '[' if in_class => rest.find(":]").map_or(1, |end| end + 2),
            _ => first.len_utf8(),
        };
        let name = ["(?P<", "(?<"].iter().find_map(|start| {
            let name = rest.strip_prefix(start).filter(|_| !in_class)?;
            name.find('>').map(|end| start.len() + end + 1)
        });
        in_class = match first {
            '[' => true,
            ']' => false,
            _ => in_class,
        };
        let piece = match name {
            Some(_) => "(",
            None => rest.get(..taken).unwrap_or_default(),
        };
        output.push_str(piece);
        rest = rest.get(name.unwrap_or(taken)..).unwrap_or_default();
    }
    output
}

/// Translates a pattern from RE2's syntax: the classes `\d`, `\s`, `\w` and `\b` are ASCII only; `\<`, `\>` and braces
/// that are not repetitions are plain text; `\Q...\E` quotes; inside brackets, `[`, `&&`, `--` and `~~` are plain text.
fn translate(pattern: &str) -> String {
    let mut output = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(first) = rest.chars().next() {
        let (taken, piece): (usize, Cow<'_, str>) = match first {
            '\\' => escape(rest, in_class),
            '[' if !in_class => {
                in_class = true;
                // A closing bracket right after the opening bracket is plain text in both syntaxes.
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

/// Translates an escape. Returns its length in the pattern and its translation.
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
            // `\\p{Greek}`, `\\x{3b1}`: the braces are not repetitions.
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

/// Whether `rest` begins with a repetition: `{n}`, `{n,}` or `{n,m}`.
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
    fn re2_patterns_keep_their_meaning() {
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
            let compiled = compile(pattern).unwrap();
            assert!(compiled.is_match(matching), "{pattern} on {matching}");
            assert!(!compiled.is_match(other), "{pattern} on {other}");
        }
    }

    #[test]
    fn invalid_or_too_large_pattern_is_refused() {
        let message = |pattern: &str| compile(pattern).unwrap_err().to_string();
        assert_eq!(
            message("("),
            "is not a valid regular expression: unclosed group"
        );
        let large = r"(\p{L}{1000}){1000}";
        assert!(message(large).starts_with("is too large"));
        let error = compile_all(&["a", "("]).unwrap_err();
        assert!(matches!(error, PatternError::Syntax(_)));
        let error = compile_all(&["a", large]).unwrap_err();
        assert!(matches!(error, PatternError::TooLarge(_)));
    }

    #[test]
    fn patterns_within_limit_compile_to_one_set() {
        let patterns: Vec<String> = (0..20).map(|at| format!(r"\pL{{1,40}}{at}")).collect();
        assert!(patterns.iter().all(|pattern| compile(pattern).is_ok()));
        assert!(compile_all(&patterns).unwrap().is_match("abc17"));
    }
}
