//! Conditions of the OpenTelemetry Transformation Language (OTTL), to the extent that components of this program use
//! the language.
//!
//! A condition is parsed once with [`parse`] and evaluated on encoded requests, which are not decoded.
//!
//! # Supported language
//!
//! * Operators: `==`, `!=`, `<`, `<=`, `>`, `>=`, `and`, `or`, `not`, parentheses; `+`, `-`, `*`, `/` on numbers, and
//!   `+`, `-` on times and durations.
//! * Literals: texts, numbers, bytes (`0x01`), `true`, `false`, `nil`, and the language's names for numbers
//!   (`SPAN_KIND_SERVER`).
//! * Paths: see [`path`].
//! * Functions: `IsMatch`, `HasPrefix`, `HasSuffix`, `IsRootSpan`, `HasAttrKeyOnDatapoint`, `HasAttrOnDatapoint`,
//!   `IsString`, `IsInt`, `IsDouble`, `IsBool`, `IsMap`, `IsList`, `ContainsValue`, `Concat`, `ParseJSON`, `Now`,
//!   `ToLowerCase`, `ToUpperCase`, `String`, `Int`, `Double`, `Substring`, `Len`, `TraceID`, `SpanID`, `Duration`.
//!
//! Everything else is an error with its position.
//!
//! # Invariants
//!
//! * Comparisons follow OTTL: values of different types are not equal, integers and floating-point numbers are compared
//!   as numbers, and only `nil` equals `nil`.
//! * Arithmetic follows OTTL: integers stay integers. Operations on values other than numbers, times and durations
//!   cannot be evaluated.
//! * A condition that cannot be evaluated is neither true nor false (`Undecided`). The component decides the
//!   consequence.
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
//! `parser` for the syntax, `eval` for the evaluation, and `known` for the partial evaluation that avoids repeated work
//! for every item of a resource.

mod eval;
mod fields;
mod known;
mod lexer;
mod math;
mod parser;
pub mod path;
pub mod profile;
mod target;
mod value;

use std::sync::Arc;

pub use self::known::within;
pub use self::parser::parse;
use self::path::{Context, Key, Path};
pub use self::target::EvaluationTarget;
pub use self::target::ProfileFields;
pub use self::target::attributes;
use self::value::Undecided;

/// Reason why a text is not a condition.
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
        let place = self.characters(condition) + 1;
        format!("character {place} of the condition: {}", self.message)
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
    /// Shared, because a copied pattern would have separate buffers.
    IsMatch(Operand, Arc<regex::Regex>),
    HasPrefix(Operand, Operand),
    HasSuffix(Operand, Operand),
    Is(Operand, ValueKind),
    /// Whether the first operand is a list that contains the second.
    ContainsValue(Operand, Operand),
    IsRootSpan,
    HasAttribute {
        key: String,
        /// Text that the value must equal.
        value: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueKind {
    Text,
    Int,
    Double,
    Bool,
    Map,
    List,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    /// Joins the texts of a list with a separator.
    Concat,
    ParseJson,
    Now,
    ToLowerCase,
    ToUpperCase,
    String,
    Int,
    Double,
    Substring,
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
    /// A trace id or a span id.
    Id(Arc<[u8]>),
    /// A list or a map, as text.
    Structure(Arc<str>),
    /// A time in nanoseconds since 1970.
    Moment(i64),
    Path(Path),
    /// A path to nanoseconds since 1970, read as a time.
    Time(Path),
    /// A duration in nanoseconds.
    Duration(i64),
    /// Length of a text in bytes, or of a list or map in entries.
    Len(Box<Operand>),
    /// A boolean function, used as a value.
    Truth(Box<Test>),
    List(Vec<Operand>),
    /// A list or a map, as an encoded `AnyValue`.
    Encoded(Arc<[u8]>),
    /// A function with its arguments, and the keys in the following brackets.
    Call(Function, Vec<Operand>, Vec<Key>),
    /// Operations of equal precedence, from left to right.
    Math(Box<Operand>, Vec<(Operator, Operand)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}
