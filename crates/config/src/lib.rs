//! Reads YAML text into typed configuration and reports all mistakes with their positions.
//!
//! # Steps
//!
//! 1. [`read()`] parses and merges the sources (`--config`, `--set`) into a tree of [`Node`]s with positions.
//! 2. [`expand()`] replaces `${...}` in the tree.
//! 3. [`decode()`] turns the node of a component into its configuration type and calls [`Validate::validate`].
//!
//! # Invariants
//!
//! * All mistakes go to the [`Report`] with their positions; the first mistake does not hide the others.
//! * A secret is never shown: neither the value of a [`Secret`], nor the result of an expansion, nor the value of a key
//!   that looks like a secret.
//! * Syntax, merging and expansion follow the OpenTelemetry Collector. Extensions are documented at their definitions.
//! * Input is bounded: aliases, nesting, expansions and file sizes have limits.
//!
//! # Example
//!
//! ```
//! use tributary_config::units::Duration;
//! use tributary_config::{Problems, Report, Sources, Validate, decode, expand, read};
//!
//! #[derive(Debug, Default, serde::Deserialize)]
//! #[serde(default, deny_unknown_fields)]
//! struct Config {
//!     interval: Duration,
//! }
//!
//! impl Validate for Config {
//!     fn validate(&self, problems: &mut Problems) {
//!         if self.interval.is_zero() {
//!             problems.error(&["interval"], "must be longer than 0s");
//!         }
//!     }
//! }
//!
//! let sources = Sources {
//!     configs: vec!["yaml:{interval: 0s, intervall: 5s}".to_owned()],
//!     ..Sources::default()
//! };
//! let mut report = Report::default();
//! let mut tree = read(&sources, "", &mut report).unwrap();
//! expand(&mut tree, &mut report);
//! assert!(decode::<Config>(&tree, &mut report).is_none());
//! // Both mistakes are reported, each with its position.
//! assert_eq!(report.errors(), 2, "{}", report.render());
//! ```
//!
//! # Where to start reading
//!
//! [`decode()`] and `de` for types, `expand` for variables, [`units`] for the types of values that components
//! share, and `sensitive` for the rules about secrets.

mod aliases;
mod de;
mod decode;
mod expand;
mod id;
mod limits;
mod markers;
mod merge;
pub mod node;
pub mod parse;
pub mod re2;
mod read;
mod render;
pub mod report;
mod scalar;
mod sensitive;
pub mod source;
pub mod suggest;
#[cfg(test)]
mod tests;
mod text_or;
pub mod units;
mod unread;
pub mod wildcard;

pub use aliases::Aliases;
pub use decode::decode;
pub use expand::expand;
pub use id::{ComponentId, InvalidId};
pub use node::Node;
pub use read::{Sources, read};
pub use report::{Level, Report};
pub use sensitive::{hide_values_of, without_url_secrets};
pub use suggest::closest;
pub use text_or::TextOr;
pub use units::{ByteSize, Endpoint, Headers, Secret, Section};
pub use unread::Unread;

/// Reads a YAML or JSON text that is not a configuration, with the limits of a configuration: no variables, no alias
/// bombs, no duplicate keys.
///
/// # Errors
/// The first mistake, with its line.
pub fn read_text<T>(text: &str) -> Result<T, String>
where
    T: serde::de::DeserializeOwned + Default,
{
    #[derive(Default, serde::Deserialize)]
    #[serde(transparent)]
    struct Plain<T>(T);
    impl<T> Validate for Plain<T> {}

    let mut report = Report::default();
    let read = parse::parse(text, 0, &mut report);
    let read = read.and_then(|node| decode::<Plain<T>>(&node, &mut report));
    match (report.diagnostics().first(), read) {
        (None, Some(Plain(value))) => Ok(value),
        (Some(wrong), _) => {
            let line = wrong.span.map_or(1, |span| span.line);
            Err(format!("line {line}: {}", wrong.message))
        }
        (None, None) => Err("line 1: the text cannot be parsed".to_owned()),
    }
}

/// Collects the findings of [`Validate::validate`]. Paths are relative to the validated value.
#[derive(Debug, Default)]
pub struct Problems {
    found: Vec<Problem>,
}

