//! Parses special names: virtual tables, thunks and guard variables.

use super::node::{Id, Node};
use super::parse::{NotAName, Parsed, Parser};

impl<'a> Parser<'a> {
    pub(super) fn special_name(&mut self) -> Parsed<Id> {
        const OF_TYPES: [(&str, &str); 6] = [
            ("TV", "vtable for "),
            ("TT", "VTT for "),
            ("TI", "typeinfo for "),
            ("TS", "typeinfo name for "),
            ("TF", "typeinfo fn for "),
            ("TJ", "java Class for "),
        ];
        const OF_NAMES: [(&str, &str); 4] = [
            ("TW", "TLS wrapper function for "),
            ("TH", "TLS init function for "),
            ("GV", "guard variable for "),
            ("GR", "reference temporary #"),
        ];
        const OF_ENCODINGS: [(&str, &str); 3] = [
            ("GA", "hidden alias for "),
            ("GTt", "transaction clone for "),
            ("GTn", "non-transaction clone for "),
        ];
        for (code, text) in OF_TYPES {
            if self.take(code) {
                let of = self.type_()?;
                return self.node(Node::Prefix(text, of));
            }
        }
        for (code, text) in OF_ENCODINGS {
            if self.take(code) {
                let of = self.encoding()?;
                return self.node(Node::Prefix(text, of));
            }
        }
        for (code, text) in OF_NAMES {
            if self.take(code) {
                let of = self.name(None)?;
                if code != "GR" {
                    return self.node(Node::Prefix(text, of));
                }
                let number = match self.rest().is_empty() {
                    true => 0,
                    false => self.sequence()?,
                };
                let number = self.node(Node::Parameter(number))?;
                let of = self.node(Node::Between(number, " for ", of))?;
                return self.node(Node::Prefix(text, of));
            }
        }
        if self.take("TA") {
            let of = self.template_argument()?;
            return self.node(Node::Prefix("template parameter object for ", of));
        }
        if self.take("TC") {
            let of = self.type_()?;
            self.digits(true)?;
            self.expect("_")?;
            let within = self.type_()?;
            let both = self.node(Node::Between(within, "-in-", of))?;
            return self.node(Node::Prefix("construction vtable for ", both));
        }
        if self.take("Tc") {
            self.offset()?;
            self.offset()?;
            let of = self.encoding()?;
            return self.node(Node::Prefix("covariant return thunk to ", of));
        }
        self.expect("T")?;
        let text = match self.look() {
            b'h' => "non-virtual thunk to ",
            b'v' => "virtual thunk to ",
            _ => return Err(NotAName),
        };
        self.offset()?;
        let of = self.encoding()?;
        self.node(Node::Prefix(text, of))
    }

    /// Parses the offset by which a thunk changes `this`.
    fn offset(&mut self) -> Parsed<()> {
        if self.take("v") {
            self.digits(true)?;
            self.expect("_")?;
        } else {
            self.expect("h")?;
        }
        self.digits(true)?;
        self.expect("_")
    }
}
