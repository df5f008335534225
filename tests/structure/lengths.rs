//! The length of files: each file has one purpose and fits into a reader's mind.

use std::path::Path;

use crate::modules::{modules, sources};

/// Maximum number of lines of a file without its tests.
const LONGEST: usize = 400;

#[test]
fn files_are_short() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut long = Vec::new();
    for module in sources().iter().flat_map(|source| modules(source)) {
        let name = module.file.strip_prefix(root).unwrap().to_str().unwrap();
        let lines = module.text.lines().count();
        if lines > LONGEST {
            long.push(format!("{name}: {lines} lines"));
        }
    }
    assert!(
        long.is_empty(),
        "these files have more than {LONGEST} lines without their tests; split them by meaning: {long:#?}"
    );
}
