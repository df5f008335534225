//! Pyroscope's own agents push to the collector unchanged: see tests/sdk/README.md.

use std::process::Command;

use crate::harness::backend::Record;
use crate::harness::within;
use crate::pyroscope::{Arrived, Chain, profiles};
use crate::sdk::{script, told};

/// Runs an agent, whose last argument is the address, and returns its profiles. `expected` are their scopes.
async fn run(mut command: Command, service: &str, expected: &[&str]) -> Vec<Arrived> {
    let chain = Chain::start("").await;
    command.arg(format!("http://{}", chain.address()));
    let run = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = within("the end of the agent", run).await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let complete = |record: &Record| {
        let all = profiles(record);
        let has = |scope: &&str| all.iter().any(|one| one.scope == **scope && one.total > 0);
        expected.iter().all(has)
    };
    chain
        .backend
        .wait_for("profiles of all kinds", complete)
        .await;
    let all = profiles(&chain.backend.record());
    for profile in &all {
        let attribute = |key: &str| profile.resource.get(key).map(String::as_str);
        let names = ["service.name", "region", "tenant.id"].map(attribute);
        assert_eq!(
            names,
            [Some(service), Some("eu"), Some("team-a")],
            "{profile:?}"
        );
        assert!(
            profile.time > 1_700_000_000_000_000_000 && profile.duration > 0,
            "{profile:?}"
        );
    }
    let metrics = chain.collector.assert_conservation().await;
    assert_eq!(metrics.sum("tributary_receiver_refused_requests", &[]), 0.0);
    all
}

/// Returns the sum of a sample type.
fn total(all: &[Arrived], kind: &str) -> i64 {
    let of = all.iter().filter(|profile| profile.kind == kind);
    of.map(|profile| profile.total).sum()
}

fn has_label(all: &[Arrived], scope: &str, label: &str) -> bool {
    all.iter()
        .any(|one| one.scope == scope && one.labels.iter().any(|known| known == label))
}

/// More than any agent runs.
const MINUTE: i64 = 60_000_000_000;

#[tokio::test]
async fn python_agent_sends_cpu_profiles() {
    let Some(python) = told("PYROSCOPE_PYTHON") else {
        return;
    };
    let mut command = Command::new(python);
    command.arg(script("pyroscope_agent.py"));
    let all = run(command, "shop.python", &["process_cpu"]).await;
    assert!(
        (1..MINUTE).contains(&total(&all, "cpu:nanoseconds")),
        "{all:?}"
    );
    assert!(has_label(&all, "process_cpu", "route"), "{all:?}");
}

#[tokio::test]
async fn javascript_agent_sends_wall_and_heap_profiles() {
    let Some(modules) = told("PYROSCOPE_NODE_MODULES") else {
        return;
    };
    let mut command = Command::new("node");
    command
        .env("NODE_PATH", modules)
        .arg(script("pyroscope_agent.js"));
    let all = run(command, "shop-node", &["wall", "memory"]).await;
    for kind in ["wall:nanoseconds", "cpu:nanoseconds"] {
        assert!((1..MINUTE).contains(&total(&all, kind)), "{kind}: {all:?}");
    }
    assert!(total(&all, "inuse_space:bytes") > 0, "{all:?}");
}

#[tokio::test]
async fn go_agent_sends_all_kinds_of_profiles() {
    let Some(program) = told("PYROSCOPE_GO") else {
        return;
    };
    let scopes = ["process_cpu", "memory", "goroutines", "mutex", "block"];
    let all = run(Command::new(program), "shop.go", &scopes).await;
    assert!(
        (1..MINUTE).contains(&total(&all, "cpu:nanoseconds")),
        "{all:?}"
    );
    for kind in [
        "alloc_space:bytes",
        "inuse_space:bytes",
        "goroutine:count",
        "delay:nanoseconds",
    ] {
        assert!(total(&all, kind) > 0, "{kind}: {all:?}");
    }
    assert!(has_label(&all, "process_cpu", "route"), "{all:?}");
}

#[tokio::test]
async fn java_agent_sends_recordings_with_labels() {
    let Some(directory) = told("PYROSCOPE_JAVA") else {
        return;
    };
    let mut command = Command::new("java");
    command
        .current_dir(&directory)
        .args(["-cp", "agent.jar:.", "Shop"]);
    let all = run(command, "shop.java", &["process_cpu", "memory", "mutex"]).await;
    assert!(
        (1..MINUTE).contains(&total(&all, "cpu:nanoseconds")),
        "{all:?}"
    );
    for kind in ["alloc_in_new_tlab_bytes:bytes", "delay:nanoseconds"] {
        assert!(total(&all, kind) > 0, "{kind}: {all:?}");
    }
    assert!(has_label(&all, "process_cpu", "route"), "{all:?}");
}
