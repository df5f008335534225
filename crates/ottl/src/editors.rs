//! Functions that change telemetry ("editors" in the language's documentation).
//!
//! [`all`] lists them. Names, parameters and results are those of contrib's `pkg/ottl/ottlfuncs` and
//! `processor/transformprocessor`.

mod maps;
mod metrics;
mod patterns;
#[cfg(test)]
mod tests;
mod values;

use super::Operand;
use super::functions::{Arguments, Check, Function, Parameter, ParameterKind};
use super::path::{Context, Path};
use super::target::EvaluationTarget;
use super::value::{Undecided, Value};
use super::write::Effect;
use tributary_otlp::room::Room;

/// A function that changes telemetry.
pub(crate) struct Editor {
    pub(crate) name: &'static str,
    pub(crate) parameters: &'static [Parameter],
    /// Whether the first argument is the path that the function changes.
    pub(crate) has_target: bool,
    pub(crate) apply: for<'v> fn(&mut Editing<'_, 'v>) -> Result<Effect, Undecided>,
    /// Checks the arguments that are literals.
    pub(crate) check: Option<Check>,
    /// The only context that has the function.
    pub(crate) context: Option<Context>,
}

impl std::fmt::Debug for Editor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The execution of an editor.
pub(crate) struct Editing<'c, 'v> {
    /// Evaluated arguments; the target has none.
    pub(crate) arguments: Arguments<'c, 'v>,
    pub(crate) operands: &'v [Option<Operand>],
    pub(crate) target: Option<&'v Path>,
    pub(crate) here: &'c EvaluationTarget<'v>,
    /// Memory for decoding.
    pub(crate) room: &'c dyn Room,
    /// Bytes taken from the room, which are free again after the execution.
    pub(crate) taken: usize,
}

impl<'v> Editing<'_, 'v> {
    pub(crate) fn path(&self) -> Result<&'v Path, Undecided> {
        self.target.ok_or(Undecided::WrongType)
    }

    /// Returns the current value of the target.
    pub(crate) fn current(&self) -> Result<Value<'v>, Undecided> {
        self.path()?.value(self.here)
    }

    /// Takes memory until the end of the execution.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), Undecided> {
        self.room.take(bytes).map_err(|_| Undecided::NoMemory)?;
        self.taken += bytes;
        Ok(())
    }

    /// Returns the function that is an argument.
    pub(crate) fn function(&self, at: usize) -> Option<&'static Function> {
        match self.operands.get(at)? {
            Some(Operand::Function(function)) => Some(function),
            _ => None,
        }
    }
}

impl Editor {
    const fn new(
        name: &'static str,
        parameters: &'static [Parameter],
        apply: for<'v> fn(&mut Editing<'_, 'v>) -> Result<Effect, Undecided>,
    ) -> Self {
        Editor {
            name,
            parameters,
            has_target: true,
            apply,
            check: None,
            context: None,
        }
    }

    const fn checked(mut self, check: Check) -> Self {
        self.check = Some(check);
        self
    }

    /// Marks a function of a whole metric or data point.
    const fn only_in(mut self, context: Context) -> Self {
        self.has_target = false;
        self.context = Some(context);
        self
    }
}

/// The parameter of the path that an editor changes.
const TARGET: Parameter = Parameter::new("target", ParameterKind::Any);

/// Returns all editors.
pub(crate) fn all() -> impl Iterator<Item = &'static Editor> {
    [values::ALL, maps::ALL, patterns::ALL, metrics::ALL]
        .into_iter()
        .flatten()
}

/// Returns the editor of that name.
pub(crate) fn of_name(name: &str) -> Option<&'static Editor> {
    all().find(|editor| editor.name == name)
}
