//! Stacks, methods and threads of a chunk, each converted once.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use tributary_profiles::id::{AttributeSetId, LocationId, StackId};

use super::constants::{CLASS, Constants, METHOD, STACK_TRACE, THREAD};
use super::cursor::{Cursor, Text};
use super::metadata::Value;
use crate::builder::{Builder, Frame};
use crate::error::Fault;

/// Memory of a converted frame, class or thread in a table that may be half empty, in bytes.
const CONVERTED: usize = 96;

/// Attribute with the number of the context in which a sample was taken. Grafana's fork of async-profiler sends the labels
/// of each context beside the recording.
pub const CONTEXT: &str = "jfr.context_id";

/// Converted constants of a chunk.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    /// By method, line, and frame type.
    frames: HashMap<(i64, i64, i64), LocationId, RandomState>,
    /// By stack, and class of an object or 0.
    stacks: HashMap<(i64, i64), StackId, RandomState>,
    classes: HashMap<i64, LocationId, RandomState>,
    /// By thread and context.
    threads: HashMap<(i64, i64), AttributeSetId, RandomState>,
    locations: Vec<LocationId>,
    /// Whether frames of the type `Native` are C functions, as in recordings of async-profiler; else Java methods.
    has_native_code: bool,
}

impl Stacks {
    pub(super) fn new(constants: &Constants<'_>) -> Result<Self, Fault> {
        let mut stacks = Stacks::default();
        // The types of the JDK are Interpreted, JIT compiled, Inlined and Native. async-profiler adds C++ and Kernel.
        for kind in 0..16 {
            stacks.has_native_code |= constants.name("jdk.types.FrameType", kind)? == "Kernel";
        }
        Ok(stacks)
    }

    /// Memory of the tables, in bytes.
    pub(super) fn bytes(&self) -> usize {
        (self.frames.len() + self.stacks.len() + self.classes.len() + self.threads.len())
            * CONVERTED
    }

    /// Converts a stack, with the class of an object as its leaf if there is one, like async-profiler's converter.
    pub(super) fn stack(
        &mut self,
        constants: &Constants<'_>,
        builder: &mut Builder<'_>,
        stack: i64,
        class: i64,
    ) -> Result<StackId, Fault> {
        if let Some(known) = self.stacks.get(&(stack, class)) {
            return Ok(*known);
        }
        let mut locations = std::mem::take(&mut self.locations);
        locations.clear();
        if class != 0 {
            locations.push(self.class(constants, builder, class)?);
        }
        if let (Some(cursor), Some(id)) = (
            constants.find(STACK_TRACE, stack),
            constants.metadata.id(STACK_TRACE),
        ) {
            let mut frames = cursor;
            constants
                .metadata
                .visit(&mut { cursor }, id, &mut |field, value| {
                    if let ("frames", Value::Parts(at)) = (&*field.name, value) {
                        frames = cursor.moved(at);
                    }
                })?;
            let (mut method, mut line, mut kind) = (0, 0, 0);
            constants
                .metadata
                .elements(&mut frames, id, "frames", &mut |part| {
                    match part {
                        Some((field, Value::Number(number))) => match &*field.name {
                            "method" => method = number,
                            "lineNumber" => line = number,
                            "type" => kind = number,
                            _ => {}
                        },
                        Some(_) => {}
                        None => {
                            let key = (method, line, kind);
                            let location = match self.frames.get(&key) {
                                Some(location) => *location,
                                None => {
                                    let location = self.frame(constants, builder, key)?;
                                    self.frames.insert(key, location);
                                    location
                                }
                            };
                            locations.push(location);
                            (method, line, kind) = (0, 0, 0);
                        }
                    }
                    Ok(())
                })?;
        }
        let id = builder.stack(&locations)?;
        self.locations = locations;
        self.stacks.insert((stack, class), id);
        Ok(id)
    }

