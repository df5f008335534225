//! The encoding of each field that statements may write.

use super::Undecided;
use crate::fields::{KINDS, points_form};
use crate::path::{Context, Field, Path};
use crate::target::EvaluationTarget;
use crate::value::{MessageKind, Messages, Value};
use tributary_otlp::edit::put_delimited;
use tributary_otlp::reader::{Fields, put_varint};

/// Location and encoding of a field in its part.
pub(super) struct Place {
    /// The field of the part whose message has the field.
    pub(super) inside: Option<u32>,
    pub(super) number: u32,
    pub(super) encoding: Encoding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Map,
    Value,
    Text,
    /// An id of a length in bytes, from the id or from its digits.
    Id(usize, bool),
    Varint32,
    Fixed32,
    Fixed64,
    Time,
    Bool,
    /// A double; the flag says whether zero is written.
    Double(bool),
    Zigzag,
    Kind,
    Messages(MessageKind),
    /// `value_double` and `value_int` are one `oneof`.
    NumberDouble,
    NumberInt,
    PackedFixed64,
    PackedDouble,
    PackedVarint,
}

/// Returns the place of a field; `None` if writing it has no effect.
///
/// # Errors
///
/// The current data point or metric does not have the field.
pub(super) fn place(
    context: Context,
    field: Field,
    here: &EvaluationTarget<'_>,
) -> Result<Option<Place>, Undecided> {
    let at = |number: u32, encoding: Encoding| Place {
        inside: None,
        number,
        encoding,
    };
    let within = |outer: u32, number: u32, encoding: Encoding| Place {
        inside: Some(outer),
        number,
        encoding,
    };
    Ok(Some(match (context, field) {
        (Context::Resource | Context::Scope, Field::SchemaUrl) => at(3, Encoding::Text),
        (Context::Resource, Field::Attributes) => within(1, 1, Encoding::Map),
        (Context::Resource, _) => within(1, 2, Encoding::Varint32),
        (Context::Scope, Field::Name) => within(1, 1, Encoding::Text),
        (Context::Scope, Field::Version) => within(1, 2, Encoding::Text),
        (Context::Scope, Field::Attributes) => within(1, 3, Encoding::Map),
        (Context::Scope, _) => within(1, 4, Encoding::Varint32),
        (Context::Span, field) => of_span(field).ok_or(Undecided::WrongType)?,
        (Context::SpanEvent, Field::Time) => at(1, Encoding::Time),
        (Context::SpanEvent, Field::Name) => at(2, Encoding::Text),
        (Context::SpanEvent, Field::Attributes) => at(3, Encoding::Map),
        (Context::SpanEvent, _) => at(4, Encoding::Varint32),
        (Context::Log, field) => of_record(field).ok_or(Undecided::WrongType)?,
        (Context::Metric, Field::Name) => at(1, Encoding::Text),
        (Context::Metric, Field::Description) => at(2, Encoding::Text),
        (Context::Metric, Field::Unit) => at(3, Encoding::Text),
        (Context::Metric, Field::Metadata) => at(12, Encoding::Map),
        (Context::Metric, field) => return Ok(of_data(field, here)),
        (Context::DataPoint, field) => {
            return of_point(field, here.form)
                .map(Some)
                .ok_or(Undecided::WrongType);
        }
        (Context::Profile, _) => return Ok(None),
    }))
}

