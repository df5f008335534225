//! From a range to its frames.

use super::Source;
use super::format::{DEEPEST, FILE, FUNCTION, Varints, u32_at};

/// A frame: a function, and where in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The name for people: demangled.
    pub function: &'a str,
    /// The name for the linker: as it was.
    pub system_name: &'a str,
    /// The path of the source file; empty if it is not known.
    pub file: &'a str,
    /// The line; 0 if it is not known, or no line's code.
    pub line: u32,
    /// The line where the function begins; 0 if it is not known.
    pub start_line: u32,
    /// The column, from 1; 0 if it is not known.
    pub column: u32,
    /// Whether the function was inlined into that of the next frame.
    pub inlined: bool,
}

/// The frames at an address, innermost first.
#[derive(Debug, Clone)]
pub struct Frames<'a> {
    tables: Tables<'a>,
    source: Option<Source>,
    /// 0 behind the last one.
    context: u32,
    place: Place,
    left: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Tables<'a> {
    pub(super) contexts: &'a [u8],
    pub(super) functions: &'a [u8],
    pub(super) files: &'a [u8],
    pub(super) strings: &'a [u8],
}

/// Where in a function; the file is that of the function if it is none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) file: Option<u32>,
    pub(super) line: u32,
    pub(super) column: u32,
}

impl<'a> Frames<'a> {
    pub(super) fn new(tables: Tables<'a>, source: Source, context: u32, place: Place) -> Self {
        Frames {
            tables,
            source: Some(source),
            context,
            place,
            left: DEEPEST,
        }
    }

    pub(super) fn none() -> Self {
        const EMPTY: Tables<'static> = Tables {
            contexts: &[],
            functions: &[],
            files: &[],
            strings: &[],
        };
        Frames {
            tables: EMPTY,
            source: None,
            context: 0,
            place: Place {
                file: None,
                line: 0,
                column: 0,
            },
            left: 0,
        }
    }

    /// Where they come from; `None` where nothing is known.
    pub fn source(&self) -> Option<Source> {
        self.source
    }

    fn read(&mut self) -> Option<Frame<'a>> {
        let at = self.context;
        let mut context = Varints(self.tables.contexts.get(at as usize..)?);
        let function = self.tables.function(context.next_u32()?)?;
        let place = self.place;
        let distance = context.next_u32()?;
        self.context = 0;
        if distance != 0 {
            let file = context.next_u32()?.checked_sub(1);
            self.place = Place {
                file,
                line: context.next_u32()?,
                column: context.next_u32()?,
            };
            // Smaller than this one: there is no circle.
            self.context = at.checked_sub(distance)?;
        }
        let name = self.tables.string(function.name)?;
        Some(Frame {
            function: name,
            // The same string for most of what is no mangled name.
            system_name: match function.system_name == function.name {
                true => name,
                false => self.tables.string(function.system_name)?,
            },
            file: self.tables.file(place.file.unwrap_or(function.file))?,
            line: place.line,
            start_line: function.start_line,
            column: place.column,
            inlined: distance != 0,
        })
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        if self.context == 0 || self.left == 0 {
            return None;
        }
        self.left -= 1;
        let frame = self.read();
        if frame.is_none() {
            self.context = 0;
        }
        frame
    }
}

struct Function {
    name: u32,
    system_name: u32,
    file: u32,
    start_line: u32,
}

impl<'a> Tables<'a> {
    fn function(&self, id: u32) -> Option<Function> {
        let at = (id as usize).checked_mul(FUNCTION)?;
        let entry = self.functions.get(at..)?.first_chunk::<FUNCTION>()?;
        Some(Function {
            name: u32_at(entry, 0)?,
            system_name: u32_at(entry, 4)?,
            file: u32_at(entry, 8)?,
            start_line: u32_at(entry, 12)?,
        })
    }

    fn file(&self, id: u32) -> Option<&'a str> {
        let at = (id as usize).checked_mul(FILE)?;
        self.string(u32_at(self.files, at)?)
    }

    fn string(&self, at: u32) -> Option<&'a str> {
        let mut rest = Varints(self.strings.get(at as usize..)?);
        let length = usize::try_from(rest.next()?).ok()?;
        std::str::from_utf8(rest.0.get(..length)?).ok()
    }
}
