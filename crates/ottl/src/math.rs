//! Arithmetic by the rules of the language (contrib, `pkg/ottl/math.go`). Integers stay integers and wrap around. If
//! one operand is a double, so is the result. Times and durations support only addition and subtraction.

use super::Operator;
use super::value::{Moment, Undecided, Value};

/// Returns the result of an operation on two values.
pub(super) fn calculate<'v>(
    left: &Value<'v>,
    operator: Operator,
    right: &Value<'v>,
) -> Result<Value<'v>, Undecided> {
    Ok(match (left, operator, right) {
        (Value::Int(left), _, Value::Int(right)) => Value::Int(whole(*left, operator, *right)?),
        (Value::Int(left), _, Value::Double(right)) => {
            Value::Double(fraction(*left as f64, operator, *right)?)
        }
        (Value::Double(left), _, Value::Int(right)) => {
            Value::Double(fraction(*left, operator, *right as f64)?)
        }
        (Value::Double(left), _, Value::Double(right)) => {
            Value::Double(fraction(*left, operator, *right)?)
        }
        (Value::Time(left), Operator::Subtract, Value::Time(right)) => {
            // As in Go, an overflow becomes the longest duration.
            Value::Duration(left.nanoseconds.saturating_sub(right.nanoseconds))
        }
        (Value::Time(time), Operator::Add, Value::Duration(duration))
        | (Value::Duration(duration), Operator::Add, Value::Time(time)) => Value::Time(Moment {
            nanoseconds: time.nanoseconds.wrapping_add(*duration),
            offset: time.offset,
        }),
        (Value::Time(time), Operator::Subtract, Value::Duration(duration)) => Value::Time(Moment {
            nanoseconds: time.nanoseconds.wrapping_sub(*duration),
            offset: time.offset,
        }),
        (Value::Duration(left), Operator::Add, Value::Duration(right)) => {
            Value::Duration(left.wrapping_add(*right))
        }
        (Value::Duration(left), Operator::Subtract, Value::Duration(right)) => {
            Value::Duration(left.wrapping_sub(*right))
        }
        _ => return Err(Undecided::NoNumber),
    })
}

fn whole(left: i64, operator: Operator, right: i64) -> Result<i64, Undecided> {
    Ok(match operator {
        Operator::Add => left.wrapping_add(right),
        Operator::Subtract => left.wrapping_sub(right),
        Operator::Multiply => left.wrapping_mul(right),
        Operator::Divide if right == 0 => return Err(Undecided::ByZero),
        Operator::Divide => left.wrapping_div(right),
    })
}

fn fraction(left: f64, operator: Operator, right: f64) -> Result<f64, Undecided> {
    Ok(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide if right == 0.0 => return Err(Undecided::ByZero),
        Operator::Divide => left / right,
    })
}
