//! Converts the labels of a sample to a set of attributes and a link.

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};

use super::super::id::{AttributeId, AttributeSetId, Id as _, LinkId, StringId};
use super::super::references;
use super::super::table::Lists;
use super::error::Error;
use super::links::{IdFormat, IdLabel, LinkLabels};
use super::source::{FileReader, wire};
use super::tables::integer;
use crate::entry::{Attribute, Link};
use tributary_otlp::reader::Fields;

/// Key of the number in a pair of a number and its unit. Pairs are used if the numbers of one label key have different
/// units.
pub(super) const NUMBER: &str = "value";
/// Key of the unit in a pair with [`NUMBER`].
pub(super) const UNIT: &str = "unit";

/// Labels of samples. Equal label lists are converted once.
#[derive(Debug)]
pub(super) struct Labels {
    seen: Lists<AttributeSetId, u8>,
    converted: Vec<(AttributeSetId, LinkId)>,
    entries: Vec<Entry>,
    attributes: Vec<AttributeId>,
    trace: Vec<(StringId, IdFormat)>,
    span: Vec<(StringId, IdFormat)>,
    /// Remaining bytes for lists of values.
    left: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    key: StringId,
    value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    /// Index of a string in the file.
    Text(u64),
    Number(i64, StringId),
}

impl Labels {
    pub(super) fn new(source: &mut FileReader<'_, '_>, links: &LinkLabels) -> Self {
        let mut keys = |labels: &[IdLabel]| {
            let keys = labels.iter();
            keys.map(|label| (source.into.string(&label.key), label.format))
                .collect()
        };
        Labels {
            seen: Lists::new(),
            converted: vec![Default::default()],
            entries: Vec::new(),
            attributes: Vec::new(),
            trace: keys(&links.trace),
            span: keys(&links.span),
            left: references::LIMIT,
        }
    }

    /// Converts the labels in these fields of a sample.
    #[inline]
    pub(super) fn convert(
        &mut self,
        source: &mut FileReader<'_, '_>,
        fields: &[u8],
    ) -> Result<(AttributeSetId, LinkId), Error> {
        let at = self.seen.intern(fields).index();
        if let Some(converted) = self.converted.get(at) {
            return Ok(*converted);
        }
        let converted = self.new_labels(source, fields)?;
        self.converted.push(converted);
        Ok(converted)
    }

    fn new_labels(
        &mut self,
        source: &mut FileReader<'_, '_>,
        fields: &[u8],
    ) -> Result<(AttributeSetId, LinkId), Error> {
        self.entries.clear();
        for field in Fields::new(fields) {
            let message = field.map_err(wire("a sample"))?.value.bytes();
            self.read(source, message.unwrap_or_default())?;
        }
        // A stable sort keeps the order of a key's values, strings first.
        self.entries.sort_by_key(|entry| {
            let number = matches!(entry.value, Value::Number(..));
            (entry.key, number)
        });
        let link = self.link(source)?;
        let entries = std::mem::take(&mut self.entries);
        self.attributes.clear();
        for group in entries.chunk_by(|a, b| a.key == b.key) {
            let attribute = self.attribute(source, group)?;
            self.attributes.push(attribute);
        }
        self.entries = entries;
        Ok((source.into.attribute_set(&self.attributes), link))
    }

    /// Reads a label. As in pprof, a label without a value is ignored; a label without a key cannot become an
    /// attribute.
    fn read(&mut self, source: &mut FileReader<'_, '_>, message: &[u8]) -> Result<(), Error> {
        const PLACE: &str = "a label";
        let [mut key, mut text, mut number, mut unit] = [0; 4];
        for field in Fields::new(message) {
            let field = field.map_err(wire(PLACE))?;
            let value = || integer(PLACE, field.number, field.value);
            match field.number {
                1 => key = value()?,
                2 => text = value()?,
                3 => number = value()?,
                4 => unit = value()?,
                _ => {}
            }
        }
        let value = match (text, number, unit) {
            (0, 0, 0) => return Ok(()),
            (0, number, unit) => Value::Number(number.cast_signed(), source.string(unit)?),
            (text, ..) => {
                source.string(text)?;
                Value::Text(text)
            }
        };
        let key = source.string(key)?;
        if key.index() == 0 {
            source.repairs.labels += 1;
            return Ok(());
        }
        self.entries.push(Entry { key, value });
        Ok(())
    }