fn of_span(field: Field) -> Option<Place> {
    let (number, encoding) = match field {
        Field::TraceId(is_text) => (1, Encoding::Id(16, is_text)),
        Field::SpanId(is_text) => (2, Encoding::Id(8, is_text)),
        Field::TraceState => (3, Encoding::Text),
        Field::ParentSpanId(is_text) => (4, Encoding::Id(8, is_text)),
        Field::Name => (5, Encoding::Text),
        Field::Kind => (6, Encoding::Varint32),
        Field::KindText | Field::KindEnumText => (6, Encoding::Kind),
        Field::StartTime => (7, Encoding::Time),
        Field::EndTime => (8, Encoding::Time),
        Field::Attributes => (9, Encoding::Map),
        Field::DroppedAttributes => (10, Encoding::Varint32),
        Field::Events => (11, Encoding::Messages(MessageKind::Event)),
        Field::DroppedEvents => (12, Encoding::Varint32),
        Field::Links => (13, Encoding::Messages(MessageKind::Link)),
        Field::DroppedLinks => (14, Encoding::Varint32),
        Field::Status => (15, Encoding::Messages(MessageKind::Status)),
        Field::StatusMessage => {
            return Some(Place {
                inside: Some(15),
                number: 2,
                encoding: Encoding::Text,
            });
        }
        Field::StatusCode => {
            return Some(Place {
                inside: Some(15),
                number: 3,
                encoding: Encoding::Varint32,
            });
        }
        Field::Flags => (16, Encoding::Fixed32),
        _ => return None,
    };
    Some(Place {
        inside: None,
        number,
        encoding,
    })
}

fn of_record(field: Field) -> Option<Place> {
    let (inside, number, encoding) = match field {
        Field::Time => (None, 1, Encoding::Time),
        Field::SeverityNumber => (None, 2, Encoding::Varint32),
        Field::SeverityText => (None, 3, Encoding::Text),
        Field::Body | Field::BodyText => (None, 5, Encoding::Value),
        Field::Attributes => (None, 6, Encoding::Map),
        Field::DroppedAttributes => (None, 7, Encoding::Varint32),
        Field::Flags => (None, 8, Encoding::Fixed32),
        Field::TraceId(is_text) => (None, 9, Encoding::Id(16, is_text)),
        Field::SpanId(is_text) => (None, 10, Encoding::Id(8, is_text)),
        Field::ObservedTime => (None, 11, Encoding::Time),
        Field::EventName => (None, 12, Encoding::Text),
        _ => return None,
    };
    Some(Place {
        inside,
        number,
        encoding,
    })
}

/// Returns the place of a field that belongs to the data of a metric; `None` if the data does not have it.
fn of_data(field: Field, here: &EvaluationTarget<'_>) -> Option<Place> {
    let fields = Fields::new(here.item.encoded()).map_while(Result::ok);
    let data = fields.filter(|field| matches!(field.number, 5 | 7 | 9 | 10 | 11));
    let data = data.last()?.number;
    let (number, encoding) = match (field, data) {
        (Field::Temporality, 7 | 9 | 10) => (2, Encoding::Varint32),
        (Field::IsMonotonic, 7) => (3, Encoding::Bool),
        (Field::DataPoints, data) => (
            1,
            Encoding::Messages(MessageKind::Points(points_form(data))),
        ),
        _ => return None,
    };
    Some(Place {
        inside: Some(data),
        number,
        encoding,
    })
}

