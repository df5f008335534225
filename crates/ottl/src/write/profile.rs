//! Writes to profiles, whose attributes the component stores in the dictionary.

use super::places::id;
use super::write_map;
use crate::path::{Field, Path};
use crate::target::{EvaluationTarget, ProfileFields};
use crate::value::{Undecided, Value};

pub(super) fn write(
    profile: &mut ProfileFields,
    path: &Path,
    here: &EvaluationTarget<'_>,
    value: &Value<'_>,
) -> Result<(), Undecided> {
    const EMPTY_ID: Undecided = Undecided::Because("the id of a profile must not be empty");
    match (path.field, value) {
        (Field::Attributes, value) => {
            profile.attributes = write_map(1, &profile.attributes, path, here, value)?;
        }
        (Field::DroppedAttributes, Value::Int(value)) => profile.dropped_attributes = *value as u32,
        (Field::ProfileId(false), Value::Id(id)) if id.len() == 16 => {
            profile.profile_id = filled(id.to_vec()).ok_or(EMPTY_ID)?;
        }
        (Field::ProfileId(true), Value::Text(digits)) => {
            profile.profile_id = filled(id(digits, 16)?).ok_or(EMPTY_ID)?;
        }
        (Field::Time, Value::Int(value)) if !path.as_time => profile.time = value.cast_unsigned(),
        (Field::Time, Value::Time(time)) if path.as_time => {
            profile.time = time.nanoseconds.cast_unsigned();
        }
        (Field::Duration, Value::Int(value)) => {
            let duration = u64::try_from(*value);
            profile.duration =
                duration.map_err(|_| Undecided::Because("the duration is negative"))?;
        }
        (Field::Period, Value::Int(value)) => profile.period = *value,
        (Field::PayloadFormat, Value::Text(text)) => profile.payload_format = text.to_string(),
        _ => return Err(Undecided::WrongType),
    }
    Ok(())
}

fn filled(id: Vec<u8>) -> Option<Vec<u8>> {
    id.iter().any(|byte| *byte != 0).then_some(id)
}