    /// Removes the labels of a trace and a span, if both exist, and returns their link.
    fn link(&mut self, source: &mut FileReader<'_, '_>) -> Result<LinkId, Error> {
        let trace = find::<16>(&self.entries, &self.trace, source)?;
        let span = find::<8>(&self.entries, &self.span, source)?;
        let (Some((trace, trace_id)), Some((span, span_id))) = (trace, span) else {
            return Ok(LinkId::default());
        };
        self.entries
            .retain(|entry| entry.key != trace && entry.key != span);
        Ok(source.into.link(Link { trace_id, span_id }))
    }

    /// Converts all labels of one key to an attribute.
    fn attribute(
        &mut self,
        source: &mut FileReader<'_, '_>,
        group: &[Entry],
    ) -> Result<AttributeId, Error> {
        let key = group.first().map(|entry| entry.key).unwrap_or_default();
        let plain = |value| Attribute {
            key,
            value,
            unit: StringId::default(),
        };
        let attribute = match group {
            [entry] => match entry.value {
                Value::Text(index) => plain(source.value(index)?),
                Value::Number(number, unit) => Attribute {
                    unit,
                    ..plain(source.into.value(&int(number)))
                },
            },
            _ => self.list(source, key, group)?,
        };
        Ok(source.into.attribute(attribute))
    }

    fn list(
        &mut self,
        source: &mut FileReader<'_, '_>,
        key: StringId,
        group: &[Entry],
    ) -> Result<Attribute, Error> {
        let mut units = group.iter().filter_map(|entry| match entry.value {
            Value::Number(_, unit) => Some(unit),
            Value::Text(_) => None,
        });
        let unit = units.next().unwrap_or_default();
        let one_unit = units.all(|other| other == unit);
        let mut values = Vec::new();
        for entry in group {
            let value = match entry.value {
                Value::Text(index) => {
                    let id = source.string(index)?;
                    let text = source.into.text(id);
                    self.expand(text.len())?;
                    string(text)
                }
                Value::Number(number, _) if one_unit => int(number),
                Value::Number(number, unit) => {
                    let unit = source.into.text(unit);
                    self.expand(unit.len())?;
                    let pair = |key: &str, value| KeyValue {
                        key: key.to_owned(),
                        value: Some(value),
                        key_strindex: 0,
                    };
                    let values = vec![pair(NUMBER, int(number)), pair(UNIT, string(unit))];
                    AnyValue {
                        value: Some(Any::KvlistValue(KeyValueList { values })),
                    }
                }
            };
            values.push(value);
        }
        let list = Any::ArrayValue(ArrayValue { values });
        Ok(Attribute {
            key,
            value: source.into.value(&AnyValue { value: Some(list) }),
            unit: if one_unit { unit } else { StringId::default() },
        })
    }

    /// Accounts for expanded bytes, since every sample may refer to the same long strings.
    fn expand(&mut self, bytes: usize) -> Result<(), Error> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or(Error::Expansion(references::LIMIT))?;
        Ok(())
    }
}

/// Returns the id under the first of these keys, if that key has a single value.
fn find<const N: usize>(
    entries: &[Entry],
    keys: &[(StringId, IdFormat)],
    source: &mut FileReader<'_, '_>,
) -> Result<Option<(StringId, [u8; N])>, Error> {
    for (key, format) in keys {
        let mut of_key = entries.iter().filter(|entry| entry.key == *key);
        if let (Some(entry), None) = (of_key.next(), of_key.next())
            && let Value::Text(index) = entry.value
        {
            let text = source.string(index)?;
            if let Some(id) = format.read(source.into.text(text)) {
                return Ok(Some((*key, id)));
            }
        }
    }
    Ok(None)
}

fn string(text: &str) -> AnyValue {
    AnyValue {
        value: Some(Any::StringValue(text.to_owned())),
    }
}

fn int(number: i64) -> AnyValue {
    AnyValue {
        value: Some(Any::IntValue(number)),
    }
}
