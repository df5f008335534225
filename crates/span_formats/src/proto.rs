//! Reads protobuf messages of foreign schemas.

use tributary_otlp::reader::{Field, Fields, Value};

use crate::error::{TranslateError, malformed_at};

/// A field of a message, with checks of its wire type.
pub(crate) struct ProtoField<'a>(Field<'a>);

impl<'a> ProtoField<'a> {
    pub(crate) fn number(&self) -> u32 {
        self.0.number
    }

    pub(crate) fn fail<T>(&self, reason: &str) -> Result<T, TranslateError> {
        Err(malformed_at(self.0.offset, reason))
    }

    pub(crate) fn bytes(&self) -> Result<&'a [u8], TranslateError> {
        match self.0.value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => self.fail("expected a length-delimited field"),
        }
    }

    pub(crate) fn varint(&self) -> Result<u64, TranslateError> {
        match self.0.value {
            Value::Varint(value) => Ok(value),
            _ => self.fail("expected a varint"),
        }
    }

    pub(crate) fn fixed64(&self) -> Result<u64, TranslateError> {
        match self.0.value {
            Value::Fixed64(value) => Ok(value),
            _ => self.fail("expected a field of 64 bits"),
        }
    }

    /// Calls `read` for each field of the contained message.
    pub(crate) fn each(
        &self,
        read: impl FnMut(ProtoField<'a>) -> Result<(), TranslateError>,
    ) -> Result<(), TranslateError> {
        self.bytes()?;
        each_in(self.0.fields(), self.0.range().end, read)
    }
}

/// Calls `read` for each field of the outermost message.
pub(crate) fn each<'a>(
    message: &'a [u8],
    read: impl FnMut(ProtoField<'a>) -> Result<(), TranslateError>,
) -> Result<(), TranslateError> {
    each_in(Fields::new(message), message.len(), read)
}

fn each_in<'a>(
    fields: Fields<'a>,
    end: usize,
    mut read: impl FnMut(ProtoField<'a>) -> Result<(), TranslateError>,
) -> Result<(), TranslateError> {
    let mut offset = None;
    for field in fields {
        match field {
            Ok(field) => {
                offset = Some(field.range().end);
                read(ProtoField(field))?;
            }
            Err(fault) => {
                return Err(match offset {
                    Some(offset) => malformed_at(offset, fault.text()),
                    None => {
                        malformed_at(end, format_args!("{} in the message before", fault.text()))
                    }
                });
            }
        }
    }
    Ok(())
}
