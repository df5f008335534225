//! Parser for conditions.

mod calls;
mod operands;
mod paths;

use std::sync::Arc;

use self::paths::unsupported;
use super::lexer::{Token, TokenKind, tokens};
use super::path::Context;
use super::{Condition, Operand, ParseError, Test};
use tributary_config::re2;
use tributary_otlp::Signal;

/// Maximum nesting of conditions.
const DEEPEST: usize = 64;

/// Parses a condition for requests of a signal. Paths without a context belong to `context`. If `context` is `None`,
/// every path needs a context, and the deepest context determines the level of the evaluation.
pub fn parse(
    text: &str,
    signal: Signal,
    context: Option<Context>,
) -> Result<Condition, ParseError> {
    let tokens = tokens(text)?;
    let mut parser = Parser {
        end: text.len(),
        rest: &tokens,
        signal,
        context,
        deepest: None,
        depth: 0,
    };
    let test = parser.any()?;
    if let Some(token) = parser.rest.first() {
        return Err(parser.mistake_at(token, "expected `and`, `or` or the end"));
    }
    match context.or(parser.deepest) {
        Some(context) => Ok(Condition {
            context,
            test,
            text: text.into(),
        }),
        None => Err(ParseError {
            at: 0,
            message: "has no path: set `context`".to_owned(),
        }),
    }
}

