//! Parses template parameters, arguments and declarations.

use super::node::{Id, List, Node};
use super::parse::{NotAName, Parsed, Parser};

impl<'a> Parser<'a> {
    pub(super) fn template_parameter(&mut self) -> Parsed<Id> {
        self.expect("T")?;
        let level = match self.take("L") {
            true => {
                let level = self.number()?;
                self.expect("_")?;
                level.checked_add(1).ok_or(NotAName)?
            }
            false => 0,
        };
        let index = self.ordinal()?;
        match level {
            0 => self.node(Node::Argument(index)),
            // A lambda within a lambda.
            _ => {
                let number = self.node(Node::Parameter(index.saturating_add(1)))?;
                self.node(Node::Prefix("auto:", number))
            }
        }
    }

    pub(super) fn template_arguments(&mut self) -> Parsed<List> {
        self.expect("I")?;
        let takes = std::mem::replace(&mut self.takes_arguments, true);
        let read = self.read_template_arguments();
        self.takes_arguments = takes;
        read
    }

    fn read_template_arguments(&mut self) -> Parsed<List> {
        let mut items = Vec::new();
        while !self.take("E") {
            if self.take("Q") {
                self.expression()?;
                self.expect("E")?;
                break;
            }
            items.push(self.template_argument()?);
        }
        self.list(&items)
    }

    pub(super) fn template_argument(&mut self) -> Parsed<Id> {
        self.deeper(|parser| match parser.look() {
            b'X' => {
                parser.expect("X")?;
                let expression = parser.expression()?;
                parser.expect("E")?;
                Ok(expression)
            }
            b'J' => {
                parser.expect("J")?;
                let items = parser.until_end(Self::template_argument)?;
                parser.node(Node::Pack(items))
            }
            b'L' if parser.peek(1) == b'Z' => {
                parser.expect("LZ")?;
                let encoding = parser.encoding()?;
                parser.expect("E")?;
                Ok(encoding)
            }
            b'L' => parser.literal(),
            // Clang 18 and later declare the parameter before a dependent argument. The declaration is not
            // displayed.
            b'T' if matches!(parser.peek(1), b'y' | b'n' | b't' | b'p' | b'k') => {
                parser.template_declaration()?;
                parser.template_argument()
            }
            _ => parser.type_(),
        })
    }

    pub(super) fn template_declaration(&mut self) -> Parsed<()> {
        self.deeper(|parser| {
            parser.expect("T")?;
            match parser.bytes(1)? {
                "y" => Ok(()),
                "k" => parser.name(None).map(|_| ()),
                "n" => parser.type_().map(|_| ()),
                "p" => parser.template_declaration(),
                "t" => {
                    while !parser.take("E") {
                        parser.template_declaration()?;
                    }
                    Ok(())
                }
                _ => Err(NotAName),
            }
        })
    }
}
