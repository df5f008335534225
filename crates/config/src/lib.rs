//! From YAML text to typed configuration, with every error at its place.

mod also;
mod de;
mod decode;
mod expand;
mod id;
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
pub mod units;
mod unread;
pub mod wildcard;

pub use also::Also;
pub use decode::decode;
pub use expand::expand;
pub use id::{ComponentId, InvalidId};
pub use node::Node;
pub use read::{Sources, read};
pub use report::Level;
pub use report::Report;
pub use sensitive::{reveal_no_value_of, without_url_secrets};
pub use suggest::closest;
pub use units::{ByteSize, Endpoint, Headers, Secret, Section};
pub use unread::Unread;

use std::path::Path;

/// Reads a YAML or JSON text that is no configuration, with the limits of one: no variables, no alias bombs, no key twice.
///
/// # Errors
/// The first thing that is wrong, with its line.
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
        (None, None) => Err("line 1: it cannot be read".to_owned()),
    }
}

/// Collects what [`Validate::validate`] finds. Paths are relative to the value that is being
/// validated.
#[derive(Debug, Default)]
pub struct Problems {
    found: Vec<Problem>,
}

/// One finding.
#[derive(Debug, Clone)]
pub struct Problem {
    /// Keys (and positions in lists, as numbers) from the validated value down; empty for the value
    /// itself.
    pub path: Vec<String>,
    /// What is wrong and what to do.
    pub message: String,
    /// Whether the configuration can still be used.
    pub warning: bool,
    /// Where in the text at the path it is, in characters from 0, for a text that has a language of its own.
    pub within: Option<usize>,
}

impl Problems {
    /// An error at a path such as `&["retry_on_failure", "max_interval"]`.
    pub fn error(&mut self, path: &[&str], message: impl Into<String>) {
        self.push(path, message.into(), false);
    }

    /// An error within the text at a path, at this character, counted from 0.
    pub fn error_within(&mut self, path: &[&str], character: usize, message: impl Into<String>) {
        self.error(path, message);
        if let Some(problem) = self.found.last_mut() {
            problem.within = Some(character);
        }
    }

    /// A warning at a path; an error with `--strict`.
    pub fn warning(&mut self, path: &[&str], message: impl Into<String>) {
        self.push(path, message.into(), true);
    }

    /// Validates a part, whose findings get `key` in front of their paths.
    pub fn within(&mut self, key: &str, part: &impl Validate) {
        let mut inner = Problems::default();
        part.validate(&mut inner);
        self.extend(&[key], inner);
    }

    /// Adds what was found in a part, whose findings get `path` in front of theirs.
    pub fn extend(&mut self, path: &[&str], part: Problems) {
        self.found.extend(part.found.into_iter().map(|mut problem| {
            let keys = path.iter().map(|key| (*key).to_owned());
            problem.path.splice(0..0, keys);
            problem
        }));
    }

    /// What was found so far.
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

/// What a configuration value must satisfy beyond its types.
pub trait Validate {
    /// Reports everything that is wrong, not only the first.
    fn validate(&self, problems: &mut Problems) {
        let _ = problems;
    }

    /// The addresses it will listen on, each with its path, so that two components on one port are
    /// found.
    fn listens_on(&self) -> Vec<(Vec<&'static str>, Endpoint)> {
        Vec::new()
    }

    /// The files it will write to, each with its path in the configuration, so that two components with one file are
    /// found.
    fn writes_to(&self) -> Vec<(Vec<&'static str>, std::path::PathBuf)> {
        Vec::new()
    }

    /// The extensions it cannot work without, so that one that is missing, does not run, or does
    /// something else is found.
    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        Vec::new()
    }

    /// Whether its pipelines refuse data while its next hop is away, since its queue is in memory and does not drop.
    fn holds_up_pipelines(&self) -> bool {
        false
    }

    /// Whether it says of itself what `service.telemetry.resource` has, so that it changes with that.
    fn uses_resource(&self) -> bool {
        false
    }
}

/// What a component asks of an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtensionUse {
    /// Where the key that names the extension stands, from the component's configuration down.
    pub path: Vec<String>,
    /// The extension.
    pub extension: ComponentId,
    /// What it must be able to do.
    pub capability: Capability,
}

/// What an extension can do for other components.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// Tells who a client of a server is.
    ServerAuth,
    /// Says to a server who we are.
    ClientAuth,
    /// Keeps queues on disk.
    Storage,
}

impl Capability {
    /// What an extension with it does, to be put after "the extension `x`".
    pub fn does(self) -> &'static str {
        match self {
            Capability::ServerAuth => "checks the credentials of clients",
            Capability::ClientAuth => "adds credentials to requests",
            Capability::Storage => "keeps queues on disk",
        }
    }

    /// What an extension without it does not do.
    pub fn does_not(self) -> &'static str {
        match self {
            Capability::ServerAuth => "does not check the credentials of clients",
            Capability::ClientAuth => "does not add credentials to requests",
            Capability::Storage => "does not keep queues on disk",
        }
    }
}

/// Says why a file that a configuration names cannot be read; for [`Validate::validate`].
///
/// # Errors
/// A sentence that names the file and the reason.
pub fn check_readable(path: impl AsRef<Path>) -> Result<(), String> {
    let path = path.as_ref();
    let shown = path.display();
    match std::fs::File::open(path).and_then(|file| file.metadata()) {
        Ok(metadata) if metadata.is_dir() => Err(format!("{shown} is a directory, not a file")),
        Ok(_) => Ok(()),
        Err(error) => Err(format!("cannot read the file {shown}: {error}")),
    }
}
