//! Patterns of paths, with the meaning of Go's `filepath.Glob`, which the Collector uses.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// A pattern of paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob {
    /// First directory.
    root: PathBuf,
    /// Components below the root.
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// A name, or `..`.
    Name(String),
    /// A pattern of names.
    Pattern(Vec<Token>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Char(char),
    /// `?`
    Any,
    /// `*`
    Many,
    /// `[a-z]`: true for the characters in the ranges, false for all others.
    Class(bool, Vec<(char, char)>),
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

    /// Returns the matching files, `most` at most. Unreadable directories are skipped. Only files
    /// and links to files match: reading a pipe might block forever.
    pub(super) fn find(&self, most: usize) -> Vec<PathBuf> {
        let mut found = Vec::new();
        below(&self.root, &self.parts, most, &mut found);
        found
    }
}

fn below(directory: &Path, parts: &[Part], most: usize, found: &mut Vec<PathBuf>) {
    let Some((first, rest)) = parts.split_first() else {
        if found.len() < most && fs::metadata(directory).is_ok_and(|data| data.is_file()) {
            found.push(directory.to_owned());
        }
        return;
    };
    match first {
        Part::Name(name) => below(&directory.join(name), rest, most, found),
        Part::Pattern(pattern) => {
            let Ok(entries) = fs::read_dir(directory) else {
                return;
            };
            for entry in entries.flatten() {
                let name = entry.file_name();
                let characters: Vec<char> = name.to_string_lossy().chars().collect();
                if found.len() < most && matches(pattern, &characters) {
                    below(&directory.join(name), rest, most, found);
                }
            }
        }
    }
}

fn part(name: &str) -> Result<Part, String> {
    if !name.contains(['*', '?', '[', '\\']) {
        return Ok(Part::Name(name.to_owned()));
    }
    let mut tokens = Vec::new();
    let mut characters = name.chars();
    while let Some(character) = characters.next() {
        tokens.push(match character {
            // `**` matches the same names as `*`, more slowly.
            '*' if tokens.last() == Some(&Token::Many) => continue,
            '*' => Token::Many,
            '?' => Token::Any,
            '[' => class(&mut characters)
                .ok_or_else(|| format!("the pattern `{name}` has a `[` without its `]`"))?,
            '\\' => Token::Char(
                characters
                    .next()
                    .ok_or_else(|| format!("the pattern `{name}` ends with a `\\`"))?,
            ),
            other => Token::Char(other),
        });
    }
    Ok(Part::Pattern(tokens))
}

/// Parses a character class.
fn class(characters: &mut std::str::Chars<'_>) -> Option<Token> {
    let mut inside = characters.clone();
    let others = inside.next() == Some('^');
    if others {
        *characters = inside;
    }
    let mut ranges = Vec::new();
    loop {
        let low = match characters.next()? {
            ']' if !ranges.is_empty() => return Some(Token::Class(!others, ranges)),
            '\\' => characters.next()?,
            low => low,
        };
        let mut ahead = characters.clone();
        let mut high = low;
        if ahead.next() == Some('-') {
            *characters = ahead;
            high = match characters.next()? {
                '\\' => characters.next()?,
                ']' => return None,
                high => high,
            };
        }
        ranges.push((low, high));
    }
}

/// Whether a name matches. Backtracking to the last `*` is sufficient, so the time is at most the
/// product of both lengths.
fn matches(pattern: &[Token], name: &[char]) -> bool {
    let (mut at, mut of) = (0, 0);
    // Backtracking position: after the last `*`, which then matches one more character.
    let mut retry = None;
    loop {
        let fits = match (pattern.get(at), name.get(of)) {
            (None, None) => return true,
            (Some(Token::Many), _) => {
                retry = Some((at + 1, of));
                at += 1;
                continue;
            }
            (Some(token), Some(character)) => token.takes(*character),
            _ => false,
        };
        if fits {
            (at, of) = (at + 1, of + 1);
            continue;
        }
        match retry {
            Some((behind, taken)) if taken < name.len() => {
                retry = Some((behind, taken + 1));
                (at, of) = (behind, taken + 1);
            }
            _ => return false,
        }
    }
}

impl Token {
    fn takes(&self, character: char) -> bool {
        match self {
            Token::Char(own) => *own == character,
            Token::Any => true,
            Token::Many => false,
            Token::Class(these, ranges) => {
                let within = |(low, high): &(char, char)| (*low..=*high).contains(&character);
                ranges.iter().any(within) == *these
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn is_match(pattern: &str, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        match part(pattern).unwrap() {
            Part::Pattern(tokens) => matches(&tokens, &name),
            Part::Name(own) => own.chars().eq(name),
        }
    }

    #[test]
    fn names_match_as_in_go() {
        for (pattern, name, expected) in [
            ("*.pb.gz", "a.pb.gz", true),
            ("*.pb.gz", ".pb.gz", true),
            ("*.pb.gz", "a.pb.gzx", false),
            ("*", "", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("?", "\u{e9}", true),
            ("?", "", false),
            ("[a-c]1", "b1", true),
            ("[a-c]1", "d1", false),
            ("[^a-c]1", "d1", true),
            ("[^a-c]1", "a1", false),
            ("[\\]a]", "]", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("**", "ab", true),
            ("*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(is_match(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for pattern in ["a[", "[]", "[a", "[a-", "[a-]", "x\\", "[^"] {
            assert!(Glob::new(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn files_are_found_below_directories_and_nothing_else_is() {
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
        let find = |pattern: &str, most| {
            let glob = Glob::new(&format!("{}/{pattern}", root.path().display())).unwrap();
            let mut found = glob.find(most);
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
