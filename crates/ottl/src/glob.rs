//! Globs, as editors use them.

use regex::Regex;

/// Translates a glob: `*` and `**` match any characters, `?` matches one, and `[a-z]`, `[!a-z]` and `{a,b}` are
/// alternatives.
pub(crate) fn compile(pattern: &str) -> Result<Regex, &'static str> {
    const WRONG: &str = "the pattern is not a valid glob";
    let mut regex = String::from("(?s)^(?:");
    let mut depth = 0_usize;
    let mut characters = pattern.chars();
    while let Some(next) = characters.next() {
        match next {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            '{' => {
                depth += 1;
                regex.push_str("(?:");
            }
            '}' if depth > 0 => {
                depth -= 1;
                regex.push(')');
            }
            ',' if depth > 0 => regex.push('|'),
            '[' => {
                regex.push('[');
                let mut is_first = true;
                loop {
                    match characters.next().ok_or(WRONG)? {
                        '!' if is_first => regex.push('^'),
                        ']' => break,
                        '-' => regex.push('-'),
                        other => regex.push_str(&regex::escape(&other.to_string())),
                    }
                    is_first = false;
                }
                regex.push(']');
            }
            '\\' => {
                let escaped = characters.next().ok_or(WRONG)?;
                regex.push_str(&regex::escape(&escaped.to_string()));
            }
            other => regex.push_str(&regex::escape(&other.to_string())),
        }
    }
    regex.push_str(")$");
    match depth {
        0 => Regex::new(&regex).map_err(|_| WRONG),
        _ => Err(WRONG),
    }
}

#[cfg(test)]
mod tests {
    use super::compile;

    #[test]
    fn globs_match_whole_texts() {
        for (pattern, text, matches) in [
            ("/user/*/list", "/user/42/x/list", true),
            ("/user/*/list", "a/user/42/list", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("{get,post} *", "post x", true),
            ("a.c", "abc", false),
            ("a\\*", "a*", true),
        ] {
            assert_eq!(
                compile(pattern).unwrap().is_match(text),
                matches,
                "{pattern}"
            );
        }
        assert!(compile("[a").is_err() && compile("{a").is_err());
    }
}
