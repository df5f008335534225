//! The machine that detectors look at.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Longest file that a detector reads, in bytes. Files below `/proc` and `/etc` are far smaller.
const MAX_FILE: u64 = 1 << 20;

/// Environment variables, files and the addresses of metadata services.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Environment variables.
    variables: HashMap<String, String>,
    /// Directory that contains `proc`, `sys`, `etc` and `var`.
    root: PathBuf,
    /// Base URL of the link-local address that EC2, Azure and GCP serve their metadata at.
    pub(crate) link_local: String,
}

impl Machine {
    /// Returns the machine of this process. Variables that are not UTF-8 are omitted.
    pub fn of_this_process() -> Self {
        let variables = std::env::vars_os();
        let variables = variables.filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Machine {
            variables: variables.collect(),
            root: PathBuf::from("/"),
            link_local: "http://169.254.169.254".to_owned(),
        }
    }

    /// Returns a machine with these variables and files, whose metadata services are at `link_local`.
    #[cfg(test)]
    pub(crate) fn of_test(variables: &[(&str, &str)], root: &Path, link_local: &str) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Machine {
            variables: variables.iter().map(owned).collect(),
            root: root.to_owned(),
            link_local: link_local.to_owned(),
        }
    }

    /// Returns a variable, even if it is empty.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Returns a variable that is not empty.
    pub(crate) fn filled(&self, name: &str) -> Option<&str> {
        self.variable(name).filter(|value| !value.is_empty())
    }

    /// Returns the path of a file or directory, such as `etc/os-release`.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Reads a text file such as `etc/os-release`, at most 1 MiB of it.
    pub(crate) fn read(&self, path: &str) -> std::io::Result<String> {
        read_text(&self.path(path))
    }
}

fn read_text(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(MAX_FILE)
        .read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
