//! Checks that no two running components write to the same file.

use std::path::{Component, Path, PathBuf};

use crate::app::config::facts::{Facts, Writing};
use tributary_config::report::{Diagnostic, Report};

pub(super) fn check(facts: &Facts, report: &mut Report) {
    let mut running: Vec<(PathBuf, &Writing)> = facts
        .writing
        .iter()
        .filter(|writing| facts.runs(writing.kind, &writing.id))
        .map(|writing| (normalized(&writing.file), writing))
        // Terminals and other devices may be shared.
        .filter(|(file, _)| !file.starts_with("/dev"))
        .collect();
    running.sort_by_key(|(_, writing)| writing.span);
    for (index, (file, later)) in running.iter().enumerate() {
        let earlier = running
            .iter()
            .take(index)
            .find(|(earlier, _)| earlier == file);
        if let Some((_, earlier)) = earlier {
            let message = format!(
                "the {} `{}` and the {} `{}` write to the same file, `{}`",
                earlier.kind.name(),
                earlier.id,
                later.kind.name(),
                later.id,
                later.file.display()
            );
            let help =
                "set another file for one of the two, or use one exporter in several pipelines";
            report.push(
                Diagnostic::error(message, later.span)
                    .path(later.path.clone())
                    .related(earlier.span, "the other one")
                    .help(help),
            );
        }
    }
}

/// Returns the absolute path without `.` and `..`. Links are not followed, because the file may not
/// exist yet.
fn normalized(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut normalized = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                normalized.pop();
            }
            Component::CurDir => {}
            other => normalized.push(other),
        }
    }
    normalized
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_has_one_path() {
        let path = |path: &str| super::normalized(Path::new(path));
        assert_eq!(path("/a/./b/../c"), Path::new("/a/c"));
        assert_eq!(path("c"), path("./x/../c"));
        assert!(path("c").is_absolute());
    }
}
