//! Prints types of functions, pointers and references.

use std::fmt::{self, Write};

use super::super::node::{Function, Id, Node, Qualifiers, Reference};
use super::{MAX_DEPTH, Printer, Scope};

pub(super) fn symbol(reference: Reference) -> &'static str {
    match reference {
        Reference::LValue => "&",
        Reference::RValue => "&&",
    }
}

impl<'p, 'a, W: Write> Printer<'p, 'a, W> {
    pub(super) fn qualifiers(&mut self, qualifiers: Qualifiers) -> fmt::Result {
        self.text(if qualifiers.is_const { " const" } else { "" })?;
        self.text(if qualifiers.is_volatile {
            " volatile"
        } else {
            ""
        })?;
        self.text(if qualifiers.is_restrict {
            " __restrict"
        } else {
            ""
        })?;
        match qualifiers.reference {
            Some(reference) => {
                self.text(" ")?;
                self.text(symbol(reference))
            }
            None => Ok(()),
        }
    }

    pub(super) fn scope_of(&mut self, function: &Function) -> usize {
        match function.arguments {
            Some(arguments) => self.inner(Scope::Arguments(arguments)),
            None => self.scope,
        }
    }

    pub(super) fn function_left(&mut self, function: &Function) -> fmt::Result {
        if let Some(result) = function.result {
            self.left(result)?;
            if function.name.is_none() || !self.has_right(result, self.scope, 0) {
                self.text(" ")?;
            }
        }
        match function.name {
            Some(name) => self.print(name),
            None => Ok(()),
        }
    }

    pub(super) fn function_right(&mut self, function: &Function) -> fmt::Result {
        self.text("(")?;
        self.list(function.parameters)?;
        self.text(")")?;
        if let Some(result) = function.result {
            self.right(result)?;
        }
        self.qualifiers(function.qualifiers)?;
        match function.suffix {
            Some(suffix) => self.print(suffix),
            None => Ok(()),
        }
    }

    pub(super) fn pointer_left(&mut self, to: Id, scope: usize, symbol: &str) -> fmt::Result {
        self.within(scope, |printer| printer.left(to))?;
        if self.is_array(to, scope) {
            self.text(" (")?;
        } else if self.is_function(to, scope) {
            self.text("(")?;
        }
        self.text(symbol)
    }

    pub(super) fn pointer_right(&mut self, to: Id, scope: usize) -> fmt::Result {
        if self.is_array(to, scope) || self.is_function(to, scope) {
            self.text(")")?;
        }
        self.within(scope, |printer| printer.right(to))
    }

    /// Collapses references to references (`T&&` where `T` is `int&`).
    pub(super) fn collapsed(&self, mut to: Id, mut reference: Reference) -> (Id, usize, Reference) {
        let mut scope = self.scope;
        for _ in 0..MAX_DEPTH {
            let (behind, around) = self.behind(to, scope);
            let Some(Node::Referred(inner, of)) = self.node(behind) else {
                break;
            };
            (to, scope) = (inner, around);
            if of == Reference::LValue {
                reference = Reference::LValue;
            }
        }
        (to, scope, reference)
    }
}
