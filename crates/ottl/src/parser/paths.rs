//! Parses paths of fields, and their keys.

use super::super::lexer::{Token, TokenKind};
use super::super::path::{Context, Depth, Field, Key, Path, fields};
use super::super::{Operand, ParseError};
use super::Parser;

/// Returns the message about an unsupported function.
pub(super) fn unsupported(name: &str) -> String {
    let instead = match name {
        "ExtractPatterns" => "write `IsMatch(x, \"pattern\")`, which matches the unchanged string",
        _ => {
            "supported: IsMatch, HasPrefix, HasSuffix, IsRootSpan, HasAttrKeyOnDatapoint, HasAttrOnDatapoint, \
             IsString, IsInt, IsDouble, IsBool, IsMap, IsList, ContainsValue, Concat, ParseJSON, Now, ToLowerCase, \
             ToUpperCase, String, Int, Double, Substring, Len, TraceID, SpanID, Duration"
        }
    };
    format!("the function {name} is not supported; {instead}")
}

impl<'t> Parser<'t> {
    pub(super) fn path(&mut self) -> Result<Operand, ParseError> {
        let start = self.rest.first().map_or(self.end, |token| token.at);
        let mut words: Vec<&str> = Vec::new();
        while let Some(Token {
            kind: TokenKind::Name(word),
            ..
        }) = self.rest.first()
        {
            words.push(word);
            self.next();
            if !self.takes(&TokenKind::Sign('.')) {
                break;
            }
        }
        let prefix = words.first().copied().and_then(Context::of_name);
        let (context, words) = match (prefix, self.context) {
            (Some(context), _) => (context, words.get(1..).unwrap_or_default()),
            (None, Some(context)) => (context, words.as_slice()),
            (None, None) => {
                let contexts: Vec<&str> = self.contexts().collect();
                return Err(ParseError {
                    at: start,
                    message: format!(
                        "`{}` has no context: prefix it with one of: {}",
                        words.join("."),
                        contexts.join(", ")
                    ),
                });
            }
        };
        self.record_context(context, start)?;
        let name = words.join(".");
        let known = fields(context);
        // `start_time` is the time; `start_time_unix_nano` is the same time as a number.
        let is_time = name.ends_with("time");
        let number = if is_time {
            format!("{name}_unix_nano")
        } else {
            name.clone()
        };
        let Some((_, field)) = known.iter().find(|(known, _)| *known == number) else {
            let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            return Err(ParseError {
                at: start,
                message: format!(
                    "the context {} has no field `{name}`; available: {}",
                    context.name(),
                    known.join(", ")
                ),
            });
        };
        let keys = self.keys(*field)?;
        match (field, keys.is_empty()) {
            (Field::Attributes, true) => Err(ParseError {
                at: start,
                message: "requires a key: attributes[\"key\"]".to_owned(),
            }),
            (Field::Attributes | Field::Body, _) | (_, true) => {
                let path = Path {
                    context,
                    field: *field,
                    keys,
                };
                Ok(match is_time {
                    true => Operand::Time(path),
                    false => Operand::Path(path),
                })
            }
            (_, false) => Err(ParseError {
                at: start,
                message: format!("`{name}` has no keys"),
            }),
        }
    }

    /// Parses the keys in brackets. In attributes, the first key must be a name.
    pub(super) fn keys(&mut self, field: Field) -> Result<Vec<Key>, ParseError> {
        let mut keys = Vec::new();
        while self.takes(&TokenKind::Sign('[')) {
            match self.rest.first().map(|token| &token.kind) {
                Some(TokenKind::Text(_)) => keys.push(Key::Name(self.text()?)),
                Some(TokenKind::Int(position))
                    if field != Field::Attributes || !keys.is_empty() =>
                {
                    keys.push(Key::Position(*position));
                    self.next();
                }
                _ => return Err(self.mistake("expected a key in double quotes")),
            }
            self.expect(']')?;
        }
        Ok(keys)
    }

    fn contexts(&self) -> impl Iterator<Item = &'static str> {
        let signal = self.signal;
        let names = Context::NAMES.into_iter();
        names
            .filter(move |(_, context)| context.is_of(signal))
            .map(|(name, _)| name)
    }

    /// Records that the condition uses this context.
    pub(super) fn record_context(&mut self, context: Context, at: usize) -> Result<(), ParseError> {
        if !context.is_of(self.signal) {
            let message = format!(
                "the context {} is not available for {}",
                context.name(),
                self.signal
            );
            return Err(ParseError { at, message });
        }
        let depth = |context: Option<Context>| context.map_or(Depth::Resource, Context::depth);
        if let Some(given) = self.context
            && given.depth() < context.depth()
        {
            let message = format!(
                "a condition on a {} cannot use the context {}, which has several values",
                given.name(),
                context.name()
            );
            return Err(ParseError { at, message });
        }
        if self.deepest.is_none() || depth(self.deepest) < context.depth() {
            self.deepest = Some(context);
        }
        Ok(())
    }
}
