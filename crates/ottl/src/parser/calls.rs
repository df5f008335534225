//! Parses calls of functions, with their arguments.

use std::sync::Arc;

use super::super::functions::{Function, Literals, Parameter, ParameterKind, of_name};
use super::super::glob;
use super::super::lexer::TokenKind;
use super::super::path::Context;
use super::super::{Call, EvaluationTarget, Operand, ParseError};
use super::Parser;
use tributary_config::re2;

/// Functions of the Collector that are not built in.
pub(crate) const MISSING: [&str; 21] = [
    "All",
    "Any",
    "ConvertAttributesToElementsXML",
    "ConvertTextToElementsXML",
    "ExtractGrokPatterns",
    "Filter",
    "Find",
    "GetXML",
    "InsertXML",
    "MapEach",
    "MapKeys",
    "ParseCEF",
    "ParseCLF",
    "ParseELF",
    "ParseLEEF",
    "ParseSimplifiedXML",
    "ParseXML",
    "Reduce",
    "RemoveXML",
    "UserAgent",
    "When",
];

/// Returns the message about an unknown function.
fn unknown(name: &str) -> String {
    if MISSING.contains(&name) {
        return format!("the function {name} of the Collector is not built in");
    }
    let known = super::super::functions::all();
    let alike = known
        .map(|function| function.name)
        .find(|known| known.eq_ignore_ascii_case(name));
    match alike {
        Some(alike) => format!("there is no function {name}; write {alike}"),
        None => format!("there is no function {name}"),
    }
}

