//! The certificates of the examples, made by the script of the examples.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A directory with certificates for sidecar, rack and zone.
pub struct Certificates(TempDir);

impl Certificates {
    /// Runs the script. Without openssl, prints a note and returns `None`.
    pub fn make() -> Option<Self> {
        if !installed("openssl") {
            return None;
        }
        let certificates = Certificates(TempDir::new().unwrap());
        certificates.script(&[]);
        Some(certificates)
    }

    /// Runs the script with more arguments.
    pub fn script(&self, arguments: &[&str]) {
        let script = root().join("examples/tls/make-certificates.sh");
        let output = Command::new("sh")
            .arg(script)
            .args(arguments)
            .arg(self.0.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    pub fn directory(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, name: &str) -> String {
        let path = self.0.path().join(name);
        path.to_str().unwrap().to_owned()
    }

    /// The example configuration of that name, with these certificates.
    pub fn example(&self, name: &str) -> String {
        let path = root().join("examples/configs").join(name);
        let yaml = std::fs::read_to_string(path).unwrap();
        yaml.replace(
            "${env:TLS_DIR:-examples/tls/certificates}",
            self.0.path().to_str().unwrap(),
        )
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Whether a tool is installed; if not, prints that the test is skipped.
pub fn installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(tool).exists());
    if !found {
        eprintln!("skipped: {tool} is not installed");
    }
    found
}
