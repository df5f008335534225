//! Prints the syntax tree of a name in C++ notation.

mod functions;
mod scopes;

use std::fmt::{self, Write};

use self::functions::symbol;
use super::node::{Function, Id, List, Node, Qualifiers};
use super::parse::Parser;

/// Maximum number of visited nodes. The length of the text is no bound, because empty packs print nothing.
const MAX_STEPS: u32 = 1 << 18;
const MAX_DEPTH: u32 = 320;

/// Meaning of template parameters in a part of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    None,
    /// Parameters of a generic lambda, printed as `auto:1`.
    Lambda,
    Arguments(List),
}

pub(super) struct Printer<'p, 'a, W> {
    parser: &'p Parser<'a>,
    output: &'p mut W,
    /// The last two printed characters.
    last: [char; 2],
    written: usize,
    /// Index in the parameter pack that is being expanded.
    pack: Option<usize>,
    /// Scopes, each with the index of its outer scope. The first scope is outside of all templates.
    scopes: Vec<(Scope, usize)>,
    scope: usize,
    steps: u32,
    depth: u32,
    /// Whether a comma is due before the next text. An empty pack prints no text, so it gets no comma.
    comma: bool,
}

impl<'p, 'a, W: Write> Printer<'p, 'a, W> {
    pub(super) fn new(parser: &'p Parser<'a>, output: &'p mut W) -> Self {
        Printer {
            parser,
            output,
            last: ['\0'; 2],
            written: 0,
            pack: None,
            scopes: vec![(Scope::None, 0)],
            scope: 0,
            steps: 0,
            depth: 0,
            comma: false,
        }
    }

