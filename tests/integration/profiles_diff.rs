//! `collector profiles diff`: the exit code reports growth or a failed comparison.

use std::path::Path;
use std::process::{Command, Output};

use crate::harness::collector::BINARY;

fn diff(before: &Path, after: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    let command = command.args(["profiles", "diff"]).args([before, after]);
    command.args(more).output().unwrap()
}

#[test]
fn exit_code_is_1_for_growth_and_2_for_errors() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let file = directory.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let before = file("before.folded", "main;work 100\n");
    let after = file("after.folded", "main;work 111\n");
    let gate = |limit: &str| diff(&before, &after, &["--fail-above", limit]);

    let grew = gate("10%");
    assert_eq!(grew.status.code(), Some(1));
    let text = String::from_utf8(grew.stdout).unwrap();
    let verdict = "FAILED: the total: 100 -> 111, +11 (+11.00%), more than 10%\n";
    assert!(text.ends_with(verdict), "{text}");
    assert_eq!(gate("11%").status.code(), Some(0));
    assert_eq!(diff(&before, &after, &[]).status.code(), Some(0));

    let missing = diff(
        &before,
        &directory.path().join("none"),
        &["--fail-above", "10%"],
    );
    assert_eq!(missing.status.code(), Some(2));
    assert!(missing.stdout.is_empty());
    let text = String::from_utf8(missing.stderr).unwrap();
    assert!(text.contains("none: cannot read the file"), "{text}");
    assert_eq!(gate("ten").status.code(), Some(2));
}
