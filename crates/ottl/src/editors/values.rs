//! Editors of any value.

use super::{Editing, Editor, Effect, TARGET};
use crate::functions::ParameterKind::{Any, Int};
use crate::functions::{Arguments, Literals, Parameter, append, delete_index};
use crate::value::{Moment, Undecided, Value};
use crate::write::write;

pub(super) const ALL: &[Editor] = &[
    Editor::new("set", &[TARGET, Parameter::new("value", Any)], |editing| {
        let value = editing.arguments.take(1);
        // As in the Collector, `nil` has no effect.
        if matches!(value, Value::Nil) {
            return Ok(Effect::default());
        }
        write(editing.path()?, editing.here, &value).map(Effect::from)
    }),
    Editor::new("clear", &[TARGET], |editing| {
        let empty = match editing.current()? {
            value if value.is_map() => Value::Map(Vec::new()),
            value if value.is_list() => Value::List(Vec::new()),
            Value::Text(_) => Value::owned_text(String::new()),
            Value::Bool(_) => Value::Bool(false),
            Value::Int(_) => Value::Int(0),
            Value::Double(_) => Value::Double(0.0),
            Value::Time(_) => Value::Time(Moment::utc(0)),
            Value::Id(id) => Value::Id(vec![0; id.len()].into()),
            _ => Value::Nil,
        };
        write(editing.path()?, editing.here, &empty).map(Effect::from)
    }),
    Editor::new(
        "append",
        &[
            TARGET,
            Parameter::optional("value", Any),
            Parameter::optional("values", Any),
        ],
        |editing| changed_list(editing, append),
    )
    .checked(has_values),
    Editor::new(
        "delete_index",
        &[
            TARGET,
            Parameter::new("start_index", Int),
            Parameter::optional("end_index", Int),
        ],
        |editing| changed_list(editing, delete_index),
    ),
];

fn has_values(literals: &Literals<'_>) -> Result<(), String> {
    match literals.has(1) || literals.has(2) {
        true => Ok(()),
        false => Err("give `value` or `values`".to_owned()),
    }
}

/// Writes the result of a function of a list and the further arguments.
fn changed_list<'v>(
    editing: &mut Editing<'_, 'v>,
    function: fn(&mut Arguments<'_, 'v>) -> Result<Vec<Value<'v>>, Undecided>,
) -> Result<Effect, Undecided> {
    let mut values = [
        Some(editing.current()?),
        editing.arguments.get(1).cloned(),
        editing.arguments.get(2).cloned(),
    ];
    let list = function(&mut Arguments::new(&mut values, editing.here))?;
    write(editing.path()?, editing.here, &Value::List(list)).map(Effect::from)
}
