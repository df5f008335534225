//! Reads Apache Thrift's binary and compact protocols from a slice. Nothing is copied or allocated.
//!
//! Rules: the [protocol specifications](https://github.com/apache/thrift/tree/master/doc/specs). A field of an unknown
//! id or of another type than expected is skipped, as generated code does.

use tributary_otlp::reader::varint;

use crate::error::{TranslateError, malformed_at};

/// Encoding of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Binary,
    Compact,
}

/// Type of a field or of list elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Byte,
    Double,
    I16,
    I32,
    I64,
    Text,
    Struct,
    Map,
    /// A list or a set.
    List,
}

/// A position in a message.
pub(crate) struct ThriftReader<'a> {
    input: &'a [u8],
    rest: &'a [u8],
    protocol: Protocol,
    /// Value of a boolean field, which the compact protocol encodes in the field header.
    boolean: Option<bool>,
}

/// Maximum depth of skipped values. The known structs nest four deep.
const MAX_DEPTH: usize = 32;

const TRUNCATED: &str = "the input ends within a value";

impl<'a> ThriftReader<'a> {
    pub(crate) fn new(input: &'a [u8], protocol: Protocol) -> Self {
        ThriftReader {
            input,
            rest: input,
            protocol,
            boolean: None,
        }
    }

    /// Returns the offset in the input, in bytes.
    pub(crate) fn offset(&self) -> usize {
        self.input.len() - self.rest.len()
    }

