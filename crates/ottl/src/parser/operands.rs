//! Parses operands: values, calculations, lists and maps.

use super::super::lexer::TokenKind;
use super::super::path::number;
use super::super::{EvaluationTarget, Operand, Operator, ParseError};
use super::Parser;

impl Parser<'_> {
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
        self.single()
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
                    | Operand::List(_)
                    | Operand::Map(_)
            )
        };
        if operands.any(never) {
            return Err(self.mistake("an operand before this position is not a number"));
        }
        let is_literal = first.is_literal() && rest.iter().all(|(_, operand)| operand.is_literal());
        let math = Operand::Math(Box::new(first), rest);
        match is_literal.then(|| math.value(&EvaluationTarget::default())) {
            Some(Ok(value)) => Ok(Operand::of(Ok(value))),
            _ => Ok(math),
        }
    }

    fn single(&mut self) -> Result<Operand, ParseError> {
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
                "and" | "or" | "not" | "where" => {
                    return Err(self.mistake("expected a path or a value"));
                }
                _ if self.sees(1, '(') => {
                    return Err(self.mistake(format!(
                        "{word} changes telemetry and has no value; functions with a value begin with a capital letter"
                    )));
                }
                _ => return self.path().map(Operand::Path),
            },
            TokenKind::Symbol(name) if self.sees(1, '(') => return self.call(token.at, name),
            TokenKind::Sign('[') => return self.list(),
            TokenKind::Sign('{') => return self.map(),
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

    pub(super) fn list(&mut self) -> Result<Operand, ParseError> {
        self.enter()?;
        self.expect('[')?;
        let mut values = Vec::new();
        while !self.takes(&TokenKind::Sign(']')) {
            if !values.is_empty() {
                self.expect(',')?;
            }
            values.push(self.operand()?);
        }
        self.depth -= 1;
        Ok(Operand::List(values))
    }

    fn map(&mut self) -> Result<Operand, ParseError> {
        self.enter()?;
        self.expect('{')?;
        let mut entries: Vec<(std::sync::Arc<str>, Operand)> = Vec::new();
        while !self.takes(&TokenKind::Sign('}')) {
            // The grammar of the Collector makes the comma optional.
            if !entries.is_empty() {
                self.takes(&TokenKind::Sign(','));
                if self.takes(&TokenKind::Sign('}')) {
                    break;
                }
            }
            let key = self.text()?;
            self.expect(':')?;
            let value = self.operand()?;
            entries.retain(|(known, _)| **known != *key);
            entries.push((key.into(), value));
        }
        self.depth -= 1;
        Ok(Operand::Map(entries))
    }

    pub(super) fn text(&mut self) -> Result<String, ParseError> {
        match self.rest.first().map(|token| &token.kind) {
            Some(TokenKind::Text(text)) => {
                self.next();
                Ok(text.clone())
            }
            _ => Err(self.mistake("expected a string in double quotes")),
        }
    }
}

impl Operand {
    /// Whether the operand is a value of the configuration.
    pub(super) fn is_literal(&self) -> bool {
        match self {
            Operand::List(values) => values.iter().all(Operand::is_literal),
            Operand::Map(entries) => entries.iter().all(|(_, value)| value.is_literal()),
            Operand::Path(_) | Operand::Call(_) | Operand::Math(..) | Operand::Coalesce(_) => false,
            _ => true,
        }
    }
}
