//! From a text to a condition.

use regex::Regex;

use super::lexer::{Kind, Token, tokens};
use super::path::{Context, Depth, Field, Path, fields, number};
use super::{Condition, Mistake, Operand, Test};
use crate::batch::Signal;
use crate::processors::attributes::Reason;

/// How deep conditions may nest.
const DEEPEST: usize = 64;

/// Reads a condition for requests of a signal. Paths without a context in front belong to `context`; where there is none,
/// all must have one, and the deepest says where the condition is evaluated.
pub(in crate::processors::filter) fn parse(
    text: &str,
    signal: Signal,
    context: Option<Context>,
) -> Result<Condition, Mistake> {
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
        return Err(parser.mistake_at(token, "`and`, `or` or the end is expected here"));
    }
    match context.or(parser.deepest) {
        Some(context) => Ok(Condition {
            context,
            test,
            text: text.to_owned(),
        }),
        None => Err(Mistake {
            at: 0,
            message: "names no path: say with `context` what it is about".to_owned(),
        }),
    }
}

struct Parser<'t> {
    end: usize,
    rest: &'t [Token],
    signal: Signal,
    context: Option<Context>,
    /// The deepest context that was named.
    deepest: Option<Context>,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn mistake_at(&self, token: &Token, message: impl Into<String>) -> Mistake {
        Mistake {
            at: token.at,
            message: message.into(),
        }
    }

    fn mistake(&self, message: impl Into<String>) -> Mistake {
        Mistake {
            at: self.rest.first().map_or(self.end, |token| token.at),
            message: message.into(),
        }
    }

    fn next(&mut self) -> Option<&'t Token> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn takes(&mut self, kind: &Kind) -> bool {
        let found = self.rest.first().is_some_and(|token| token.kind == *kind);
        if found {
            self.next();
        }
        found
    }

    fn takes_word(&mut self, word: &str) -> bool {
        self.takes(&Kind::Name(word.to_owned()))
    }

    fn expect(&mut self, sign: char) -> Result<(), Mistake> {
        if self.takes(&Kind::Sign(sign)) {
            return Ok(());
        }
        Err(self.mistake(format!("`{sign}` is expected here")))
    }

    fn any(&mut self) -> Result<Test, Mistake> {
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

    fn all(&mut self) -> Result<Test, Mistake> {
        let mut tests = vec![self.test()?];
        while self.takes_word("and") {
            tests.push(self.test()?);
        }
        Ok(one_or(tests, Test::All))
    }

    fn test(&mut self) -> Result<Test, Mistake> {
        if self.takes_word("not") {
            return Ok(Test::Not(Box::new(self.plain_test()?)));
        }
        self.plain_test()
    }

    fn plain_test(&mut self) -> Result<Test, Mistake> {
        if self.takes(&Kind::Sign('(')) {
            let test = self.any()?;
            self.expect(')')?;
            return Ok(test);
        }
        if let [
            Token {
                at,
                kind: Kind::Symbol(name),
            },
            Token {
                kind: Kind::Sign('('),
                ..
            },
            ..,
        ] = self.rest
            && let Some(test) = self.function(*at, name)?
        {
            return Ok(test);
        }
        let left = self.operand()?;
        if let Some(Token {
            kind: Kind::Compare(comparison),
            ..
        }) = self.rest.first()
        {
            self.next();
            let right = self.operand()?;
            return Ok(Test::Compare(left, *comparison, right));
        }
        match left {
            Operand::Bool(value) => Ok(Test::Constant(value)),
            _ => Err(self.mistake("a comparison such as `==` is expected here")),
        }
    }

    /// A function that is true or false; `None` for others.
    fn function(&mut self, at: usize, name: &str) -> Result<Option<Test>, Mistake> {
        let wrong = |message: &str| Mistake {
            at,
            message: message.to_owned(),
        };
        let test = match name {
            "IsMatch" => {
                self.rest = self.rest.get(2..).unwrap_or_default();
                let target = self.operand()?;
                self.expect(',')?;
                let place = self.rest.first().map_or(self.end, |token| token.at);
                let pattern = self.text()?;
                let pattern = Regex::new(&pattern).map_err(|reason| Mistake {
                    at: place,
                    message: Reason(&reason).to_string(),
                })?;
                Test::IsMatch(target, pattern)
            }
            "IsRootSpan" => {
                self.rest = self.rest.get(2..).unwrap_or_default();
                if self
                    .context
                    .or(self.deepest)
                    .is_some_and(|context| context != Context::Span)
                {
                    return Err(wrong("IsRootSpan is for conditions about spans"));
                }
                self.reaches(Context::Span, at)?;
                Test::IsRootSpan
            }
            "HasAttrKeyOnDatapoint" | "HasAttrOnDatapoint" => {
                self.rest = self.rest.get(2..).unwrap_or_default();
                self.reaches(Context::Metric, at)?;
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
            "TraceID" | "SpanID" => return Ok(None),
            _ => return Err(wrong(&unsupported(name))),
        };
        self.expect(')')?;
        Ok(Some(test))
    }

    fn text(&mut self) -> Result<String, Mistake> {
        match self.rest.first() {
            Some(Token {
                kind: Kind::Text(text),
                ..
            }) => {
                self.next();
                Ok(text.clone())
            }
            _ => Err(self.mistake("a text in double quotes is expected here")),
        }
    }

    fn operand(&mut self) -> Result<Operand, Mistake> {
        let Some(token) = self.rest.first() else {
            return Err(self.mistake("a path or a value is expected here"));
        };
        let operand = match &token.kind {
            Kind::Text(text) => Operand::Text(text.clone()),
            Kind::Int(value) => Operand::Int(*value),
            Kind::Double(value) => Operand::Double(*value),
            Kind::Bytes(bytes) => Operand::Bytes(bytes.clone()),
            Kind::Name(word) => match word.as_str() {
                "nil" => Operand::Nil,
                "true" => Operand::Bool(true),
                "false" => Operand::Bool(false),
                "and" | "or" | "not" => {
                    return Err(self.mistake("a path or a value is expected here"));
                }
                _ => return self.path().map(Operand::Path),
            },
            Kind::Symbol(name) if name == "TraceID" || name == "SpanID" => return self.id(name),
            Kind::Symbol(name) => match number(name) {
                Some(number) => Operand::Int(number),
                None => {
                    let message = format!(
                        "{name} is no name of a number, and no function, that is supported"
                    );
                    return Err(self.mistake(message));
                }
            },
            Kind::Sign(_) | Kind::Compare(_) => {
                return Err(self.mistake("a path or a value is expected here"));
            }
        };
        self.next();
        Ok(operand)
    }

    fn id(&mut self, name: &str) -> Result<Operand, Mistake> {
        let length = if name == "TraceID" { 16 } else { 8 };
        self.next();
        self.expect('(')?;
        let id = match self.rest.first().map(|token| &token.kind) {
            Some(Kind::Bytes(bytes)) if bytes.len() == length => bytes.clone(),
            _ => {
                let digits = 2 * length;
                return Err(self.mistake(format!(
                    "0x and {digits} hexadecimal digits are expected here"
                )));
            }
        };
        self.next();
        self.expect(')')?;
        Ok(Operand::Id(id))
    }

    fn path(&mut self) -> Result<Path, Mistake> {
        let start = self.rest.first().map_or(self.end, |token| token.at);
        let mut words: Vec<&str> = Vec::new();
        while let Some(Token {
            kind: Kind::Name(word),
            ..
        }) = self.rest.first()
        {
            words.push(word);
            self.next();
            if !self.takes(&Kind::Sign('.')) {
                break;
            }
        }
        let prefix = words.first().copied().and_then(Context::of_name);
        let (context, words) = match (prefix, self.context) {
            (Some(context), _) => (context, words.get(1..).unwrap_or_default()),
            (None, Some(context)) => (context, words.as_slice()),
            (None, None) => {
                let contexts: Vec<&str> = self.contexts().collect();
                return Err(Mistake {
                    at: start,
                    message: format!(
                        "`{}` does not say what it is about: put one of these in front: {}",
                        words.join("."),
                        contexts.join(", ")
                    ),
                });
            }
        };
        self.reaches(context, start)?;
        let name = words.join(".");
        let known = fields(context);
        let Some((_, field)) = known.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            return Err(Mistake {
                at: start,
                message: format!(
                    "a {} has no `{name}` here; it has {}",
                    context.name(),
                    known.join(", ")
                ),
            });
        };
        let keys = self.keys()?;
        match (field, keys.is_empty()) {
            (Field::Attributes, true) => Err(Mistake {
                at: start,
                message: "needs a key: attributes[\"key\"]".to_owned(),
            }),
            (Field::Attributes | Field::Body, _) | (_, true) => Ok(Path {
                context,
                field: *field,
                keys,
            }),
            (_, false) => Err(Mistake {
                at: start,
                message: format!("`{name}` has no keys"),
            }),
        }
    }

    fn keys(&mut self) -> Result<Vec<String>, Mistake> {
        let mut keys = Vec::new();
        while self.takes(&Kind::Sign('[')) {
            match self.rest.first().map(|token| &token.kind) {
                Some(Kind::Text(_)) => keys.push(self.text()?),
                Some(Kind::Int(_)) => {
                    return Err(self.mistake("positions in lists are not supported, only keys"));
                }
                _ => return Err(self.mistake("a key in double quotes is expected here")),
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

    /// The condition looks at this context.
    fn reaches(&mut self, context: Context, at: usize) -> Result<(), Mistake> {
        if !context.is_of(self.signal) {
            let message = format!("{} have no {}", self.signal, context.name());
            return Err(Mistake { at, message });
        }
        let depth = |context: Option<Context>| context.map_or(Depth::Resource, Context::depth);
        if let Some(given) = self.context
            && given.depth() < context.depth()
        {
            let message = format!(
                "a condition about a {} cannot look at a {}: there are several",
                given.name(),
                context.name()
            );
            return Err(Mistake { at, message });
        }
        if self.deepest.is_none() || depth(self.deepest) < context.depth() {
            self.deepest = Some(context);
        }
        Ok(())
    }
}

/// What to say of a function that is not here.
fn unsupported(name: &str) -> String {
    let instead = match name {
        "HasPrefix" => "write `x != nil and IsMatch(x, \"^prefix\")`",
        "HasSuffix" => "write `x != nil and IsMatch(x, \"suffix$\")`",
        "ToLowerCase" | "ToUpperCase" => "write `IsMatch(x, \"(?i)^text$\")`",
        "Len" => "for a text write `IsMatch(x, \"(?s)^.{3,}\")`",
        "IsString" | "IsInt" | "IsDouble" | "IsBool" | "IsMap" | "IsList" => {
            "values of another type are not equal anyway; for a key that is there write `x != nil`"
        }
        "Int" | "Double" | "String" | "Concat" | "Substring" => {
            "IsMatch reads any value as text, and whole and other numbers compare as numbers"
        }
        "ParseJSON" | "ExtractPatterns" => {
            "write `IsMatch(x, \"pattern\")`, which reads the text as it is"
        }
        _ => {
            "these are: IsMatch, IsRootSpan, HasAttrKeyOnDatapoint, HasAttrOnDatapoint, TraceID, SpanID"
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
