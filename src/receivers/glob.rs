//! Patterns of paths. The syntax within a path component is that of the crate `globset`.

use std::fs;
use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

/// A pattern of paths.
#[derive(Debug, Clone)]
pub(super) struct Glob {
    /// First directory.
    root: PathBuf,
    /// Components below the root.
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
enum Part {
    /// A name, or `..`.
    Name(String),
    /// A pattern of names.
    Pattern(GlobMatcher),
}

impl Glob {
    /// Parses a pattern.
    ///
    /// # Errors
    /// Returns an error that describes the first invalid part.
    pub(super) fn new(pattern: &str) -> Result<Self, String> {
        let mut root = PathBuf::new();
        let mut parts = Vec::new();
        for component in Path::new(pattern).components() {
            match component {
                Component::RootDir | Component::Prefix(_) => root.push(component),
                Component::CurDir => {}
                Component::ParentDir => parts.push(Part::Name("..".to_owned())),
                Component::Normal(name) => parts.push(part(&name.to_string_lossy())?),
            }
        }
        if root.as_os_str().is_empty() {
            root.push(".");
        }
        Ok(Glob { root, parts })
    }

    /// Returns at most `max` matching files. Unreadable directories are skipped. Only files and links
    /// to files match, because reading a pipe might block forever.
    pub(super) fn find(&self, max: usize) -> Vec<PathBuf> {
        let mut found = Vec::new();
        below(&self.root, &self.parts, max, &mut found);
        found
    }
}

fn below(directory: &Path, parts: &[Part], max: usize, found: &mut Vec<PathBuf>) {
    let Some((first, rest)) = parts.split_first() else {
        if found.len() < max && fs::metadata(directory).is_ok_and(|data| data.is_file()) {
            found.push(directory.to_owned());
        }
        return;
    };
    match first {
        Part::Name(name) => below(&directory.join(name), rest, max, found),
        Part::Pattern(pattern) => {
            let Ok(entries) = fs::read_dir(directory) else {
                return;
            };
            for entry in entries.flatten() {
                let name = entry.file_name();
                if found.len() < max && pattern.is_match(&name) {
                    below(&directory.join(name), rest, max, found);
                }
            }
        }
    }
}

fn part(name: &str) -> Result<Part, String> {
    if !name.contains(['*', '?', '[', '{', '\\']) {
        return Ok(Part::Name(name.to_owned()));
    }
    let glob = GlobBuilder::new(name).literal_separator(true).build();
    let glob =
        glob.map_err(|error| format!("the pattern `{name}` is invalid: {}", error.kind()))?;
    Ok(Part::Pattern(glob.compile_matcher()))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn is_match(pattern: &str, name: &str) -> bool {
        match part(pattern).unwrap() {
            Part::Pattern(pattern) => pattern.is_match(name),
            Part::Name(own) => own == name,
        }
    }

    #[test]
    fn pattern_matches_names() {
        for (pattern, name, expected) in [
            ("*.pb.gz", "a.pb.gz", true),
            ("*.pb.gz", ".pb.gz", true),
            ("*.pb.gz", "a.pb.gzx", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("?", "a", true),
            ("?", "", false),
            ("[a-c]1", "b1", true),
            ("[a-c]1", "d1", false),
            ("[^a-c]1", "d1", true),
            ("[!a-c]1", "a1", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a{1,2}", "a2", true),
            ("*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(is_match(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn invalid_pattern_is_refused() {
        for pattern in ["a[", "[a", "[a-", "x\\", "[^", "a{1"] {
            assert!(Glob::new(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn only_files_below_directories_are_found() {
        let root = TempDir::new().unwrap();
        for directory in ["a", "b", "c.pb"] {
            fs::create_dir(root.path().join(directory)).unwrap();
        }
        for file in ["a/1.pb", "a/2.txt", "b/3.pb", "0.pb"] {
            fs::write(root.path().join(file), "").unwrap();
        }
        std::os::unix::fs::symlink(root.path().join("0.pb"), root.path().join("b/link.pb"))
            .unwrap();
        std::os::unix::fs::symlink("nowhere", root.path().join("b/broken.pb")).unwrap();
        let find = |pattern: &str, max| {
            let glob = Glob::new(&format!("{}/{pattern}", root.path().display())).unwrap();
            let mut found = glob.find(max);
            found.sort();
            let relative = found
                .iter()
                .map(|path| path.strip_prefix(root.path()).unwrap());
            relative
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(find("*/*.pb", 10), ["a/1.pb", "b/3.pb", "b/link.pb"]);
        assert_eq!(find("*.pb", 10), ["0.pb"]);
        assert_eq!(find("a/1.pb", 10), ["a/1.pb"]);
        assert_eq!(find("a/../b/3*", 10), ["a/../b/3.pb"]);
        assert_eq!(find("*/*.pb", 2).len(), 2);
        assert!(find("z/*", 10).is_empty());
    }
}
