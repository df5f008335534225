//! Values of a chunk.

use std::borrow::Cow;

use crate::error::Fault;

/// Maximum length of a text, in bytes: the JVM's limit for names.
const TEXT: usize = 65_535;

/// A position in a chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'c> {
    chunk: &'c [u8],
    at: usize,
    /// Offset of the chunk in the file, for errors.
    base: usize,
    /// Whether integers have a variable length.
    compressed: bool,
}

/// A text, or a reference to one.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Text<'c> {
    None,
    /// Key of a constant of the class `java.lang.String`.
    Constant(i64),
    Here(Cow<'c, str>),
}

impl<'c> Cursor<'c> {
    pub(super) fn new(chunk: &'c [u8], base: usize, compressed: bool) -> Self {
        let at = 0;
        Cursor {
            chunk,
            at,
            base,
            compressed,
        }
    }

    /// Returns the same chunk at another position.
    pub(super) fn moved(self, at: usize) -> Self {
        Cursor { at, ..self }
    }

    /// Returns the same position in the chunk, which ends at `end`.
    pub(super) fn until(self, end: usize) -> Self {
        let chunk = self.chunk.get(..end).unwrap_or(self.chunk);
        Cursor { chunk, ..self }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Number of bytes of the chunk.
    pub(super) fn end(&self) -> usize {
        self.chunk.len()
    }

    pub(super) fn fault(&self, problem: impl Into<String>) -> Fault {
        Fault::byte(self.base.saturating_add(self.at), problem)
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'c [u8], Fault> {
        let rest = self.chunk.get(self.at..).unwrap_or_default();
        let Some(bytes) = rest.get(..count) else {
            let left = rest.len();
            return Err(self.fault(format!(
                "a value of {count} bytes exceeds its event, which has {left} bytes left"
            )));
        };
        self.at += count;
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Fault> {
        self.array().map(|[byte]| byte)
    }

    /// Reads an integer of this number of bytes if integers are not compressed.
    pub(super) fn integer(&mut self, width: usize) -> Result<i64, Fault> {
        if !self.compressed {
            let bytes = self.take(width)?;
            let number = bytes
                .iter()
                .fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
            return Ok(number.cast_signed());
        }
        let mut number = 0;
        for shift in (0..56).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number.cast_signed());
            }
        }
        // The ninth byte has eight bits.
        Ok((number | u64::from(self.byte()?) << 56).cast_signed())
    }

    pub(super) fn long(&mut self) -> Result<i64, Fault> {
        self.integer(8)
    }

    /// Reads a number of things, or an index.
    pub(super) fn count(&mut self) -> Result<usize, Fault> {
        let count = self.integer(4)?;
        let count = usize::try_from(count);
        count.map_err(|_| self.fault("a count is negative"))
    }

    pub(super) fn text(&mut self) -> Result<Text<'c>, Fault> {
        let text = match self.byte()? {
            0 => return Ok(Text::None),
            1 => Cow::Borrowed(""),
            2 => return Ok(Text::Constant(self.long()?)),
            3 => {
                let length = self.length()?;
                String::from_utf8_lossy(self.take(length)?)
            }
            4 => {
                let length = self.length()?;
                let mut units = Vec::new();
                for _ in 0..length {
                    units.push(self.integer(2)? as u16);
                }
                Cow::Owned(String::from_utf16_lossy(&units))
            }
            5 => {
                let length = self.length()?;
                self.take(length)?
                    .iter()
                    .map(|byte| char::from(*byte))
                    .collect()
            }
            other => return Err(self.fault(format!("a text has the unknown encoding {other}"))),
        };
        Ok(Text::Here(text))
    }

    fn length(&mut self) -> Result<usize, Fault> {
        match self.count()? {
            length if length > TEXT => Err(self.fault(format!(
                "a text of {length} bytes is longer than {TEXT} bytes"
            ))),
            length => Ok(length),
        }
    }
}