struct Parser<'t> {
    end: usize,
    rest: &'t [Token],
    signal: Signal,
    context: Option<Context>,
    /// Deepest context of the parsed paths.
    deepest: Option<Context>,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn mistake_at(&self, token: &Token, message: impl Into<String>) -> ParseError {
        ParseError {
            at: token.at,
            message: message.into(),
        }
    }

    fn mistake(&self, message: impl Into<String>) -> ParseError {
        ParseError {
            at: self.rest.first().map_or(self.end, |token| token.at),
            message: message.into(),
        }
    }

    fn next(&mut self) -> Option<&'t Token> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn takes(&mut self, kind: &TokenKind) -> bool {
        let found = self.rest.first().is_some_and(|token| token.kind == *kind);
        if found {
            self.next();
        }
        found
    }

    fn takes_word(&mut self, word: &str) -> bool {
        self.takes(&TokenKind::Name(word.to_owned()))
    }

    fn expect(&mut self, sign: char) -> Result<(), ParseError> {
        if self.takes(&TokenKind::Sign(sign)) {
            return Ok(());
        }
        Err(self.mistake(format!("expected `{sign}`")))
    }

    fn any(&mut self) -> Result<Test, ParseError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.mistake("parentheses nest too deep"));
        }
        let mut tests = vec![self.all()?];
        while self.takes_word("or") {
            tests.push(self.all()?);
        }
        self.depth -= 1;
        Ok(one_or(tests, Test::Any))
    }

    fn all(&mut self) -> Result<Test, ParseError> {
        let mut tests = vec![self.test()?];
        while self.takes_word("and") {
            tests.push(self.test()?);
        }
        Ok(one_or(tests, Test::All))
    }

    fn test(&mut self) -> Result<Test, ParseError> {
        if self.takes_word("not") {
            return Ok(Test::Not(Box::new(self.plain_test()?)));
        }
        self.plain_test()
    }

    fn plain_test(&mut self) -> Result<Test, ParseError> {
        if !self.calculates() && self.takes(&TokenKind::Sign('(')) {
            let test = self.any()?;
            self.expect(')')?;
            return Ok(test);
        }
        if let [
            Token {
                at,
                kind: TokenKind::Symbol(name),
            },
            Token {
                kind: TokenKind::Sign('('),
                ..
            },
            ..,
        ] = self.rest
            && !calls::is_value(name)
            && let Some(test) = self.function(*at, name)?
        {
            let Some(Token {
                kind: TokenKind::Compare(comparison),
                ..
            }) = self.rest.first()
            else {
                return Ok(test);
            };
            self.next();
            let left = Operand::Truth(Box::new(test));
            return Ok(Test::Compare(left, *comparison, self.operand()?));
        }
        let left = self.operand()?;
        if let Some(Token {
            kind: TokenKind::Compare(comparison),
            ..
        }) = self.rest.first()
        {
            self.next();
            let right = self.operand()?;
            return Ok(Test::Compare(left, *comparison, right));
        }
        match left {
            Operand::Bool(value) => Ok(Test::Constant(value)),
            _ => Err(self.mistake("expected a comparison such as `==`")),
        }
    }

    /// Whether the current parenthesis begins a value instead of a test: an operator or comparison follows its end.
    fn calculates(&self) -> bool {
        let mut open = 0_usize;
        let mut tokens = self.rest.iter();
        let closing = tokens.find(|token| {
            match token.kind {
                TokenKind::Sign('(') => open += 1,
                TokenKind::Sign(')') => open = open.saturating_sub(1),
                _ => {}
            }
            open == 0
        });
        let parenthesised = closing.is_some_and(|token| token.kind == TokenKind::Sign(')'));
        let after = tokens.next().map(|token| &token.kind);
        parenthesised
            && matches!(
                after,
                Some(TokenKind::Compare(_) | TokenKind::Sign('+' | '-' | '*' | '/'))
            )
    }

    /// Parses a boolean function. Returns `None` for functions with other values.
    fn function(&mut self, at: usize, name: &str) -> Result<Option<Test>, ParseError> {
        let wrong = |message: &str| ParseError {
            at,
            message: message.to_owned(),
        };
        let test = match name {
            "IsMatch" => {
                self.rest = self.rest.get(2..).unwrap_or_default();
                let place = self.rest.first().map_or(self.end, |token| token.at);
                let target = self.operand()?;
                if matches!(target, Operand::Time(_) | Operand::Duration(_)) {
                    return Err(ParseError {
                        at: place,
                        message: "IsMatch is not supported for a time".to_owned(),
                    });
                }
                self.expect(',')?;
                let place = self.rest.first().map_or(self.end, |token| token.at);
                let pattern = self.text()?;
                let pattern = re2::compile(&pattern).map_err(|wrong| ParseError {
                    at: place,
                    message: wrong.to_string(),
                })?;
                Test::IsMatch(target, Arc::new(pattern))
            }
            "HasPrefix" | "HasSuffix" => {
                self.rest = self.rest.get(2..).unwrap_or_default();
                let target = self.text_operand()?;
                self.expect(',')?;
                let part = self.text_operand()?;
                match name {
                    "HasPrefix" => Test::HasPrefix(target, part),
                    _ => Test::HasSuffix(target, part),
                }
            }
            "IsRootSpan" => {
                self.rest = self.rest.get(2..).unwrap_or_default();
                if self
                    .context
                    .or(self.deepest)
                    .is_some_and(|context| context != Context::Span)
                {
                    return Err(wrong("IsRootSpan is only supported in conditions on spans"));
                }
                self.record_context(Context::Span, at)?;
                Test::IsRootSpan
            }
            "HasAttrKeyOnDatapoint" | "HasAttrOnDatapoint" => {
                self.rest = self.rest.get(2..).unwrap_or_default();
                self.record_context(Context::Metric, at)?;
                let key = self.text()?;
                let value = match name {
                    "HasAttrOnDatapoint" => {
                        self.expect(',')?;
                        Some(self.text()?)
                    }
                    _ => None,
                };
                Test::HasAttribute { key, value }
            }
            "IsString" | "IsInt" | "IsDouble" | "IsBool" | "IsMap" | "IsList" => {
                self.rest = self.rest.get(2..).unwrap_or_default();
                Test::Is(self.operand()?, calls::kind_of(name))
            }
            "ContainsValue" => {
                self.rest = self.rest.get(2..).unwrap_or_default();
                let list = self.operand()?;
                self.expect(',')?;
                Test::ContainsValue(list, self.operand()?)
            }
            _ => return Err(wrong(&unsupported(name))),
        };
        self.expect(')')?;
        Ok(Some(test))
    }

    fn text(&mut self) -> Result<String, ParseError> {
        match self.rest.first() {
            Some(Token {
                kind: TokenKind::Text(text),
                ..
            }) => {
                self.next();
                Ok(text.clone())
            }
            _ => Err(self.mistake("expected a string in double quotes")),
        }
    }
}

fn one_or(mut tests: Vec<Test>, several: fn(Vec<Test>) -> Test) -> Test {
    match tests.pop() {
        Some(test) if tests.is_empty() => test,
        Some(test) => {
            tests.push(test);
            several(tests)
        }
        None => Test::Constant(false),
    }
}
