//! Parses statements.

use super::super::editors::{Editor, all, of_name};
use super::super::functions::Literals;
use super::super::lexer::{TokenKind, tokens};
use super::super::path::Context;
use super::super::statement::Statement;
use super::super::{Operand, ParseError};
use super::Parser;
use tributary_otlp::Signal;

/// Editors of the Collector that are not built in.
const MISSING: [&str; 4] = [
    "aggregate_on_attribute_value",
    "convert_exponential_histogram_to_histogram",
    "extract_percentile_metric",
    "set_semconv_span_name",
];

/// Parses a statement for requests of a signal. Paths without a context belong to `context`. If `context` is `None`,
/// every path needs a context, and the deepest context determines the level of the execution.
pub fn parse_statement(
    text: &str,
    signal: Signal,
    context: Option<Context>,
) -> Result<Statement, ParseError> {
    let tokens = tokens(text)?;
    let mut parser = Parser::new(text, &tokens, signal, context);
    parser.is_of_statement = true;
    let at = parser.at();
    let (editor, mut arguments) = parser.editor()?;
    let condition = match parser.takes_word("where") {
        true => Some(parser.any()?),
        false => None,
    };
    if let Some(token) = parser.rest.first() {
        return Err(parser.mistake_at(token, "expected `where` or the end"));
    }
    let context = parser.final_context()?;
    if let Some(needed) = editor.context
        && needed != context
    {
        return Err(ParseError {
            at,
            message: format!(
                "{} needs the context {}, not {}",
                editor.name,
                needed.name(),
                context.name()
            ),
        });
    }
    let target = match arguments.first_mut().map(Option::take) {
        Some(Some(Operand::Path(path))) if editor.has_target => Some(path),
        Some(Some(first)) => {
            if let Some(slot) = arguments.first_mut() {
                *slot = Some(first);
            }
            None
        }
        _ => None,
    };
    Ok(Statement {
        context,
        editor,
        target,
        arguments,
        condition,
        text: text.into(),
    })
}

impl Parser<'_> {
    /// Parses an editor with its arguments.
    fn editor(&mut self) -> Result<(&'static Editor, Vec<Option<Operand>>), ParseError> {
        let at = self.at();
        let name = match self.rest.first().map(|token| &token.kind) {
            Some(TokenKind::Name(name)) if self.sees(1, '(') => name.clone(),
            Some(TokenKind::Symbol(name)) if self.sees(1, '(') => {
                return Err(self.mistake(format!(
                    "{name} returns a value: a statement begins with a function such as set"
                )));
            }
            _ => return Err(self.mistake("expected a function such as `set(`")),
        };
        let wrong = |message: String| ParseError { at, message };
        let editor = of_name(&name).ok_or_else(|| wrong(unknown(&name)))?;
        self.next();
        if let Some(context) = editor.context {
            self.record_context(context, at)?;
        }
        let place = self.rest.get(1).map_or(self.end, |token| token.at);
        let arguments = self.arguments(at, &name, editor.parameters)?;
        if self.sees(0, '[') {
            return Err(self.mistake(format!("{name} has no value that keys could select from")));
        }
        if editor.has_target && !matches!(arguments.first(), Some(Some(Operand::Path(_)))) {
            return Err(ParseError {
                at: place,
                message: format!("{name} changes a path: expected a path"),
            });
        }
        if let Some(check) = editor.check {
            check(&Literals(&arguments)).map_err(|message| wrong(format!("{name}: {message}")))?;
        }
        Ok((editor, arguments))
    }
}

/// Returns the message about an unknown editor.
fn unknown(name: &str) -> String {
    if MISSING.contains(&name) {
        return format!("the function {name} of the Collector is not built in");
    }
    let known: Vec<&str> = all().map(|editor| editor.name).collect();
    format!(
        "there is no function {name} that changes telemetry; available: {}",
        known.join(", ")
    )
}
