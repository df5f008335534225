//! Writes inside lists and maps (contrib, `SetIndexableValue`).

use opentelemetry_proto::tonic::common::v1::any_value::Value as Proto;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};
use prost::Message as _;

use crate::eval::Step;
use crate::value::{DEEPEST, LIST_LEVEL, MAP_LEVEL, Undecided, Value, put_within};

/// Largest index at which an element is created in an empty value. The elements before it are created too, so that an
/// index from telemetry could use up the memory.
const LARGEST_NEW_INDEX: i64 = 1000;

/// Returns an encoded value in which the value at the end of the steps is replaced.
pub(crate) fn set_at(
    current: &[u8],
    steps: &[Step<'_>],
    value: &Value<'_>,
) -> Result<Vec<u8>, Undecided> {
    let mut root = AnyValue::decode(current).unwrap_or_default();
    let depth = steps.iter().map(|step| match step {
        Step::Name(_) => MAP_LEVEL,
        Step::Position(_) => LIST_LEVEL,
    });
    let left = DEEPEST.checked_sub(depth.sum()).ok_or(Undecided::NoKeys)?;
    let mut encoded = Vec::new();
    put_within(value, left, &mut encoded)?;
    let mut place = &mut root;
    for step in steps {
        if place.value.is_none() {
            place.value = Some(match step {
                Step::Name(_) => Proto::KvlistValue(KeyValueList::default()),
                Step::Position(at) => Proto::ArrayValue(ArrayValue {
                    values: vec![AnyValue::default(); new_length(*at)?],
                }),
            });
        }
        place = match (&mut place.value, step) {
            (Some(Proto::KvlistValue(map)), Step::Name(name)) => child(map, name),
            (Some(Proto::ArrayValue(list)), Step::Position(at)) => {
                let at = usize::try_from(*at).map_err(|_| Undecided::NoPosition)?;
                list.values.get_mut(at).ok_or(Undecided::NoPosition)?
            }
            (Some(Proto::ArrayValue(_)), _) => return Err(Undecided::NoPosition),
            _ => return Err(Undecided::NoKeys),
        };
    }
    *place = AnyValue::decode(encoded.as_slice()).unwrap_or_default();
    Ok(root.encode_to_vec())
}

fn new_length(at: i64) -> Result<usize, Undecided> {
    let is_small = (0..=LARGEST_NEW_INDEX).contains(&at);
    let length = usize::try_from(at + 1).ok().filter(|_| is_small);
    length.ok_or(Undecided::NoPosition)
}

/// Returns the value of a key, which is added if it is missing.
fn child<'m>(map: &'m mut KeyValueList, name: &str) -> &'m mut AnyValue {
    let found = map.values.iter().position(|entry| entry.key == name);
    let at = found.unwrap_or_else(|| {
        map.values.push(KeyValue {
            key: name.to_owned(),
            ..KeyValue::default()
        });
        map.values.len() - 1
    });
    // The index is that of an entry.
    #[allow(clippy::indexing_slicing)]
    map.values[at].value.get_or_insert_default()
}
