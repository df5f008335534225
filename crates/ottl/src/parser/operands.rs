//! Parses operands: values, calculations and functions that return a value.

use super::super::lexer::TokenKind;
use super::super::path::number;
use super::super::{Operand, Operator, ParseError};
use super::{DEEPEST, Parser};
use tributary_config::units::Duration;

impl<'t> Parser<'t> {
    /// Parses a value that may be a text.
    pub(super) fn text_operand(&mut self) -> Result<Operand, ParseError> {
        let at = self.rest.first().map_or(self.end, |token| token.at);
        match self.operand()? {
            operand @ (Operand::Text(_) | Operand::Path(_) | Operand::Call(..)) => Ok(operand),
            _ => Err(ParseError {
                at,
                message: "expected a string or a path".to_owned(),
            }),
        }
    }

    /// Parses sums of products.
    pub(super) fn operand(&mut self) -> Result<Operand, ParseError> {
        let first = self.product()?;
        let mut rest = Vec::new();
        while let Some(operator) = self.takes_operator('+', '-') {
            rest.push((operator, self.product()?));
        }
        self.math(first, rest)
    }

    fn product(&mut self) -> Result<Operand, ParseError> {
        let first = self.factor()?;
        let mut rest = Vec::new();
        while let Some(operator) = self.takes_operator('*', '/') {
            rest.push((operator, self.factor()?));
        }
        self.math(first, rest)
    }

    fn takes_operator(&mut self, first: char, second: char) -> Option<Operator> {
        let sign = [first, second]
            .into_iter()
            .find(|sign| self.takes(&TokenKind::Sign(*sign)));
        Some(match sign? {
            '+' => Operator::Add,
            '-' => Operator::Subtract,
            '*' => Operator::Multiply,
            _ => Operator::Divide,
        })
    }

    /// Parses a value, with a sign or in parentheses.
    fn factor(&mut self) -> Result<Operand, ParseError> {
        if let Some(operator) = self.takes_operator('+', '-') {
            self.enter()?;
            let operand = self.factor()?;
            self.depth -= 1;
            return match (operator, operand) {
                // A plus sign has no effect, and accepts any operand.
                (Operator::Add, operand) => Ok(operand),
                (_, Operand::Int(number)) => Ok(Operand::Int(number.wrapping_neg())),
                (_, Operand::Double(number)) => Ok(Operand::Double(-number)),
                (_, Operand::Duration(_)) => Err(self
                    .mistake("a sign before a duration is not supported: subtract the duration")),
                (operator, operand) => self.math(Operand::Int(0), vec![(operator, operand)]),
            };
        }
        if self.takes(&TokenKind::Sign('(')) {
            self.enter()?;
            let operand = self.operand()?;
            self.depth -= 1;
            self.expect(')')?;
            return Ok(operand);
        }
        self.value()
    }

    pub(super) fn enter(&mut self) -> Result<(), ParseError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.mistake("parentheses nest too deep"));
        }
        Ok(())
    }

    /// Builds an arithmetic operation, or returns the single value.
    fn math(&self, first: Operand, rest: Vec<(Operator, Operand)>) -> Result<Operand, ParseError> {
        if rest.is_empty() {
            return Ok(first);
        }
        let mut operands = std::iter::once(&first).chain(rest.iter().map(|(_, operand)| operand));
        let never = |operand: &Operand| {
            matches!(
                operand,
                Operand::Nil
                    | Operand::Bool(_)
                    | Operand::Text(_)
                    | Operand::Bytes(_)
                    | Operand::Id(_)
            )
        };
        if operands.any(never) {
            return Err(self.mistake("an operand before this position is not a number"));
        }
        Ok(Operand::Math(Box::new(first), rest))
    }

    fn value(&mut self) -> Result<Operand, ParseError> {
        let Some(token) = self.rest.first() else {
            return Err(self.mistake("expected a path or a value"));
        };
        let operand = match &token.kind {
            TokenKind::Text(text) => Operand::Text(text.as_str().into()),
            TokenKind::Int(value) => Operand::Int(*value),
            TokenKind::Double(value) => Operand::Double(*value),
            TokenKind::Bytes(bytes) => Operand::Bytes(bytes.as_slice().into()),
            TokenKind::Name(word) => match word.as_str() {
                "nil" => Operand::Nil,
                "true" => Operand::Bool(true),
                "false" => Operand::Bool(false),
                "and" | "or" | "not" => {
                    return Err(self.mistake("expected a path or a value"));
                }
                _ => return self.path(),
            },
            TokenKind::Symbol(name) if name == "Duration" => return self.duration(),
            TokenKind::Symbol(name) if name == "Len" => return self.length(),
            TokenKind::Symbol(name) if name == "TraceID" || name == "SpanID" => {
                return self.id(name);
            }
            TokenKind::Symbol(name)
                if self
                    .rest
                    .get(1)
                    .is_some_and(|next| next.kind == TokenKind::Sign('(')) =>
            {
                return self.call(token.at, name);
            }
            TokenKind::Sign('[') => return self.list(),
            TokenKind::Symbol(name) => match number(name) {
                Some(number) => Operand::Int(number),
                None => {
                    let message = format!("{name} is not a supported enum or function");
                    return Err(self.mistake(message));
                }
            },
            TokenKind::Sign(_) | TokenKind::Compare(_) => {
                return Err(self.mistake("expected a path or a value"));
            }
        };
        self.next();
        Ok(operand)
    }

    fn id(&mut self, name: &str) -> Result<Operand, ParseError> {
        let length = if name == "TraceID" { 16 } else { 8 };
        self.next();
        self.expect('(')?;
        let id = match self.rest.first().map(|token| &token.kind) {
            Some(TokenKind::Bytes(bytes)) if bytes.len() == length => bytes.clone(),
            _ => {
                let digits = 2 * length;
                return Err(self.mistake(format!("expected 0x and {digits} hexadecimal digits")));
            }
        };
        self.next();
        self.expect(')')?;
        Ok(Operand::Id(id.into()))
    }

    fn length(&mut self) -> Result<Operand, ParseError> {
        self.next();
        self.expect('(')?;
        let target = self.text_operand()?;
        self.expect(')')?;
        Ok(Operand::Len(Box::new(target)))
    }

    fn duration(&mut self) -> Result<Operand, ParseError> {
        self.next();
        self.expect('(')?;
        let at = self.rest.first().map_or(self.end, |token| token.at);
        let duration: Duration = self
            .text()?
            .parse()
            .map_err(|message| ParseError { at, message })?;
        self.expect(')')?;
        let nanoseconds = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        Ok(Operand::Duration(nanoseconds))
    }
}
