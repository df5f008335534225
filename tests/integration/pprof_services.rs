//! Values in pprof profiles of a running service reach the last tier exactly.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, StatusCode};
use tempfile::TempDir;

use crate::harness::collector::BINARY;
use crate::harness::site::{Site, page};
use crate::harness::{Backend, Collector, grpc_at, grpc_to, pprof, raw, yaml};
use crate::sdk::{script, told};

/// A program with pprof endpoints, under load. The drop ends it.
struct Program {
    child: Child,
    address: SocketAddr,
    _directory: TempDir,
}

impl Program {
    /// The program in Go with `net/http/pprof`.
    fn of_go(go: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/integration/fixtures/pprof_service.go");
        let program = directory.path().join("shop");
        let mut build = Command::new(go);
        build.args(["build", "-o"]).arg(&program).arg(source);
        let built = build.output().unwrap();
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{said}");
        Self::start(Command::new(&program), directory)
    }

    /// The program in Python with pypprof, which logs every request.
    fn of_python(python: &str) -> Self {
        let mut command = Command::new(python);
        command
            .arg(script("pprof_service.py"))
            .stderr(Stdio::null());
        Self::start(command, tempfile::tempdir().unwrap())
    }

    fn start(mut command: Command, directory: TempDir) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        Program {
            child,
            address: line.trim().parse().unwrap(),
            _directory: directory,
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the path of `go`, from SYMBOLS_GO or the PATH; `None` if missing.
fn go() -> Option<String> {
    let go = std::env::var("SYMBOLS_GO").unwrap_or_else(|_| "go".to_owned());
    let version = Command::new(&go).arg("version").output();
    let found = version.is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: SYMBOLS_GO is not set, and there is no `go` on the PATH");
    }
    found.then_some(go)
}

/// Profiles that a service has served, by path.
type Given = Arc<Mutex<HashMap<String, Vec<Bytes>>>>;

/// A proxy in front of a service that records its responses: up to `most` files of each path, then no more.
async fn recorder(service: SocketAddr, most: usize) -> (Site, Given) {
    let given = Given::default();
    let kept = given.clone();
    let site = Site::start(move |request| {
        let kept = kept.clone();
        async move {
            let path = request.uri().to_string();
            let count = kept.lock().unwrap().get(&path).map_or(0, Vec::len);
            if count >= most {
                return page(StatusCode::SERVICE_UNAVAILABLE, "enough");
            }
            let file = raw::http(service, Method::GET, &path, &[], Bytes::new()).await;
            assert_eq!(file.status, StatusCode::OK);
            let mut kept = kept.lock().unwrap();
            kept.entry(path).or_default().push(file.body.clone());
            page(StatusCode::OK, file.body)
        }
    })
    .await;
    (site, given)
}

/// Files of each.
const EACH: usize = 2;

#[tokio::test]
async fn go_service_profiles_leave_zone_exactly() {
    let Some(go) = go() else { return };
    let profiles = [
        "{name: cpu, seconds: 1}",
        "heap",
        "allocs",
        "goroutine",
        "mutex",
        "block",
        "threadcreate",
    ];
    let program = tokio::task::spawn_blocking(move || Program::of_go(&go));
    let expected = compare_exactly(&program.await.unwrap(), &profiles).await;
    // Every kind has values except threads, which may all be idle.
    for kind in ["cpu", "inuse_space", "alloc_space", "goroutine", "delay"] {
        assert!(expected.keys().any(|key| key.starts_with(kind)), "{kind}");
    }
    assert!(expected.keys().any(|key| key.contains("route=/cart")));
}

/// Returns the output of a command, which must succeed.
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Values in a table of `top` by function: flat and cumulative. Go writes units after the numbers, and `(inline)` or
/// `(partial-inline)` after the names of inlined functions.
fn rows(table: &str) -> BTreeMap<String, [i64; 2]> {
    let number = |text: &str| -> i64 {
        let digits = text.trim_end_matches(char::is_alphabetic);
        digits.parse().unwrap_or_else(|_| panic!("{text}: {table}"))
    };
    let body = table
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("flat "));
    let rows = body.skip(1).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [flat, _, _, cumulative, _, ref name @ ..] = words[..] else {
            panic!("{line}: {table}");
        };
        let name = name.join(" ");
        let name = name.trim_end_matches(" (inline)");
        let name = name.trim_end_matches(" (partial-inline)").to_owned();
        (name, [number(flat), number(cumulative)])
    });
    rows.collect()
}

