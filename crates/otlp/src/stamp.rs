//! Stamping: adds the identity of the sender to each resource of a request, as an attribute that the sender cannot
//! forge.
//!
//! Attributes that a reader could mistake for the stamp are removed first: every attribute with the key of the stamp
//! and, in profiles, every attribute whose key refers to the same text in the dictionary. An attribute whose reference
//! is out of range is removed as well: the reference would become valid if a later stage added the key to the
//! dictionary. For the same reason the stamp contains its key as text, never as a reference. Only the attributes of
//! resources are checked: applications choose the attributes of spans, records, points and samples freely.
//!
//! Nothing is decoded, not even an ambiguous request: a repeated message is read like the merged message. Only the
//! result takes memory. The size of the result is known before writing, so a client cannot choose an encoding with a
//! higher cost.

use std::cell::OnceCell;

use super::Malformed;
use super::edit::put_delimited;
use super::reader::{Field, Fields, Value, WireFault, put_varint, varint_len};
use crate::Signal;

/// The attribute with the identity of the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    key: String,
}

/// A prepared stamping of one request: the changes and the size of the result.
#[derive(Debug)]
pub struct Stamping<'a> {
    request: &'a [u8],
    marker: Marker<'a>,
    size: Size,
}

impl Stamp {
    /// Creates a stamp with this key.
    pub fn new(key: impl Into<String>) -> Self {
        Stamp { key: key.into() }
    }

    /// Prepares to set the attribute `key` = `identity` on every resource of a valid request, replacing all attributes
    /// with the same key. Missing resources are created. Without an identity, existing attributes with the key are only
    /// removed.
    ///
    /// # Errors
    /// Fails if the request is invalid.
    pub fn prepare<'a>(
        &'a self,
        signal: Signal,
        identity: Option<&str>,
        request: &'a [u8],
    ) -> Result<Stamping<'a>, Malformed> {
        let marker = Marker {
            key: self.key.as_bytes(),
            attribute: identity.map_or_else(Vec::new, |identity| self.attribute(identity)),
            profiles: (signal == Signal::Profiles).then_some(request),
            names: OnceCell::new(),
        };
        let size = marker.request(request).map_err(malformed)?;
        Ok(Stamping {
            request,
            marker,
            size,
        })
    }

    /// Encodes the stamp as a field of a resource.
    fn attribute(&self, identity: &str) -> Vec<u8> {
        let mut value = Vec::with_capacity(identity.len() + 4);
        put_delimited(1, identity.as_bytes(), &mut value);
        let mut attribute = Vec::with_capacity(self.key.len() + value.len() + 8);
        put_delimited(1, self.key.as_bytes(), &mut attribute);
        put_delimited(2, &value, &mut attribute);
        let mut field = Vec::with_capacity(attribute.len() + 4);
        put_delimited(1, &attribute, &mut field);
        field
    }
}

impl Stamping<'_> {
    /// Size of the stamped request in bytes; `None` if it does not change.
    pub fn bytes(&self) -> Option<usize> {
        self.size.changed.then_some(self.size.bytes)
    }

    /// Writes the stamped request; `None` if it does not change.
    ///
    /// # Errors
    /// Fails if the request is invalid.
    pub fn write(&self) -> Result<Option<Vec<u8>>, Malformed> {
        let Some(bytes) = self.bytes() else {
            return Ok(None);
        };
        let mut output = Vec::with_capacity(bytes);
        self.marker
            .write_request(self.request, &mut output)
            .map_err(malformed)?;
        debug_assert_eq!(output.len(), bytes);
        Ok(Some(output))
    }
}

/// Size of a message after stamping, and whether stamping changes the message.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    bytes: usize,
    changed: bool,
}

impl Size {
    /// Adds a field that does not change.
    fn keep(&mut self, field: &Field<'_>) {
        self.bytes += field.raw.len();
    }

