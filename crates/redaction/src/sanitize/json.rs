//! Sanitizes queries in JSON: MongoDB, OpenSearch, Elasticsearch.

use std::borrow::Cow;

use super::changed;

/// Tokens that may be next.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Next {
    Value,
    /// A value, or the end of an empty array.
    ValueOrEnd,
    Key,
    /// A key, or the end of an empty object.
    KeyOrEnd,
    Colon,
    CommaOrEnd,
    Nothing,
}

/// Replaces every value by `"?"` and keeps keys and structure, without white space, as the Collector does. The text
/// after the first syntax error is replaced by `...`, so that no unparsed text is kept.
pub fn json(query: &str) -> Cow<'_, str> {
    if query.is_empty() {
        return Cow::Borrowed(query);
    }
    let mut output = String::with_capacity(query.len());
    if write(query, &mut output).is_none() {
        output.push_str("...");
    }
    changed(query, output)
}

/// Returns `None` if the text is not JSON, or is truncated.
fn write(query: &str, output: &mut String) -> Option<()> {
    // Whether each open bracket belongs to an object.
    let mut open: Vec<bool> = Vec::new();
    let mut next = Next::Value;
    let mut rest = query.trim_start();
    while let Some(first) = rest.bytes().next() {
        if next == Next::Nothing {
            next = Next::Value;
        }
        let value = matches!(next, Next::Value | Next::ValueOrEnd);
        let key = matches!(next, Next::Key | Next::KeyOrEnd);
        let mut taken = 1;
        next = match first {
            b'{' | b'[' if value => {
                open.push(first == b'{');
                output.push(char::from(first));
                if first == b'{' {
                    Next::KeyOrEnd
                } else {
                    Next::ValueOrEnd
                }
            }
            b'}' | b']' => {
                let object = open.pop()?;
                let fits = matches!(
                    (object, next),
                    (_, Next::CommaOrEnd) | (true, Next::KeyOrEnd) | (false, Next::ValueOrEnd)
                );
                if !fits || object != (first == b'}') {
                    return None;
                }
                output.push(char::from(first));
                after(&open)
            }
            b',' if next == Next::CommaOrEnd => {
                output.push(',');
                if *open.last()? {
                    Next::Key
                } else {
                    Next::Value
                }
            }
            b':' if next == Next::Colon => {
                output.push(':');
                Next::Value
            }
            b'"' if key => {
                taken = string(rest)?;
                output.push_str(rest.get(..taken)?);
                Next::Colon
            }
            b'"' if value => {
                output.push_str("\"?\"");
                taken = string(rest)?;
                after(&open)
            }
            _ if value => {
                taken = rest
                    .find(|c: char| c.is_whitespace() || ",]}:[{\"".contains(c))
                    .unwrap_or(rest.len());
                let literal = rest.get(..taken)?;
                serde_json::from_str::<serde_json::Value>(literal).ok()?;
                output.push_str("\"?\"");
                after(&open)
            }
            _ => return None,
        };
        rest = rest.get(taken..)?.trim_start();
    }
    (next == Next::Nothing).then_some(())
}

fn after(open: &[bool]) -> Next {
    if open.is_empty() {
        Next::Nothing
    } else {
        Next::CommaOrEnd
    }
}

/// Returns the length of the string at the beginning of `text`, including quotes.
fn string(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (position, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(position + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_values_are_replaced_and_structure_stays() {
        for (query, expected) in [
            (
                r#"{"find": "users", "limit": 5}"#,
                r#"{"find":"?","limit":"?"}"#,
            ),
            (
                r#"{"a":[1, true, null, {"b":"c"}]}"#,
                r#"{"a":["?","?","?",{"b":"?"}]}"#,
            ),
            (r#"{"a":{},"b":[]}"#, r#"{"a":{},"b":[]}"#),
            (r#"{"index":{}} {"q":"x\"y"}"#, r#"{"index":{}}{"q":"?"}"#),
            (r#""secret""#, r#""?""#),
            (r#"{"a":"cut of"#, r#"{"a":"?"..."#),
            (r#"{"a":}"#, r#"{"a":..."#),
            ("db.users.find(1)", "..."),
            ("{\"a\":1]", "{\"a\":\"?\"..."),
            ("", ""),
        ] {
            assert_eq!(json(query), expected, "{query}");
        }
    }
}
