//! Parser for conditions.

mod calls;

use std::sync::Arc;

use super::lexer::{Token, TokenKind, tokens};
use super::path::{Context, Depth, Field, Key, Path, fields, number};
use super::{Condition, Operand, Operator, ParseError, Test};
use tributary_config::re2;
use tributary_config::units::Duration;
use tributary_otlp::Signal;

/// Maximum nesting of conditions.
const DEEPEST: usize = 64;

/// Parses a condition for requests of a signal. Paths without a context belong to `context`. If `context` is `None`,
/// every path needs one, and the deepest context determines the level of the evaluation.
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
    /// Deepest context so far.
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

    /// Whether the parenthesis here begins a value instead of a test: an operator or comparison follows it.
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

    /// Parses a value that may be a text.
    fn text_operand(&mut self) -> Result<Operand, ParseError> {
        let at = self.rest.first().map_or(self.end, |token| token.at);
        match self.operand()? {
            operand @ (Operand::Text(_) | Operand::Path(_) | Operand::Call(..)) => Ok(operand),
            _ => Err(ParseError {
                at,
                message: "expected a string or a path".to_owned(),
            }),
        }
    }

    /// Parses sums of products.
    fn operand(&mut self) -> Result<Operand, ParseError> {
        let first = self.product()?;
        let mut rest = Vec::new();
        while let Some(operator) = self.takes_operator('+', '-') {
            rest.push((operator, self.product()?));
        }
        self.math(first, rest)
    }

    fn product(&mut self) -> Result<Operand, ParseError> {
        let first = self.factor()?;
        let mut rest = Vec::new();
        while let Some(operator) = self.takes_operator('*', '/') {
            rest.push((operator, self.factor()?));
        }
        self.math(first, rest)
    }

    fn takes_operator(&mut self, first: char, second: char) -> Option<Operator> {
        let sign = [first, second]
            .into_iter()
            .find(|sign| self.takes(&TokenKind::Sign(*sign)));
        Some(match sign? {
            '+' => Operator::Add,
            '-' => Operator::Subtract,
            '*' => Operator::Multiply,
            _ => Operator::Divide,
        })
    }

    /// Parses a value, with a sign or in parentheses.
    fn factor(&mut self) -> Result<Operand, ParseError> {
        if let Some(operator) = self.takes_operator('+', '-') {
            self.enter()?;
            let operand = self.factor()?;
            self.depth -= 1;
            return match (operator, operand) {
                // A plus sign has no effect, and does not even require a number.
                (Operator::Add, operand) => Ok(operand),
                (_, Operand::Int(number)) => Ok(Operand::Int(number.wrapping_neg())),
                (_, Operand::Double(number)) => Ok(Operand::Double(-number)),
                (_, Operand::Duration(_)) => Err(self
                    .mistake("a sign before a duration is not supported: subtract the duration")),
                (operator, operand) => self.math(Operand::Int(0), vec![(operator, operand)]),
            };
        }
        if self.takes(&TokenKind::Sign('(')) {
            self.enter()?;
            let operand = self.operand()?;
            self.depth -= 1;
            self.expect(')')?;
            return Ok(operand);
        }
        self.value()
    }

    fn enter(&mut self) -> Result<(), ParseError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.mistake("parentheses nest too deep"));
        }
        Ok(())
    }

    /// Builds an arithmetic operation, or returns the single value.
    fn math(&self, first: Operand, rest: Vec<(Operator, Operand)>) -> Result<Operand, ParseError> {
        if rest.is_empty() {
            return Ok(first);
        }
        let mut operands = std::iter::once(&first).chain(rest.iter().map(|(_, operand)| operand));
        let never = |operand: &Operand| {
            matches!(
                operand,
                Operand::Nil
                    | Operand::Bool(_)
                    | Operand::Text(_)
                    | Operand::Bytes(_)
                    | Operand::Id(_)
            )
        };
        if operands.any(never) {
            return Err(self.mistake("an operand before this position is not a number"));
        }
        Ok(Operand::Math(Box::new(first), rest))
    }

    fn value(&mut self) -> Result<Operand, ParseError> {
        let Some(token) = self.rest.first() else {
            return Err(self.mistake("expected a path or a value"));
        };
        let operand = match &token.kind {
            TokenKind::Text(text) => Operand::Text(text.as_str().into()),
            TokenKind::Int(value) => Operand::Int(*value),
            TokenKind::Double(value) => Operand::Double(*value),
            TokenKind::Bytes(bytes) => Operand::Bytes(bytes.as_slice().into()),
            TokenKind::Name(word) => match word.as_str() {
                "nil" => Operand::Nil,
                "true" => Operand::Bool(true),
                "false" => Operand::Bool(false),
                "and" | "or" | "not" => {
                    return Err(self.mistake("expected a path or a value"));
                }
                _ => return self.path(),
            },
            TokenKind::Symbol(name) if name == "Duration" => return self.duration(),
            TokenKind::Symbol(name) if name == "Len" => return self.length(),
            TokenKind::Symbol(name) if name == "TraceID" || name == "SpanID" => {
                return self.id(name);
            }
            TokenKind::Symbol(name)
                if self
                    .rest
                    .get(1)
                    .is_some_and(|next| next.kind == TokenKind::Sign('(')) =>
            {
                return self.call(token.at, name);
            }
            TokenKind::Sign('[') => return self.list(),
            TokenKind::Symbol(name) => match number(name) {
                Some(number) => Operand::Int(number),
                None => {
                    let message = format!("{name} is not a supported enum or function");
                    return Err(self.mistake(message));
                }
            },
            TokenKind::Sign(_) | TokenKind::Compare(_) => {
                return Err(self.mistake("expected a path or a value"));
            }
        };
        self.next();
        Ok(operand)
    }

    fn id(&mut self, name: &str) -> Result<Operand, ParseError> {
        let length = if name == "TraceID" { 16 } else { 8 };
        self.next();
        self.expect('(')?;
        let id = match self.rest.first().map(|token| &token.kind) {
            Some(TokenKind::Bytes(bytes)) if bytes.len() == length => bytes.clone(),
            _ => {
                let digits = 2 * length;
                return Err(self.mistake(format!("expected 0x and {digits} hexadecimal digits")));
            }
        };
        self.next();
        self.expect(')')?;
        Ok(Operand::Id(id.into()))
    }

    fn length(&mut self) -> Result<Operand, ParseError> {
        self.next();
        self.expect('(')?;
        let target = self.text_operand()?;
        self.expect(')')?;
        Ok(Operand::Len(Box::new(target)))
    }

    fn duration(&mut self) -> Result<Operand, ParseError> {
        self.next();
        self.expect('(')?;
        let at = self.rest.first().map_or(self.end, |token| token.at);
        let duration: Duration = self
            .text()?
            .parse()
            .map_err(|message| ParseError { at, message })?;
        self.expect(')')?;
        // At most 2^63 - 1 ns.
        let nanoseconds = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        Ok(Operand::Duration(nanoseconds))
    }

    fn path(&mut self) -> Result<Operand, ParseError> {
        let start = self.rest.first().map_or(self.end, |token| token.at);
        let mut words: Vec<&str> = Vec::new();
        while let Some(Token {
            kind: TokenKind::Name(word),
            ..
        }) = self.rest.first()
        {
            words.push(word);
            self.next();
            if !self.takes(&TokenKind::Sign('.')) {
                break;
            }
        }
        let prefix = words.first().copied().and_then(Context::of_name);
        let (context, words) = match (prefix, self.context) {
            (Some(context), _) => (context, words.get(1..).unwrap_or_default()),
            (None, Some(context)) => (context, words.as_slice()),
            (None, None) => {
                let contexts: Vec<&str> = self.contexts().collect();
                return Err(ParseError {
                    at: start,
                    message: format!(
                        "`{}` has no context: prefix it with one of: {}",
                        words.join("."),
                        contexts.join(", ")
                    ),
                });
            }
        };
        self.record_context(context, start)?;
        let name = words.join(".");
        let known = fields(context);
        // `start_time` is the time of which `start_time_unix_nano` is the number.
        let is_time = name.ends_with("time");
        let number = if is_time {
            format!("{name}_unix_nano")
        } else {
            name.clone()
        };
        let Some((_, field)) = known.iter().find(|(known, _)| *known == number) else {
            let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            return Err(ParseError {
                at: start,
                message: format!(
                    "the context {} has no field `{name}`; available: {}",
                    context.name(),
                    known.join(", ")
                ),
            });
        };
        let keys = self.keys(*field)?;
        match (field, keys.is_empty()) {
            (Field::Attributes, true) => Err(ParseError {
                at: start,
                message: "requires a key: attributes[\"key\"]".to_owned(),
            }),
            (Field::Attributes | Field::Body, _) | (_, true) => {
                let path = Path {
                    context,
                    field: *field,
                    keys,
                };
                Ok(match is_time {
                    true => Operand::Time(path),
                    false => Operand::Path(path),
                })
            }
            (_, false) => Err(ParseError {
                at: start,
                message: format!("`{name}` has no keys"),
            }),
        }
    }

    /// Parses the keys in brackets. In attributes, the first key must be a name.
    fn keys(&mut self, field: Field) -> Result<Vec<Key>, ParseError> {
        let mut keys = Vec::new();
        while self.takes(&TokenKind::Sign('[')) {
            match self.rest.first().map(|token| &token.kind) {
                Some(TokenKind::Text(_)) => keys.push(Key::Name(self.text()?)),
                Some(TokenKind::Int(position))
                    if field != Field::Attributes || !keys.is_empty() =>
                {
                    keys.push(Key::Position(*position));
                    self.next();
                }
                _ => return Err(self.mistake("expected a key in double quotes")),
            }
            self.expect(']')?;
        }
        Ok(keys)
    }

    fn contexts(&self) -> impl Iterator<Item = &'static str> {
        let signal = self.signal;
        let names = Context::NAMES.into_iter();
        names
            .filter(move |(_, context)| context.is_of(signal))
            .map(|(name, _)| name)
    }

    /// Records that the condition uses this context.
    fn record_context(&mut self, context: Context, at: usize) -> Result<(), ParseError> {
        if !context.is_of(self.signal) {
            let message = format!(
                "the context {} is not available for {}",
                context.name(),
                self.signal
            );
            return Err(ParseError { at, message });
        }
        let depth = |context: Option<Context>| context.map_or(Depth::Resource, Context::depth);
        if let Some(given) = self.context
            && given.depth() < context.depth()
        {
            let message = format!(
                "a condition on a {} cannot use the context {}, which has several values",
                given.name(),
                context.name()
            );
            return Err(ParseError { at, message });
        }
        if self.deepest.is_none() || depth(self.deepest) < context.depth() {
            self.deepest = Some(context);
        }
        Ok(())
    }
}

/// Returns the message about an unsupported function.
fn unsupported(name: &str) -> String {
    let instead = match name {
        "ExtractPatterns" => "write `IsMatch(x, \"pattern\")`, which matches the unchanged string",
        _ => {
            "supported: IsMatch, HasPrefix, HasSuffix, IsRootSpan, HasAttrKeyOnDatapoint, HasAttrOnDatapoint, \
             IsString, IsInt, IsDouble, IsBool, IsMap, IsList, ContainsValue, Concat, ParseJSON, Now, ToLowerCase, \
             ToUpperCase, String, Int, Double, Substring, Len, TraceID, SpanID, Duration"
        }
    };
    format!("the function {name} is not supported; {instead}")
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
