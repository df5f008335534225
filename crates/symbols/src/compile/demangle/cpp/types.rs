//! Parses types in a mangled name.

use super::node::{Function, Id, Node, Qualifiers, Reference};
use super::parse::{NotAName, Parsed, Parser};

const BUILT_IN: [(&str, &str); 38] = [
    ("v", "void"),
    ("w", "wchar_t"),
    ("b", "bool"),
    ("c", "char"),
    ("a", "signed char"),
    ("h", "unsigned char"),
    ("s", "short"),
    ("t", "unsigned short"),
    ("i", "int"),
    ("j", "unsigned int"),
    ("l", "long"),
    ("m", "unsigned long"),
    ("x", "long long"),
    ("y", "unsigned long long"),
    ("n", "__int128"),
    ("o", "unsigned __int128"),
    ("f", "float"),
    ("d", "double"),
    ("e", "long double"),
    ("g", "__float128"),
    ("z", "..."),
    ("Dd", "decimal64"),
    ("De", "decimal128"),
    ("Df", "decimal32"),
    ("Dh", "half"),
    ("Di", "char32_t"),
    ("Ds", "char16_t"),
    ("Du", "char8_t"),
    ("Da", "auto"),
    ("Dc", "decltype(auto)"),
    ("Dn", "decltype(nullptr)"),
    ("DF16b", "std::bfloat16_t"),
    ("DF16_", "_Float16"),
    ("DF32_", "_Float32"),
    ("DF64_", "_Float64"),
    ("DF128_", "_Float128"),
    ("DF32x", "_Float32x"),
    ("DF64x", "_Float64x"),
];

impl<'a> Parser<'a> {
    pub(super) fn type_(&mut self) -> Parsed<Id> {
        self.deeper(Self::read_type)
    }

    fn read_type(&mut self) -> Parsed<Id> {
        // In reverse, so that `Dd` is found before `d`.
        for (code, text) in BUILT_IN.iter().rev() {
            if self.take(code) {
                return self.node(Node::Text(text));
            }
        }
        let type_ = match (self.look(), self.peek(1)) {
            (b'r' | b'V' | b'K', _) => {
                let qualifiers = self.qualifiers();
                match self.is_function() {
                    true => self.function_type(qualifiers)?,
                    false => {
                        let of = self.type_()?;
                        self.node(Node::Qualified(of, qualifiers))?
                    }
                }
            }
            (b'U', _) => self.vendor_qualified()?,
            (b'u', _) => {
                self.expect("u")?;
                let name = self.source_name()?;
                match self.look() {
                    b'I' => {
                        let arguments = self.template_arguments()?;
                        self.node(Node::Template(name, arguments))?
                    }
                    _ => name,
                }
            }
            (b'D', b'p') => {
                self.expect("Dp")?;
                let of = self.type_()?;
                self.node(Node::Expansion(of))?
            }
            (b'D', b't' | b'T') => self.decltype()?,
            (b'D', b'v') => self.vector()?,
            (b'D', b'B' | b'U') => return self.bit_integer(),
            _ if self.is_function() => self.function_type(Qualifiers::default())?,
            (b'A', _) => self.array()?,
            (b'M', _) => {
                self.expect("M")?;
                let class = self.type_()?;
                let member = self.type_()?;
                self.node(Node::MemberPointer(class, member))?
            }
            (b'T', b's' | b'u' | b'e') => {
                let word = match self.bytes(2)? {
                    "Ts" => "struct ",
                    "Tu" => "union ",
                    _ => "enum ",
                };
                let name = self.name(None)?;
                self.node(Node::Prefix(word, name))?
            }
            (b'T', _) => {
                let parameter = self.template_parameter()?;
                if self.takes_arguments && self.look() == b'I' {
                    self.substitutable(parameter);
                    let arguments = self.template_arguments()?;
                    self.node(Node::Template(parameter, arguments))?
                } else {
                    parameter
                }
            }
            (b'P', _) => {
                self.expect("P")?;
                let to = self.type_()?;
                self.node(Node::Pointer(to))?
            }
            (b'R', _) => {
                self.expect("R")?;
                let to = self.type_()?;
                self.node(Node::Referred(to, Reference::LValue))?
            }
            (b'O', _) => {
                self.expect("O")?;
                let to = self.type_()?;
                self.node(Node::Referred(to, Reference::RValue))?
            }
            (b'C', _) => {
                self.expect("C")?;
                let of = self.type_()?;
                self.node(Node::Suffix(of, " _Complex"))?
            }
            (b'G', _) => {
                self.expect("G")?;
                let of = self.type_()?;
                self.node(Node::Suffix(of, " _Imaginary"))?
            }
            (b'S', second) if second != b't' => {
                let of = self.substitution()?;
                if !self.takes_arguments || self.look() != b'I' {
                    return Ok(of);
                }
                let arguments = self.template_arguments()?;
                self.node(Node::Template(of, arguments))?
            }
            _ => self.name(None)?,
        };
        Ok(self.substitutable(type_))
    }

    /// Whether a function type begins here, possibly after an exception specification.
    fn is_function(&self) -> bool {
        match self.look() {
            b'F' => true,
            b'D' => matches!(self.peek(1), b'o' | b'O' | b'w' | b'x'),
            _ => false,
        }
    }

