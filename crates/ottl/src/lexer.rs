//! Lexer for conditions and statements.

use super::{Comparison, ParseError};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) at: usize,
    pub(super) kind: TokenKind,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TokenKind {
    Text(String),
    Int(i64),
    Double(f64),
    Bytes(Vec<u8>),
    /// A word that begins with a lower-case letter.
    Name(String),
    /// A word that begins with an upper-case letter.
    Symbol(String),
    Compare(Comparison),
    /// A sign of `()[]{}.,:=+-*/`.
    Sign(char),
}

pub(super) fn tokens(text: &str) -> Result<Vec<Token>, ParseError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(first) = rest.chars().next() else {
            break;
        };
        let length = match first {
            _ if first.is_whitespace() => {
                at += first.len_utf8();
                continue;
            }
            _ => {
                let (kind, length) =
                    token(rest, first).map_err(|message| ParseError { at, message })?;
                tokens.push(Token { at, kind });
                length
            }
        };
        at += length;
    }
    Ok(tokens)
}

/// Returns the first token and its length in bytes.
fn token(rest: &str, first: char) -> Result<(TokenKind, usize), String> {
    let starts = |sign: &str| rest.starts_with(sign);
    let comparison = [
        ("==", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];
    if let Some((sign, comparison)) = comparison.iter().find(|(sign, _)| starts(sign)) {
        return Ok((TokenKind::Compare(*comparison), sign.len()));
    }
    match first {
        '=' if starts("=>") => Err("lambda expressions are not supported".to_owned()),
        '(' | ')' | '[' | ']' | '{' | '}' | ',' | ':' | '=' | '+' | '-' | '*' | '/' => {
            Ok((TokenKind::Sign(first), 1))
        }
        '"' => string(rest),
        '.' if !rest[1..].starts_with(|next: char| next.is_ascii_digit()) => {
            Ok((TokenKind::Sign(first), 1))
        }
        '0'..='9' | '.' => number(rest),
        'a'..='z' | 'A'..='Z' => {
            let length = rest
                .find(|next: char| !(next.is_ascii_alphanumeric() || next == '_'))
                .unwrap_or(rest.len());
            let word = rest[..length].to_owned();
            Ok(match first {
                'a'..='z' => (TokenKind::Name(word), length),
                _ => (TokenKind::Symbol(word), length),
            })
        }
        '&' | '|' | '!' => Err(format!(
            "`{first}` is not supported: write `and`, `or`, `not`"
        )),
        '\'' => Err("write strings in double quotes".to_owned()),
        _ => Err(format!("unexpected character `{}`", first.escape_debug())),
    }
}

fn string(rest: &str) -> Result<(TokenKind, usize), String> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, next)) = chars.next() {
        match next {
            '"' => return Ok((TokenKind::Text(text), at + 1)),
            '\\' => {
                let Some((_, escaped)) = chars.next() else {
                    break;
                };
                let digits = match escaped {
                    'x' => 2,
                    'u' => 4,
                    'U' => 8,
                    _ => 0,
                };
                text.push(match escaped {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'a' => '\u{7}',
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    'v' => '\u{b}',
                    '"' | '\\' | '/' => escaped,
                    'x' | 'u' | 'U' => {
                        let code: String = chars.by_ref().take(digits).map(|(_, c)| c).collect();
                        let code = u32::from_str_radix(&code, 16).ok();
                        code.and_then(char::from_u32).ok_or_else(|| {
                            format!(
                                "`\\{escaped}` needs {digits} hexadecimal digits of a character"
                            )
                        })?
                    }
                    _ => {
                        return Err(format!(
                            "`\\{}` is not an escape sequence: write `\\\\` for a backslash",
                            escaped.escape_debug()
                        ));
                    }
                });
            }
            next => text.push(next),
        }
    }
    Err("the string has no closing quote".to_owned())
}

fn number(rest: &str) -> Result<(TokenKind, usize), String> {
    if let Some(digits) = rest.strip_prefix("0x") {
        let length = digits
            .find(|next: char| !next.is_ascii_hexdigit())
            .unwrap_or(digits.len());
        let digits = &digits[..length];
        let bytes = (0..length).step_by(2).map(|at| {
            let pair = digits.get(at..at + 2)?;
            u8::from_str_radix(pair, 16).ok()
        });
        let bytes: Option<Vec<u8>> = bytes.collect();
        return match bytes.filter(|bytes| !bytes.is_empty()) {
            Some(bytes) => Ok((TokenKind::Bytes(bytes), length + 2)),
            None => Err("write each byte with two hexadecimal digits".to_owned()),
        };
    }
    let mut length = 0;
    for (at, next) in rest.char_indices() {
        let before = rest[..at].chars().next_back();
        let sign_fits = matches!(before, Some('e' | 'E'));
        match next {
            '0'..='9' | '.' => {}
            '-' | '+' if sign_fits => {}
            'e' | 'E' if at > 0 => {}
            _ => break,
        }
        length = at + 1;
    }
    let text = &rest[..length];
    let kind = match text.contains(['.', 'e', 'E']) {
        true => text.parse().ok().map(TokenKind::Double),
        false => text.parse().ok().map(TokenKind::Int),
    };
    kind.map(|kind| (kind, length))
        .ok_or_else(|| format!("`{text}` is not a 64-bit number"))
}
