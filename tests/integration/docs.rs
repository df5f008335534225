//! The docs: every configuration in them loads without warnings, and the index links to every page.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::collector::BINARY;
use crate::harness::{Backend, Collector, Signal, Telemetry, raw, within};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("docs")).unwrap();
    let mut pages: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.push(root().join("README.md"));
    pages.sort();
    pages
}

fn snippets(page: &str) -> Vec<&str> {
    let mut rest = page;
    let mut found = Vec::new();
    while let Some((_, begun)) = rest.split_once("```yaml\n") {
        let (snippet, behind) = begun.split_once("```").unwrap();
        found.push(snippet);
        rest = behind;
    }
    found
}

#[test]
fn yaml_of_the_docs_is_complete_and_valid() {
    let (mut count, mut without) = (0, Vec::new());
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let name = page.file_name().unwrap().to_str().unwrap();
        let found = snippets(&text);
        if found.is_empty() {
            without.push(name.to_owned());
        }
        for snippet in found {
            count += 1;
            let config = format!("--config=yaml:{snippet}");
            let arguments = [&*config, "--validate", "--strict"];
            let output = Command::new(BINARY).args(arguments).output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}:\n{snippet}\n{errors}");
        }
    }
    assert!(count >= 8, "{count}");
    for page in [
        "redaction",
        "prometheus",
        "connectors",
        "continuous-profiling",
        "balancing",
    ] {
        assert!(!without.contains(&format!("{page}.md")), "{page}");
    }
}

#[test]
fn index_of_the_docs_names_every_page() {
    let index = std::fs::read_to_string(root().join("docs/README.md")).unwrap();
    for page in pages() {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(
            name == "README.md" || index.contains(&format!("]({name})")),
            "{name}"
        );
    }
}

/// The rows of the table behind the first snippet of a page: two texts in backquotes each.
fn rows(page: &str) -> Vec<(&str, &str)> {
    let (_, behind) = page.split_once("| sent | goes on as |\n").unwrap();
    let rows = behind
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| {
        let cells: Vec<&str> = row.split('`').collect();
        (cells[1], cells[3])
    });
    cells.collect()
}

#[tokio::test]
async fn first_redaction_snippet_matches_its_table() {
    let page = std::fs::read_to_string(root().join("docs/redaction.md")).unwrap();
    let rows = rows(&page);
    assert!(rows.len() >= 4);
    let backend = Backend::start().await;
    let exporter = format!("exporters.otlp_grpc.endpoint={}", backend.grpc());
    let sets = [
        "--set",
        "receivers.otlp.protocols.grpc.endpoint=127.0.0.1:0",
        "--set",
        &exporter,
    ];
    let collector = Collector::start_with(snippets(&page)[0], &sets).await;
    for (sent, _) in &rows {
        let request = Telemetry::of(Signal::Logs, &[(*sent).to_owned()]);
        let frame = raw::frame(false, &request.encode());
        let reply = raw::grpc(collector.grpc(), raw::method(Signal::Logs), &[], frame).await;
        assert_eq!(reply.code, 0, "{reply:?}");
    }
    let expected = rows.len();
    let arrived = |record: &crate::harness::backend::Record| {
        record
            .telemetry(Signal::Logs)
            .flat_map(|telemetry| telemetry.ids())
            .count()
            >= expected
    };
    within("the records", backend.until(arrived)).await;
    let record = backend.record();
    let ids: Vec<String> = record
        .telemetry(Signal::Logs)
        .flat_map(|telemetry| telemetry.ids())
        .collect();
    for (sent, out) in rows {
        assert!(
            ids.iter().any(|id| id == out),
            "{sent} did not become {out}: {ids:?}"
        );
    }
}
