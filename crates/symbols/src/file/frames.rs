//! Decodes the frames of a range.

use super::NameSource;
use super::format::{MAX_INLINE_DEPTH, Varints};

/// A function with the file of its code. Look up its names with [`Names`](super::Names), preferably once for all of its
/// frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FunctionId {
    /// Number in the symbol file.
    pub(super) number: u32,
    /// File of the code, if it differs from the file of the function.
    pub(super) file: Option<u32>,
}

/// A frame: a function and a position in the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Function of the frame.
    pub function: FunctionId,
    /// Line; 0 if unknown or if the code belongs to no line.
    pub line: u32,
    /// Column, from 1; 0 if unknown.
    pub column: u32,
    /// Whether the function was inlined into the function of the next frame.
    pub inlined: bool,
}

/// The frames at an address, innermost first.
#[derive(Debug, Clone)]
pub struct Frames<'a> {
    contexts: &'a [u8],
    source: Option<NameSource>,
    /// Context of the next frame; 0 behind the last frame.
    context: u32,
    place: FunctionPosition,
    left: usize,
}

/// Position in a function. If the file is `None`, it is the file of the function.
#[derive(Debug, Clone, Copy)]
pub(super) struct FunctionPosition {
    pub(super) file: Option<u32>,
    pub(super) line: u32,
    pub(super) column: u32,
}

impl<'a> Frames<'a> {
    pub(super) fn new(
        contexts: &'a [u8],
        source: NameSource,
        context: u32,
        place: FunctionPosition,
    ) -> Self {
        Frames {
            contexts,
            source: Some(source),
            context,
            place,
            left: MAX_INLINE_DEPTH,
        }
    }

    pub(super) fn none() -> Self {
        Frames {
            contexts: &[],
            source: None,
            context: 0,
            place: FunctionPosition {
                file: None,
                line: 0,
                column: 0,
            },
            left: 0,
        }
    }

    /// Source of the frames; `None` if the address is unknown.
    pub fn source(&self) -> Option<NameSource> {
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
            self.place = FunctionPosition {
                file,
                line: context.next_u32()?,
                column: context.next_u32()?,
            };
            // The offset decreases, so the contexts form no cycle.
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
