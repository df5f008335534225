//! Conditions of the OpenTelemetry Transformation Language, as far as filters need them.
//!
//! Supported: `==`, `!=`, `<`, `<=`, `>`, `>=`, `and`, `or`, `not`, parentheses; texts, numbers, bytes (`0x01`), `true`,
//! `false`, `nil`, the language's names for numbers (`SPAN_KIND_SERVER`); the paths in [`path`]; the functions `IsMatch`,
//! `IsRootSpan`, `HasAttrKeyOnDatapoint`, `HasAttrOnDatapoint`, `TraceID`, `SpanID`. Comparisons follow the language's
//! rules: values of different types are not equal, whole and other numbers are compared as numbers, and nothing but `nil`
//! equals `nil`. All else is an error that says where.

mod eval;
mod lexer;
mod parser;
pub(super) mod path;

pub(super) use self::eval::{Here, ProfileFields};
pub(super) use self::parser::parse;
use self::path::{Context, Path};

/// Why a text is not a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mistake {
    /// Where, in bytes from the start of the text.
    pub(super) at: usize,
    /// What is wrong and what to do.
    pub(super) message: String,
}

/// A condition, and the level at which it is to be evaluated.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) context: Context,
    pub(super) test: Test,
    /// As it was written.
    pub(super) text: String,
}

/// Something that is true or false.
#[derive(Debug)]
pub(super) enum Test {
    Constant(bool),
    Compare(Operand, Comparison, Operand),
    Not(Box<Test>),
    All(Vec<Test>),
    Any(Vec<Test>),
    IsMatch(Operand, regex::Regex),
    IsRootSpan,
    HasAttribute {
        key: String,
        /// A text that the value must be equal to.
        value: Option<String>,
    },
}

/// How two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Something that has a value.
#[derive(Debug)]
pub(super) enum Operand {
    Nil,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// A trace id or a span id.
    Id(Vec<u8>),
    Path(Path),
}
