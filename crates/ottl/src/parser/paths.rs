//! Parses paths of fields, and their keys.

use super::super::lexer::{Token, TokenKind};
use super::super::path::{Context, Depth, Field, Key, Path, fields};
use super::super::{Operand, ParseError};
use super::Parser;

impl Parser<'_> {
    pub(super) fn path(&mut self) -> Result<Path, ParseError> {
        let start = self.at();
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
        let wrong = |message: String| Err(ParseError { at: start, message });
        if *field == Field::Cache && self.context.is_some_and(|given| given != context) {
            return wrong("a statement has only the cache of its own context".to_owned());
        }
        let is_around = matches!(
            (self.context, context, field),
            (Some(Context::SpanEvent), Context::Span, Field::Events)
                | (Some(Context::DataPoint), Context::Metric, Field::DataPoints)
        );
        if is_around {
            return wrong(format!("`{name}` is not available for a part of itself"));
        }
        let keys = self.keys(field.is_map())?;
        if !keys.is_empty() && !field.has_keys() {
            return wrong(format!("`{name}` has no keys"));
        }
        if *field == Field::TraceState && keys.len() > 1 {
            return wrong(format!("`{name}` has only one key"));
        }
        Ok(Path {
            context,
            field: *field,
            as_time: is_time,
            keys,
        })
    }

    /// Parses the keys in brackets. In a map, the first key must be a name.
    pub(super) fn keys(&mut self, is_map: bool) -> Result<Vec<Key>, ParseError> {
        let mut keys = Vec::new();
        while self.sees(0, '[') {
            self.next();
            let at = self.at();
            self.enter()?;
            let key = match self.operand()? {
                Operand::Text(name) => Key::Name(name.as_ref().to_owned()),
                Operand::Int(position) if !is_map || !keys.is_empty() => Key::Position(position),
                operand if !operand.is_literal() => Key::Computed(Box::new(operand)),
                _ => {
                    return Err(ParseError {
                        at,
                        message: "expected a key in double quotes".to_owned(),
                    });
                }
            };
            keys.push(key);
            self.depth -= 1;
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
                "an expression on a {} cannot use the context {}, which has several values",
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
