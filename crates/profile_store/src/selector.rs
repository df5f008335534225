//! Selectors of series: `{service_name="cart", version=~"1.4.*"}`, as in Prometheus.

use std::fmt::Write as _;
use std::str::FromStr;

use regex::Regex;
use tributary_config::re2;

use super::series::{Labels, label_name};

/// Maximum number of conditions in a selector.
const MAX_MATCHERS: usize = 64;

/// Conditions that a series must satisfy, all of them. The default selects every series.
#[derive(Debug, Clone, Default)]
pub struct Selector {
    matchers: Vec<Matcher>,
}

/// A condition on one label. A missing label has the empty value.
#[derive(Debug, Clone)]
pub struct Matcher {
    label: String,
    is_negated: bool,
    test: Test,
}

#[derive(Debug, Clone)]
enum Test {
    Equal(String),
    /// A pattern that must match the whole value.
    Pattern(Regex),
}

/// Reason why a text is not a selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// A character is not expected.
    #[error("the selector has an error at byte {at}: expected {expected}")]
    Syntax {
        /// Position in bytes, from 0.
        at: usize,
        /// Expected text.
        expected: &'static str,
    },
    /// A pattern cannot be used.
    #[error("the pattern of `{label}` {wrong}")]
    Pattern {
        /// Label of the matcher.
        label: String,
        /// Description of the error.
        wrong: re2::PatternError,
    },
    /// There are too many matchers.
    #[error("the selector has more than {MAX_MATCHERS} matchers")]
    TooMany,
}

impl Selector {
    /// Whether a series satisfies all conditions.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.matchers.iter().all(|matcher| matcher.matches(labels))
    }

    /// Adds the condition that a label has a value.
    pub fn and_equal(mut self, label: &str, value: &str) -> Self {
        self.matchers.push(Matcher {
            label: label.to_owned(),
            is_negated: false,
            test: Test::Equal(value.to_owned()),
        });
        self
    }
}

impl Matcher {
    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.label);
        let is_equal = match &self.test {
            Test::Equal(text) => value == text,
            Test::Pattern(regex) => regex.is_match(value),
        };
        is_equal != self.is_negated
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    /// Parses a selector with or without braces. Label names may have dots, as attributes do.
    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let mut input = Input { text, at: 0 };
        let in_braces = input.eats('{');
        let mut matchers = Vec::new();
        let is_end = |input: &mut Input<'_>| match in_braces {
            true => input.eats('}'),
            false => input.is_empty(),
        };
        while !is_end(&mut input) {
            if matchers.len() == MAX_MATCHERS {
                return Err(SelectorError::TooMany);
            }
            matchers.push(input.matcher()?);
            if !input.eats(',') {
                if is_end(&mut input) {
                    break;
                }
                return Err(input.expected("`,` or the end"));
            }
        }
        match input.is_empty() {
            true => Ok(Selector { matchers }),
            false => Err(input.expected("the end")),
        }
    }
}