fn of_point(field: Field, form: u32) -> Option<Place> {
    let is_number = matches!(form, 5 | 7);
    let (inside, number, encoding) = match (field, form) {
        (Field::Attributes, 9) => (None, 9, Encoding::Map),
        (Field::Attributes, 10) => (None, 1, Encoding::Map),
        (Field::Attributes, _) => (None, 7, Encoding::Map),
        (Field::StartTime, _) => (None, 2, Encoding::Time),
        (Field::Time, _) => (None, 3, Encoding::Time),
        (Field::ValueDouble, _) if is_number => (None, 4, Encoding::NumberDouble),
        (Field::ValueInt, _) if is_number => (None, 6, Encoding::NumberInt),
        (Field::Flags, 9 | 10) => (None, 10, Encoding::Varint32),
        (Field::Flags, _) => (None, 8, Encoding::Varint32),
        (Field::Count, 9..=11) => (None, 4, Encoding::Fixed64),
        (Field::Sum, 9 | 10) => (None, 5, Encoding::Double(true)),
        (Field::Sum, 11) => (None, 5, Encoding::Double(false)),
        (Field::BucketCounts, 9) => (None, 6, Encoding::PackedFixed64),
        (Field::ExplicitBounds, 9) => (None, 7, Encoding::PackedDouble),
        (Field::Exemplars, 5 | 7) => (None, 5, Encoding::Messages(MessageKind::Exemplar)),
        (Field::Exemplars, 9) => (None, 8, Encoding::Messages(MessageKind::Exemplar)),
        (Field::Exemplars, 10) => (None, 11, Encoding::Messages(MessageKind::Exemplar)),
        (Field::Scale, 10) => (None, 6, Encoding::Zigzag),
        (Field::ZeroCount, 10) => (None, 7, Encoding::Fixed64),
        (Field::Buckets(is_positive), 10) => (
            None,
            buckets(is_positive),
            Encoding::Messages(MessageKind::Buckets),
        ),
        (Field::BucketsOffset(is_positive), 10) => {
            (Some(buckets(is_positive)), 1, Encoding::Zigzag)
        }
        (Field::BucketsCounts(is_positive), 10) => {
            (Some(buckets(is_positive)), 2, Encoding::PackedVarint)
        }
        (Field::Quantiles, 11) => (None, 6, Encoding::Messages(MessageKind::Quantile)),
        _ => return None,
    };
    Some(Place {
        inside,
        number,
        encoding,
    })
}

fn buckets(is_positive: bool) -> u32 {
    if is_positive { 8 } else { 9 }
}

impl Place {
    /// Returns the numbers of the fields that the new field replaces.
    pub(super) fn replaces(&self) -> &[u32] {
        match self.encoding {
            Encoding::NumberDouble | Encoding::NumberInt => &[4, 6],
            _ => std::slice::from_ref(&self.number),
        }
    }