    fn frame(
        &self,
        constants: &Constants<'_>,
        builder: &mut Builder<'_>,
        (method, line, kind): (i64, i64, i64),
    ) -> Result<LocationId, Fault> {
        let (mut class, mut name) = (0, Value::Text(Text::None));
        constants.visit(METHOD, method, &mut |field, value| match (field, value) {
            ("type", Value::Number(key)) => class = key,
            ("name", value) => name = value,
            _ => {}
        })?;
        let name = constants.text(name)?;
        let mut class_name = Value::Text(Text::None);
        constants.visit(CLASS, class, &mut |field, value| {
            if field == "name" {
                class_name = value;
            }
        })?;
        let class = constants.text(class_name)?.replace('/', ".");
        let kind = match &*constants.name("jdk.types.FrameType", kind)? {
            "Kernel" => "kernel",
            "C++" => "native",
            "Native" if self.has_native_code => "native",
            _ => "jvm",
        };
        let full = match (kind, &*class, &*name) {
            ("jvm", "", "") => "unknown".to_owned(),
            ("jvm", "", name) => name.to_owned(),
            ("jvm", class, "") => class.to_owned(),
            ("jvm", class, name) => format!("{class}.{name}"),
            (_, _, name) => name.to_owned(),
        };
        let frame = Frame {
            name: &full,
            line,
            kind,
            ..Frame::default()
        };
        builder.frame(&frame)
    }

    fn class(
        &mut self,
        constants: &Constants<'_>,
        builder: &mut Builder<'_>,
        key: i64,
    ) -> Result<LocationId, Fault> {
        if let Some(location) = self.classes.get(&key) {
            return Ok(*location);
        }
        let mut name = Value::Text(Text::None);
        constants.visit(CLASS, key, &mut |field, value| {
            if field == "name" {
                name = value;
            }
        })?;
        let frame = Frame {
            name: &class_name(&constants.text(name)?),
            kind: "jvm",
            ..Frame::default()
        };
        let location = builder.frame(&frame)?;
        self.classes.insert(key, location);
        Ok(location)
    }

    /// Converts the name and the id of a thread in the operating system, or of a virtual thread, with the number of a
    /// context unless it is 0.
    pub(super) fn thread(
        &mut self,
        constants: &Constants<'_>,
        builder: &mut Builder<'_>,
        key: i64,
        context: i64,
    ) -> Result<AttributeSetId, Fault> {
        if let Some(thread) = self.threads.get(&(key, context)) {
            return Ok(*thread);
        }
        let (mut java, mut os) = (Value::Text(Text::None), Value::Text(Text::None));
        let (mut java_id, mut os_id) = (0, 0);
        constants.visit(THREAD, key, &mut |field, value| match (field, value) {
            ("javaName", value) => java = value,
            ("osName", value) => os = value,
            ("javaThreadId", Value::Number(id)) => java_id = id,
            ("osThreadId", Value::Number(id)) => os_id = id,
            _ => {}
        })?;
        let name = match constants.text(java)? {
            name if name.is_empty() => constants.text(os)?,
            name => name,
        };
        let id = [os_id, java_id].into_iter().find(|id| *id > 0);
        let mut thread = builder.thread(&name, id)?;
        if context != 0 {
            let mut attributes = builder.dictionary.attributes(thread).to_vec();
            attributes.push(builder.number(CONTEXT, context)?);
            thread = builder.dictionary.attribute_set(&attributes);
        }
        self.threads.insert((key, context), thread);
        Ok(thread)
    }
}

/// Returns the name of a class as in Java: `[Ljava/lang/String;` is `java.lang.String[]`.
fn class_name(symbol: &str) -> String {
    let element = symbol.trim_start_matches('[');
    let dimensions = symbol.len() - element.len();
    let name = match (dimensions, element) {
        (0, name) => name,
        (_, "B") => "byte",
        (_, "C") => "char",
        (_, "S") => "short",
        (_, "I") => "int",
        (_, "J") => "long",
        (_, "Z") => "boolean",
        (_, "F") => "float",
        (_, "D") => "double",
        (_, name) => name
            .strip_prefix('L')
            .and_then(|name| name.strip_suffix(';'))
            .unwrap_or(name),
    };
    name.replace('/', ".") + &"[]".repeat(dimensions)
}

/// Returns a cursor behind the size and the type of an event, with the type and the end of the event.
pub(super) fn event<'c>(cursor: Cursor<'c>) -> Result<(Cursor<'c>, i64, usize), Fault> {
    let start = cursor.at();
    let mut inside = cursor;
    let size = inside.count()?;
    let end = start.saturating_add(size);
    if size == 0 || end > cursor.end() {
        return Err(cursor.fault(format!(
            "an event has {size} bytes; the recording is damaged"
        )));
    }
    inside = inside.until(end);
    let kind = inside.long()?;
    Ok((inside, kind, end))
}
