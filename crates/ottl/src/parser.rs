//! Parser for conditions and statements.

mod calls;
mod operands;
mod paths;
mod statements;
#[cfg(test)]
mod tests;

pub use self::statements::parse_statement;
use super::lexer::{Token, TokenKind, tokens};
use super::path::Context;
use super::{Condition, Operand, ParseError, Test};
use tributary_otlp::Signal;

/// Maximum nesting of expressions.
const DEEPEST: usize = 64;

/// Parses a condition for requests of a signal. Paths without a context belong to `context`. If `context` is `None`,
/// every path needs a context, and the deepest context determines the level of the evaluation.
pub fn parse(
    text: &str,
    signal: Signal,
    context: Option<Context>,
) -> Result<Condition, ParseError> {
    condition(text, signal, context, false)
}

/// Like [`parse`], for a condition of statements, which lacks the functions that only conditions of a filter have.
pub fn parse_statement_condition(
    text: &str,
    signal: Signal,
    context: Option<Context>,
) -> Result<Condition, ParseError> {
    condition(text, signal, context, true)
}

fn condition(
    text: &str,
    signal: Signal,
    context: Option<Context>,
    is_of_statement: bool,
) -> Result<Condition, ParseError> {
    let tokens = tokens(text)?;
    let mut parser = Parser::new(text, &tokens, signal, context);
    parser.is_of_statement = is_of_statement;
    let test = parser.any()?;
    if let Some(token) = parser.rest.first() {
        return Err(parser.mistake_at(token, "expected `and`, `or` or the end"));
    }
    Ok(Condition {
        context: parser.final_context()?,
        test,
        text: text.into(),
    })
}

struct Parser<'t> {
    end: usize,
    rest: &'t [Token],
    signal: Signal,
    context: Option<Context>,
    /// Deepest context of the parsed paths.
    deepest: Option<Context>,
    depth: usize,
    /// A function that needs the context of spans, with its position.
    needs_span: Option<(usize, &'static str)>,
    /// Whether the text belongs to a statement, for which some functions of conditions do not exist.
    is_of_statement: bool,
}

impl<'t> Parser<'t> {
    fn new(text: &str, tokens: &'t [Token], signal: Signal, context: Option<Context>) -> Self {
        Parser {
            end: text.len(),
            rest: tokens,
            signal,
            context,
            deepest: None,
            depth: 0,
            needs_span: None,
            is_of_statement: false,
        }
    }

    fn final_context(&self) -> Result<Context, ParseError> {
        let context = self.context.or(self.deepest).ok_or_else(|| ParseError {
            at: 0,
            message: "has no path: set `context`".to_owned(),
        })?;
        match self.needs_span {
            Some((at, name)) if context != Context::Span => Err(ParseError {
                at,
                message: format!("{name} is only supported in conditions on spans"),
            }),
            _ => Ok(context),
        }
    }

    fn mistake_at(&self, token: &Token, message: impl Into<String>) -> ParseError {
        ParseError {
            at: token.at,
            message: message.into(),
        }
    }

    fn mistake(&self, message: impl Into<String>) -> ParseError {
        ParseError {
            at: self.at(),
            message: message.into(),
        }
    }

    /// Returns the position of the next token.
    fn at(&self) -> usize {
        self.rest.first().map_or(self.end, |token| token.at)
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

    /// Whether the token at a distance is this sign.
    fn sees(&self, distance: usize, sign: char) -> bool {
        let token = self.rest.get(distance);
        token.is_some_and(|token| token.kind == TokenKind::Sign(sign))
    }

    fn expect(&mut self, sign: char) -> Result<(), ParseError> {
        if self.takes(&TokenKind::Sign(sign)) {
            return Ok(());
        }
        Err(self.mistake(match self.sees(0, '=') {
            true => "a single `=`: write `==` to compare".to_owned(),
            false => format!("expected `{sign}`"),
        }))
    }

    fn enter(&mut self) -> Result<(), ParseError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.mistake("parentheses nest too deep"));
        }
        Ok(())
    }

    fn any(&mut self) -> Result<Test, ParseError> {
        self.enter()?;
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
        let is_call = matches!(
            self.rest.first().map(|token| &token.kind),
            Some(TokenKind::Symbol(_))
        ) && self.sees(1, '(');
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
            operand if is_call => Ok(Test::Truth(operand)),
            _ if self.sees(0, '=') => Err(self.mistake("a single `=`: write `==` to compare")),
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