    /// Returns a reader that begins at an earlier offset.
    pub(crate) fn rewound(&self, offset: usize) -> ThriftReader<'a> {
        ThriftReader {
            rest: self.input.get(offset..).unwrap_or_default(),
            boolean: None,
            ..*self
        }
    }

    /// Returns the error of the input at the current offset.
    pub(crate) fn fail<T>(&self, reason: &str) -> Result<T, TranslateError> {
        Err(malformed_at(self.offset(), reason))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], TranslateError> {
        let Some((taken, rest)) = self.rest.split_at_checked(length) else {
            return self.fail(TRUNCATED);
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], TranslateError> {
        let taken = self.take(N)?;
        taken.try_into().or_else(|_| self.fail(TRUNCATED))
    }

    fn byte(&mut self) -> Result<u8, TranslateError> {
        self.array().map(|[byte]| byte)
    }

    fn varint(&mut self) -> Result<u64, TranslateError> {
        let Ok((value, rest)) = varint(self.rest) else {
            return self.fail("truncated or oversized varint");
        };
        self.rest = rest;
        Ok(value)
    }

    fn zigzag(&mut self) -> Result<i64, TranslateError> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    /// Reads an integer of 16, 32 or 64 bits. Higher bits are lost, as in generated code.
    pub(crate) fn i16(&mut self) -> Result<i16, TranslateError> {
        match self.protocol {
            Protocol::Binary => self.array().map(i16::from_be_bytes),
            Protocol::Compact => self.zigzag().map(|value| value as i16),
        }
    }

    pub(crate) fn i32(&mut self) -> Result<i32, TranslateError> {
        match self.protocol {
            Protocol::Binary => self.array().map(i32::from_be_bytes),
            Protocol::Compact => self.zigzag().map(|value| value as i32),
        }
    }

    pub(crate) fn i64(&mut self) -> Result<i64, TranslateError> {
        match self.protocol {
            Protocol::Binary => self.array().map(i64::from_be_bytes),
            Protocol::Compact => self.zigzag(),
        }
    }

    pub(crate) fn double(&mut self) -> Result<f64, TranslateError> {
        match self.protocol {
            Protocol::Binary => self.array().map(f64::from_be_bytes),
            Protocol::Compact => self.array().map(f64::from_le_bytes),
        }
    }

    /// Reads a boolean.
    pub(crate) fn bool(&mut self) -> Result<bool, TranslateError> {
        match self.boolean.take() {
            Some(value) => Ok(value),
            None => self.byte().map(|byte| byte == 1),
        }
    }

    /// Reads a string or binary value.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], TranslateError> {
        let length = self.length()?;
        self.take(length)
    }

    fn length(&mut self) -> Result<usize, TranslateError> {
        let length = match self.protocol {
            Protocol::Binary => usize::try_from(self.i32()?).ok(),
            Protocol::Compact => usize::try_from(self.varint()?).ok(),
        };
        match length {
            // Each element takes at least one byte.
            Some(length) if length <= self.rest.len() => Ok(length),
            _ => self.fail("the length exceeds the input"),
        }
    }

    /// Reads the fields of a struct. `read` returns whether it has read the value of a field; otherwise the value is
    /// skipped.
    pub(crate) fn fields(
        &mut self,
        mut read: impl FnMut(&mut Self, i16, Kind) -> Result<bool, TranslateError>,
    ) -> Result<(), TranslateError> {
        self.each_field(&mut read, 0)
    }

    fn each_field(
        &mut self,
        read: &mut dyn FnMut(&mut Self, i16, Kind) -> Result<bool, TranslateError>,
        depth: usize,
    ) -> Result<(), TranslateError> {
        let mut last_id = 0;
        while let Some((id, kind)) = self.field(last_id)? {
            last_id = id;
            if !read(self, id, kind)? {
                self.skip(kind, depth)?;
            }
            self.boolean = None;
        }
        Ok(())
    }

    fn field(&mut self, last_id: i16) -> Result<Option<(i16, Kind)>, TranslateError> {
        let header = self.byte()?;
        if header == 0 {
            return Ok(None);
        }
        match self.protocol {
            Protocol::Binary => {
                let kind = self.kind(header)?;
                Ok(Some((self.i16()?, kind)))
            }
            Protocol::Compact => {
                let id = match header >> 4 {
                    0 => self.i16()?,
                    delta => last_id.wrapping_add(delta.into()),
                };
                let kind = self.kind(header & 0xf)?;
                if kind == Kind::Bool {
                    self.boolean = Some(header & 0xf == 1);
                }
                Ok(Some((id, kind)))
            }
        }
    }

    fn kind(&mut self, number: u8) -> Result<Kind, TranslateError> {
        let kind = match (self.protocol, number) {
            (Protocol::Binary, 2) | (Protocol::Compact, 1 | 2) => Kind::Bool,
            (_, 3) => Kind::Byte,
            (Protocol::Binary, 4) | (Protocol::Compact, 7) => Kind::Double,
            (Protocol::Binary, 6) | (Protocol::Compact, 4) => Kind::I16,
            (Protocol::Binary, 8) | (Protocol::Compact, 5) => Kind::I32,
            (Protocol::Binary, 10) | (Protocol::Compact, 6) => Kind::I64,
            (Protocol::Binary, 11) | (Protocol::Compact, 8) => Kind::Text,
            (_, 12) => Kind::Struct,
            (Protocol::Binary, 13) | (Protocol::Compact, 11) => Kind::Map,
            (Protocol::Binary, 14 | 15) | (Protocol::Compact, 9 | 10) => Kind::List,
            _ => return self.fail("unknown type of a field"),
        };
        Ok(kind)
    }

    /// Reads the header of a list: the type and the number of its elements.
    fn list(&mut self) -> Result<(Kind, usize), TranslateError> {
        let header = self.byte()?;
        match self.protocol {
            Protocol::Binary => {
                let length = self.length()?;
                // Empty lists of some libraries have no type.
                let kind = if length == 0 {
                    Kind::Byte
                } else {
                    self.kind(header)?
                };
                Ok((kind, length))
            }
            Protocol::Compact => {
                let length = match header >> 4 {
                    15 => self.length()?,
                    short => usize::from(short),
                };
                let kind = if length == 0 {
                    Kind::Byte
                } else {
                    self.kind(header & 0xf)?
                };
                Ok((kind, length))
            }
        }
    }

    /// Reads the header of a list of structs, and returns the number of its elements.
    pub(crate) fn structs(&mut self) -> Result<usize, TranslateError> {
        match self.list()? {
            (_, 0) => Ok(0),
            (Kind::Struct, length) => Ok(length),
            _ => self.fail("expected a list of structs"),
        }
    }

    /// Skips a value.
    fn skip(&mut self, kind: Kind, depth: usize) -> Result<(), TranslateError> {
        if depth > MAX_DEPTH {
            return self.fail("values are nested too deeply");
        }
        match kind {
            Kind::Bool => self.bool().map(drop),
            Kind::Byte => self.byte().map(drop),
            Kind::Double => self.double().map(drop),
            Kind::I16 => self.i16().map(drop),
            Kind::I32 => self.i32().map(drop),
            Kind::I64 => self.i64().map(drop),
            Kind::Text => self.bytes().map(drop),
            Kind::Struct => self.each_field(&mut |_, _, _| Ok(false), depth + 1),
            Kind::List => {
                let (kind, length) = self.list()?;
                (0..length).try_for_each(|_| self.skip(kind, depth + 1))
            }
            Kind::Map => {
                let (kinds, length) = self.map()?;
                (0..length).try_for_each(|_| {
                    self.skip(kinds.0, depth + 1)?;
                    self.skip(kinds.1, depth + 1)
                })
            }
        }
    }

    fn map(&mut self) -> Result<((Kind, Kind), usize), TranslateError> {
        let nothing = ((Kind::Byte, Kind::Byte), 0);
        match self.protocol {
            Protocol::Binary => {
                let (key, value) = (self.byte()?, self.byte()?);
                match self.length()? {
                    0 => Ok(nothing),
                    length => Ok(((self.kind(key)?, self.kind(value)?), length)),
                }
            }
            Protocol::Compact => match self.length()? {
                0 => Ok(nothing),
                length => {
                    let kinds = self.byte()?;
                    Ok(((self.kind(kinds >> 4)?, self.kind(kinds & 0xf)?), length))
                }
            },
        }
    }

    /// Reads the header of a message, and returns its name. Accepts calls and one-way messages.
    pub(crate) fn message(&mut self) -> Result<&'a [u8], TranslateError> {
        const VERSION: i32 = 0x8001_0000_u32.cast_signed();
        match self.protocol {
            Protocol::Binary => match self.i32()? {
                // The old encoding begins with the length of the name.
                length @ 0.. => {
                    let name = self.take(length as usize)?;
                    self.byte()?;
                    self.i32()?;
                    Ok(name)
                }
                version if version & 0xffff_0000_u32.cast_signed() == VERSION => {
                    let name = self.bytes()?;
                    self.i32()?;
                    Ok(name)
                }
                _ => self.fail(
                    "not a message of Thrift's binary protocol; `thrift_compact` receives the compact protocol",
                ),
            },
            Protocol::Compact => {
                let [protocol, version] = self.array()?;
                if protocol != 0x82 || version & 0x1f != 1 {
                    return self.fail(
                        "not a message of Thrift's compact protocol; `thrift_binary` receives the binary protocol",
                    );
                }
                self.varint()?;
                self.bytes()
            }
        }
    }
}