/// A text and the position of the parser.
struct Input<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Input<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_spaces(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn is_empty(&mut self) -> bool {
        self.skip_spaces();
        self.rest().is_empty()
    }

    fn eats(&mut self, wanted: char) -> bool {
        self.skip_spaces();
        let found = self.rest().starts_with(wanted);
        self.at += if found { wanted.len_utf8() } else { 0 };
        found
    }

    fn expected(&self, expected: &'static str) -> SelectorError {
        SelectorError::Syntax {
            at: self.at,
            expected,
        }
    }

    fn matcher(&mut self) -> Result<Matcher, SelectorError> {
        let label = self.label()?;
        self.skip_spaces();
        let operators = [
            ("=~", false, true),
            ("!~", true, true),
            ("!=", true, false),
            ("=", false, false),
        ];
        let rest = self.rest();
        let found = operators.iter().find(|(text, ..)| rest.starts_with(text));
        let Some((text, is_negated, is_pattern)) = found else {
            return Err(self.expected("`=`, `!=`, `=~` or `!~`"));
        };
        self.at += text.len();
        let value = self.quoted()?;
        let test = match is_pattern {
            false => Test::Equal(value),
            true => match whole(&value) {
                Ok(regex) => Test::Pattern(regex),
                Err(wrong) => return Err(SelectorError::Pattern { label, wrong }),
            },
        };
        Ok(Matcher {
            label,
            is_negated: *is_negated,
            test,
        })
    }

    fn label(&mut self) -> Result<String, SelectorError> {
        self.skip_spaces();
        if self.rest().starts_with(['"', '\'', '`']) {
            return Ok(label_name(&self.quoted()?));
        }
        let rest = self.rest();
        let is_other = |c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.';
        let name = rest.split(is_other).next().unwrap_or_default();
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(self.expected("a label name"));
        }
        self.at += name.len();
        Ok(label_name(name))
    }

    fn quoted(&mut self) -> Result<String, SelectorError> {
        self.skip_spaces();
        let mut chars = self.rest().char_indices();
        let quote = match chars.next() {
            Some((_, quote @ ('"' | '\'' | '`'))) => quote,
            _ => return Err(self.expected("a value in quotes")),
        };
        let mut value = String::new();
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.at += at + quote.len_utf8();
                    return Ok(value);
                }
                '\\' if quote != '`' => {
                    let escaped = chars.next().map(|(_, c)| c);
                    value.push(match escaped {
                        Some('n') => '\n',
                        Some('t') => '\t',
                        Some('r') => '\r',
                        Some(c @ ('\\' | '"' | '\'')) => c,
                        _ => {
                            self.at += at;
                            return Err(self.expected("an escaped `n`, `t`, `r`, `\\` or quote"));
                        }
                    });
                }
                c => value.push(c),
            }
        }
        self.at = self.text.len();
        Err(self.expected("a closing quote"))
    }
}

/// Compiles a pattern that must match a whole value.
fn whole(pattern: &str) -> Result<Regex, re2::PatternError> {
    // A separate compilation first ensures that a parenthesis in the pattern cannot close the group around it.
    re2::compile(pattern)?;
    let mut anchored = String::new();
    let _ = write!(anchored, "^(?s:{pattern})$");
    re2::compile(&anchored)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Labels {
        let pairs = [
            ("service_name", "cart"),
            ("version", "1.4.2"),
            ("text", "a\"b\nc"),
        ];
        Labels::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    #[test]
    fn selector_matches_as_in_prometheus() {
        for (text, expected) in [
            ("{}", true),
            ("", true),
            (r#"{service_name="cart"}"#, true),
            (r#"service.name = "cart" , "#, true),
            (r#"{service_name="cart", version=~"1.4.*"}"#, true),
            (r#"{version=~"1.4"}"#, false),
            (r#"{version=~"4"}"#, false),
            (r#"{version=~"1|1.4.2"}"#, true),
            (r#"{version!~"1.5.*"}"#, true),
            (r#"{version!="1.4.2"}"#, false),
            (r#"{missing=""}"#, true),
            (r#"{missing=~".+"}"#, false),
            (r#"{missing!="x"}"#, true),
            (r#"{text="a\"b\nc"}"#, true),
            (r#"{text=~"a.*c"}"#, true),
            ("{version=~`1\\.4\\.2`}", true),
            (r#"{'service.name'='cart',}"#, true),
        ] {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(selector.matches(&labels()), expected, "{text}");
        }
    }

    #[test]
    fn error_names_the_position() {
        for (text, at) in [
            ("{a}", 2),
            ("{a=b}", 3),
            (r#"{a="b"#, 5),
            (r#"{a="b" c="d"}"#, 7),
            (r#"{a="b"} x"#, 8),
            (r#"{a="\x"}"#, 4),
            ("{9=\"\"}", 1),
            ("{", 1),
        ] {
            match text.parse::<Selector>().unwrap_err() {
                SelectorError::Syntax { at: found, .. } => assert_eq!(found, at, "{text}"),
                other => panic!("{text}: {other}"),
            }
        }
    }

    #[test]
    fn pattern_closing_a_group_is_refused() {
        for pattern in ["a)|(b", "(", "((x{1000}){1000}){1000}"] {
            let text = format!("{{a=~\"{pattern}\"}}");
            let refused = text.parse::<Selector>().unwrap_err();
            assert!(
                matches!(refused, SelectorError::Pattern { .. }),
                "{pattern}"
            );
        }
        let many = "a=\"b\",".repeat(65);
        assert_eq!(
            many.parse::<Selector>().unwrap_err(),
            SelectorError::TooMany
        );
    }
}
