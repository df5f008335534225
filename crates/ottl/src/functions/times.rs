//! Functions of times and durations.

use std::time::SystemTime;

use super::ParameterKind::{Any, Int, LiteralText, Text};
use super::time_formats::{Layout, Zone};
use super::{Arguments, Function, Literals, Parameter};
use crate::calendar::Date;
use crate::value::{Moment, Undecided, Value};
use tributary_config::units::Duration;

const TIME: Parameter = Parameter::new("time", Any);
const DURATION: Parameter = Parameter::new("duration", Any);
const NO_FORMAT: Undecided = Undecided::Because("a time does not have its format");

pub(super) const ALL: &[Function] = &[
    Function::new("Now", &[], |_| Ok(Value::Time(now()))).impure(),
    Function::new(
        "Time",
        &[
            Parameter::new("time", Text),
            Parameter::new("format", LiteralText),
            Parameter::optional("location", LiteralText),
        ],
        |arguments| {
            let layout = Layout::new(arguments.text(1)?).map_err(|_| NO_FORMAT)?;
            let zone = Zone::of_name(arguments.text_or(2, "")?).ok_or(NO_FORMAT)?;
            let time = layout.parse(arguments.text(0)?, &zone, now());
            time.map(Value::Time).ok_or(NO_FORMAT)
        },
    )
    .checked(|literals| {
        if let Some(name) = literals.text(2)
            && Zone::of_name(name).is_none()
        {
            return Err(format!("`{name}` is not a time zone"));
        }
        format_is_known(literals)
    }),
    Function::new(
        "FormatTime",
        &[TIME, Parameter::new("format", LiteralText)],
        |arguments| {
            let layout = Layout::new(arguments.text(1)?).map_err(|_| NO_FORMAT)?;
            Ok(Value::owned_text(layout.format(arguments.time(0)?)))
        },
    )
    .checked(format_is_known),
    Function::new("TruncateTime", &[TIME, DURATION], truncate),
    Function::new(
        "Unix",
        &[
            Parameter::new("seconds", Int),
            Parameter::optional("nanoseconds", Int),
        ],
        |arguments| {
            let nanoseconds = match arguments.get(1) {
                Some(_) => arguments.int(1)?,
                None => 0,
            };
            let seconds = arguments.int(0)?.wrapping_mul(1_000_000_000);
            Ok(Value::Time(Moment::utc(seconds.wrapping_add(nanoseconds))))
        },
    ),
    Function::new("UnixNano", &[TIME], |arguments| {
        Ok(Value::Int(arguments.time(0)?.nanoseconds))
    }),
    Function::new("UnixMicro", &[TIME], |arguments| since(arguments, 1000)),
    Function::new("UnixMilli", &[TIME], |arguments| {
        since(arguments, 1_000_000)
    }),
    Function::new("UnixSeconds", &[TIME], |arguments| {
        since(arguments, 1_000_000_000)
    }),
    Function::new(
        "Duration",
        &[Parameter::new("duration", Text)],
        |arguments| {
            let duration = signed_duration(arguments.text(0)?);
            duration.map(Value::Duration).ok_or(Undecided::NoDuration)
        },
    )
    .checked(|literals| match literals.text(0) {
        Some(text) if signed_duration(text).is_none() => {
            let unsigned = text.trim_start_matches(['-', '+']);
            let reason = unsigned.parse::<Duration>().err();
            Err(reason.unwrap_or_else(|| "the duration is too long".to_owned()))
        }
        _ => Ok(()),
    }),
    Function::new("Hours", &[DURATION], |arguments| {
        in_units(arguments, 3_600_000_000_000)
    }),
    Function::new("Minutes", &[DURATION], |arguments| {
        in_units(arguments, 60_000_000_000)
    }),
    Function::new("Seconds", &[DURATION], |arguments| {
        in_units(arguments, 1_000_000_000)
    }),
    Function::new("Milliseconds", &[DURATION], |arguments| {
        Ok(Value::Int(arguments.duration(0)? / 1_000_000))
    }),
    Function::new("Microseconds", &[DURATION], |arguments| {
        Ok(Value::Int(arguments.duration(0)? / 1000))
    }),
    Function::new("Nanoseconds", &[DURATION], |arguments| {
        Ok(Value::Int(arguments.duration(0)?))
    }),
    Function::new("Year", &[TIME], |arguments| {
        date(arguments).map(|date| Value::Int(date.year))
    }),
    Function::new("Month", &[TIME], |arguments| {
        date(arguments).map(|date| Value::Int(date.month))
    }),
    Function::new("Day", &[TIME], |arguments| {
        date(arguments).map(|date| Value::Int(date.day))
    }),
    Function::new("Hour", &[TIME], |arguments| {
        date(arguments).map(|date| Value::Int(date.hour))
    }),
    Function::new("Minute", &[TIME], |arguments| {
        date(arguments).map(|date| Value::Int(date.minute))
    }),
    Function::new("Second", &[TIME], |arguments| {
        date(arguments).map(|date| Value::Int(date.second))
    }),
    Function::new("Nanosecond", &[TIME], |arguments| {
        date(arguments).map(|date| Value::Int(date.nanosecond))
    }),
    Function::new("Weekday", &[TIME], |arguments| {
        date(arguments).map(|date| Value::Int(date.weekday))
    }),
];

fn now() -> Moment {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanoseconds = now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX));
    Moment::utc(nanoseconds)
}

fn format_is_known(literals: &Literals<'_>) -> Result<(), String> {
    match literals.text(1) {
        Some(format) => Layout::new(format).map(|_| ()),
        None => Ok(()),
    }
}

fn since<'v>(arguments: &mut Arguments<'_, 'v>, unit: i64) -> Result<Value<'v>, Undecided> {
    Ok(Value::Int(arguments.time(0)?.nanoseconds.div_euclid(unit)))
}

/// Returns a duration in a unit of nanoseconds. Whole units and the rest are divided separately, as Go does.
fn in_units<'v>(arguments: &mut Arguments<'_, 'v>, unit: i64) -> Result<Value<'v>, Undecided> {
    let duration = arguments.duration(0)?;
    let (whole, rest) = (duration / unit, duration % unit);
    Ok(Value::Double(whole as f64 + rest as f64 / unit as f64))
}

fn date(arguments: &mut Arguments<'_, '_>) -> Result<Date, Undecided> {
    arguments.time(0).map(Date::of)
}

/// Parses a duration of the Collector, with an optional sign, in nanoseconds.
fn signed_duration(text: &str) -> Option<i64> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let duration: Duration = rest.parse().ok()?;
    let nanoseconds = i64::try_from(duration.as_nanos()).ok()?;
    nanoseconds.checked_mul(sign)
}

/// Rounds a time down to a multiple of a duration since the year 1, as Go does.
fn truncate<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    /// Seconds from the year 1 to 1970.
    const TO_1970: i128 = 62_135_596_800;
    let (time, duration) = (arguments.time(0)?, arguments.duration(1)?);
    if duration <= 0 {
        return Ok(Value::Time(time));
    }
    let since = i128::from(time.nanoseconds) + TO_1970 * 1_000_000_000;
    let beyond = since.rem_euclid(i128::from(duration));
    let beyond = i64::try_from(beyond).unwrap_or_default();
    Ok(Value::Time(Moment {
        nanoseconds: time.nanoseconds.wrapping_sub(beyond),
        offset: time.offset,
    }))
}