#[tokio::test]
async fn go_service_files_are_merged_and_counted_like_go() {
    const FILES: usize = 3;
    let Some(go) = go() else { return };
    let compiler = go.clone();
    let program = tokio::task::spawn_blocking(move || Program::of_go(&compiler));
    let program = program.await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let kinds = [
        (
            "heap",
            &[
                "alloc_objects count",
                "alloc_space bytes",
                "inuse_space bytes",
            ][..],
        ),
        ("profile?seconds=1", &["samples count", "cpu nanoseconds"]),
        ("goroutine", &["goroutine count"]),
        ("mutex", &["contentions count", "delay nanoseconds"]),
        ("block", &["contentions count", "delay nanoseconds"]),
    ];
    for (number, (path, sample_types)) in kinds.into_iter().enumerate() {
        let place = |name: String| directory.path().join(name);
        let mut files = Vec::new();
        for at in 0..FILES {
            let path = format!("/debug/pprof/{path}");
            let answer = raw::http(program.address, Method::GET, &path, &[], Bytes::new()).await;
            assert_eq!(answer.status, StatusCode::OK);
            let file = place(format!("{number}.{at}.pb.gz"));
            std::fs::write(&file, &answer.body).unwrap();
            files.push(file);
        }
        let [ours, theirs] = ["ours", "theirs"].map(|of| place(format!("{number}.{of}.pb.gz")));
        let mut merge = Command::new(BINARY);
        printed(
            merge
                .args(["profiles", "merge", "-o"])
                .arg(&ours)
                .args(&files),
        );
        let mut merge = Command::new(&go);
        let merge = merge.args(["tool", "pprof", "-proto", "-output"]);
        printed(merge.arg(&theirs).args(&files));
        let [merged, expected] = [&ours, &theirs].map(|file| {
            let file = std::fs::read(file).unwrap();
            pprof::totals([&*file])
        });
        assert!(!expected.is_empty(), "{path}");
        assert_eq!(merged, expected, "{path}");

        for (kind, unit) in sample_types.iter().filter_map(|text| text.split_once(' ')) {
            let mut top = Command::new(BINARY);
            let top = top.args([
                "profiles",
                "top",
                "--exact",
                "-n",
                "0",
                "--sample-type",
                kind,
            ]);
            let mut theirs = Command::new(&go);
            let theirs = theirs
                .args(["tool", "pprof", "-top", "-nodecount=0", "-nodefraction=0"])
                .arg(format!("-unit={unit}"))
                .arg(format!("-sample_index={kind}"));
            let expected = rows(&printed(theirs.arg(&ours)));
            assert!(!expected.is_empty(), "{path} {kind}");
            assert_eq!(rows(&printed(top.arg(&ours))), expected, "{path} {kind}");
        }
    }
}

#[tokio::test]
async fn python_service_profiles_leave_zone_exactly() {
    let Some(python) = told("PPROF_PYTHON") else {
        return;
    };
    let profiles = [
        "{name: cpu, seconds: 1}",
        "{name: wall, path: wall, seconds: 1}",
        "heap",
        "goroutine",
    ];
    let program = tokio::task::spawn_blocking(move || Program::of_python(&python));
    let expected = compare_exactly(&program.await.unwrap(), &profiles).await;
    for kind in ["CPU", "wall", "HEAP", "THREADS"] {
        assert!(expected.keys().any(|key| key.starts_with(kind)), "{kind}");
    }
}

