//! The metadata of a chunk: which fields the events and constants have.

use std::collections::HashMap;
use std::rc::Rc;

use foldhash::fast::RandomState;

use super::cursor::{Cursor, Text};
use crate::error::Fault;

/// Maximum size of the metadata, in bytes. That of a JDK has about 100 KB.
pub(super) const MOST: usize = 4 << 20;
/// Maximum number of classes. A JDK has about 1,500.
const CLASSES: usize = 1 << 14;
/// Maximum number of fields of one class, with those of the classes inside.
const FIELDS: usize = 4096;
/// Maximum depth of metadata elements, and of values inside values.
const DEPTH: usize = 16;

/// A field of a class.
#[derive(Debug, Clone, Default)]
pub(super) struct Field {
    pub(super) name: Rc<str>,
    class: i64,
    /// Whether the value is the key of a constant.
    pub(super) is_constant: bool,
    is_array: bool,
}

#[derive(Debug, Default)]
struct Class {
    name: Rc<str>,
    fields: Vec<Field>,
}

/// A value of a field.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'c> {
    /// An integer, or the key of a constant.
    Number(i64),
    Text(Text<'c>),
    /// A value of several parts, at this position.
    Parts(usize),
}

/// The classes of a chunk.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    classes: HashMap<i64, Class, RandomState>,
    ids: HashMap<Rc<str>, i64, RandomState>,
}

impl Metadata {
    /// Reads the metadata event at the position of the cursor.
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self, Fault> {
        let start = cursor.at();
        let size = cursor.count()?;
        if size > MOST {
            return Err(cursor.fault(format!("the metadata has {size} bytes, more than {MOST}")));
        }
        *cursor = cursor.until(start.saturating_add(size));
        if cursor.long()? != 0 {
            return Err(cursor.moved(start).fault("the metadata event is missing"));
        }
        // Start time, duration, and id.
        for _ in 0..3 {
            cursor.long()?;
        }
        let mut texts = Vec::new();
        for _ in 0..cursor.count()? {
            texts.push(match cursor.text()? {
                Text::Here(text) => text.into(),
                _ => Rc::default(),
            });
        }
        let mut metadata = Metadata::default();
        metadata.element(cursor, &texts, None, DEPTH)?;
        let classes = metadata.classes.iter();
        metadata.ids = classes
            .map(|(id, class)| (Rc::clone(&class.name), *id))
            .collect();
        Ok(metadata)
    }

    fn element(
        &mut self,
        cursor: &mut Cursor<'_>,
        texts: &[Rc<str>],
        mut class: Option<i64>,
        depth: usize,
    ) -> Result<(), Fault> {
        if depth == 0 {
            return Err(cursor.fault(format!("metadata has more than {DEPTH} levels")));
        }
        let kind = text(cursor, texts)?;
        let (mut field, mut id) = (Field::default(), None);
        for _ in 0..cursor.count()? {
            let (key, value) = (text(cursor, texts)?, text(cursor, texts)?);
            match &**key {
                "name" => field.name = Rc::clone(value),
                "id" => id = value.parse().ok(),
                "class" => field.class = value.parse().unwrap_or_default(),
                "constantPool" => field.is_constant = **value == *"true",
                "dimension" => field.is_array = **value != *"0",
                _ => {}
            }
        }
        match (&**kind, id, class) {
            ("class", Some(id), _) => {
                if self.classes.len() == CLASSES {
                    return Err(cursor.fault(format!("metadata has more than {CLASSES} classes")));
                }
                class = Some(id);
                let name = field.name;
                self.classes.insert(
                    id,
                    Class {
                        name,
                        fields: Vec::new(),
                    },
                );
            }
            ("field", _, Some(of)) => {
                if let Some(class) = self.classes.get_mut(&of) {
                    class.fields.push(field);
                }
            }
            _ => {}
        }
        for _ in 0..cursor.count()? {
            self.element(cursor, texts, class, depth - 1)?;
        }
        Ok(())
    }

    /// Returns the id of a class.
    pub(super) fn id(&self, name: &str) -> Option<i64> {
        self.ids.get(name).copied()
    }

    /// Returns the name of a class.
    pub(super) fn name(&self, id: i64) -> &str {
        self.classes.get(&id).map_or("", |class| &class.name)
    }

    /// Fails unless values of a class have at least one byte and a bounded number of fields, so that the time to read
    /// values is proportional to their bytes.
    pub(super) fn check(&self, cursor: &Cursor<'_>, class: i64) -> Result<(), Fault> {
        match self.is_usable(class, DEPTH, &mut { FIELDS }) {
            true => Ok(()),
            false => {
                let name = self.name(class);
                Err(cursor.fault(format!(
                    "class {class} `{name}` is not described by the metadata"
                )))
            }
        }
    }

