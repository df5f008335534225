//! Parser for functions that return a value, and for lists.

use super::{Operand, ParseError, Parser, TokenKind, unsupported};
use crate::path::Field;
use crate::{Function, ValueKind};

/// Functions with values, by name, in the form that `call` parses.
const FUNCTIONS: [(&str, Function); 9] = [
    ("Concat", Function::Concat),
    ("ParseJSON", Function::ParseJson),
    ("Now", Function::Now),
    ("ToLowerCase", Function::ToLowerCase),
    ("ToUpperCase", Function::ToUpperCase),
    ("String", Function::String),
    ("Int", Function::Int),
    ("Double", Function::Double),
    ("Substring", Function::Substring),
];

fn function(name: &str) -> Option<Function> {
    let mut functions = FUNCTIONS.iter();
    let found = functions.find(|(known, _)| *known == name);
    found.map(|(_, function)| *function)
}

/// Whether a function returns a value other than true or false.
pub(super) fn is_value(name: &str) -> bool {
    matches!(name, "TraceID" | "SpanID" | "Duration" | "Len") || function(name).is_some()
}

/// Returns the kind that a function such as `IsString` tests for.
pub(super) fn kind_of(name: &str) -> ValueKind {
    match name {
        "IsInt" => ValueKind::Int,
        "IsDouble" => ValueKind::Double,
        "IsBool" => ValueKind::Bool,
        "IsMap" => ValueKind::Map,
        "IsList" => ValueKind::List,
        _ => ValueKind::Text,
    }
}

impl Parser<'_> {
    /// Parses a function that is used as a value.
    pub(super) fn call(&mut self, at: usize, name: &str) -> Result<Operand, ParseError> {
        self.enter()?;
        let operand = match function(name) {
            Some(function) => {
                self.next();
                self.expect('(')?;
                let arguments = self.arguments(function)?;
                self.expect(')')?;
                // Parsed like the body instead of attributes, because the first key may be an index.
                let keys = self.keys(Field::Body)?;
                Operand::Call(function, arguments, keys)
            }
            None => match self.function(at, name)? {
                Some(test) => Operand::Truth(Box::new(test)),
                None => {
                    let message = unsupported(name);
                    return Err(ParseError { at, message });
                }
            },
        };
        self.depth -= 1;
        Ok(operand)
    }

    fn arguments(&mut self, function: Function) -> Result<Vec<Operand>, ParseError> {
        let mut arguments = Vec::new();
        match function {
            Function::Now => {}
            Function::Concat => {
                arguments.push(self.list()?);
                self.expect(',')?;
                arguments.push(self.text_operand()?);
            }
            Function::Substring => {
                arguments.push(self.text_operand()?);
                for _ in 0..2 {
                    self.expect(',')?;
                    arguments.push(self.operand()?);
                }
            }
            Function::ParseJson | Function::ToLowerCase | Function::ToUpperCase => {
                arguments.push(self.text_operand()?);
            }
            Function::String | Function::Int | Function::Double => arguments.push(self.operand()?),
        }
        Ok(arguments)
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
}
