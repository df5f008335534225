//! The tree of a YAML text, with the positions of all values.

use std::fmt;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read as _;

use super::scalar::{self, Resolved};
use super::source::Span;
use crate::limits::MAX_FILE_SIZE;
pub use crate::scalar::{Scalar, Tag};

/// A value of a configuration with its position.
#[derive(Clone)]
pub struct Node {
    /// Position of the value.
    pub span: Span,
    /// Position of the key in front of the value.
    pub key: Option<Span>,
    /// Content of the value.
    pub content: Content,
    /// The text after expansion of its `${...}`, if there is any. Text fields get this text.
    pub expanded: Option<String>,
}

/// Content of a node.
#[derive(Clone)]
pub enum Content {
    /// A text, number, boolean or null.
    Scalar(Scalar),
    /// A list.
    Sequence(Vec<Node>),
    /// Keys with values, in their written order.
    Mapping(Vec<Pair>),
    /// A wrong value that was reported and counts as absent.
    Removed,
}

/// A key and its value.
#[derive(Clone)]
pub struct Pair {
    /// The key.
    pub name: String,
    /// The value.
    pub value: Node,
}

impl Pair {
    /// Returns a hash of the file that the value names, if the key is known to name a file.
    fn file_content(&self) -> Option<u64> {
        let Content::Scalar(scalar) = &self.value.content else {
            return None;
        };
        let path = self.value.expanded.as_ref().unwrap_or(&scalar.text);
        if !self.name.ends_with("_file") || path.is_empty() {
            return None;
        }
        // A FIFO would block, and a device may have no end.
        if !std::fs::metadata(path).ok()?.is_file() {
            return None;
        }
        let mut content = Vec::new();
        let file = File::open(path).ok()?;
        file.take(MAX_FILE_SIZE).read_to_end(&mut content).ok()?;
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        Some(hasher.finish())
    }
}

impl Node {
    /// Creates a node without a key.
    pub fn new(span: Span, content: Content) -> Self {
        Node {
            span,
            key: None,
            content,
            expanded: None,
        }
    }

    /// Creates a null.
    pub fn null(span: Span) -> Self {
        let scalar = Scalar {
            plain: true,
            ..Scalar::default()
        };
        Node::new(span, Content::Scalar(scalar))
    }

    /// Creates a quoted text.
    pub fn text(span: Span, text: String) -> Self {
        let scalar = Scalar {
            text,
            ..Scalar::default()
        };
        Node::new(span, Content::Scalar(scalar))
    }

    /// Whether the node is null or was removed.
    pub fn is_null(&self) -> bool {
        match &self.content {
            Content::Scalar(scalar) => scalar::resolve(scalar) == Resolved::Null,
            Content::Removed => true,
            _ => false,
        }
    }

    /// Whether the value was wrong and has been reported.
    pub fn is_removed(&self) -> bool {
        matches!(self.content, Content::Removed)
    }

    /// Returns the pairs of a mapping; empty for other content.
    pub fn pairs(&self) -> &[Pair] {
        match &self.content {
            Content::Mapping(pairs) => pairs,
            _ => &[],
        }
    }

    /// Returns the value of a key, or the element at an index.
    pub fn child(&self, segment: &str) -> Option<&Node> {
        match &self.content {
            Content::Mapping(pairs) => pairs
                .iter()
                .find(|pair| pair.name == segment)
                .map(|pair| &pair.value),
            Content::Sequence(items) => items.get(segment.parse::<usize>().ok()?),
            _ => None,
        }
    }

    /// Returns the position for findings about this value: the value if it is written on one line, otherwise its key.
    pub fn place(&self) -> Span {
        match &self.content {
            Content::Scalar(scalar) if !(scalar.plain && scalar.text.is_empty()) => self.span,
            _ => self.key.unwrap_or(self.span),
        }
    }

    /// Returns the position for a path below this value, as deep as the path exists.
    pub fn locate<S: AsRef<str>>(&self, path: &[S]) -> Span {
        let mut node = self;
        for segment in path {
            match node.child(segment.as_ref()) {
                Some(child) if !child.is_removed() => node = child,
                _ => return node.key.unwrap_or(node.span),
            }
        }
        node.place()
    }

