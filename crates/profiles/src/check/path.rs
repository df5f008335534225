//! Paths in a message, which are formatted only if reported.

use std::fmt;

#[derive(Debug, Clone, Copy)]
pub(super) struct Path<'p> {
    parent: Option<&'p Path<'p>>,
    name: &'static str,
    index: Option<usize>,
}

impl<'p> Path<'p> {
    pub(super) fn root(name: &'static str) -> Self {
        Path {
            parent: None,
            name,
            index: None,
        }
    }

    pub(super) fn field(&'p self, name: &'static str) -> Self {
        Path {
            parent: Some(self),
            name,
            index: None,
        }
    }

    pub(super) fn at(&self, index: usize) -> Self {
        Path {
            index: Some(index),
            ..*self
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}.")?;
        }
        f.write_str(self.name)?;
        match self.index {
            Some(index) => write!(f, "[{index}]"),
            None => Ok(()),
        }
    }
}
