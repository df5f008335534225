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
#[derive(Debug)]
pub(super) struct Stacks {
    /// Values of `profile.frame.type`, by the key of the frame type.
    kinds: Vec<&'static str>,
    /// By method, line, and frame type.
    frames: HashMap<(i64, i64, i64), LocationId, RandomState>,
    stacks: HashMap<i64, StackId, RandomState>,
    /// Stacks with the class of an object as their leaf.
    with_class: HashMap<(StackId, LocationId), StackId, RandomState>,
    classes: HashMap<i64, LocationId, RandomState>,
    /// By thread and context.
    threads: HashMap<(i64, i64), AttributeSetId, RandomState>,
    locations: Vec<LocationId>,
}

impl Stacks {
    pub(super) fn new(constants: &Constants<'_>) -> Result<Self, Fault> {
        let names = constants.enumeration("jdk.types.FrameType")?;
        // The types of the JDK are Interpreted, JIT compiled, Inlined and Native, where Native is a Java method.
        // async-profiler adds C++ and Kernel, and Native is a C function.
        let has_native_code = names.iter().any(|name| name == "Kernel");
        let kinds = names.iter().map(|name| match &**name {
            "Kernel" => "kernel",
            "C++" => "native",
            "Native" if has_native_code => "native",
            _ => "jvm",
        });
        Ok(Stacks {
            kinds: kinds.collect(),
            frames: HashMap::default(),
            stacks: HashMap::default(),
            with_class: HashMap::default(),
            classes: HashMap::default(),
            threads: HashMap::default(),
            locations: Vec::new(),
        })
    }

    /// Memory of the tables, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let stacks = self.stacks.len() + self.with_class.len();
        (self.frames.len() + stacks + self.classes.len() + self.threads.len()) * CONVERTED
    }

    /// Converts a stack, with the class of an object as its leaf unless the class is 0, like async-profiler's converter.
    pub(super) fn stack(
        &mut self,
        constants: &Constants<'_>,
        builder: &mut Builder<'_>,
        stack: i64,
        class: i64,
    ) -> Result<StackId, Fault> {
        let stack = match self.stacks.get(&stack) {
            Some(known) => *known,
            None => self.plain(constants, builder, stack)?,
        };
        if class == 0 {
            return Ok(stack);
        }
        let class = self.class(constants, builder, class)?;
        if let Some(known) = self.with_class.get(&(stack, class)) {
            return Ok(*known);
        }
        self.locations.clear();
        self.locations.push(class);
        self.locations.extend(builder.dictionary.locations(stack));
        let id = builder.stack(&self.locations)?;
        self.with_class.insert((stack, class), id);
        Ok(id)
    }

    fn plain(
        &mut self,
        constants: &Constants<'_>,
        builder: &mut Builder<'_>,
        stack: i64,
    ) -> Result<StackId, Fault> {
        let mut locations = std::mem::take(&mut self.locations);
        locations.clear();
        if let (Some(cursor), Some(id)) = (
            constants.find(STACK_TRACE, stack),
            constants.metadata.id(STACK_TRACE),
        ) {
            let mut frames = None;
            constants
                .metadata
                .visit(&mut { cursor }, id, &mut |field, value| {
                    if let ("frames", Value::Parts(at)) = (&*field.name, value) {
                        frames = Some(cursor.moved(at));
                    }
                })?;
            if let Some(mut frames) = frames {
                self.add_frames(constants, builder, &mut frames, id, &mut locations)?;
            }
        }
        let id = builder.stack(&locations)?;
        self.locations = locations;
        self.stacks.insert(stack, id);
        Ok(id)
    }

    fn add_frames<'c>(
        &mut self,
        constants: &Constants<'c>,
        builder: &mut Builder<'_>,
        frames: &mut Cursor<'c>,
        class: i64,
        locations: &mut Vec<LocationId>,
    ) -> Result<(), Fault> {
        let (mut method, mut line, mut kind) = (0, 0, 0);
        constants
            .metadata
            .elements(frames, class, "frames", &mut |part| {
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
            })
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
        let kind = usize::try_from(kind)
            .ok()
            .and_then(|kind| self.kinds.get(kind));
        let kind = kind.copied().unwrap_or("jvm");
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
        if context != 0 {
            let thread = self.thread(constants, builder, key, 0)?;
            let mut attributes = builder.dictionary.attributes(thread).to_vec();
            attributes.push(builder.number(CONTEXT, context)?);
            let thread = builder.dictionary.attribute_set(&attributes);
            self.threads.insert((key, context), thread);
            return Ok(thread);
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
        let thread = builder.thread(&name, id)?;
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
