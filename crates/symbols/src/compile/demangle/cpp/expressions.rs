//! Parses expressions in template arguments and types.

use super::names::{OPERATORS, Operands};
use super::node::{Id, List, Node};
use super::parse::{NotAName, Parsed, Parser};

const PARENTHESES: [&str; 2] = ["(", ")"];
const BRACES: [&str; 2] = ["{", "}"];

impl<'a> Parser<'a> {
    pub(super) fn expression(&mut self) -> Parsed<Id> {
        self.deeper(Self::read_expression)
    }

    fn read_expression(&mut self) -> Parsed<Id> {
        let is_global = self.take("gs");
        let before = if is_global { "::" } else { "" };
        match (self.look(), self.peek(1)) {
            (b'L', _) => return self.literal(),
            (b'T', _) => return self.template_parameter(),
            (b'f', b'p') => return self.function_parameter(),
            (b'f', b'L') if self.peek(2).is_ascii_digit() => return self.function_parameter(),
            (b'f', b'l' | b'r' | b'L' | b'R') => return self.fold(),
            (b'0'..=b'9', _) | (b'o', b'n') | (b'd', b'n') | (b's', b'r') => {
                return self.unresolved_name(is_global);
            }
            _ => {}
        }
        let code = self.rest().get(..2).ok_or(NotAName)?;
        let operator = OPERATORS.iter().find(|(of, ..)| *of == code);
        match operator {
            Some((_, symbol, Operands::Prefix)) => {
                self.bytes(2)?;
                let of = self.expression()?;
                return self.node(Node::Unary(symbol, of));
            }
            Some((_, symbol, Operands::Binary)) => {
                self.bytes(2)?;
                let left = self.expression()?;
                let right = self.expression()?;
                return self.node(Node::Binary(left, symbol, right));
            }
            Some((_, symbol, Operands::Postfix)) => {
                self.bytes(2)?;
                let is_before = self.take("_");
                let of = self.expression()?;
                if is_before {
                    return self.node(Node::Unary(symbol, of));
                }
                let of = self.node(Node::Around("(", of, ")"))?;
                return self.node(Node::Suffix(of, symbol));
            }
            _ => {}
        }
        if code.starts_with('u') {
            self.bytes(1)?;
            let name = self.source_name()?;
            let items = self.until_end(Self::template_argument)?;
            return self.node(Node::Call(name, PARENTHESES, items));
        }
        self.bytes(2)?;
        self.special_expression(code, before)
    }