/// Sends these profiles through two collectors, and compares the output of the second collector with the profiles of
/// the program: the sums of all values, by sample type, stack and labels.
async fn compare_exactly(program: &Program, profiles: &[&str]) -> pprof::Totals {
    let (recorder, given) = recorder(program.address, EACH).await;

    let backend = Backend::start().await;
    let batch = ("batch", "{timeout: 50ms}");
    let compact = ("compression", "{mode: compact}");
    let exporter = grpc_to(&backend, "compression: zstd");
    let zone = yaml(
        &[("dedup", "{}"), batch, compact],
        &[("otlp_grpc", &exporter)],
    );
    let zone = Collector::start(&zone).await;
    let sidecar = Collector::start(&format!(
        "receivers:
  pprof:
    targets:
      - endpoint: http://{}
        collection_interval: 1s
        profiles: [{}]
exporters:
  otlp_grpc: {}
service:
  pipelines:
    profiles: {{receivers: [pprof], exporters: [otlp_grpc]}}
",
        recorder.address,
        profiles.join(", "),
        grpc_at(zone.grpc(), "compression: gzip"),
    ))
    .await;

    backend
        .wait_for("all that the service has given", |record| {
            let given = given.lock().unwrap();
            let complete =
                given.len() == profiles.len() && given.values().all(|files| files.len() == EACH);
            complete && pprof::sum(record) == sum(&given)
        })
        .await;
    sidecar.assert_conservation().await;
    zone.assert_conservation().await;
    let given = given.lock().unwrap();
    let expected = pprof::totals(given.values().flatten().map(|file| &**file));
    let arrived = pprof::files_of(&backend);
    let arrived = pprof::totals(arrived.iter().map(|file| &**file));
    for (key, value) in &expected {
        assert_eq!(arrived.get(key), Some(value), "{key}");
    }
    assert_eq!(arrived.len(), expected.len());
    expected
}

/// The sum of all values in these files.
fn sum(given: &HashMap<String, Vec<Bytes>>) -> i64 {
    let files = given.values().flatten();
    let profiles = files.map(|file| pprof::read(file));
    profiles
        .flat_map(|profile| profile.sample)
        .flat_map(|sample| sample.value)
        .sum()
}

#[tokio::test]
async fn stored_profiles_equal_go_tool_pprof() {
    let Some(go) = go() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    // The files are older than any ordinary retention.
    let yaml = format!(
        "extensions: {{console: {{endpoint: '127.0.0.1:0'}}}}
receivers: {{pprof: {{server: {{endpoint: '127.0.0.1:0'}}}}}}
exporters: {{profile_store: {{directory: '{}', retention: 1000000h}}}}
service: {{extensions: [console], pipelines: {{profiles: {{receivers: [pprof], exporters: [profile_store]}}}}}}
",
        store.display()
    );
    let collector = Collector::start(&yaml).await;
    let push = collector.server("Starting HTTP server", "pprof");
    let console = collector.server("Starting HTTP server", "console");
    for (name, types) in [
        ("cpu", &["samples count", "cpu nanoseconds"][..]),
        ("heap", &["inuse_space bytes", "alloc_objects count"]),
        ("mutex", &["delay nanoseconds"]),
    ] {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/profiles/{name}.pb.gz"));
        for _ in 0..2 {
            let path = format!("/v1/pprof?service.name={name}");
            let body = std::fs::read(&file).unwrap();
            let answer = raw::http(push, Method::POST, &path, &[], body).await;
            assert!(answer.status.is_success(), "{}", answer.text());
        }
        for (kind, unit) in types.iter().filter_map(|text| text.split_once(' ')) {
            let path = format!(
                "/api/v1/profiles/download?format=pprof&from=0&query=%7Bservice_name%3D%22{name}%22%7D&type={kind}"
            );
            let answer = raw::http(console, Method::GET, &path, &[], Bytes::new()).await;
            assert_eq!(answer.status, StatusCode::OK, "{kind}: {}", answer.text());
            let stored = directory.path().join(format!("{name}.{kind}.pb.gz"));
            std::fs::write(&stored, &answer.body).unwrap();
            let top = |files: &[&Path]| {
                let mut top = Command::new(&go);
                top.args(["tool", "pprof", "-top", "-nodecount=0", "-nodefraction=0"])
                    .arg(format!("-unit={unit}"))
                    .arg(format!("-sample_index={kind}"));
                rows(&printed(top.args(files)))
            };
            let expected = top(&[&file, &file]);
            assert!(!expected.is_empty(), "{name} {kind}");
            assert_eq!(top(&[&stored]), expected, "{name} {kind}");
        }
    }
}
