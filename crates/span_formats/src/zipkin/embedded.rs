//! Events and links that the Zipkin exporters of OpenTelemetry write as text: `name|{attributes}|dropped` in an
//! annotation, and `trace|span|state|{attributes}|dropped` in a tag.

use std::borrow::Cow;

use serde::de::MapAccess;

use crate::attributes::{AttributeSet, Value};
use crate::json::{Member, Object, ReadMember};
use crate::memory::Memory;
use serde::de::DeserializeSeed;

/// An event or a link in a text.
pub(super) struct Embedded<'t> {
    /// The parts before the attributes.
    pub(super) head: &'t str,
    pub(super) attributes: AttributeSet<'static>,
    /// Number of dropped attributes.
    pub(super) dropped: u32,
}

/// Parses a text with `heads` parts before the attributes; `None` if it has another form.
pub(super) fn parse<'t>(text: &'t str, heads: usize, memory: &Memory<'_>) -> Option<Embedded<'t>> {
    let mut bars = text.match_indices('|').map(|(at, _)| at);
    let begin = bars.nth(heads - 1)?;
    let end = bars.next_back()?;
    let dropped = text.get(end + 1..)?.parse().ok()?;
    let json = text.get(begin + 1..end)?;
    // The attributes are copies.
    memory.copy(json.len()).ok()?;
    let mut input = serde_json::Deserializer::from_str(json);
    let reader = Scalars {
        memory,
        attributes: AttributeSet::default(),
    };
    let mut read = Object((reader, memory)).deserialize(&mut input).ok()?;
    input.end().ok()?;
    read.attributes.deduplicate(memory).ok()?;
    Some(Embedded {
        head: text.get(..begin)?,
        attributes: read.attributes,
        dropped,
    })
}

/// Members with scalar values. Lists and objects are ignored, as in the Collector.
struct Scalars<'m, 'r> {
    memory: &'m Memory<'r>,
    attributes: AttributeSet<'static>,
}

impl<'de> ReadMember<'de> for Scalars<'_, '_> {
    fn member<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        member: Member<'_, A>,
    ) -> Result<(), A::Error> {
        let value = match member.read(crate::json::Scalar)?.flatten() {
            Some(value) => value,
            None => return Ok(()),
        };
        let key = Cow::Owned(key.into_owned());
        self.attributes
            .add(self.memory, key, whole(value))
            .map_err(serde::de::Error::custom)
    }
}

/// Converts a number without a fraction to an integer: JSON has one type of number.
fn whole(value: Value<'static>) -> Value<'static> {
    match value {
        Value::Double(value) if value.fract() == 0.0 => Value::Int(value as i64),
        other => other,
    }
}