    /// Parses an expression whose operator code was read already.
    fn special_expression(&mut self, code: &str, before: &'static str) -> Parsed<Id> {
        match code {
            "at" => self.around_type("alignof (", ")"),
            "az" => self.around("alignof (", ")"),
            "st" => self.around_type("sizeof (", ")"),
            "sz" => self.around("sizeof (", ")"),
            "ti" => self.around_type("typeid (", ")"),
            "te" => self.around("typeid (", ")"),
            "nx" => self.around("noexcept (", ")"),
            "cc" => self.cast("const_cast"),
            "sc" => self.cast("static_cast"),
            "dc" => self.cast("dynamic_cast"),
            "rc" => self.cast("reinterpret_cast"),
            "cl" | "cp" => {
                let of = self.expression()?;
                let arguments = self.until_end(Self::expression)?;
                self.node(Node::Call(of, PARENTHESES, arguments))
            }
            "cv" => {
                let takes = std::mem::replace(&mut self.takes_arguments, false);
                let to = self.type_();
                self.takes_arguments = takes;
                let to = to?;
                let items = match self.take("_") {
                    true => self.until_end(Self::expression)?,
                    false => {
                        let of = self.expression()?;
                        self.list(&[of])?
                    }
                };
                self.node(Node::CStyleCast(to, items))
            }
            "tl" => {
                let of = self.type_()?;
                let items = self.until_end(Self::braced)?;
                self.node(Node::Call(of, BRACES, items))
            }
            "il" => {
                let items = self.until_end(Self::braced)?;
                self.node(Node::Enclosed("{", items, "}"))
            }
            "dt" | "pt" => {
                let of = self.expression()?;
                let member = self.expression()?;
                let dot = if code == "dt" { "." } else { "->" };
                self.node(Node::Between(of, dot, member))
            }
            "ds" => {
                let left = self.expression()?;
                let right = self.expression()?;
                self.node(Node::Binary(left, ".*", right))
            }
            "ix" => {
                let of = self.expression()?;
                let index = self.expression()?;
                let items = self.list(&[index])?;
                self.node(Node::Call(of, ["[", "]"], items))
            }
            "qu" => {
                let condition = self.expression()?;
                let then = self.expression()?;
                let otherwise = self.expression()?;
                self.node(Node::Conditional(condition, then, otherwise))
            }
            "sp" => {
                let of = self.expression()?;
                self.node(Node::Expansion(of))
            }
            "sZ" => {
                let of = match self.look() {
                    b'T' => self.template_parameter()?,
                    _ => self.function_parameter()?,
                };
                let of = self.node(Node::Expansion(of))?;
                self.node(Node::Around("sizeof...(", of, ")"))
            }
            "sP" => {
                let items = self.until_end(Self::template_argument)?;
                self.node(Node::Enclosed("sizeof...(", items, ")"))
            }
            "tr" => self.node(Node::Text("throw")),
            "tw" => self.around("throw ", ""),
            "dl" => self.around(
                if before.is_empty() {
                    "delete "
                } else {
                    "::delete "
                },
                "",
            ),
            "da" => {
                let text = if before.is_empty() {
                    "delete[] "
                } else {
                    "::delete[] "
                };
                self.around(text, "")
            }
            "nw" | "na" => self.new_object(code, before),
            _ => Err(NotAName),
        }
    }

    fn around(&mut self, before: &'static str, after: &'static str) -> Parsed<Id> {
        let of = self.expression()?;
        self.node(Node::Around(before, of, after))
    }

    fn around_type(&mut self, before: &'static str, after: &'static str) -> Parsed<Id> {
        let of = self.type_()?;
        self.node(Node::Around(before, of, after))
    }

    fn cast(&mut self, how: &'static str) -> Parsed<Id> {
        let to = self.type_()?;
        let of = self.expression()?;
        self.node(Node::Cast(how, to, of))
    }

    fn new_object(&mut self, code: &str, before: &'static str) -> Parsed<Id> {
        let mut place = Vec::new();
        while !self.take("_") {
            place.push(self.expression()?);
        }
        let of = self.type_()?;
        let items = match self.take("pi") {
            true => Some(self.until_end(Self::expression)?),
            false => {
                self.expect("E")?;
                None
            }
        };
        let word = if code == "nw" { "new " } else { "new[] " };
        let mut made = match items {
            Some(items) => self.node(Node::Call(of, PARENTHESES, items))?,
            None => of,
        };
        if !place.is_empty() {
            let place = self.list(&place)?;
            let place = self.node(Node::Enclosed("(", place, ") "))?;
            made = self.node(Node::Between(place, "", made))?;
        }
        let made = self.node(Node::Prefix(word, made))?;
        self.node(Node::Prefix(before, made))
    }

    /// Parses an expression, or the initializer of a member or array element.
    fn braced(&mut self) -> Parsed<Id> {
        self.deeper(|parser| {
            if parser.take("di") {
                let field = parser.source_name()?;
                let value = parser.braced()?;
                let value = parser.node(Node::Between(field, " = ", value))?;
                return parser.node(Node::Prefix(".", value));
            }
            if parser.take("dx") {
                let index = parser.expression()?;
                let value = parser.braced()?;
                let index = parser.node(Node::Around("[", index, "]"))?;
                return parser.node(Node::Between(index, " = ", value));
            }
            if parser.take("dX") {
                let first = parser.expression()?;
                let last = parser.expression()?;
                let value = parser.braced()?;
                let range = parser.node(Node::Between(first, " ... ", last))?;
                let range = parser.node(Node::Around("[", range, "]"))?;
                return parser.node(Node::Between(range, " = ", value));
            }
            parser.expression()
        })
    }

