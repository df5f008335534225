//! Parses names of functions, classes and operators.

use super::node::{Id, Node};
use super::parse::{NameState, NotAName, Parsed, Parser};

/// Operators by their code, with the number and position of their operands.
pub(super) const OPERATORS: &[(&str, &str, Operands)] = {
    use Operands::{Binary, Postfix, Prefix, Special};
    &[
        ("aN", "&=", Binary),
        ("aS", "=", Binary),
        ("aa", "&&", Binary),
        ("ad", "&", Prefix),
        ("an", "&", Binary),
        ("aw", "co_await ", Prefix),
        ("cl", "()", Special),
        ("cm", ",", Binary),
        ("co", "~", Prefix),
        ("dV", "/=", Binary),
        ("da", "delete[] ", Special),
        ("de", "*", Prefix),
        ("dl", "delete ", Special),
        ("dv", "/", Binary),
        ("eO", "^=", Binary),
        ("eo", "^", Binary),
        ("eq", "==", Binary),
        ("ge", ">=", Binary),
        ("gt", ">", Binary),
        ("ix", "[]", Special),
        ("lS", "<<=", Binary),
        ("le", "<=", Binary),
        ("ls", "<<", Binary),
        ("lt", "<", Binary),
        ("mI", "-=", Binary),
        ("mL", "*=", Binary),
        ("mi", "-", Binary),
        ("ml", "*", Binary),
        ("mm", "--", Postfix),
        ("na", "new[]", Special),
        ("ne", "!=", Binary),
        ("ng", "-", Prefix),
        ("nt", "!", Prefix),
        ("nw", "new", Special),
        ("oR", "|=", Binary),
        ("oo", "||", Binary),
        ("or", "|", Binary),
        ("pL", "+=", Binary),
        ("pl", "+", Binary),
        ("pm", "->*", Binary),
        ("pp", "++", Postfix),
        ("ps", "+", Prefix),
        ("pt", "->", Special),
        ("qu", "?", Special),
        ("rM", "%=", Binary),
        ("rS", ">>=", Binary),
        ("rm", "%", Binary),
        ("rs", ">>", Binary),
        ("ss", "<=>", Binary),
    ]
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operands {
    Prefix,
    /// After its operand, or before its operand with `_`.
    Postfix,
    Binary,
    Special,
}

impl<'a> Parser<'a> {
    pub(super) fn name(&mut self, mut state: Option<&mut NameState>) -> Parsed<Id> {
        self.deeper(|parser| {
            match parser.look() {
                b'N' => return parser.nested_name(state),
                b'Z' => return parser.local_name(state),
                _ => {}
            }
            let is_substitution = parser.look() == b'S' && parser.peek(1) != b't';
            let name = match is_substitution {
                true => parser.substitution()?,
                false => parser.unscoped_name(state.as_deref_mut())?,
            };
            if parser.look() != b'I' {
                return match is_substitution {
                    true => Err(NotAName),
                    false => Ok(name),
                };
            }
            if !is_substitution {
                parser.substitutable(name);
            }
            let arguments = parser.template_arguments()?;
            if let Some(state) = state {
                state.ends_with_arguments = true;
                state.arguments = Some(arguments);
            }
            parser.node(Node::Template(name, arguments))
        })
    }

    fn unscoped_name(&mut self, state: Option<&mut NameState>) -> Parsed<Id> {
        if !self.take("St") {
            return self.unqualified_name(None, state);
        }
        let std = self.node(Node::Text("std"))?;
        self.unqualified_name(Some(std), state)
    }

    /// Parses a name in a class or a namespace.
    fn nested_name(&mut self, mut state: Option<&mut NameState>) -> Parsed<Id> {
        self.expect("N")?;
        // A member function with an explicit object parameter.
        self.take("H");
        let mut qualifiers = self.qualifiers();
        qualifiers.reference = self.reference();
        if let Some(state) = state.as_deref_mut() {
            state.qualifiers = qualifiers;
        }
        let mut scope: Option<Id> = None;
        while !self.take("E") {
            if let Some(state) = state.as_deref_mut() {
                state.ends_with_arguments = false;
            }
            if let (b'I', Some(name)) = (self.look(), scope) {
                if matches!(self.get(name), Some(Node::Template(..))) {
                    return Err(NotAName);
                }
                let arguments = self.template_arguments()?;
                if let Some(state) = state.as_deref_mut() {
                    state.ends_with_arguments = true;
                    state.arguments = Some(arguments);
                }
                let template = self.node(Node::Template(name, arguments))?;
                scope = Some(self.substitutable(template));
                continue;
            }
            let is_decltype = self.look() == b'D' && matches!(self.peek(1), b't' | b'T');
            let next = match (self.look(), scope) {
                (b'T', None) => self.template_parameter()?,
                (b'D', None) if is_decltype => self.decltype()?,
                (b'S', None) if self.peek(1) == b't' => {
                    self.expect("St")?;
                    scope = Some(self.node(Node::Text("std"))?);
                    continue;
                }
                (b'S', None) => {
                    scope = Some(self.substitution()?);
                    continue;
                }
                (_, scope) => self.unqualified_name(scope, state.as_deref_mut())?,
            };
            scope = Some(self.substitutable(next));
            // The next part is in the initializer of a member.
            self.take("M");
        }
        // The whole name is no substitution candidate here; `type_` adds a type to the candidates.
        self.substitutions.pop().ok_or(NotAName)?;
        scope.ok_or(NotAName)
    }

    fn local_name(&mut self, state: Option<&mut NameState>) -> Parsed<Id> {
        self.expect("Z")?;
        let function = self.encoding()?;
        self.expect("E")?;
        // The name and the parameters identify the function for a reader; its result type is omitted.
        let function = match self.get(function) {
            Some(Node::Function(mut typed)) => {
                typed.result = None;
                self.node(Node::Function(typed))?
            }
            _ => function,
        };
        if self.take("s") {
            self.discriminator()?;
            let text = self.node(Node::Text("string literal"))?;
            return self.node(Node::Between(function, "::", text));
        }
        if self.take("d") {
            let number = self.ordinal()?.saturating_add(1);
            let number = self.node(Node::Parameter(number))?;
            let argument = self.node(Node::Around("{default arg#", number, "}"))?;
            let function = self.node(Node::Between(function, "::", argument))?;
            let entity = self.name(state)?;
            return self.node(Node::Between(function, "::", entity));
        }
        let entity = self.name(state)?;
        self.discriminator()?;
        self.node(Node::Between(function, "::", entity))
    }

    /// Parses the number that distinguishes equal names in one function. The number is not displayed.
    fn discriminator(&mut self) -> Parsed<()> {
        if self.take("__") {
            self.number()?;
            return self.expect("_");
        }
        if self.look() == b'_' && self.peek(1).is_ascii_digit() {
            self.expect("_")?;
            self.bytes(1)?;
        } else if self.look().is_ascii_digit() && self.rest().bytes().all(|b| b.is_ascii_digit()) {
            // Form of GCC before version 3.4.
            self.number()?;
        }
        Ok(())
    }

    /// Parses a name without its namespaces and classes; `scope` is printed before the name.
    fn unqualified_name(
        &mut self,
        mut scope: Option<Id>,
        state: Option<&mut NameState>,
    ) -> Parsed<Id> {
        // `F`: a friend. `L`: a name with internal linkage.
        self.take("F");
        self.take("L");
        let name = match (self.look(), self.peek(1)) {
            (b'1'..=b'9', _) => self.source_name()?,
            (b'U', _) => self.unnamed_type()?,
            (b'D', b'C') => {
                self.expect("DC")?;
                let names = self.until_end(Self::source_name)?;
                self.node(Node::Enclosed("[", names, "]"))?
            }
            (b'C' | b'D', _) => {
                let class = scope.ok_or(NotAName)?;
                if let Some(Node::Standard([_, long, _])) = self.get(class) {
                    scope = Some(self.node(Node::Text(long))?);
                }
                self.constructor(class, state)?
            }
            _ => self.operator_name(state)?,
        };
        let name = self.tags(name)?;
        match scope {
            Some(scope) => self.node(Node::Between(scope, "::", name)),
            None => Ok(name),
        }
    }

    pub(super) fn source_name(&mut self) -> Parsed<Id> {
        let length = usize::try_from(self.number()?).map_err(|_| NotAName)?;
        let name = self.bytes(length)?;
        let name = match name {
            "" => return Err(NotAName),
            name if name.starts_with("_GLOBAL__N") => "(anonymous namespace)",
            name => name,
        };
        self.node(Node::Text(name))
    }

    /// Parses an unnamed type: a lambda, a structure, an enumeration, a block.
    pub(super) fn unnamed_type(&mut self) -> Parsed<Id> {
        if self.take("Ut") {
            let number = self.ordinal()?.saturating_add(1);
            return self.node(Node::Unnamed(number));
        }
        if self.take("Ub") {
            self.ordinal()?;
            return self.node(Node::Text("'block-literal'"));
        }
        self.expect("Ul")?;
        let parameters = self.lambda_parameters()?;
        let parameters = self.list(&parameters)?;
        let number = self.ordinal()?.saturating_add(1);
        self.node(Node::Closure { parameters, number })
    }

    fn lambda_parameters(&mut self) -> Parsed<Vec<Id>> {
        while self.look() == b'T' && matches!(self.peek(1), b'y' | b'n' | b't' | b'p' | b'k') {
            self.template_declaration()?;
        }
        let mut parameters = Vec::new();
        if self.take("vE") {
            return Ok(parameters);
        }
        while parameters.is_empty() || !self.take("E") {
            parameters.push(self.type_()?);
        }
        Ok(parameters)
    }

    fn constructor(&mut self, of: Id, state: Option<&mut NameState>) -> Parsed<Id> {
        if let Some(state) = state {
            state.is_special = true;
        }
        let is_destructor = match self.bytes(1)? {
            "C" => {
                let inherited = self.take("I");
                let is_variant = matches!(self.look(), b'1'..=b'5');
                self.bytes(usize::from(is_variant))?;
                if inherited {
                    self.name(None)?;
                }
                match is_variant {
                    true => false,
                    false => return Err(NotAName),
                }
            }
            _ if matches!(self.look(), b'0' | b'1' | b'2' | b'4' | b'5') => {
                self.bytes(1)?;
                true
            }
            _ => return Err(NotAName),
        };
        self.node(Node::Constructor(of, is_destructor))
    }

    pub(super) fn operator_name(&mut self, state: Option<&mut NameState>) -> Parsed<Id> {
        if self.take("cv") {
            let takes = std::mem::replace(&mut self.takes_arguments, false);
            let to = self.type_();
            self.takes_arguments = takes;
            if let Some(state) = state {
                state.is_special = true;
            }
            let to = to?;
            return self.node(Node::Conversion(to));
        }
        if self.take("li") {
            let name = self.source_name()?;
            return self.node(Node::Prefix("operator\"\" ", name));
        }
        if self.look() == b'v' && self.peek(1).is_ascii_digit() {
            self.bytes(2)?;
            let name = self.source_name()?;
            return self.node(Node::Prefix("operator ", name));
        }
        let code = self.rest().get(..2).ok_or(NotAName)?;
        let found = OPERATORS.iter().find(|(of, ..)| *of == code);
        let (_, symbol, _) = found.ok_or(NotAName)?;
        self.bytes(2)?;
        let symbol = symbol.trim_end();
        let is_word = symbol.starts_with(|first: char| first.is_ascii_alphabetic());
        let symbol = self.node(Node::Text(symbol))?;
        let before = if is_word { "operator " } else { "operator" };
        self.node(Node::Prefix(before, symbol))
    }
}
