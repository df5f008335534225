//! Conditions of the OpenTelemetry Transformation Language, as far as the components need that take them.
//!
//! Supported: `==`, `!=`, `<`, `<=`, `>`, `>=`, `and`, `or`, `not`, parentheses; `+`, `-`, `*`, `/` on numbers, and the first
//! two on times and durations; texts, numbers, bytes (`0x01`), `true`, `false`, `nil`, the language's names for numbers
//! (`SPAN_KIND_SERVER`); the paths in [`path`]; the functions `IsMatch`, `HasPrefix`, `HasSuffix`, `IsRootSpan`,
//! `HasAttrKeyOnDatapoint`, `HasAttrOnDatapoint`, `IsString`, `IsInt`, `IsDouble`, `IsBool`, `IsMap`, `IsList`,
//! `ContainsValue`, `Concat`, `ParseJSON`, `Now`, `ToLowerCase`, `ToUpperCase`, `String`, `Int`, `Double`, `Substring`,
//! `Len`, `TraceID`, `SpanID`, `Duration`. Comparisons follow the language's rules: values of different types
//! are not equal, whole and other numbers are compared as numbers, and nothing but `nil` equals `nil`. So does arithmetic:
//! whole numbers stay whole, and what is no number cannot be evaluated. All else is an error that says where.

mod eval;
mod known;
mod lexer;
mod math;
mod parser;
pub mod path;
pub mod profile;

use std::sync::Arc;

use self::eval::Undecided;
pub use self::eval::{Here, ProfileFields, attributes};
pub use self::known::within;
pub use self::parser::parse;
use self::path::{Context, Key, Path};

/// Why a text is not a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Where, in bytes from the start of the text.
    pub at: usize,
    /// What is wrong and what to do.
    pub message: String,
}

impl Mistake {
    /// How many characters of the condition are before it.
    pub fn characters(&self, condition: &str) -> usize {
        let before = condition.get(..self.at).unwrap_or(condition);
        before.chars().count()
    }

    /// With its place in the condition, for people.
    pub fn in_text(&self, condition: &str) -> String {
        let place = self.characters(condition) + 1;
        format!("character {place} of the condition: {}", self.message)
    }
}

/// A condition, and the level at which it is to be evaluated.
#[derive(Debug, Clone)]
pub struct Condition {
    /// The context whose items the condition is evaluated for.
    pub context: Context,
    pub(crate) test: Test,
    /// The condition as it was written.
    pub text: Arc<str>,
}

/// Something that is true or false.
#[derive(Debug, Clone)]
pub(crate) enum Test {
    Constant(bool),
    /// Neither, whatever it is asked of.
    Undecided(Undecided),
    Compare(Operand, Comparison, Operand),
    Not(Box<Test>),
    All(Vec<Test>),
    Any(Vec<Test>),
    /// Shared, for a copy of a pattern has buffers of its own.
    IsMatch(Operand, Arc<regex::Regex>),
    HasPrefix(Operand, Operand),
    HasSuffix(Operand, Operand),
    /// The value is of a kind.
    Is(Operand, Sort),
    /// The first one is a list that has the second one.
    ContainsValue(Operand, Operand),
    IsRootSpan,
    HasAttribute {
        key: String,
        /// A text that the value must be equal to.
        value: Option<String>,
    },
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Text,
    Int,
    Double,
    Bool,
    Map,
    List,
}

/// A function of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    /// The texts of a list, with a text between them.
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

/// How two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Something that has a value. What may be large is shared by copies.
#[derive(Debug, Clone)]
pub(crate) enum Operand {
    Nil,
    /// Not to be found out, whatever it is asked of.
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
    /// In nanoseconds since 1970.
    Moment(i64),
    Path(Path),
    /// A path to nanoseconds since 1970, as a time.
    Time(Path),
    /// In nanoseconds.
    Duration(i64),
    /// How long a text is in bytes, or how many entries a list or a map has.
    Len(Box<Operand>),
    /// A function that is true or false, as a value.
    Truth(Box<Test>),
    List(Vec<Operand>),
    /// A list or a map, as an encoded `AnyValue`.
    Encoded(Arc<[u8]>),
    /// A function, what it is given, and what stands in brackets behind it.
    Call(Function, Vec<Operand>, Vec<Key>),
    /// Operations that bind equally, from left to right.
    Math(Box<Operand>, Vec<(Operator, Operand)>),
}

/// What is done with two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}
