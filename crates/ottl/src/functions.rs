//! Functions that return a value ("converters" in the language's documentation).
//!
//! [`all`] lists them. Each has a row with its parameters in a module by subject. Names, parameters and results are
//! those of contrib's `pkg/ottl/ottlfuncs`.

mod arguments;
mod codes;
mod hashes;
mod kinds;
mod lists;
mod networks;
mod numbers;
mod parse;
mod telemetry;
#[cfg(test)]
mod tests;
mod text_cases;
mod texts;
mod time_formats;
mod times;
mod zones;

pub(crate) use self::arguments::{Arguments, Literals};
pub(crate) use self::lists::{append, delete_index};
use super::path::Context;
use super::value::{Undecided, Value};

/// A function of the language.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) parameters: &'static [Parameter],
    pub(crate) call: Implementation,
    /// Checks the arguments that are literals.
    pub(crate) check: Option<Check>,
    /// Context whose current part the function reads.
    pub(crate) reads: Option<Context>,
    /// Whether equal arguments have equal results.
    pub(crate) is_pure: bool,
}

/// A check of the arguments that are literals.
pub(crate) type Check = fn(&Literals<'_>) -> Result<(), String>;

/// The implementation of a function.
pub(crate) type Implementation = for<'v> fn(&mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided>;

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A parameter of a function or of an editor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: ParameterKind,
    pub(crate) is_optional: bool,
}

/// Values that a parameter accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterKind {
    Any,
    /// A text. A literal of another type is an error.
    Text,
    /// A whole number. A literal of another type is an error.
    Int,
    /// A list in brackets, of any values.
    List,
    LiteralText,
    LiteralInt,
    LiteralDouble,
    LiteralBool,
    /// A list of literal texts.
    LiteralTexts,
    /// A regular expression, as a literal text.
    Pattern,
    /// A glob, as a literal text.
    Glob,
    /// The name of a function with one parameter.
    Function,
}

impl Parameter {
    pub(crate) const fn new(name: &'static str, kind: ParameterKind) -> Self {
        Parameter {
            name,
            kind,
            is_optional: false,
        }
    }

    pub(crate) const fn optional(name: &'static str, kind: ParameterKind) -> Self {
        Parameter {
            name,
            kind,
            is_optional: true,
        }
    }
}

impl Function {
    const fn new(
        name: &'static str,
        parameters: &'static [Parameter],
        call: Implementation,
    ) -> Self {
        Function {
            name,
            parameters,
            call,
            check: None,
            reads: None,
            is_pure: true,
        }
    }

    const fn checked(mut self, check: Check) -> Self {
        self.check = Some(check);
        self
    }

    const fn reads(mut self, context: Context) -> Self {
        self.reads = Some(context);
        self.is_pure = false;
        self
    }

    const fn impure(mut self) -> Self {
        self.is_pure = false;
        self
    }
}

/// The parameter of functions with one argument.
const TARGET: Parameter = Parameter::new("target", ParameterKind::Any);
/// The parameter of functions of one text.
const TARGET_TEXT: Parameter = Parameter::new("target", ParameterKind::Text);

/// Returns all functions.
pub(crate) fn all() -> impl Iterator<Item = &'static Function> {
    [
        texts::ALL,
        text_cases::ALL,
        codes::ALL,
        hashes::ALL,
        kinds::ALL,
        lists::ALL,
        networks::ALL,
        numbers::ALL,
        parse::ALL,
        telemetry::ALL,
        times::ALL,
    ]
    .into_iter()
    .flatten()
}

/// Returns the function of that name.
pub(crate) fn of_name(name: &str) -> Option<&'static Function> {
    all().find(|function| function.name == name)
}