    /// Adds a field (with a number below 16) that holds a message of size `body`.
    fn nest(&mut self, field: &Field<'_>, body: Size) {
        if body.changed {
            self.bytes += delimited_len(body.bytes);
            self.changed = true;
        } else {
            self.keep(field);
        }
    }
}

/// Stamps one request. Sizes are computed top down before the output is written, because a length precedes its content.
/// Only a few attributes are computed twice.
#[derive(Debug)]
struct Marker<'a> {
    key: &'a [u8],
    /// The encoded field to append to each resource.
    attribute: Vec<u8>,
    /// The profiles request, for resolving references into its dictionary.
    profiles: Option<&'a [u8]>,
    names: OnceCell<Names>,
}

/// Texts of the dictionary, for references from keys.
#[derive(Debug, Default)]
struct Names {
    texts: usize,
    /// Indices of the texts that equal the key of the stamp, ascending.
    keys: Vec<u32>,
}

/// A decision about an attribute.
enum Verdict {
    Keep,
    Remove,
    /// Removes the keys of the stamp but keeps the attribute. The attribute has several keys, and the last key, which
    /// readers use, is not the key of the stamp.
    Trim,
}

impl Marker<'_> {
    fn request(&self, request: &[u8]) -> Result<Size, WireFault> {
        let mut size = Size::default();
        for field in Fields::new(request) {
            let field = field?;
            match is_message(&field) {
                true => size.nest(&field, self.entry(&field)?),
                false => size.keep(&field),
            }
        }
        Ok(size)
    }

    /// Measures a `ResourceSpans` or the same message of another signal.
    fn entry(&self, entry: &Field<'_>) -> Result<Size, WireFault> {
        let mut size = Size::default();
        let last = last_resource(entry)?;
        for field in entry.fields() {
            let field = field?;
            match is_message(&field) {
                true => size.nest(&field, self.resource(&field, Some(field.offset) == last)?),
                false => size.keep(&field),
            }
        }
        if last.is_none() && !self.attribute.is_empty() {
            size.bytes += delimited_len(self.attribute.len());
            size.changed = true;
        }
        Ok(size)
    }

    fn resource(&self, resource: &Field<'_>, last: bool) -> Result<Size, WireFault> {
        let mut size = Size::default();
        for field in resource.fields() {
            let field = field?;
            match self.judge(&field)? {
                Verdict::Keep => size.keep(&field),
                Verdict::Remove => size.changed = true,
                Verdict::Trim => {
                    size.bytes += delimited_len(self.trimmed(&field)?.len());
                    size.changed = true;
                }
            }
        }
        if last && !self.attribute.is_empty() {
            size.bytes += self.attribute.len();
            size.changed = true;
        }
        Ok(size)
    }

    fn write_request(&self, request: &[u8], output: &mut Vec<u8>) -> Result<(), WireFault> {
        for field in Fields::new(request) {
            let field = field?;
            let size = match is_message(&field) {
                true => self.entry(&field)?,
                false => Size::default(),
            };
            if size.changed {
                put_header(size.bytes, output);
                self.write_entry(&field, output)?;
            } else {
                output.extend_from_slice(field.raw);
            }
        }
        Ok(())
    }

    fn write_entry(&self, entry: &Field<'_>, output: &mut Vec<u8>) -> Result<(), WireFault> {
        let last = last_resource(entry)?;
        for field in entry.fields() {
            let field = field?;
            let is_last = Some(field.offset) == last;
            let size = match is_message(&field) {
                true => self.resource(&field, is_last)?,
                false => Size::default(),
            };
            if size.changed {
                put_header(size.bytes, output);
                self.write_resource(&field, is_last, output)?;
            } else {
                output.extend_from_slice(field.raw);
            }
        }
        if last.is_none() && !self.attribute.is_empty() {
            put_delimited(1, &self.attribute, output);
        }
        Ok(())
    }

    fn write_resource(
        &self,
        resource: &Field<'_>,
        last: bool,
        output: &mut Vec<u8>,
    ) -> Result<(), WireFault> {
        for field in resource.fields() {
            let field = field?;
            match self.judge(&field)? {
                Verdict::Keep => output.extend_from_slice(field.raw),
                Verdict::Remove => {}
                Verdict::Trim => put_delimited(1, &self.trimmed(&field)?, output),
            }
        }
        if last {
            output.extend_from_slice(&self.attribute);
        }
        Ok(())
    }

    /// Judges a field of a resource. If an attribute has several keys, only the last key matters, as for readers.
    fn judge(&self, attribute: &Field<'_>) -> Result<Verdict, WireFault> {
        if !is_message(attribute) {
            return Ok(Verdict::Keep);
        }
        let (mut text, mut reference, mut any) = (false, false, false);
        for field in attribute.fields() {
            let field = field?;
            let named = self.names(&field)?;
            match field.number {
                1 => text = named,
                3 => reference = named,
                _ => {}
            }
            any |= named;
        }
        Ok(match (text || reference, any) {
            (true, _) => Verdict::Remove,
            (false, true) => Verdict::Trim,
            (false, false) => Verdict::Keep,
        })
    }

    /// Returns an attribute without overridden keys that equal the key of the stamp.
    fn trimmed(&self, attribute: &Field<'_>) -> Result<Vec<u8>, WireFault> {
        let mut body = Vec::with_capacity(attribute.raw.len());
        for field in attribute.fields() {
            let field = field?;
            if !self.names(&field)? {
                body.extend_from_slice(field.raw);
            }
        }
        Ok(body)
    }

    /// Whether a field of an attribute is the key of the stamp or a reference to the key.
    fn names(&self, field: &Field<'_>) -> Result<bool, WireFault> {
        match (field.number, field.value, self.profiles) {
            (1, Value::Bytes(key), _) => Ok(key == self.key),
            (3, Value::Varint(index), Some(request)) => {
                // Readers decode an int32, and 0 means no reference.
                let index = index as i32;
                if index == 0 {
                    return Ok(false);
                }
                let names = match self.names.get() {
                    Some(names) => names,
                    None => {
                        let names = self.read_names(request)?;
                        self.names.get_or_init(|| names)
                    }
                };
                let Ok(index) = u32::try_from(index) else {
                    return Ok(true);
                };
                Ok(index as usize >= names.texts || names.keys.binary_search(&index).is_ok())
            }
            _ => Ok(false),
        }
    }

    /// Finds the key in the dictionary. If the dictionary occurs twice, the texts of the second occurrence follow the
    /// texts of the first, as after merging.
    fn read_names(&self, request: &[u8]) -> Result<Names, WireFault> {
        let mut names = Names::default();
        for field in Fields::new(request) {
            let dictionary = field?;
            if dictionary.number != 2 {
                continue;
            }
            for field in dictionary.fields() {
                let field = field?;
                if let (5, Value::Bytes(text)) = (field.number, field.value) {
                    if text == self.key
                        && let Ok(index) = u32::try_from(names.texts)
                    {
                        names.keys.push(index);
                    }
                    names.texts += 1;
                }
            }
        }
        Ok(names)
    }
}

/// Returns the offset of the last resource of an entry. Merging adds earlier resources of the entry to the last one.
fn last_resource(entry: &Field<'_>) -> Result<Option<usize>, WireFault> {
    let mut last = None;
    for field in entry.fields() {
        let field = field?;
        if is_message(&field) {
            last = Some(field.offset);
        }
    }
    Ok(last)
}

/// Whether a field is the message in field 1: an entry, its resource, or a resource's attribute.
fn is_message(field: &Field<'_>) -> bool {
    field.number == 1 && field.value.bytes().is_some()
}

/// Returns the size of a field (with a number below 16) with a body of this size.
fn delimited_len(body: usize) -> usize {
    1 + varint_len(body as u64) + body
}

fn put_header(body: usize, output: &mut Vec<u8>) {
    output.push(0x0a);
    put_varint(body as u64, output);
}

fn malformed(fault: WireFault) -> Malformed {
    Malformed::new(0, fault.text())
}