    fn text(&mut self, text: &str) -> fmt::Result {
        if text.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.comma) {
            self.text(", ")?;
        }
        for character in text.chars().rev().take(2).collect::<Vec<_>>().iter().rev() {
            self.last = [self.last[1], *character];
        }
        self.written += text.len();
        self.output.write_str(text)
    }

    fn node(&self, id: Id) -> Option<Node<'a>> {
        self.parser.get(id)
    }

    fn items(&self, list: List) -> &'p [Id] {
        let parser = self.parser;
        let range = list.start as usize..list.end as usize;
        parser.lists.get(range).unwrap_or_default()
    }

    pub(super) fn print(&mut self, id: Id) -> fmt::Result {
        self.left(id)?;
        self.right(id)
    }

    fn deeper(&mut self, print: impl FnOnce(&mut Self) -> fmt::Result) -> fmt::Result {
        if self.depth >= MAX_DEPTH || self.steps >= MAX_STEPS {
            return Err(fmt::Error);
        }
        self.depth += 1;
        self.steps += 1;
        let printed = print(self);
        self.depth -= 1;
        printed
    }

    fn left(&mut self, id: Id) -> fmt::Result {
        self.deeper(|printer| printer.print_left(id))
    }

    fn right(&mut self, id: Id) -> fmt::Result {
        self.deeper(|printer| printer.print_right(id))
    }

    fn print_left(&mut self, id: Id) -> fmt::Result {
        let Some(node) = self.node(id) else {
            return Err(fmt::Error);
        };
        match node {
            Node::Text(text) => self.text(text),
            Node::Prefix(text, of) => {
                self.text(text)?;
                self.print(of)
            }
            Node::Suffix(of, text) => {
                self.print(of)?;
                self.text(text)
            }
            Node::Around(before, of, after) => {
                self.text(before)?;
                self.print(of)?;
                self.text(after)
            }
            Node::Between(first, text, second) => {
                self.print(first)?;
                self.text(text)?;
                self.print(second)
            }
            Node::Binary(first, operator, second) => {
                // In template arguments, `>` would end the list.
                let hides = operator == ">";
                self.text(if hides { "((" } else { "(" })?;
                self.print(first)?;
                self.text(")")?;
                self.text(operator)?;
                self.operand(second)?;
                self.text(if hides { ")" } else { "" })
            }
            Node::Unary(operator, of) => {
                self.text(operator)?;
                match self.node(of) {
                    // A member function is printed without its parameters.
                    Some(Node::Function(Function {
                        name: Some(name),
                        qualifiers,
                        ..
                    })) if operator == "&"
                        && qualifiers == Qualifiers::default()
                        && matches!(self.node(name), Some(Node::Between(_, "::", _))) =>
                    {
                        self.print(name)
                    }
                    _ => self.operand(of),
                }
            }
            Node::Conditional(condition, then, otherwise) => {
                self.operand(condition)?;
                self.text("?")?;
                self.operand(then)?;
                self.text(" : ")?;
                self.operand(otherwise)
            }
            Node::Call(of, [open, close], items) => {
                match self.node(of) {
                    Some(Node::Function(function)) if open == "(" => {
                        // A called function is printed by its name only.
                        self.print(function.name.unwrap_or(of))?;
                    }
                    Some(Node::Text(_) | Node::Template(..)) => self.print(of)?,
                    _ if open == "{" => self.print(of)?,
                    _ => self.operand(of)?,
                }
                self.text(open)?;
                self.list(items)?;
                self.text(close)
            }
            Node::Enclosed(before, items, after) => {
                self.text(before)?;
                self.list(items)?;
                self.text(after)
            }
            Node::Cast(how, to, of) => {
                self.text(how)?;
                self.text("<")?;
                self.print(to)?;
                self.close()?;
                self.text("(")?;
                self.print(of)?;
                self.text(")")
            }
            Node::CStyleCast(to, items) => {
                self.text("(")?;
                self.print(to)?;
                self.text(")")?;
                match self.items(items) {
                    [of] => self.operand(*of),
                    _ => {
                        self.text("(")?;
                        self.list(items)?;
                        self.text(")")
                    }
                }
            }
            Node::Template(name, arguments) => {
                self.print(name)?;
                self.arguments(arguments)
            }
            Node::Pack(list) => self.list(list),
            Node::Expansion(of) => self.expansion(of),
            Node::Argument(index) => {
                match (self.argument(index, self.scope, self.pack), self.here()) {
                    (Some((item, scope)), _) => self.in_place(scope, |printer| printer.left(item)),
                    (None, Scope::Lambda) => {
                        self.text("auto:")?;
                        self.number(index.saturating_add(1))
                    }
                    _ => Err(fmt::Error),
                }
            }
            Node::Scoped(name, arguments) => {
                let scope = self.inner(Scope::Arguments(arguments));
                self.within(scope, |printer| printer.print(name))
            }
            Node::Constructor(of, is_destructor) => {
                self.text(if is_destructor { "~" } else { "" })?;
                self.base_name(of)
            }
            Node::Conversion(to) => {
                self.text("operator ")?;
                self.print(to)
            }
            Node::Standard([short, ..]) => self.text(short),
            Node::Closure { parameters, number } => {
                self.text("{lambda(")?;
                let scope = self.inner(Scope::Lambda);
                self.within(scope, |printer| printer.list(parameters))?;
                self.text(")#")?;
                self.number(number)?;
                self.text("}")
            }
            Node::Unnamed(number) => {
                self.text("{unnamed type#")?;
                self.number(number)?;
                self.text("}")
            }
            Node::Function(function) => {
                let scope = self.scope_of(&function);
                self.within(scope, |printer| printer.function_left(&function))
            }
            Node::Qualified(of, qualifiers) => {
                self.left(of)?;
                self.qualifiers(qualifiers)
            }
            Node::Pointer(to) => self.pointer_left(to, self.scope, "*"),
            Node::Referred(to, reference) => {
                let (to, scope, reference) = self.collapsed(to, reference);
                self.pointer_left(to, scope, symbol(reference))
            }
            Node::MemberPointer(class, member) => {
                self.left(member)?;
                let is_enclosed =
                    self.is_array(member, self.scope) || self.is_function(member, self.scope);
                if self.last[1] != '(' {
                    self.text(if is_enclosed { "(" } else { " " })?;
                }
                self.print(class)?;
                self.text("::*")
            }
            Node::Array(of, _) => self.left(of),
            Node::Literal(of, digits, negative) => {
                self.text("(")?;
                self.print(of)?;
                self.text(")")?;
                self.text(if negative { "-" } else { "" })?;
                self.text(digits)
            }
            Node::Number(digits, suffix, negative) => {
                self.text(if negative { "-" } else { "" })?;
                self.text(digits)?;
                self.text(suffix)
            }
            Node::Parameter(number) => self.number(number),
        }
    }

    fn print_right(&mut self, id: Id) -> fmt::Result {
        match self.node(id) {
            Some(Node::Function(function)) => {
                let scope = self.scope_of(&function);
                self.within(scope, |printer| printer.function_right(&function))
            }
            Some(Node::Qualified(of, _)) => self.right(of),
            Some(Node::Pointer(to)) => self.pointer_right(to, self.scope),
            Some(Node::Referred(to, reference)) => {
                let (to, scope, _) = self.collapsed(to, reference);
                self.pointer_right(to, scope)
            }
            Some(Node::MemberPointer(_, member)) => self.pointer_right(member, self.scope),
            Some(Node::Array(of, size)) => {
                if self.last[1] != ']' {
                    self.text(" ")?;
                }
                self.text("[")?;
                if let Some(size) = size {
                    self.print(size)?;
                }
                self.text("]")?;
                self.right(of)
            }
            Some(Node::Argument(index)) => match self.argument(index, self.scope, self.pack) {
                Some((item, scope)) => self.in_place(scope, |printer| printer.right(item)),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn here(&self) -> Scope {
        let scope = self.scopes.get(self.scope);
        scope.map_or(Scope::None, |(scope, _)| *scope)
    }

    fn number(&mut self, number: u64) -> fmt::Result {
        self.text(&number.to_string())
    }

    /// Prints an operand, in parentheses unless the operand is a name.
    fn operand(&mut self, id: Id) -> fmt::Result {
        let is_name = match self.node(id) {
            Some(Node::Text(text)) => !matches!(text, "true" | "false" | "nullptr"),
            Some(Node::Between(_, "::", name)) => {
                !matches!(self.node(name), Some(Node::Template(..)))
            }
            Some(Node::Around("{parm#", ..)) => true,
            Some(Node::Enclosed("{", ..)) => true,
            _ => false,
        };
        self.text(if is_name { "" } else { "(" })?;
        self.print(id)?;
        self.text(if is_name { "" } else { ")" })
    }

    /// Prints comma-separated items; empty packs are omitted.
    fn list(&mut self, list: List) -> fmt::Result {
        // A pending comma belongs before the list as a whole.
        let mut is_first = true;
        for item in self.items(list) {
            let (before, comma) = (self.written, self.comma);
            self.comma |= !is_first;
            self.print(*item)?;
            match self.written == before {
                true => self.comma = comma,
                false => is_first = false,
            }
        }
        Ok(())
    }

    fn arguments(&mut self, arguments: List) -> fmt::Result {
        // `operator< <int>`.
        self.text(if self.last[1] == '<' { " <" } else { "<" })?;
        self.list(arguments)?;
        self.close()
    }

    fn close(&mut self) -> fmt::Result {
        self.text(if self.last[1] == '>' { " >" } else { ">" })
    }

    /// Prints the class name as used in its constructors.
    fn base_name(&mut self, of: Id) -> fmt::Result {
        self.deeper(
            |printer| match printer.node(printer.behind(of, printer.scope).0) {
                Some(Node::Between(_, "::", name)) => printer.base_name(name),
                Some(Node::Between(name, "", _)) => printer.base_name(name),
                Some(Node::Template(name, _)) => printer.base_name(name),
                Some(Node::Standard([_, _, name])) => printer.text(name),
                _ => printer.print(of),
            },
        )
    }
}
