//! The constants of a chunk: positions by class and key. Constants are read when an event refers to them.

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::cursor::{Cursor, Text};
use super::metadata::{Metadata, Value};
use crate::builder::Builder;
use crate::error::Fault;

/// Classes of the constants that samples refer to.
const CLASSES: [&str; 8] = [
    STACK_TRACE,
    METHOD,
    CLASS,
    SYMBOL,
    STRING,
    THREAD,
    "jdk.types.FrameType",
    "jdk.types.ThreadState",
];
pub(super) const STACK_TRACE: &str = "jdk.types.StackTrace";
pub(super) const METHOD: &str = "jdk.types.Method";
pub(super) const CLASS: &str = "java.lang.Class";
pub(super) const THREAD: &str = "java.lang.Thread";
const SYMBOL: &str = "jdk.types.Symbol";
const STRING: &str = "java.lang.String";

/// Memory of the position of a constant in a table that may be half empty, in bytes.
const POSITION: usize = 64;
/// Number of positions that are accounted for together.
const CHARGED: usize = 1024;

/// The constants of a chunk.
#[derive(Debug)]
pub(super) struct Constants<'c> {
    chunk: Cursor<'c>,
    pub(super) metadata: Metadata,
    /// Index of the class in [`CLASSES`], and key.
    positions: HashMap<(usize, i64), usize, RandomState>,
    /// Memory that the permit has grown by.
    pub(super) charged: usize,
}

impl<'c> Constants<'c> {
    pub(super) fn new(chunk: Cursor<'c>, metadata: Metadata) -> Self {
        Constants {
            chunk,
            metadata,
            positions: HashMap::default(),
            charged: 0,
        }
    }

    /// Notes the positions of the constants in a checkpoint event. The cursor is behind the event's type.
    pub(super) fn add(
        &mut self,
        cursor: &mut Cursor<'c>,
        builder: &mut Builder<'_>,
    ) -> Result<(), Fault> {
        // Start time, duration, and distance to the previous checkpoint.
        for _ in 0..3 {
            cursor.long()?;
        }
        cursor.byte()?;
        for _ in 0..cursor.count()? {
            let id = cursor.long()?;
            let name = self.metadata.name(id);
            let class = CLASSES.iter().position(|class| *class == name);
            let count = cursor.count()?;
            if count > 0 {
                self.metadata.check(cursor, id)?;
            }
            for _ in 0..count {
                let key = cursor.long()?;
                if let Some(class) = class {
                    if self.positions.len().is_multiple_of(CHARGED) {
                        builder.grow(CHARGED * POSITION)?;
                        self.charged += CHARGED * POSITION;
                    }
                    self.positions.insert((class, key), cursor.at());
                }
                self.metadata.skip_constant(cursor, id)?;
            }
        }
        Ok(())
    }

    /// Returns the position of a constant.
    pub(super) fn find(&self, class: &str, key: i64) -> Option<Cursor<'c>> {
        let class = CLASSES.iter().position(|other| *other == class)?;
        let at = self.positions.get(&(class, key))?;
        Some(self.chunk.moved(*at))
    }

    /// Calls `each` with the fields of a constant, if the constant exists.
    pub(super) fn visit(
        &self,
        class: &str,
        key: i64,
        each: &mut dyn FnMut(&str, Value<'c>),
    ) -> Result<(), Fault> {
        let (Some(mut cursor), Some(id)) = (self.find(class, key), self.metadata.id(class)) else {
            return Ok(());
        };
        let mut each = |field: &super::metadata::Field, value: Value<'c>| each(&field.name, value);
        self.metadata.visit(&mut cursor, id, &mut each)
    }

    /// Returns the text of a field, which may be a reference; empty if the text is missing.
    pub(super) fn text(&self, text: Value<'c>) -> Result<Cow<'c, str>, Fault> {
        let key = match text {
            Value::Text(Text::Here(text)) => return Ok(text),
            Value::Text(Text::Constant(key)) => key,
            // The class of the constant is the class of the field: a symbol, or a constant with one text.
            Value::Number(key) => return self.symbol(key),
            _ => return Ok(Cow::default()),
        };
        let Some(mut cursor) = self.find(STRING, key) else {
            return Ok(Cow::default());
        };
        match cursor.text()? {
            Text::Here(text) => Ok(text),
            _ => Ok(Cow::default()),
        }
    }

    fn symbol(&self, key: i64) -> Result<Cow<'c, str>, Fault> {
        self.name(SYMBOL, key)
    }

    /// Returns the text of a constant that has one text; empty if the constant is missing.
    pub(super) fn name(&self, class: &str, key: i64) -> Result<Cow<'c, str>, Fault> {
        let mut name = Value::Text(Text::None);
        self.visit(class, key, &mut |_, value| name = value)?;
        match name {
            // A constant does not refer to further symbols.
            Value::Text(_) => self.text(name),
            _ => Ok(Cow::default()),
        }
    }
}