    /// Returns the position of a character of this text in its source line. Returns `None` if the text is not written
    /// literally on one line, for example because of escapes or an expansion.
    pub fn locate_within(&self, character: usize, line: &str) -> Option<Span> {
        let Content::Scalar(scalar) = &self.content else {
            return None;
        };
        if self.expanded.is_some() || scalar.text.is_empty() {
            return None;
        }
        let column = usize::try_from(self.span.column).ok()?.checked_sub(1)?;
        let written: String = line.chars().skip(column).collect();
        let quote = usize::from(!scalar.plain);
        let begins = written.char_indices().nth(quote).map(|(at, _)| at)?;
        if !written.get(begins..)?.starts_with(&scalar.text) {
            return None;
        }
        let offset = u32::try_from(quote + character).ok()?;
        Some(Span {
            column: self.span.column.checked_add(offset)?,
            length: 1,
            ..self.span
        })
    }

    /// Returns the kind of the value, for error messages.
    pub fn kind(&self) -> &'static str {
        match &self.content {
            Content::Scalar(scalar) => match scalar::resolve(scalar) {
                Resolved::Null => "nothing",
                Resolved::Bool(_) => "a boolean",
                Resolved::Unsigned(_) | Resolved::Signed(_) => "a whole number",
                Resolved::Float(_) => "a number with a fraction",
                Resolved::Text => "text",
            },
            Content::Sequence(_) => "a list",
            Content::Mapping(_) => "a mapping",
            Content::Removed => "nothing",
        }
    }

    /// Returns the number of nodes in the tree.
    pub fn size(&self) -> usize {
        match &self.content {
            Content::Sequence(items) => 1 + items.iter().map(Node::size).sum::<usize>(),
            Content::Mapping(pairs) => {
                1 + pairs.iter().map(|pair| pair.value.size()).sum::<usize>()
            }
            _ => 1,
        }
    }

    /// Returns a text that is equal for equal configurations: with sorted keys, and without positions and comments. The
    /// text includes the contents of named files (for example a password), so that a reload detects changes. The
    /// watched files of a `tls` section are excluded: rebuilding the component for them would close its connections
    /// needlessly. The text contains secrets.
    pub fn fingerprint(&self) -> String {
        let mut out = String::new();
        self.write_canonical(false, &mut out);
        out
    }

    fn write_canonical(&self, is_tls: bool, out: &mut String) {
        match &self.content {
            Content::Scalar(scalar) => {
                let mark = match scalar::resolve(scalar) {
                    Resolved::Text => '"',
                    _ => '!',
                };
                out.push(mark);
                out.push_str(&format!("{:?}", scalar.text));
            }
            Content::Sequence(items) => {
                out.push('[');
                for item in items {
                    item.write_canonical(false, out);
                    out.push(',');
                }
                out.push(']');
            }
            Content::Mapping(pairs) => {
                let mut sorted: Vec<&Pair> = pairs.iter().collect();
                sorted.sort_by(|a, b| a.name.cmp(&b.name));
                out.push('{');
                for pair in sorted {
                    out.push_str(&format!("{:?}:", pair.name));
                    pair.value.write_canonical(pair.name == "tls", out);
                    let is_watched = is_tls && is_watched(pairs, &pair.name);
                    if let Some(content) = pair.file_content().filter(|_| !is_watched) {
                        out.push_str(&format!("@{content:016x}"));
                    }
                    out.push(',');
                }
                out.push('}');
            }
            Content::Removed => {}
        }
        if let Some(text) = &self.expanded {
            out.push_str(&format!("={text:?}"));
        }
    }
}

/// Whether the file of this key in a `tls` section is watched while the process runs.
fn is_watched(section: &[Pair], key: &str) -> bool {
    let value = |name: &str| {
        let pair = section.iter().find(|pair| pair.name == name)?;
        match &pair.value.content {
            Content::Scalar(scalar) => Some(pair.value.expanded.as_ref().unwrap_or(&scalar.text)),
            _ => None,
        }
    };
    let never = value("reload_interval")
        .is_some_and(|text| text.parse() == Ok(super::units::Duration::default()));
    let kept = key == "client_ca_file"
        && value("client_ca_file_reload").is_some_and(|text| text.eq_ignore_ascii_case("false"));
    !never && !kept
}

/// Shows only the position, because the content may be a secret.
impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at {}:{}",
            self.kind(),
            self.span.line,
            self.span.column
        )
    }
}
