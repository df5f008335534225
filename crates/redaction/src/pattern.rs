//! Regular expressions of custom detectors, and all their matches in a text.

use std::borrow::Cow;
use std::ops::Range;

use regex::Regex;

use super::Unscannable;
use tributary_config::re2;

/// Limit of bytes searched for all matches of a pattern in one text. One search is linear in the text, but every match
/// starts another search. Patterns such as `.*x|.` then read the rest of the text again each time (documentation of the
/// crate `regex`, "Iterating over matches"). The limit amounts to 4096 matches in a text of 1 MiB, which takes some
/// seconds.
const MAX_SEARCHED_BYTES: usize = 1 << 32;

/// A regular expression in RE2 syntax (<https://github.com/google/re2/wiki/Syntax>). Testing for a match takes time
/// linear in the text for every pattern. Finding all matches takes bounded time; a longer search is an error.
#[derive(Debug, Clone)]
pub struct Pattern {
    regex: Regex,
    /// Index of the group that is the hit: the group `value` if the pattern has it, otherwise the whole match.
    group: usize,
    /// Limit of bytes searched in one text.
    searched: usize,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    ///
    /// Returns the reason why the pattern is invalid or too large.
    pub fn new(pattern: &str) -> Result<Pattern, String> {
        let regex = re2::compile(pattern).map_err(|wrong| wrong.to_string())?;
        let named = regex.capture_names().position(|name| name == Some("value"));
        Ok(Pattern {
            regex,
            group: named.unwrap_or(0),
            searched: MAX_SEARCHED_BYTES,
        })
    }

    /// Whether the pattern matches anywhere in the text.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// Returns the text with every match replaced by the result of `replacement`; borrowed if the pattern does not
    /// match. Empty matches are not replaced.
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

    /// Returns the range of the value of every match, in order.
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

    /// Returns the maximum number of matches searched for in a text.
    fn most(&self, text: &str) -> usize {
        (self.searched / text.len().max(1)).max(1)
    }
}

/// A set of patterns that is tested in one pass for a match of any of them.
#[derive(Debug, Clone)]
pub struct PatternSet {
    /// Alternation of the patterns, for which the engine can use one prefilter; `None` without patterns. A
    /// `RegexSet` would report the matching patterns, but takes several times as long.
    any: Option<Regex>,
}

impl PatternSet {
    /// Compiles patterns.
    ///
    /// # Errors
    ///
    /// Returns the reason why a pattern is invalid, or why the set is too large.
    pub fn new<T: AsRef<str>>(patterns: &[T]) -> Result<PatternSet, String> {
        let any = re2::compile_any(patterns).map_err(|wrong| wrong.to_string())?;
        Ok(PatternSet { any })
    }

    /// Whether the set has no patterns.
    pub fn is_empty(&self) -> bool {
        self.any.is_none()
    }

    /// Whether any pattern matches anywhere in the text.
    pub fn is_match(&self, text: &str) -> bool {
        self.any.as_ref().is_some_and(|any| any.is_match(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nonempty_matches_are_replaced() {
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
    fn group_named_value_is_redacted() {
        let pattern = Pattern::new("key=(?P<value>[a-z]+)").unwrap();
        let values = pattern.values("key=abc; key=; key=d").unwrap();
        assert_eq!(values, [4..7, 19..20]);
    }

    #[test]
    fn quadratic_search_is_aborted() {
        let text = "a".repeat(1 << 12);
        for pattern in [".*x|.", "(?P<value>.)", "x*"] {
            let mut pattern = Pattern::new(pattern).unwrap();
            assert!(pattern.values(&text).is_ok());
            pattern.searched = 1 << 20;
            assert_eq!(pattern.values(&text), Err(Unscannable::TooManyMatches));
            let replaced = pattern.replace_all(&text, |_| String::new());
            assert_eq!(replaced, Err(Unscannable::TooManyMatches));
            assert!(pattern.values(&text[..1 << 9]).is_ok());
        }
    }

    #[test]
    fn set_matches_if_any_pattern_matches() {
        let set = PatternSet::new(&[r"^\d+$", r"\Qa.b\E"]).unwrap();
        assert!(set.is_match("17") && set.is_match("x a.b"));
        assert!(!set.is_match("axb 17"));
        let named = PatternSet::new(&["(?i)(?P<value>A)1", "(?P<value>b)|c"]).unwrap();
        assert!(named.is_match("a1") && named.is_match("b") && !named.is_match("B C"));
        assert!(PatternSet::new(&["a)(b", "c"]).is_err());
        let none = PatternSet::new::<&str>(&[]).unwrap();
        assert!(none.is_empty() && !none.is_match(""));
    }
}