impl Parser<'_> {
    /// Parses a call that begins at `at`.
    pub(super) fn call(&mut self, at: usize, name: &str) -> Result<Operand, ParseError> {
        let function = of_name(name).filter(|_| name != "Coalesce");
        let Some(function) = function else {
            if name == "Coalesce" {
                return self.coalesce();
            }
            return Err(ParseError {
                at,
                message: unknown(name),
            });
        };
        self.enter()?;
        self.next();
        let arguments = self.arguments(at, name, function.parameters)?;
        if let Some(check) = function.check {
            check(&Literals(&arguments)).map_err(|message| ParseError {
                at,
                message: format!("{name}: {message}"),
            })?;
        }
        if let Some(context) = function.reads {
            self.reads(at, function, context)?;
        }
        let keys = self.keys(false)?;
        self.depth -= 1;
        let call = Operand::Call(Box::new(Call {
            function,
            arguments,
            keys,
        }));
        folded(call, function).map_err(|message| ParseError { at, message })
    }

    fn reads(
        &mut self,
        at: usize,
        function: &'static Function,
        context: Context,
    ) -> Result<(), ParseError> {
        match context {
            // Later words may determine another context, so this is checked at the end.
            Context::Span => self.needs_span = Some((at, function.name)),
            _ if self.is_of_statement => {
                return Err(ParseError {
                    at,
                    message: format!("{} exists only in conditions of a filter", function.name),
                });
            }
            _ => {}
        }
        self.record_context(context, at)
    }

    fn coalesce(&mut self) -> Result<Operand, ParseError> {
        self.enter()?;
        self.next();
        self.expect('(')?;
        if self.takes_word("values") {
            self.expect('=')?;
        }
        let Operand::List(values) = self.list()? else {
            return Err(self.mistake("expected a list in brackets"));
        };
        if values.is_empty() {
            return Err(self.mistake("Coalesce needs at least one value"));
        }
        self.expect(')')?;
        self.depth -= 1;
        Ok(Operand::Coalesce(values))
    }

    /// Parses the arguments in parentheses, and returns them by the position of their parameters.
    pub(super) fn arguments(
        &mut self,
        at: usize,
        name: &str,
        parameters: &[Parameter],
    ) -> Result<Vec<Option<Operand>>, ParseError> {
        self.expect('(')?;
        let mut arguments: Vec<Option<Operand>> = vec![None; parameters.len()];
        let mut position = 0;
        let mut is_named = false;
        let mut is_first = true;
        while !self.takes(&TokenKind::Sign(')')) {
            if !is_first {
                self.expect(',')?;
            }
            is_first = false;
            let place = self.at();
            let wrong = |message: String| ParseError { at: place, message };
            if let Some(TokenKind::Name(word)) = self.rest.first().map(|token| &token.kind)
                && self.sees(1, '=')
            {
                is_named = true;
                let found = parameters.iter().position(|known| known.name == word);
                position = found.ok_or_else(|| {
                    let names: Vec<&str> = parameters.iter().map(|known| known.name).collect();
                    wrong(format!(
                        "{name} has no parameter `{word}`; parameters: {}",
                        names.join(", ")
                    ))
                })?;
                self.next();
                self.next();
            } else if is_named {
                return Err(wrong(
                    "an argument without a name follows one with a name".to_owned(),
                ));
            }
            let (Some(parameter), Some(slot)) =
                (parameters.get(position), arguments.get_mut(position))
            else {
                let most = parameters.len();
                return Err(wrong(format!("{name} has at most {most} arguments")));
            };
            *slot = Some(self.argument(parameter)?);
            position += 1;
        }
        let missing = parameters
            .iter()
            .zip(&arguments)
            .find(|(parameter, argument)| !parameter.is_optional && argument.is_none());
        match missing {
            Some((parameter, _)) => Err(ParseError {
                at,
                message: format!("{name} needs the argument `{}`", parameter.name),
            }),
            None => Ok(arguments),
        }
    }

    fn argument(&mut self, parameter: &Parameter) -> Result<Operand, ParseError> {
        let at = self.at();
        let wrong = |expected: &str| ParseError {
            at,
            message: format!("expected {expected} for `{}`", parameter.name),
        };
        if parameter.kind == ParameterKind::Function {
            let Some(TokenKind::Symbol(name)) = self.rest.first().map(|token| &token.kind) else {
                return Err(wrong("the name of a function"));
            };
            self.next();
            let function = of_name(name).ok_or_else(|| ParseError {
                at,
                message: unknown(name),
            })?;
            let required = function
                .parameters
                .iter()
                .filter(|known| !known.is_optional);
            return match required.count() {
                1 => Ok(Operand::Function(function)),
                _ => Err(wrong("a function with one argument")),
            };
        }
        let operand = self.operand()?;
        let is_literal = operand.is_literal();
        match (parameter.kind, &operand) {
            (ParameterKind::Text, operand)
                if is_literal && !matches!(operand, Operand::Text(_)) =>
            {
                Err(wrong("a string or a path"))
            }
            (ParameterKind::Int, operand) if is_literal && !matches!(operand, Operand::Int(_)) => {
                Err(wrong("a whole number or a path"))
            }
            (ParameterKind::List, Operand::List(_))
            | (ParameterKind::LiteralText, Operand::Text(_))
            | (ParameterKind::LiteralInt, Operand::Int(_))
            | (ParameterKind::LiteralDouble, Operand::Double(_))
            | (ParameterKind::LiteralBool, Operand::Bool(_))
            | (ParameterKind::Any | ParameterKind::Text | ParameterKind::Int, _) => Ok(operand),
            (ParameterKind::LiteralTexts, Operand::List(values))
                if values.iter().all(|value| matches!(value, Operand::Text(_))) =>
            {
                Ok(operand)
            }
            (ParameterKind::Pattern, Operand::Text(pattern)) => {
                let pattern = re2::compile(pattern).map_err(|wrong| ParseError {
                    at,
                    message: wrong.to_string(),
                })?;
                Ok(Operand::Pattern(Arc::new(pattern)))
            }
            (ParameterKind::Glob, Operand::Text(pattern)) => {
                let pattern = glob::compile(pattern).map_err(|message| ParseError {
                    at,
                    message: message.to_owned(),
                })?;
                Ok(Operand::Pattern(Arc::new(pattern)))
            }
            (ParameterKind::List, _) => Err(wrong("a list in brackets")),
            (ParameterKind::LiteralText | ParameterKind::Pattern | ParameterKind::Glob, _) => {
                Err(wrong("a string in double quotes"))
            }
            (ParameterKind::LiteralInt, _) => Err(wrong("a whole number")),
            (ParameterKind::LiteralDouble, _) => Err(wrong("a number with a decimal point")),
            (ParameterKind::LiteralBool, _) => Err(wrong("true or false")),
            (ParameterKind::LiteralTexts, _) => Err(wrong("a list of strings")),
            (ParameterKind::Function, _) => Err(wrong("the name of a function")),
        }
    }
}

/// Evaluates a call of literals. A call that fails stays, and fails for each item as in the Collector, except for ids.
fn folded(operand: Operand, function: &Function) -> Result<Operand, String> {
    let Operand::Call(call) = &operand else {
        return Ok(operand);
    };
    let mut arguments = call.arguments.iter().flatten();
    let has_keys = !call.keys.is_empty();
    if !function.is_pure || has_keys || !arguments.all(Operand::is_literal) {
        return Ok(operand);
    }
    match operand.value(&EvaluationTarget::default()) {
        Ok(value) => Ok(Operand::of(Ok(value))),
        Err(why) if matches!(function.name, "TraceID" | "SpanID" | "ProfileID") => {
            Err(format!("{}: {why}", function.name))
        }
        Err(_) => Ok(operand),
    }
}