    /// Encodes a value as the field. A value that protobuf omits is empty.
    pub(super) fn encoded(&self, path: &Path, value: &Value<'_>) -> Result<Vec<u8>, Undecided> {
        let mut field = Vec::new();
        let key = |wire_type: u32, output: &mut Vec<u8>| {
            put_varint(u64::from(self.number << 3 | wire_type), output);
        };
        match (self.encoding, value) {
            (Encoding::Text, Value::Text(text)) => {
                if !text.is_empty() {
                    put_delimited(self.number, text.as_bytes(), &mut field);
                }
            }
            (Encoding::Id(length, false), Value::Id(id)) if id.len() == length => {
                self.put_id(id, &mut field);
            }
            (Encoding::Id(length, true), Value::Text(digits)) => {
                self.put_id(&id(digits, length)?, &mut field);
            }
            (Encoding::Varint32, Value::Int(value)) => {
                // As in the Collector, the upper bits are lost.
                let value = *value as i32;
                let is_signed = matches!(
                    path.field,
                    Field::Kind | Field::StatusCode | Field::SeverityNumber | Field::Temporality
                );
                if value != 0 {
                    key(0, &mut field);
                    match is_signed {
                        true => put_varint(i64::from(value).cast_unsigned(), &mut field),
                        false => put_varint(value.cast_unsigned().into(), &mut field),
                    }
                }
            }
            (Encoding::Fixed32, Value::Int(value)) => {
                let value = match (u32::try_from(*value), path.context) {
                    (Ok(value), _) => value,
                    (Err(_), Context::Span) => return Err(Undecided::WrongType),
                    (Err(_), _) => *value as u32,
                };
                if value != 0 {
                    key(5, &mut field);
                    field.extend_from_slice(&value.to_le_bytes());
                }
            }
            (Encoding::Fixed64, Value::Int(value)) => {
                self.put_fixed(value.to_le_bytes(), *value == 0, &mut field);
            }
            (Encoding::Time, Value::Int(value)) if !path.as_time => {
                self.put_fixed(value.to_le_bytes(), *value == 0, &mut field);
            }
            (Encoding::Time, Value::Time(time)) if path.as_time => {
                let bytes = time.nanoseconds.to_le_bytes();
                self.put_fixed(bytes, time.nanoseconds == 0, &mut field);
            }
            (Encoding::Bool, Value::Bool(value)) => {
                if *value {
                    key(0, &mut field);
                    field.push(1);
                }
            }
            (Encoding::Double(writes_zero), Value::Double(value)) => {
                let is_omitted = value.to_bits() == 0 && !writes_zero;
                self.put_fixed(value.to_le_bytes(), is_omitted, &mut field);
            }
            (Encoding::NumberDouble, Value::Double(value)) => {
                self.put_fixed(value.to_le_bytes(), false, &mut field);
            }
            (Encoding::NumberInt, Value::Int(value)) => {
                self.put_fixed(value.to_le_bytes(), false, &mut field);
            }
            (Encoding::Zigzag, Value::Int(value)) => {
                let value = *value as i32;
                if value != 0 {
                    key(0, &mut field);
                    let zigzag = (value << 1 ^ value >> 31).cast_unsigned();
                    put_varint(zigzag.into(), &mut field);
                }
            }
            (Encoding::Kind, Value::Text(name)) => {
                let name = match path.field {
                    Field::KindEnumText => name.strip_prefix("SPAN_KIND_").unwrap_or_default(),
                    _ => name,
                };
                let is = |known: &&str| match path.field {
                    Field::KindEnumText => known.to_ascii_uppercase() == name,
                    _ => **known == *name,
                };
                let kind = KINDS.iter().position(is);
                let kind = kind.ok_or(Undecided::Because("the text is not a kind of span"))?;
                if kind != 0 {
                    key(0, &mut field);
                    put_varint(kind as u64, &mut field);
                }
            }
            (
                Encoding::Messages(kind),
                Value::Messages(Messages {
                    kind: given,
                    encoded,
                }),
            ) if kind == *given => {
                for message in encoded {
                    put_delimited(self.number, message, &mut field);
                }
            }
            (
                Encoding::Messages(_)
                | Encoding::PackedFixed64
                | Encoding::PackedDouble
                | Encoding::PackedVarint,
                Value::Nil,
            ) => {}
            (Encoding::PackedFixed64 | Encoding::PackedDouble | Encoding::PackedVarint, value)
                if value.is_list() =>
            {
                let mut packed = Vec::new();
                for element in value.clone().into_list()? {
                    match (self.encoding, element) {
                        (Encoding::PackedFixed64, Value::Int(value)) => {
                            packed.extend_from_slice(&value.to_le_bytes());
                        }
                        (Encoding::PackedDouble, Value::Double(value)) => {
                            packed.extend_from_slice(&value.to_le_bytes());
                        }
                        (Encoding::PackedVarint, Value::Int(value)) => {
                            put_varint(value.cast_unsigned(), &mut packed);
                        }
                        _ => return Err(Undecided::WrongType),
                    }
                }
                if !packed.is_empty() {
                    put_delimited(self.number, &packed, &mut field);
                }
            }
            _ => return Err(Undecided::WrongType),
        }
        Ok(field)
    }

    fn put_id(&self, id: &[u8], output: &mut Vec<u8>) {
        if id.iter().any(|byte| *byte != 0) {
            put_delimited(self.number, id, output);
        }
    }

    fn put_fixed(&self, bytes: [u8; 8], is_omitted: bool, output: &mut Vec<u8>) {
        if !is_omitted {
            put_varint(u64::from(self.number << 3 | 1), output);
            output.extend_from_slice(&bytes);
        }
    }
}

/// Parses an id of a length in bytes.
pub(super) fn id(digits: &str, length: usize) -> Result<Vec<u8>, Undecided> {
    const NO_ID: Undecided = Undecided::Because("a text does not have the digits of an id");
    if digits.len() != 2 * length || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(NO_ID);
    }
    let pairs = (0..length).map(|at| digits.get(2 * at..2 * at + 2));
    let bytes = pairs.map(|pair| pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()));
    bytes.collect::<Option<_>>().ok_or(NO_ID)
}