/// A finding of a validation.
#[derive(Debug, Clone)]
pub struct Problem {
    /// Keys (and indices of lists, as numbers) from the validated value down; empty for the value itself.
    pub path: Vec<String>,
    /// Description of the mistake and its remedy.
    pub message: String,
    /// Whether this is a warning, so that the configuration can still be used.
    pub warning: bool,
    /// Position within the text at the path, in characters from 0. Used for texts in a query or pattern language.
    pub within: Option<usize>,
}

impl Problems {
    /// Adds an error at a path such as `&["retry_on_failure", "max_interval"]`.
    pub fn error(&mut self, path: &[&str], message: impl Into<String>) {
        self.push(path, message.into(), false);
    }

    /// Adds an error within the text at a path, at a character counted from 0.
    pub fn error_within(&mut self, path: &[&str], character: usize, message: impl Into<String>) {
        self.error(path, message);
        if let Some(problem) = self.found.last_mut() {
            problem.within = Some(character);
        }
    }

    /// Adds a warning at a path. With `--strict` it is an error.
    pub fn warning(&mut self, path: &[&str], message: impl Into<String>) {
        self.push(path, message.into(), true);
    }

    /// Validates a part and prefixes the paths of its findings with `key`.
    pub fn within(&mut self, key: &str, part: &impl Validate) {
        let mut inner = Problems::default();
        part.validate(&mut inner);
        self.extend(&[key], inner);
    }

    /// Adds the findings about a section and prefixes their paths with `path`.
    pub fn extend(&mut self, path: &[&str], part: Problems) {
        self.found.extend(part.found.into_iter().map(|mut problem| {
            let keys = path.iter().map(|key| (*key).to_owned());
            problem.path.splice(0..0, keys);
            problem
        }));
    }

    /// Returns the findings.
    pub fn found(&self) -> &[Problem] {
        &self.found
    }

    fn push(&mut self, path: &[&str], message: String, warning: bool) {
        self.found.push(Problem {
            path: path.iter().map(|key| (*key).to_owned()).collect(),
            message,
            warning,
            within: None,
        });
    }
}

/// Validation of a configuration value beyond its types.
pub trait Validate {
    /// Reports all mistakes, not only the first.
    fn validate(&self, problems: &mut Problems) {
        let _ = problems;
    }

    /// Returns keys of earlier builds, each with advice for a configuration that still has the key. A key is a path
    /// below the component's configuration, as in `a.b`.
    fn removed_keys() -> &'static [(&'static str, &'static str)]
    where
        Self: Sized,
    {
        &[]
    }

    /// Returns the addresses that the component will listen on, with their paths. Used to find two components with the
    /// same port.
    fn listens_on(&self) -> Vec<(Vec<&'static str>, Endpoint)> {
        Vec::new()
    }

    /// Returns the files that the component will write to, with their paths in the configuration. Used to find two
    /// components with the same file.
    fn writes_to(&self) -> Vec<(Vec<&'static str>, std::path::PathBuf)> {
        Vec::new()
    }

    /// Returns the extensions that the component needs. Used to find extensions that are missing, not running, or of
    /// the wrong kind.
    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        Vec::new()
    }

    /// Whether its pipelines refuse data while its next hop is away, since its queue is in memory and does not drop.
    fn blocks_pipelines(&self) -> bool {
        false
    }
}

/// Use of an extension by a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtensionUse {
    /// Path of the key that names the extension, from the component's configuration down.
    pub path: Vec<String>,
    /// Id of the extension.
    pub extension: ComponentId,
    /// Required capability of the extension.
    pub capability: Capability,
}

/// Service of an extension for other components.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// Authenticates the clients of a server.
    ServerAuth,
    /// Adds credentials to the requests of a client.
    ClientAuth,
    /// Stores queues on disk.
    Storage,
}

impl Capability {
    /// Returns a phrase to follow "the extension `x`" if it has the capability.
    pub fn does(self) -> &'static str {
        match self {
            Capability::ServerAuth => "checks the credentials of clients",
            Capability::ClientAuth => "adds credentials to requests",
            Capability::Storage => "stores queues on disk",
        }
    }

    /// Returns a phrase to follow "the extension `x`" if it lacks the capability.
    pub fn does_not(self) -> &'static str {
        match self {
            Capability::ServerAuth => "does not check the credentials of clients",
            Capability::ClientAuth => "does not add credentials to requests",
            Capability::Storage => "does not store queues on disk",
        }
    }
}
