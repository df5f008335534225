//! The OpenTelemetry Transformation Language (OTTL): conditions on telemetry, and statements that change telemetry.
//!
//! A condition is parsed once with [`parse`], and a statement with [`parse_statement`]. Both are evaluated on encoded
//! requests, which are not decoded. A statement returns the changed part of a request (a span, a resource, ...) in
//! encoded form; all other fields of the part keep their bytes.
//!
//! # Supported language
//!
//! * Operators: `==`, `!=`, `<`, `<=`, `>`, `>=`, `and`, `or`, `not`, parentheses; `+`, `-`, `*`, `/` on numbers, and
//!   `+`, `-` on times and durations.
//! * Literals: texts, numbers, bytes (`0x01`), `true`, `false`, `nil`, lists, maps, and the language's names for
//!   numbers (`SPAN_KIND_SERVER`).
//! * Paths with keys: see [`path`].
//! * Functions that return a value: see `functions`. Functions that change telemetry: see `editors`.
//!
//! Lambda expressions are not supported. Everything else is an error with its position.
//!
//! # Invariants
//!
//! * Comparisons follow OTTL: values of different types are not equal, integers and floating-point numbers are compared
//!   as numbers, and only `nil` equals `nil`.
//! * Arithmetic follows OTTL: integers stay integers. Operations on values other than numbers, times and durations
//!   cannot be evaluated.
//! * An expression that cannot be evaluated has no value (`Undecided`). The component decides the consequence.
//!
//! # Example
//!
//! ```
//! use prost::Message as _;
//! use opentelemetry_proto::tonic::logs::v1::LogRecord;
//! use tributary_otlp::Signal;
//! use tributary_otlp::view::Message;
//! use tributary_ottl::path::Context;
//! use tributary_ottl::{EvaluationTarget, parse};
//!
//! let condition = parse("severity_number < 9 and IsMatch(severity_text, \"^deb\")", Signal::Logs, Some(Context::Log))
//!     .map_err(|mistake| mistake.message)?;
//! let record = LogRecord { severity_number: 5, severity_text: "debug".to_owned(), ..LogRecord::default() };
//! let record = record.encode_to_vec();
//! let target = EvaluationTarget { item: Message::new(&record), ..EvaluationTarget::default() };
//! assert!(matches!(condition.is_true(&target), Ok(true)));
//! # Ok::<(), String>(())
//! ```
//!
//! # Where to start reading
//!
//! `parser` for the syntax, `eval` for the evaluation, `statement` and `editors` for changes, and `known` for the
//! partial evaluation that avoids repeated work for every item of a resource.

mod calendar;
mod copies;
mod editors;
mod eval;
mod fields;
mod functions;
mod glob;
mod known;
mod lexer;
mod math;
mod parser;
pub mod path;
pub mod profile;
pub mod statement;
mod target;
mod value;
mod write;

use std::sync::Arc;

use self::calendar::Moment;
use self::functions::Function;
pub use self::known::within;
pub use self::parser::{parse, parse_statement, parse_statement_condition};
use self::path::{Context, Key, Path};
pub use self::target::EvaluationTarget;
pub use self::target::ProfileFields;
pub use self::target::attributes;
pub use self::value::Undecided;

/// Reason why a text is not a condition or statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// Position in bytes from the start of the text.
    pub at: usize,
    /// Description of the mistake and its remedy.
    pub message: String,
}

impl ParseError {
    /// Returns the number of characters of the condition before the mistake.
    pub fn characters(&self, condition: &str) -> usize {
        let before = condition.get(..self.at).unwrap_or(condition);
        before.chars().count()
    }

    /// Returns the message with its position in the condition.
    pub fn in_text(&self, condition: &str) -> String {
        self.within(condition, "condition")
    }

    /// Returns the message with its position in a text, which is a `kind`, in one line.
    pub fn within(&self, text: &str, kind: &str) -> String {
        let place = self.characters(text) + 1;
        let mut shown = format!("character {place} of the {kind}: ");
        for character in self.message.chars() {
            match character.is_control() {
                true => shown.extend(character.escape_default()),
                false => shown.push(character),
            }
        }
        shown
    }
}

/// A condition, and the level at which it is evaluated.
#[derive(Debug, Clone)]
pub struct Condition {
    /// Context whose items the condition is evaluated on.
    pub context: Context,
    pub(crate) test: Test,
    /// The condition in its written form.
    pub text: Arc<str>,
}

/// An expression that is true or false.
#[derive(Debug, Clone)]
pub(crate) enum Test {
    Constant(bool),
    /// Undecided for every item.
    Undecided(Undecided),
    Compare(Operand, Comparison, Operand),
    Not(Box<Test>),
    All(Vec<Test>),
    Any(Vec<Test>),
    /// A function that returns a boolean.
    Truth(Operand),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// An expression that has a value. Copies share large content.
#[derive(Debug, Clone)]
pub(crate) enum Operand {
    Nil,
    /// Undecided for every item.
    Undecided(Undecided),
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    /// A trace id, a span id or a profile id.
    Id(Arc<[u8]>),
    Time(Moment),
    /// A duration in nanoseconds.
    Duration(i64),
    Path(Path),
    List(Vec<Operand>),
    Map(Vec<(Arc<str>, Operand)>),
    /// A list or a map, as an encoded `AnyValue`.
    Encoded(Arc<[u8]>),
    /// Shared, because a copied pattern would have separate buffers.
    Pattern(Arc<regex::Regex>),
    Call(Box<Call>),
    /// Operations of equal precedence, from left to right.
    Math(Box<Operand>, Vec<(Operator, Operand)>),
    /// A function as an argument.
    Function(&'static Function),
    /// The first value that is not `nil`; later values are not evaluated.
    Coalesce(Vec<Operand>),
}

/// A function with its arguments, and the keys in the following brackets.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) function: &'static Function,
    /// An argument for each parameter; `None` for an optional one that is missing.
    pub(crate) arguments: Vec<Option<Operand>>,
    pub(crate) keys: Vec<Key>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_that_quotes_a_line_break_has_one_line() {
        let error = ParseError {
            at: 4,
            message: "the unit `a\nb` is unknown".to_owned(),
        };
        assert_eq!(
            error.within("set(x)", "statement"),
            "character 5 of the statement: the unit `a\\nb` is unknown"
        );
    }
}
