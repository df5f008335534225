use crate::EvaluationTarget;
use crate::functions::Arguments;
use crate::value::{Undecided, Value};

fn call<'v>(name: &str, values: Vec<Value<'v>>) -> Result<Value<'v>, Undecided> {
    let function = super::of_name(name).unwrap();
    let mut values: Vec<Option<Value<'v>>> = values.into_iter().map(Some).collect();
    values.resize_with(function.parameters.len(), || None);
    let here = EvaluationTarget::default();
    (function.call)(&mut Arguments::new(&mut values, &here))
}

#[test]
fn sort_of_large_mixed_numbers_is_a_total_order() {
    // As doubles, pairs of these numbers are equal; as integers, they are not.
    let large = 1_i64 << 53;
    let numbers = (0..200).map(|at| match at % 3 {
        0 => Value::Double(large as f64),
        1 => Value::Int(large + 1 - at % 2),
        _ => Value::Int(large - at % 5),
    });
    let list = numbers.rev().collect();
    let Ok(Value::List(sorted)) = call("Sort", vec![Value::List(list)]) else {
        panic!("not sorted");
    };
    let double = |value: &Value<'_>| match value {
        Value::Int(value) => *value as f64,
        Value::Double(value) => *value,
        _ => f64::NAN,
    };
    assert!(sorted.is_sorted_by(|left, right| double(left) <= double(right)));
    let whole = vec![Value::Int(large + 1), Value::Int(large)];
    let Ok(Value::List(sorted)) = call("Sort", vec![Value::List(whole)]) else {
        panic!("not sorted");
    };
    assert!(matches!(sorted.first(), Some(Value::Int(first)) if *first == large));
}

#[test]
fn format_with_huge_precision_has_bounded_digits() {
    for verb in ["%.99999f", "%.99999e", "%.18446744073709551615f"] {
        let format = Value::Text(verb.into());
        let text = call("Format", vec![format, Value::List(vec![Value::Double(0.5)])]);
        assert!(text.unwrap().plain_text().unwrap().len() < 1100, "{verb}");
    }
}
