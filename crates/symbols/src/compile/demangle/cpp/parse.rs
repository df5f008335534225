//! Parses a mangled C++ name (Itanium C++ ABI, section 5.1) into nodes.
//!
//! Names may be malicious: depth and number of nodes are bounded, and text outside of the grammar is an
//! error.

use super::node::{Function, Id, List, Node, Qualifiers, Reference};

/// The text is not a mangled name, or exceeds a bound.
#[derive(Debug)]
pub(super) struct NotAName;

pub(super) type Parsed<T> = Result<T, NotAName>;

const MAX_DEPTH: u32 = 160;
/// Maximum number of nodes: a few for each byte of a long name.
const MAX_NODES: usize = 1 << 16;

/// Properties of a function that its name alone determines.
#[derive(Debug, Default)]
pub(super) struct NameState {
    /// Whether the function is a constructor, destructor or conversion, which has no result type.
    pub(super) is_special: bool,
    pub(super) ends_with_arguments: bool,
    pub(super) qualifiers: Qualifiers,
    pub(super) arguments: Option<List>,
}

/// Parser state: the unread text and the nodes.
#[derive(Debug, Default)]
pub(super) struct Parser<'a> {
    text: &'a str,
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) lists: Vec<Id>,
    pub(super) substitutions: Vec<Id>,
    pub(super) takes_arguments: bool,
    depth: u32,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Parser {
            text,
            takes_arguments: true,
            ..Parser::default()
        }
    }

    pub(super) fn rest(&self) -> &'a str {
        self.text
    }

    pub(super) fn peek(&self, at: usize) -> u8 {
        self.text.as_bytes().get(at).copied().unwrap_or_default()
    }

    pub(super) fn look(&self) -> u8 {
        self.peek(0)
    }

    pub(super) fn take(&mut self, text: &str) -> bool {
        let rest = self.text.strip_prefix(text);
        self.text = rest.unwrap_or(self.text);
        rest.is_some()
    }

    pub(super) fn expect(&mut self, text: &str) -> Parsed<()> {
        self.take(text).then_some(()).ok_or(NotAName)
    }

    /// Takes `length` bytes.
    pub(super) fn bytes(&mut self, length: usize) -> Parsed<&'a str> {
        let (taken, rest) = self.text.split_at_checked(length).ok_or(NotAName)?;
        self.text = rest;
        Ok(taken)
    }

    pub(super) fn node(&mut self, node: Node<'a>) -> Parsed<Id> {
        if self.nodes.len() >= MAX_NODES {
            return Err(NotAName);
        }
        self.nodes.push(node);
        Id::try_from(self.nodes.len() - 1).map_err(|_| NotAName)
    }

    pub(super) fn get(&self, id: Id) -> Option<Node<'a>> {
        self.nodes.get(id as usize).copied()
    }

    pub(super) fn list(&mut self, items: &[Id]) -> Parsed<List> {
        if self.lists.len() + items.len() > MAX_NODES {
            return Err(NotAName);
        }
        let start = self.lists.len() as u32;
        self.lists.extend_from_slice(items);
        let end = self.lists.len() as u32;
        Ok(List { start, end })
    }

    pub(super) fn substitutable(&mut self, id: Id) -> Id {
        self.substitutions.push(id);
        id
    }

    /// Parses one level deeper, within the maximum depth.
    pub(super) fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH {
            return Err(NotAName);
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// Parses items up to an `E`.
    pub(super) fn until_end(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Parsed<Id>,
    ) -> Parsed<List> {
        let mut items = Vec::new();
        while !self.take("E") {
            items.push(item(self)?);
        }
        self.list(&items)
    }

    /// Parses digits, after an optional `n` for a minus sign.
    pub(super) fn digits(&mut self, may_be_negative: bool) -> Parsed<(&'a str, bool)> {
        let negative = may_be_negative && self.take("n");
        let end = self.text.bytes().position(|byte| !byte.is_ascii_digit());
        let digits = self.bytes(end.unwrap_or(self.text.len()))?;
        match digits.is_empty() {
            true => Err(NotAName),
            false => Ok((digits, negative)),
        }
    }

    pub(super) fn number(&mut self) -> Parsed<u64> {
        let (digits, _) = self.digits(false)?;
        digits.parse().map_err(|_| NotAName)
    }

    /// Parses an ordinal: `_` is 0, and a number followed by `_` is the number plus one.
    pub(super) fn ordinal(&mut self) -> Parsed<u64> {
        if self.take("_") {
            return Ok(0);
        }
        let number = self.number()?;
        self.expect("_")?;
        number.checked_add(1).ok_or(NotAName)
    }

    /// Parses an ordinal in base 36.
    pub(super) fn sequence(&mut self) -> Parsed<u64> {
        let end = self.text.find('_').ok_or(NotAName)?;
        let digits = self.bytes(end)?;
        self.expect("_")?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
        match digits {
            "" => Ok(0),
            digits if digits.bytes().all(is_digit) => {
                let number = u64::from_str_radix(digits, 36).map_err(|_| NotAName)?;
                number.checked_add(1).ok_or(NotAName)
            }
            _ => Err(NotAName),
        }
    }

    /// Parses an encoding: a function with its type, a variable, or a special name.
    pub(super) fn encoding(&mut self) -> Parsed<Id> {
        self.deeper(|parser| {
            if matches!(parser.look(), b'G' | b'T') {
                return parser.special_name();
            }
            parser.function()
        })
    }

    fn function(&mut self) -> Parsed<Id> {
        let is_end = |parser: &Self| matches!(parser.look(), 0 | b'E' | b'.' | b'_');
        let mut state = NameState::default();
        let name = self.name(Some(&mut state))?;
        if is_end(self) {
            return match state.arguments {
                Some(arguments) => self.node(Node::Scoped(name, arguments)),
                None => Ok(name),
            };
        }
        let mut suffix = None;
        if self.take("Ua9enable_ifI") {
            let conditions = self.until_end(Self::template_argument)?;
            suffix = Some(self.node(Node::Enclosed(" [enable_if:", conditions, "]"))?);
        }
        let result = match !state.is_special && state.ends_with_arguments {
            true => Some(self.type_()?),
            false => None,
        };
        let mut parameters = Vec::new();
        if !self.take("v") {
            while parameters.is_empty() || !(is_end(self) || self.look() == b'Q') {
                parameters.push(self.type_()?);
            }
        }
        if self.take("Q") {
            let condition = self.expression()?;
            suffix = Some(self.node(Node::Prefix(" requires ", condition))?);
        }
        let parameters = self.list(&parameters)?;
        self.node(Node::Function(Function {
            result,
            name: Some(name),
            arguments: state.arguments,
            parameters,
            qualifiers: state.qualifiers,
            suffix,
        }))
    }

    pub(super) fn substitution(&mut self) -> Parsed<Id> {
        const STANDARD: [(&str, [&str; 3]); 6] = [
            ("Sa", ["std::allocator", "std::allocator", "allocator"]),
            (
                "Sb",
                ["std::basic_string", "std::basic_string", "basic_string"],
            ),
            (
                "Ss",
                [
                    "std::string",
                    "std::basic_string<char, std::char_traits<char>, std::allocator<char> >",
                    "basic_string",
                ],
            ),
            (
                "Si",
                [
                    "std::istream",
                    "std::basic_istream<char, std::char_traits<char> >",
                    "basic_istream",
                ],
            ),
            (
                "So",
                [
                    "std::ostream",
                    "std::basic_ostream<char, std::char_traits<char> >",
                    "basic_ostream",
                ],
            ),
            (
                "Sd",
                [
                    "std::iostream",
                    "std::basic_iostream<char, std::char_traits<char> >",
                    "basic_iostream",
                ],
            ),
        ];
        for (code, forms) in &STANDARD {
            if self.take(code) {
                let plain = self.node(Node::Standard(forms))?;
                let tagged = self.tags(plain)?;
                if tagged != plain {
                    self.substitutable(tagged);
                }
                return Ok(tagged);
            }
        }
        self.expect("S")?;
        let index = usize::try_from(self.sequence()?).map_err(|_| NotAName)?;
        self.substitutions.get(index).copied().ok_or(NotAName)
    }

    pub(super) fn tags(&mut self, mut name: Id) -> Parsed<Id> {
        while self.take("B") {
            let length = usize::try_from(self.number()?).map_err(|_| NotAName)?;
            let tag = self.bytes(length)?;
            let tag = self.node(Node::Text(tag))?;
            let tag = self.node(Node::Around("[abi:", tag, "]"))?;
            name = self.node(Node::Between(name, "", tag))?;
        }
        Ok(name)
    }

    pub(super) fn qualifiers(&mut self) -> Qualifiers {
        Qualifiers {
            is_restrict: self.take("r"),
            is_volatile: self.take("V"),
            is_const: self.take("K"),
            reference: None,
        }
    }

    pub(super) fn reference(&mut self) -> Option<Reference> {
        match (self.take("R"), self.take("O")) {
            (true, _) => Some(Reference::LValue),
            (false, true) => Some(Reference::RValue),
            _ => None,
        }
    }
}
