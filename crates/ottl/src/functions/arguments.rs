//! Arguments of a call.

use std::borrow::Cow;

use crate::Operand;
use crate::target::EvaluationTarget;
use crate::value::{Moment, Undecided, Value};

/// The evaluated arguments of a call, by the position of their parameters.
pub(crate) struct Arguments<'c, 'v> {
    values: &'c mut [Option<Value<'v>>],
    pub(crate) here: &'c EvaluationTarget<'v>,
}

type Entries<'v> = Vec<(Cow<'v, str>, Value<'v>)>;

impl<'c, 'v> Arguments<'c, 'v> {
    pub(crate) fn new(values: &'c mut [Option<Value<'v>>], here: &'c EvaluationTarget<'v>) -> Self {
        Arguments { values, here }
    }

    /// Returns an argument; `nil` if it is missing.
    pub(crate) fn value(&self, at: usize) -> &Value<'v> {
        self.get(at).unwrap_or(&Value::Nil)
    }

    /// Returns an argument by value.
    pub(crate) fn take(&mut self, at: usize) -> Value<'v> {
        let value = self.values.get_mut(at).and_then(Option::take);
        value.unwrap_or(Value::Nil)
    }

    /// Returns an optional argument.
    pub(crate) fn get(&self, at: usize) -> Option<&Value<'v>> {
        self.values.get(at).and_then(Option::as_ref)
    }

    pub(crate) fn text(&self, at: usize) -> Result<&str, Undecided> {
        self.value(at).plain_text()
    }

    pub(crate) fn take_text(&mut self, at: usize) -> Result<Cow<'v, str>, Undecided> {
        match self.take(at) {
            Value::Text(text) => Ok(text),
            _ => Err(Undecided::NoText),
        }
    }

    /// Returns the text of an optional argument.
    pub(crate) fn text_or<'a>(&'a self, at: usize, default: &'a str) -> Result<&'a str, Undecided> {
        match self.get(at) {
            Some(value) => value.plain_text(),
            None => Ok(default),
        }
    }

    pub(crate) fn int(&self, at: usize) -> Result<i64, Undecided> {
        match self.value(at) {
            Value::Int(value) => Ok(*value),
            _ => Err(Undecided::NoInt),
        }
    }

    /// Returns an optional argument that is true or false.
    pub(crate) fn bool_or(&self, at: usize, default: bool) -> bool {
        match self.get(at) {
            Some(Value::Bool(value)) => *value,
            _ => default,
        }
    }

    pub(crate) fn time(&self, at: usize) -> Result<Moment, Undecided> {
        match self.value(at) {
            Value::Time(time) => Ok(*time),
            _ => Err(Undecided::NoTime),
        }
    }

    pub(crate) fn duration(&self, at: usize) -> Result<i64, Undecided> {
        match self.value(at) {
            Value::Duration(duration) => Ok(*duration),
            _ => Err(Undecided::NoDuration),
        }
    }

    pub(crate) fn list(&mut self, at: usize) -> Result<Vec<Value<'v>>, Undecided> {
        self.take(at).into_list()
    }

    pub(crate) fn map(&mut self, at: usize) -> Result<Entries<'v>, Undecided> {
        self.take(at).into_map()
    }

    pub(crate) fn pattern(&self, at: usize) -> Result<&'v regex::Regex, Undecided> {
        match self.value(at) {
            Value::Pattern(pattern) => Ok(pattern),
            _ => Err(Undecided::NoText),
        }
    }

    /// Returns the bytes of a text, bytes or a scalar; `None` for `nil`.
    pub(crate) fn bytes(&self, at: usize) -> Result<Option<Cow<'_, [u8]>>, Undecided> {
        Ok(Some(match self.value(at) {
            Value::Nil => return Ok(None),
            Value::Bytes(bytes) => Cow::Borrowed(bytes),
            Value::Text(text) => Cow::Borrowed(text.as_bytes()),
            Value::Int(value) => Cow::Owned(value.to_be_bytes().to_vec()),
            Value::Double(value) => Cow::Owned(value.to_be_bytes().to_vec()),
            Value::Bool(value) => Cow::Owned(vec![u8::from(*value)]),
            _ => return Err(Undecided::Because("a value has no bytes")),
        }))
    }
}

/// Arguments in a configuration, as far as they are literals.
pub(crate) struct Literals<'a>(pub(crate) &'a [Option<Operand>]);

impl<'a> Literals<'a> {
    pub(crate) fn text(&self, at: usize) -> Option<&'a str> {
        match self.0.get(at)? {
            Some(Operand::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn int(&self, at: usize) -> Option<i64> {
        match self.0.get(at)? {
            Some(Operand::Int(value)) => Some(*value),
            _ => None,
        }
    }

    /// Returns the number of elements of a list.
    pub(crate) fn list_len(&self, at: usize) -> Option<usize> {
        match self.0.get(at)? {
            Some(Operand::List(values)) => Some(values.len()),
            _ => None,
        }
    }

    /// Whether the argument is given.
    pub(crate) fn has(&self, at: usize) -> bool {
        self.0.get(at).is_some_and(Option::is_some)
    }
}
