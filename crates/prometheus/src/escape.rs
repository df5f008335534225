//! Escapes of the text formats.

use std::borrow::Cow;

/// Resolves the escapes of names and label values: `\\`, `\"` and `\n`. Others stay.
pub(crate) fn unescaped(text: &str) -> Cow<'_, str> {
    resolved(text, true)
}

/// Resolves the escapes of descriptions in the text format: `\\` and `\n`. Others stay.
pub(crate) fn unescaped_help(text: &str) -> Cow<'_, str> {
    resolved(text, false)
}

/// Returns the number of characters of a text after its escapes are resolved.
pub(crate) fn characters(text: &str) -> usize {
    let mut escaped = false;
    let counted = text.chars().filter(|letter| {
        let is_escape = escaped && matches!(letter, '\\' | 'n' | '"');
        escaped = *letter == '\\' && !escaped;
        !is_escape
    });
    counted.count()
}

fn resolved(text: &str, quotes: bool) -> Cow<'_, str> {
    if !text.contains('\\') {
        return text.into();
    }
    let mut output = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let resolved = match (letter, letters.peek()) {
            ('\\', Some('\\')) => '\\',
            ('\\', Some('n')) => '\n',
            ('\\', Some('"')) if quotes => '"',
            _ => {
                output.push(letter);
                continue;
            }
        };
        letters.next();
        output.push(resolved);
    }
    output.into()
}