    fn is_usable(&self, class: i64, depth: usize, fields: &mut usize) -> bool {
        let Some(class) = self.classes.get(&class) else {
            return false;
        };
        if depth == 0 {
            return false;
        }
        if is_primitive(&class.name) {
            return true;
        }
        !class.fields.is_empty()
            && class.fields.iter().all(|field| {
                let left = fields.checked_sub(1);
                *fields = left.unwrap_or_default();
                left.is_some()
                    && (field.is_constant
                        || field.is_array
                        || self.is_usable(field.class, depth - 1, fields))
            })
    }

    /// Reads a value of a class that was [checked](Self::check), and calls `each` with the fields.
    pub(super) fn visit<'c>(
        &self,
        cursor: &mut Cursor<'c>,
        class: i64,
        each: &mut dyn FnMut(&Field, Value<'c>),
    ) -> Result<(), Fault> {
        let Some(class) = self.classes.get(&class) else {
            return Ok(());
        };
        for field in &class.fields {
            let value = self.value(cursor, field)?;
            each(field, value);
        }
        Ok(())
    }

    /// Reads the elements of an array of a class's field at the position of the cursor, and calls `each` with the fields
    /// of each element, and with `None` after each element.
    pub(super) fn elements<'c>(
        &self,
        cursor: &mut Cursor<'c>,
        class: i64,
        field: &str,
        each: &mut dyn FnMut(Option<(&Field, Value<'c>)>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let fields = self
            .classes
            .get(&class)
            .map(|class| class.fields.as_slice());
        let mut fields = fields.unwrap_or_default().iter();
        let Some(field) = fields.find(|other| &*other.name == field) else {
            return Ok(());
        };
        let element = self.classes.get(&field.class);
        let fields = element
            .map(|class| class.fields.as_slice())
            .unwrap_or_default();
        self.check(cursor, field.class)?;
        for _ in 0..cursor.count()? {
            for field in fields {
                let value = self.value(cursor, field)?;
                each(Some((field, value)))?;
            }
            each(None)?;
        }
        Ok(())
    }

    fn value<'c>(&self, cursor: &mut Cursor<'c>, field: &Field) -> Result<Value<'c>, Fault> {
        let at = cursor.at();
        if !field.is_array {
            if field.is_constant {
                return Ok(Value::Number(cursor.long()?));
            }
            if let Some(value) = primitive(cursor, self.name(field.class))? {
                return Ok(value);
            }
        }
        self.skip(cursor, field, DEPTH)?;
        Ok(Value::Parts(at))
    }

    fn skip(&self, cursor: &mut Cursor<'_>, field: &Field, depth: usize) -> Result<(), Fault> {
        if depth == 0 {
            return Err(cursor.fault(format!("a value has more than {DEPTH} levels")));
        }
        let count = match field.is_array {
            true => cursor.count()?,
            false => 1,
        };
        if field.is_array && count > 0 && !field.is_constant {
            self.check(cursor, field.class)?;
        }
        for _ in 0..count {
            if field.is_constant {
                cursor.long()?;
            } else if primitive(cursor, self.name(field.class))?.is_none() {
                let class = self.classes.get(&field.class);
                for field in class
                    .map(|class| class.fields.as_slice())
                    .unwrap_or_default()
                {
                    self.skip(cursor, field, depth - 1)?;
                }
            }
        }
        Ok(())
    }

    /// Skips a constant of a class that was [checked](Self::check).
    pub(super) fn skip_constant(&self, cursor: &mut Cursor<'_>, class: i64) -> Result<(), Fault> {
        let field = Field {
            class,
            ..Field::default()
        };
        self.skip(cursor, &field, DEPTH)
    }
}

fn text<'t>(cursor: &mut Cursor<'_>, texts: &'t [Rc<str>]) -> Result<&'t Rc<str>, Fault> {
    let (index, count) = (cursor.count()?, texts.len());
    let text = texts.get(index);
    text.ok_or_else(|| cursor.fault(format!("metadata refers to text {index} of {count}")))
}

fn is_primitive(class: &str) -> bool {
    matches!(
        class,
        "boolean"
            | "byte"
            | "char"
            | "short"
            | "int"
            | "long"
            | "float"
            | "double"
            | "java.lang.String"
    )
}

/// Reads a value of a primitive class; `None` for other classes.
fn primitive<'c>(cursor: &mut Cursor<'c>, class: &str) -> Result<Option<Value<'c>>, Fault> {
    let number = match class {
        "boolean" | "byte" => i64::from(cursor.byte()?),
        "char" | "short" => cursor.integer(2)?,
        "int" => cursor.integer(4)?,
        "long" => cursor.long()?,
        "float" => {
            let number = f32::from_be_bytes(cursor.array()?);
            number as i64
        }
        "double" => {
            let number = f64::from_be_bytes(cursor.array()?);
            number as i64
        }
        "java.lang.String" => return Ok(Some(Value::Text(cursor.text()?))),
        _ => return Ok(None),
    };
    Ok(Some(Value::Number(number)))
}
