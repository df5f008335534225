//! Prints the syntax tree of a name in C++ notation.

use std::fmt::{self, Write};

use super::node::{Function, Id, List, Node, Qualifiers, Reference};
use super::parse::Parser;

/// Maximum number of visited nodes. The length of the text is no bound, because empty packs print nothing.
const MOST_STEPS: u32 = 1 << 18;
/// Maximum depth of printed nodes.
const DEEPEST: u32 = 320;

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

    /// Prints a whole node.
    pub(super) fn print(&mut self, id: Id) -> fmt::Result {
        self.left(id)?;
        self.right(id)
    }

    fn deeper(&mut self, print: impl FnOnce(&mut Self) -> fmt::Result) -> fmt::Result {
        if self.depth >= DEEPEST || self.steps >= MOST_STEPS {
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

    /// Returns the argument of a template parameter in a scope, and the scope of the argument. For a pack,
    /// returns the argument with the index `pack`.
    fn argument(&self, index: u64, scope: usize, pack: Option<usize>) -> Option<(Id, usize)> {
        let (Scope::Arguments(list), around) = *self.scopes.get(scope)? else {
            return None;
        };
        let item = *self.items(list).get(usize::try_from(index).ok()?)?;
        let item = match (self.node(item), pack) {
            (Some(Node::Pack(list)), Some(at)) => self.items(list).get(at).copied()?,
            _ => item,
        };
        Some((item, around))
    }

    /// Replaces a template parameter by its argument.
    fn behind(&self, mut id: Id, mut scope: usize) -> (Id, usize) {
        let mut pack = self.pack;
        for _ in 0..DEEPEST {
            let Some(Node::Argument(index)) = self.node(id) else {
                break;
            };
            let Some(next) = self.argument(index, scope, pack.take()) else {
                break;
            };
            (id, scope) = next;
        }
        (id, scope)
    }

    /// Prints an argument, in which other packs are printed as lists.
    fn in_place(
        &mut self,
        scope: usize,
        print: impl FnOnce(&mut Self) -> fmt::Result,
    ) -> fmt::Result {
        let pack = self.pack.take();
        let printed = self.within(scope, print);
        self.pack = pack;
        printed
    }

    /// Runs `work` in another scope.
    fn within<T>(&mut self, scope: usize, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.scope, scope);
        let done = work(self);
        self.scope = before;
        done
    }

    /// Opens a scope within the current one.
    fn inner(&mut self, scope: Scope) -> usize {
        self.scopes.push((scope, self.scope));
        self.scopes.len() - 1
    }

    fn is_array(&self, id: Id, scope: usize) -> bool {
        let (id, scope) = self.behind(id, scope);
        match self.node(id) {
            Some(Node::Array(..)) => true,
            Some(Node::Qualified(of, _)) => self.is_array(of, scope),
            _ => false,
        }
    }

    fn is_function(&self, id: Id, scope: usize) -> bool {
        let (id, scope) = self.behind(id, scope);
        match self.node(id) {
            Some(Node::Function(function)) => function.name.is_none(),
            Some(Node::Qualified(of, _)) => self.is_function(of, scope),
            _ => false,
        }
    }

    /// Whether a type prints a part after the declared name, as `[10]` in `int (&name) [10]`.
    fn has_right(&self, id: Id, scope: usize, depth: u32) -> bool {
        if depth > DEEPEST {
            return false;
        }
        let (id, scope) = self.behind(id, scope);
        match self.node(id) {
            Some(Node::Array(..) | Node::Function(_)) => true,
            Some(Node::Qualified(of, _) | Node::Pointer(of) | Node::Referred(of, _)) => {
                self.has_right(of, scope, depth + 1)
            }
            Some(Node::MemberPointer(_, of)) => self.has_right(of, scope, depth + 1),
            _ => false,
        }
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

    /// Prints an operand, in parentheses unless it is a name.
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

    fn expansion(&mut self, of: Id) -> fmt::Result {
        let before = self.pack.take();
        let printed = self.each_of_a_pack(of);
        self.pack = before;
        printed
    }

    fn each_of_a_pack(&mut self, of: Id) -> fmt::Result {
        let Some(count) = self.pack_size(of, self.scope, 0) else {
            self.print(of)?;
            return self.text("...");
        };
        let comma = self.comma;
        let mut is_first = true;
        for at in 0..count {
            let written = self.written;
            self.comma |= !is_first;
            self.pack = Some(at);
            self.print(of)?;
            is_first &= self.written == written;
        }
        if is_first {
            self.comma = comma;
        }
        Ok(())
    }

    /// Returns the number of arguments of the first pack in a node, other expansions excluded.
    fn pack_size(&mut self, id: Id, scope: usize, depth: u32) -> Option<usize> {
        self.steps += 1;
        if depth > DEEPEST || self.steps >= MOST_STEPS {
            return None;
        }
        let (nodes, list) = match self.node(id)? {
            Node::Closure { .. } => return None,
            Node::Argument(index) => {
                let (item, _) = self.argument(index, scope, None)?;
                return match self.node(item)? {
                    Node::Pack(list) => Some(list.len()),
                    _ => None,
                };
            }
            Node::Function(Function {
                arguments: Some(_), ..
            })
            | Node::Scoped(..) => return None,
            node => node.parts(),
        };
        let found = nodes.into_iter().flatten();
        found
            .chain(self.items(list).iter().copied())
            .find_map(|part| self.pack_size(part, scope, depth + 1))
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

    fn qualifiers(&mut self, qualifiers: Qualifiers) -> fmt::Result {
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

    fn scope_of(&mut self, function: &Function) -> usize {
        match function.arguments {
            Some(arguments) => self.inner(Scope::Arguments(arguments)),
            None => self.scope,
        }
    }

    fn function_left(&mut self, function: &Function) -> fmt::Result {
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

    fn function_right(&mut self, function: &Function) -> fmt::Result {
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

    fn pointer_left(&mut self, to: Id, scope: usize, symbol: &str) -> fmt::Result {
        self.within(scope, |printer| printer.left(to))?;
        if self.is_array(to, scope) {
            self.text(" (")?;
        } else if self.is_function(to, scope) {
            self.text("(")?;
        }
        self.text(symbol)
    }

    fn pointer_right(&mut self, to: Id, scope: usize) -> fmt::Result {
        if self.is_array(to, scope) || self.is_function(to, scope) {
            self.text(")")?;
        }
        self.within(scope, |printer| printer.right(to))
    }

    /// Collapses references to references (`T&&` where `T` is `int&`).
    fn collapsed(&self, mut to: Id, mut reference: Reference) -> (Id, usize, Reference) {
        let mut scope = self.scope;
        for _ in 0..DEEPEST {
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

fn symbol(reference: Reference) -> &'static str {
    match reference {
        Reference::LValue => "&",
        Reference::RValue => "&&",
    }
}