    fn function_type(&mut self, mut qualifiers: Qualifiers) -> Parsed<Id> {
        let suffix = if self.take("Do") {
            Some(self.node(Node::Text(" noexcept"))?)
        } else if self.take("DO") {
            let condition = self.expression()?;
            self.expect("E")?;
            Some(self.node(Node::Around(" noexcept(", condition, ")"))?)
        } else if self.take("Dw") {
            let types = self.until_end(Self::type_)?;
            Some(self.node(Node::Enclosed(" throw(", types, ")"))?)
        } else {
            None
        };
        // `Dx`: transaction-safe. `Y`: extern "C".
        self.take("Dx");
        self.expect("F")?;
        self.take("Y");
        let result = self.type_()?;
        let mut parameters = Vec::new();
        while !self.take("E") {
            if self.take("v") {
                continue;
            }
            if matches!(self.look(), b'R' | b'O') && self.peek(1) == b'E' {
                qualifiers.reference = self.reference();
                continue;
            }
            parameters.push(self.type_()?);
        }
        let parameters = self.list(&parameters)?;
        self.node(Node::Function(Function {
            result: Some(result),
            name: None,
            arguments: None,
            parameters,
            qualifiers,
            suffix,
        }))
    }

    fn vendor_qualified(&mut self) -> Parsed<Id> {
        self.expect("U")?;
        let qualifier = self.source_name()?;
        let qualifier = match self.look() {
            b'I' => {
                let arguments = self.template_arguments()?;
                self.node(Node::Template(qualifier, arguments))?
            }
            _ => qualifier,
        };
        let of = self.type_()?;
        self.node(Node::Between(of, " ", qualifier))
    }

    pub(super) fn decltype(&mut self) -> Parsed<Id> {
        if !self.take("Dt") {
            self.expect("DT")?;
        }
        let of = self.expression()?;
        self.expect("E")?;
        self.node(Node::Around("decltype (", of, ")"))
    }

    fn vector(&mut self) -> Parsed<Id> {
        self.expect("Dv")?;
        let size = if self.look().is_ascii_digit() {
            let (digits, _) = self.digits(false)?;
            self.node(Node::Text(digits))?
        } else if self.look() == b'_' {
            self.node(Node::Text(""))?
        } else {
            self.expression()?
        };
        self.expect("_")?;
        let of = match self.take("p") {
            true => self.node(Node::Text("pixel"))?,
            false => self.type_()?,
        };
        let size = self.node(Node::Around(" __vector(", size, ")"))?;
        self.node(Node::Between(of, "", size))
    }

    fn bit_integer(&mut self) -> Parsed<Id> {
        let before = match self.bytes(2)? {
            "DU" => "unsigned _BitInt(",
            _ => "_BitInt(",
        };
        let size = match self.look().is_ascii_digit() {
            true => {
                let (digits, _) = self.digits(false)?;
                self.node(Node::Text(digits))?
            }
            false => self.expression()?,
        };
        self.expect("_")?;
        self.node(Node::Around(before, size, ")"))
    }

    fn array(&mut self) -> Parsed<Id> {
        self.expect("A")?;
        let size = if self.look() == b'_' {
            None
        } else if self.look().is_ascii_digit() {
            let (digits, _) = self.digits(false)?;
            Some(self.node(Node::Text(digits))?)
        } else {
            Some(self.expression()?)
        };
        self.expect("_")?;
        let of = self.type_()?;
        self.node(Node::Array(of, size))
    }

    pub(super) fn literal(&mut self) -> Parsed<Id> {
        const SUFFIXES: [(&str, &str); 6] = [
            ("i", ""),
            ("j", "u"),
            ("l", "l"),
            ("m", "ul"),
            ("x", "ll"),
            ("y", "ull"),
        ];
        self.expect("L")?;
        if self.take("_Z") {
            let encoding = self.encoding()?;
            self.expect("E")?;
            return Ok(encoding);
        }
        for (code, text) in [("b0E", "false"), ("b1E", "true"), ("DnE", "nullptr")] {
            if self.take(code) {
                return self.node(Node::Text(text));
            }
        }
        if self.take("Dn0E") {
            let of = self.node(Node::Text("decltype(nullptr)"))?;
            return self.node(Node::Literal(of, "0", false));
        }
        for (code, suffix) in SUFFIXES {
            if self.take(code) {
                let (digits, negative) = self.digits(true)?;
                self.expect("E")?;
                return self.node(Node::Number(digits, suffix, negative));
            }
        }
        if matches!(self.look(), b'f' | b'd' | b'e' | b'g') {
            let of = self.type_()?;
            let end = self.rest().find('E').ok_or(NotAName)?;
            let bits = self.bytes(end)?;
            self.expect("E")?;
            let bits = self.node(Node::Text(bits))?;
            let bits = self.node(Node::Around("[", bits, "]"))?;
            let cast = self.node(Node::Around("(", of, ")"))?;
            return self.node(Node::Between(cast, "", bits));
        }
        if self.look() == b'U' {
            let closure = self.unnamed_type()?;
            self.expect("E")?;
            return Ok(closure);
        }
        let of = self.type_()?;
        // The text of a string is not part of a name.
        if self.take("E") {
            return self.node(Node::Around("(", of, ")\"\""));
        }
        let (digits, negative) = self.digits(true)?;
        self.expect("E")?;
        self.node(Node::Literal(of, digits, negative))
    }
}
