use crate::EvaluationTarget;
use crate::functions::Arguments;
use crate::value::{Undecided, Value, put_value};
use tributary_otlp::view::{AnyValue, Message, View as _};

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
        let text = call(
            "Format",
            vec![format, Value::List(vec![Value::Double(0.5)])],
        );
        assert!(text.unwrap().plain_text().unwrap().len() < 1100, "{verb}");
    }
}

fn text(text: String) -> Value<'static> {
    Value::Text(text.into())
}

#[test]
fn texts_with_too_many_elements_are_not_parsed() {
    let many = |part: &str, count: usize| part.repeat(count);
    for (function, part, more, count) in [
        ("Split", "a,", Some(","), 100_000),
        ("ParseKeyValue", "a=b ", None, 100_000),
    ] {
        let arguments = |count| {
            let more = more.map(|more| text(more.to_owned()));
            [text(many(part, count))].into_iter().chain(more).collect()
        };
        assert!(call(function, arguments(count)).is_ok(), "{function}");
        let refused = call(function, arguments(count + 1)).unwrap_err();
        assert!(refused.to_string().contains("100,000"), "{refused}");
    }
    let json = |count| text(format!("[{}0]", many("0,", count)));
    assert!(call("ParseJSON", vec![json(99_999)]).is_ok());
    assert!(call("ParseJSON", vec![json(100_000)]).is_err());
    let quoted = text(format!("[\"{}\\\"\"]", many("[,{", 100_000)));
    assert!(call("ParseJSON", vec![quoted]).is_ok());
}

#[test]
fn json_nests_as_deep_as_requests_can() {
    let objects = |levels: usize| "{\"a\":".repeat(levels) + "1" + &"}".repeat(levels);
    let lists = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    for (deepest, deeper) in [(objects(30), objects(31)), (lists(45), lists(46))] {
        let value = call("ParseJSON", vec![text(deepest)]).unwrap();
        let mut encoded = Vec::new();
        put_value(&value, &mut encoded).unwrap();
        // The same value, as a part of a request, inside a list.
        let view = AnyValue::view(Message::new(&encoded));
        let inside = Value::List(vec![Value::Encoded(view)]);
        assert!(put_value(&inside, &mut Vec::new()).is_err());
        assert!(call("ParseJSON", vec![text(deeper)]).is_err());
    }
}

#[test]
fn signs_inside_times_are_no_digits() {
    for (time, format) in [
        ("+123-01-02", "%Y-%m-%d"),
        ("2024 +-1:00", "%Y %z"),
        ("2024 +25:00", "%Y %z"),
    ] {
        let arguments = vec![text(time.to_owned()), text(format.to_owned())];
        assert!(call("Time", arguments).is_err(), "{time}");
    }
    let arguments = vec![text("2024 +02:30".to_owned()), text("%Y %z".to_owned())];
    assert!(call("Time", arguments).is_ok());
}
