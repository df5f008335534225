//! Errors of compilation units.

use crate::compile::CompileError;

#[derive(Debug)]
pub(super) enum UnitError {
    /// The unit is damaged. Its parts before the damage are kept, and other units are still read.
    Damaged,
    /// The whole compilation fails.
    Compile(CompileError),
}

impl From<gimli::Error> for UnitError {
    fn from(_: gimli::Error) -> Self {
        UnitError::Damaged
    }
}

impl From<CompileError> for UnitError {
    fn from(error: CompileError) -> Self {
        UnitError::Compile(error)
    }
}