    fn function_parameter(&mut self) -> Parsed<Id> {
        if self.take("fpT") {
            return self.node(Node::Text("this"));
        }
        if self.take("fL") {
            self.number()?;
            self.expect("p")?;
        } else {
            self.expect("fp")?;
        }
        self.qualifiers();
        let number = self.ordinal()?.saturating_add(1);
        let number = self.node(Node::Parameter(number))?;
        self.node(Node::Around("{parm#", number, "}"))
    }

    fn fold(&mut self) -> Parsed<Id> {
        self.expect("f")?;
        let kind = self.bytes(1)?;
        let code = self.bytes(2)?;
        let found = OPERATORS.iter().find(|(of, ..)| *of == code);
        let (_, symbol, _) = found.ok_or(NotAName)?;
        let first = self.expression()?;
        let dots = self.node(Node::Text("..."))?;
        let operands: &[Id] = match kind {
            "l" => &[dots, first],
            "r" => &[first, dots],
            // A binary fold: one operand is the pack, the other operand is the initial value.
            _ => {
                let second = self.expression()?;
                &[first, dots, second]
            }
        };
        let mut operands = operands.iter();
        let mut folded = *operands.next().ok_or(NotAName)?;
        for operand in operands {
            folded = self.node(Node::Between(folded, symbol, *operand))?;
        }
        self.node(Node::Around("(", folded, ")"))
    }

    fn unresolved_name(&mut self, is_global: bool) -> Parsed<Id> {
        let mut scope = None;
        if self.take("srN") {
            let mut of = self.unresolved_type()?;
            while !self.take("E") {
                let part = self.simple_name()?;
                of = self.node(Node::Between(of, "::", part))?;
            }
            scope = Some(of);
        } else if self.take("sr") {
            if self.look().is_ascii_digit() {
                let mut of = self.simple_name()?;
                while !self.take("E") {
                    let part = self.simple_name()?;
                    of = self.node(Node::Between(of, "::", part))?;
                }
                scope = Some(of);
            } else {
                scope = Some(self.unresolved_type()?);
            }
        }
        let name = self.unresolved_base()?;
        match scope {
            Some(scope) => self.node(Node::Between(scope, "::", name)),
            None if is_global => self.node(Node::Prefix("::", name)),
            None => Ok(name),
        }
    }

    fn unresolved_base(&mut self) -> Parsed<Id> {
        if self.take("dn") {
            let of = match self.look().is_ascii_digit() {
                true => self.simple_name()?,
                false => self.unresolved_type()?,
            };
            return self.node(Node::Prefix("~", of));
        }
        if self.look().is_ascii_digit() {
            return self.simple_name();
        }
        self.take("on");
        let operator = self.operator_name(None)?;
        self.with_arguments(operator)
    }

    fn simple_name(&mut self) -> Parsed<Id> {
        let name = self.source_name()?;
        self.with_arguments(name)
    }

    fn with_arguments(&mut self, name: Id) -> Parsed<Id> {
        if self.look() != b'I' {
            return Ok(name);
        }
        let arguments: List = self.template_arguments()?;
        self.node(Node::Template(name, arguments))
    }

    fn unresolved_type(&mut self) -> Parsed<Id> {
        let of = match self.look() {
            b'T' => {
                let of = self.template_parameter()?;
                self.substitutable(of)
            }
            b'D' => {
                let of = self.decltype()?;
                self.substitutable(of)
            }
            b'S' if self.peek(1) == b't' => {
                self.expect("St")?;
                let std = self.node(Node::Text("std"))?;
                let name = self.source_name()?;
                let of = self.node(Node::Between(std, "::", name))?;
                self.substitutable(of)
            }
            _ => self.substitution()?,
        };
        if self.look() != b'I' {
            return Ok(of);
        }
        let arguments = self.template_arguments()?;
        let of = self.node(Node::Template(of, arguments))?;
        Ok(self.substitutable(of))
    }
}
