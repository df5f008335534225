//! Statements: an editor with its arguments, and a condition.

use std::sync::Arc;

use smallvec::SmallVec;

use super::editors::{Editing, Editor};
use super::functions::Arguments;
use super::path::{Context, Depth, Field, Path};
use super::target::EvaluationTarget;
use super::value::{Undecided, Value};
pub use super::write::{Effect, PartChange};
use super::{Operand, Test};
use tributary_otlp::room::{Room, Unbounded};

/// A statement, and the level at which it is executed.
#[derive(Debug, Clone)]
pub struct Statement {
    /// Context whose items the statement is executed on.
    pub context: Context,
    pub(crate) editor: &'static Editor,
    /// Path that the editor changes.
    pub(crate) target: Option<Path>,
    /// An argument for each parameter of the editor; `None` for the target and for optional ones.
    pub(crate) arguments: Vec<Option<Operand>>,
    pub(crate) condition: Option<Test>,
    /// The statement in its written form.
    pub text: Arc<str>,
}

impl Statement {
    /// Executes the statement, if its condition is true.
    ///
    /// # Errors
    ///
    /// The condition or an argument cannot be evaluated, or the target does not accept the value.
    pub fn execute(&self, here: &EvaluationTarget<'_>) -> Result<Effect, Undecided> {
        self.execute_within(here, &Unbounded)
    }

    /// Like [`execute`](Self::execute). A function that decodes a metric takes the memory from `room`.
    ///
    /// # Errors
    ///
    /// Also [`Undecided::NoMemory`], if the room is exhausted.
    pub fn execute_within(
        &self,
        here: &EvaluationTarget<'_>,
        room: &dyn Room,
    ) -> Result<Effect, Undecided> {
        if let Some(condition) = &self.condition
            && !condition.eval(here)?
        {
            return Ok(Effect::default());
        }
        let mut values: SmallVec<[Option<Value<'_>>; 3]> = SmallVec::new();
        for argument in &self.arguments {
            values.push(match argument {
                Some(argument) => Some(argument.value(here)?),
                None => None,
            });
        }
        let mut editing = Editing {
            arguments: Arguments::new(&mut values, here),
            operands: &self.arguments,
            target: self.target.as_ref(),
            here,
            room,
            taken: 0,
        };
        let effect = (self.editor.apply)(&mut editing);
        room.release(editing.taken);
        effect
    }

    /// Returns the context whose part the statement changes; `None` for the cache.
    pub fn writes(&self) -> Option<Context> {
        match &self.target {
            Some(path) if path.field == Field::Cache => None,
            Some(path) => Some(path.context),
            None => Some(self.context),
        }
    }

    /// Whether the statement may add metrics to the current scope.
    pub fn adds_metrics(&self) -> bool {
        self.target.is_none()
    }

    /// Returns the statement for the parts inside the current part at this depth: operands that depend only on the
    /// current part are replaced by their values. Returns `None` if there are no such operands. The enclosing parts
    /// must not change between executions.
    pub fn within(&self, depth: Depth, here: &EvaluationTarget<'_>) -> Option<Statement> {
        let condition = self.condition.as_ref();
        let mut arguments = self.arguments.iter().flatten();
        let depends_on = condition.is_some_and(|condition| condition.depends_on(depth))
            || arguments.any(|argument| argument.depends_on(depth));
        (self.context.depth() > depth && depends_on).then(|| Statement {
            condition: condition.map(|condition| condition.within(depth, here)),
            arguments: self
                .arguments
                .iter()
                .map(|argument| argument.as_ref().map(|value| value.within(depth, here)))
                .collect(),
            target: self.target.clone(),
            text: self.text.clone(),
            ..*self
        })
    }
}
