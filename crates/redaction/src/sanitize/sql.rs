//! Sanitizes SQL statements.

use std::borrow::Cow;

use super::changed;

/// Replaces literals by `?` and keeps all other text, as the Collector does. Literals are strings, numbers, `NULL`,
/// `TRUE`, `FALSE`, positional parameters (`$1`) and dollar-quoted strings of PostgreSQL; and each run of digits within
/// a name (`orders_2026_11` becomes `orders_?_?`). Texts in double quotes are names in standard SQL; after a comparison
/// they are replaced too, since MySQL reads them as strings. Comments are emptied, because they may contain anything;
/// the Collector keeps them.
///
/// The result is sanitized again until it no longer changes. A number before dollar quotes becomes `?`, and only in the
/// next pass do the dollar signs count as quotes.
pub fn sql(statement: &str) -> Cow<'_, str> {
    let mut sanitized = once(statement);
    while let Cow::Owned(again) = once(&sanitized) {
        sanitized = Cow::Owned(again);
    }
    sanitized
}

fn once(statement: &str) -> Cow<'_, str> {
    let mut output = String::with_capacity(statement.len());
    let mut rest = statement.trim();
    let mut last = ' ';
    while let Some(first) = rest.chars().next() {
        let taken = piece(rest, first, last, &mut output);
        let (done, next) = rest.split_at_checked(taken.max(1)).unwrap_or((rest, ""));
        if let Some(character) = done.trim_end().chars().next_back() {
            last = character;
        }
        rest = next;
    }
    changed(statement, output)
}

/// Writes the replacement of the first token of `rest`, and returns the token's length.
fn piece(rest: &str, first: char, last: char, output: &mut String) -> usize {
    let mut second = rest.chars().skip(1);
    match first {
        '\'' => literal(quoted(rest, '\''), output),
        '"' if matches!(last, '=' | '<' | '>' | '(' | ',') => {
            let length = quoted(rest, '"');
            // `"table"."column"`
            match rest
                .get(length..)
                .is_some_and(|after| after.starts_with('.'))
            {
                true => name(rest, length, output),
                false => literal(length, output),
            }
        }
        '"' | '`' => name(rest, quoted(rest, first), output),
        '-' if rest.starts_with("--") => {
            output.push_str("--");
            rest.find('\n').unwrap_or(rest.len())
        }
        '/' if rest.starts_with("/*") => {
            output.push_str("/**/");
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        }
        '$' => dollar(rest, output),
        '0'..='9' => literal(number(rest), output),
        '.' if second.next().is_some_and(|c| c.is_ascii_digit()) && !last.is_alphanumeric() => {
            literal(number(rest), output)
        }
        // National strings, bit strings, escapes: `N'...'`, `E'...'`, `X'...'`.
        'N' | 'n' | 'E' | 'e' | 'B' | 'b' | 'X' | 'x' if rest.get(1..2) == Some("'") => {
            literal(1 + quoted(rest.get(1..).unwrap_or_default(), '\''), output)
        }
        first if first.is_alphabetic() || first == '_' => {
            let end = rest
                .find(|c: char| !c.is_alphanumeric() && c != '_' && c != '$')
                .unwrap_or(rest.len());
            let word = rest.get(..end).unwrap_or_default();
            let value = ["null", "true", "false"]
                .iter()
                .any(|value| word.eq_ignore_ascii_case(value));
            if value {
                literal(end, output)
            } else {
                name(rest, end, output)
            }
        }
        other => {
            output.push(other);
            other.len_utf8()
        }
    }
}

fn literal(length: usize, output: &mut String) -> usize {
    output.push('?');
    length
}

/// Writes a name, with `?` for each run of digits.
fn name(rest: &str, length: usize, output: &mut String) -> usize {
    let mut digits = false;
    for character in rest.get(..length).unwrap_or_default().chars() {
        if !character.is_ascii_digit() {
            output.push(character);
        } else if !digits {
            output.push('?');
        }
        digits = character.is_ascii_digit();
    }
    length
}

/// Returns the length of a quoted text. A doubled quote and a quote after a backslash are part of the text. An
/// unterminated text extends to the end of `rest`.
fn quoted(rest: &str, quote: char) -> usize {
    let mut characters = rest.char_indices().skip(1).peekable();
    while let Some((position, character)) = characters.next() {
        if character == '\\' && quote != '`' {
            characters.next();
        } else if character == quote {
            match characters.peek() {
                Some((_, next)) if *next == quote => {
                    characters.next();
                }
                _ => return position + 1,
            }
        }
    }
    rest.len()
}

fn number(rest: &str) -> usize {
    let mut earlier = ' ';
    let part = |character: char| {
        let fits = character.is_ascii_alphanumeric()
            || character == '.'
            || (matches!(character, '+' | '-')
                && matches!(earlier, 'e' | 'E')
                && !rest.starts_with("0x"));
        earlier = character;
        !fits
    };
    rest.find(part).unwrap_or(rest.len())
}

/// Replaces `$1`, `$$...$$` and `$tag$...$tag$`.
fn dollar(rest: &str, output: &mut String) -> usize {
    let inside = rest.get(1..).unwrap_or_default();
    let digits = inside.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 0 {
        return literal(1 + digits, output);
    }
    let tag = inside
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(inside.len());
    if inside.get(tag..tag + 1) != Some("$") {
        output.push('$');
        return 1;
    }
    let mark = rest.get(..tag + 2).unwrap_or_default();
    let body = rest.get(mark.len()..).unwrap_or_default();
    literal(
        body.find(mark)
            .map_or(rest.len(), |end| end + 2 * mark.len()),
        output,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sql_literals_are_replaced_and_statement_stays() {
        for (statement, expected) in [
            (
                "SELECT * FROM users WHERE id = 123",
                "SELECT * FROM users WHERE id = ?",
            ),
            (
                "UPDATE a SET b = 10 WHERE c = 'O''Neil'",
                "UPDATE a SET b = ? WHERE c = ?",
            ),
            ("SELECT 'it\\'s' , x", "SELECT ? , x"),
            (
                "INSERT INTO t VALUES (1, -2.5e-3, 0xFF, N'x', NULL, true)",
                "INSERT INTO t VALUES (?, -?, ?, ?, ?, ?)",
            ),
            (
                "SELECT * FROM orders_2026_11 o1",
                "SELECT * FROM orders_?_? o?",
            ),
            (
                "SELECT \"name\" FROM \"users\" WHERE n = \"jane\"",
                "SELECT \"name\" FROM \"users\" WHERE n = ?",
            ),
            ("SELECT $1, $$secret$$, $f$x$f$", "SELECT ?, ?, ?"),
            (
                "SELECT 1 -- for jane\nFROM t /* jane */",
                "SELECT ? --\nFROM t /**/",
            ),
            ("SELECT 'cut off", "SELECT ?"),
            ("SELECT `a1` FROM t", "SELECT `a?` FROM t"),
            ("  SELECT ?  ", "SELECT ?"),
            ("SELECT :name, @p, ?", "SELECT :name, @p, ?"),
        ] {
            let once = sql(statement);
            assert_eq!(once, expected);
            assert_eq!(sql(&once), once);
        }
        let once = sql("x_02$$y$$ 'z").into_owned();
        assert_eq!(sql(&once), once);
        assert!(matches!(sql("SELECT a FROM b"), Cow::Borrowed(_)));
    }
}
