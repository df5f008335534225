//! From a range to its frames.

use super::Source;
use super::format::{DEEPEST, Varints};

/// A function, as the code in one of its files has it. What it is called [`Names`](super::Names) says, best once for all
/// frames in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FunctionId {
    /// Its number in the symbol file.
    pub(super) number: u32,
    /// The file of the code, if it is not that of the function.
    pub(super) file: Option<u32>,
}

/// A frame: a function, and where in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The function.
    pub function: FunctionId,
    /// The line; 0 if it is not known, or no line's code.
    pub line: u32,
    /// The column, from 1; 0 if it is not known.
    pub column: u32,
    /// Whether the function was inlined into that of the next frame.
    pub inlined: bool,
}

/// The frames at an address, innermost first.
#[derive(Debug, Clone)]
pub struct Frames<'a> {
    contexts: &'a [u8],
    source: Option<Source>,
    /// 0 behind the last one.
    context: u32,
    place: Place,
    left: usize,
}

/// Where in a function; the file is that of the function if it is none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) file: Option<u32>,
    pub(super) line: u32,
    pub(super) column: u32,
}

impl<'a> Frames<'a> {
    pub(super) fn new(contexts: &'a [u8], source: Source, context: u32, place: Place) -> Self {
        Frames {
            contexts,
            source: Some(source),
            context,
            place,
            left: DEEPEST,
        }
    }

    pub(super) fn none() -> Self {
        Frames {
            contexts: &[],
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

    fn read(&mut self) -> Option<Frame> {
        let at = self.context;
        let mut context = Varints(self.contexts.get(at as usize..)?);
        let number = context.next_u32()?;
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
        Some(Frame {
            function: FunctionId {
                number,
                file: place.file,
            },
            line: place.line,
            column: place.column,
            inlined: distance != 0,
        })
    }
}

impl Iterator for Frames<'_> {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
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
