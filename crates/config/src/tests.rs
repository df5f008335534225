//! Tests from text to typed values, with types defined here.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::node::Node;
use crate::units::{ByteSize, Duration, Headers, Secret, Section};
use crate::{Endpoint, Problems, Report, Validate, decode, expand, merge, parse, source};

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Sample {
    text: String,
    count: u32,
    ratio: f64,
    on: bool,
    wait: Duration,
    size: ByteSize,
    names: Vec<String>,
    limits: BTreeMap<String, u8>,
    mode: Mode,
    server: Section<Server>,
    plain: Plain,
    token: Secret,
    headers: Headers,
    maybe: Option<u32>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Fast,
    Slow,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Server {
    endpoint: Endpoint,
    size: u32,
}

/// A type with a field `enabled`.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Plain {
    enabled: bool,
    interval: Duration,
}

/// A type with keys without defaults.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Needy {
    name: String,
    inner: Inner,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
struct Inner {
    port: u16,
}

impl Default for Server {
    fn default() -> Self {
        Server {
            endpoint: Endpoint("localhost:1".to_owned()),
            size: 7,
        }
    }
}

impl Default for Plain {
    fn default() -> Self {
        Plain {
            enabled: true,
            interval: Duration::secs(5),
        }
    }
}

#[test]
fn error_at_an_unset_variable_names_the_variable() {
    let (_, report) = read::<Sample>("wait: ${TRIBUTARY_UNSET}5");
    let rendered = report.render();
    assert!(rendered.contains("no unit"), "{rendered}");
    let help = "help: the environment variable `TRIBUTARY_UNSET` is not set";
    assert!(rendered.contains(help), "{rendered}");
}

#[test]
fn alternative_replaces_set_variable() {
    for (text, expected) in [
        ("${env:PATH:+[a, b]:-[c]}", &["a", "b"][..]),
        ("${PATH:+a}", &["a"]),
        ("${env:TRIBUTARY_UNSET:+[a, b]:-[c]}", &["c"]),
        ("${env:TRIBUTARY_UNSET:+a}", &[]),
    ] {
        let (sample, report) = read::<Sample>(&format!("names: {text}"));
        assert_eq!(sample.unwrap().names, expected, "{text}");
        assert_eq!(report.render(), "", "{text}");
    }
}

impl Validate for Needy {}

impl Validate for Sample {
    fn validate(&self, problems: &mut Problems) {
        if self.count > 10 {
            problems.error(&["count"], "too many");
        }
        if self.plain.interval.is_zero() {
            problems.warning(&["plain", "interval"], "never waits");
        }
        if self.server.as_ref().is_some_and(|server| server.size == 0) {
            problems.error(&["server", "size"], "no room");
        }
    }
}

fn tree(text: &str, report: &mut Report) -> Node {
    let source = report.add_source(source::SourceText {
        name: "test.yaml".to_owned(),
        text: text.to_owned(),
        inline: false,
        hidden: false,
    });
    let mut node = parse::parse(text, source, report).expect("the text is YAML");
    expand(&mut node, report);
    node
}

fn read<T: serde::de::DeserializeOwned + Default + Validate>(text: &str) -> (Option<T>, Report) {
    let mut report = Report::default();
    let node = tree(text, &mut report);
    let value = decode(&node, &mut report);
    (value, report)
}

#[track_caller]
fn good(text: &str) -> Sample {
    let (value, report) = read(text);
    value.unwrap_or_else(|| panic!("{}", report.render()))
}

/// Returns the first lines of all findings, with their positions.
#[track_caller]
fn findings<T: serde::de::DeserializeOwned + Default + Validate>(text: &str) -> Vec<String> {
    let (_, report) = read::<T>(text);
    let rendered = report.render();
    let mut found = Vec::new();
    for line in rendered.lines() {
        if let Some((_, position)) = line.split_once("--> test.yaml:") {
            let last: &mut String = found.last_mut().expect("a message comes first");
            last.insert_str(0, &format!("{position} "));
        } else if line.starts_with("error") || line.starts_with("warning") {
            found.push(line.to_owned());
        }
    }
    found
}

#[test]
fn scalars_are_read_as_the_requested_type() {
    let sample = good(
        "text: 0123\ncount: 0x0A\nratio: 3\non: True\nwait: 1m30s\nsize: 4MiB\nnames: [a, 1, ~x]\n\
         limits: {a: 1, 2: 2}\nmode: slow\nmaybe: 4\n",
    );
    assert_eq!(sample.text, "0123");
    assert_eq!((sample.count, sample.ratio, sample.on), (10, 3.0, true));
    assert_eq!(sample.wait, Duration::secs(90));
    assert_eq!(sample.size, ByteSize::mib(4));
    assert_eq!(sample.names, ["a", "1", "~x"]);
    assert_eq!(sample.limits.get("2"), Some(&2));
    assert_eq!((sample.mode, sample.maybe), (Mode::Slow, Some(4)));
    assert_eq!(good("names: a, b").names, ["a", "b"]);
    assert_eq!(good("count: 1e1").count, 10);
}

#[test]
fn key_without_value_keeps_the_default() {
    assert_eq!(
        good("text:\ncount: ~\nwait: null\nplain:\nmode:\nnames:\n"),
        Sample::default()
    );
    assert_eq!(good(""), Sample::default());
}

#[test]
fn wrong_types_are_refused() {
    for (text, found) in [
        (
            "count: \"5\"",
            "1:8 error: expected a whole number from 0 to 4294967295, found text",
        ),
        (
            "count: 1.5",
            "1:8 error: expected a whole number from 0 to 4294967295, found a number with a \
             fraction",
        ),
        (
            "on: \"true\"",
            "1:5 error: expected `true` or `false`, found text",
        ),
        (
            "on: 1",
            "1:5 error: expected `true` or `false`, found a whole number",
        ),
        ("text: [a]", "1:1 error: expected text, found a list"),
        ("text: {a: b}", "1:1 error: expected text, found a mapping"),
        (
            "names: {a: b}",
            "1:1 error: expected a list, found a mapping",
        ),
        (
            "limits: {a: 256}",
            "1:13 error: expected a whole number from 0 to 255, found 256",
        ),
        (
            "mode: slo",
            "1:7 error: unknown value `slo`, did you mean `slow`?",
        ),
        (
            "wait: 5",
            "1:7 error: a duration needs a unit: write `5s` for seconds or `5ms` for milliseconds",
        ),
        (
            "count: -1",
            "1:8 error: expected a whole number from 0 to 4294967295, found -1",
        ),
    ] {
        assert_eq!(findings::<Sample>(text), [found], "{text}");
    }
}

#[test]
fn all_errors_are_reported_with_positions() {
    let text = "cuont: 1\ncount: x\nnames: [a, [b], c, {d: e}]\nlimits:\n  a: 300\n  b: 1\n  c: no\n\
                server:\n  endpoint: a:1\n  sise: 1\nplain: {interval: 0s}\n";
    assert_eq!(
        findings::<Sample>(text),
        [
            "1:1 error: unknown field `cuont`, did you mean `count`?",
            "2:8 error: expected a whole number from 0 to 4294967295, found text",
            "3:12 error: expected text, found a list",
            "3:20 error: expected text, found a mapping",
            "5:6 error: expected a whole number from 0 to 255, found a whole number",
            "7:6 error: expected a whole number from 0 to 255, found text",
            "10:3 error: unknown field `sise`, did you mean `size`?",
            "11:19 warning: never waits",
        ]
        .map(|line| line.replace("found a whole number", "found 300"))
    );
}

#[test]
fn each_error_is_reported_once() {
    // `inner` is removed because of its bad port, and its absence is not reported.
    assert_eq!(
        findings::<Needy>("inner: {port: 70000}\nname: x"),
        ["1:15 error: expected a whole number from 0 to 65535, found 70000"]
    );
    assert_eq!(
        findings::<Needy>("inner: {}\nextra: 1"),
        [
            "1:1 error: `port` is required",
            "1:1 error: `name` is required",
            "2:1 error: unknown field `extra`",
        ]
        .into_iter()
        .collect::<Vec<_>>()
    );
}

#[test]
fn section_is_on_if_written_unless_disabled() {
    assert_eq!(good("count: 1").server, Section(None));
    assert_eq!(good("server:").server, Section(Some(Server::default())));
    assert_eq!(good("server: {}").server, Section(Some(Server::default())));
    let sized = Section(Some(Server {
        size: 9,
        ..Server::default()
    }));
    assert_eq!(good("server: {size: 9, enabled: true}").server, sized);
    assert_eq!(
        good("server: {size: 0, enabled: false}").server,
        Section(None)
    );
    assert_eq!(
        findings::<Sample>("server: {enabled: false, sise: 1}"),
        ["1:26 error: unknown field `sise`, did you mean `size`?"]
    );
    // The `enabled` of a plain struct is an ordinary key.
    assert!(!good("plain: {enabled: false}").plain.enabled);
}

#[test]
fn section_is_equal_in_other_deserializers() {
    let read = |text: &str| serde_yaml::from_str::<Section<Server>>(text).unwrap();
    assert_eq!(read("~"), Section(Some(Server::default())));
    assert_eq!(read("{enabled: true, size: 9}").as_ref().unwrap().size, 9);
    assert_eq!(read("{enabled: false}"), Section(None));
    let off = serde_yaml::to_string(&Section::<u32>(None)).unwrap();
    assert_eq!(off.trim(), "enabled: false");
}

#[test]
fn headers_are_a_mapping_or_a_list() {
    let mapping = good("headers: {x-a: one, x-b: 2, x-c: }").headers;
    let list =
        good("headers: [{name: x-a, value: one}, {name: x-b, value: \"2\"}, {name: x-c}]").headers;
    assert_eq!(mapping, list);
    assert_eq!(
        mapping.iter().collect::<Vec<_>>(),
        [("x-a", "one"), ("x-b", "2"), ("x-c", "")]
    );
    assert_eq!(
        findings::<Sample>("headers: {\"a b\": c, d: \"e\\nf\"}"),
        [
            "1:11 error: `a b` is not a header name",
            "1:24 error: the value of a header must be one line of visible ASCII characters",
        ]
    );
}

#[test]
fn secrets_are_never_shown() {
    for text in [
        "token: [hunter2]",
        "token: hunter2\ncount: hunter",
        "{token: hunter2, cuont: 1}",
        "headers: {authorization: [hunter2]}",
        "{headers: {x: hunter2, y: \"hun\\nter2\"}, count: x}",
        "pasword: hunter2",
        "headers: [{name: x, valeu: hunter2}]\ntoken: {hunter2: 1}",
    ] {
        let (_, report) = read::<Sample>(text);
        assert!(report.has_errors(), "{text}");
        let rendered = report.render();
        let lines = rendered
            .lines()
            .filter(|line| line.contains("token:") || !line.contains("count"));
        let shown: Vec<&str> = lines.filter(|line| line.contains("hunter2")).collect();
        // An unknown key is a name, even if it looks like a password.
        let key_only = shown.iter().all(|line| line.contains("valeu"));
        assert!(key_only, "{text}\n{rendered}");
    }
    let (sample, _) = read::<Sample>("token: hunter2");
    assert!(!format!("{sample:?}").contains("hunter2"));
}

#[test]
fn references_get_type_of_target() {
    let sample = good(
        "text: ${yaml:0123}\ncount: ${yaml:7}\non: ${env:NO_SUCH_VARIABLE_OF_TESTS:-true}\n\
         names: ${yaml:[a, b]}\nplain: \"${yaml:{enabled: false}}\"\n\
         wait: ${NO_SUCH_VARIABLE_OF_TESTS:-5}s\nheaders: {a: \"$${x} $$ $y ${yaml:z}\"}",
    );
    assert_eq!(
        (sample.text.as_str(), sample.count, sample.on),
        ("0123", 7, true)
    );
    assert_eq!((sample.names.len(), sample.plain.enabled), (2, false));
    assert_eq!(sample.wait, Duration::secs(5));
    assert_eq!(sample.headers.iter().next(), Some(("a", "${x} $ $y z")));
    assert_eq!(good("text: \"${yaml:${yaml:deep}}er\"").text, "deeper");
    assert_eq!(good("text: ${env:NO_SUCH_VARIABLE_OF_TESTS:-}").text, "");
    // In a file, 5 would be a number. The value of a variable is always a text.
    assert_eq!(good("names: ${NO_SUCH_VARIABLE_OF_TESTS:-5}").names, ["5"]);
    assert_eq!(good("names: ${NO_SUCH_VARIABLE_OF_TESTS:-}").names, [""; 0]);
}

#[test]
fn unset_variable_is_a_warning_and_keeps_the_default() {
    let (sample, report) = read::<Sample>("count: ${env:NO_SUCH_VARIABLE_OF_TESTS}\ntext: a");
    assert_eq!(sample.unwrap().count, 0);
    assert_eq!((report.errors(), report.warnings()), (0, 1));
}

#[test]
fn messages_do_not_repeat_expansion_results() {
    for (text, message) in [
        ("wait: ${yaml:hunter2}", "`${...}` is not a duration"),
        (
            "wait: ${yaml:5} hunter2",
            "`${...}` in `${...}` is not a unit",
        ),
        ("mode: ${yaml:hunter2}", "unknown value `${...}`"),
        ("mode: a${yaml:hunter2}", "unknown value `${...}`"),
        ("size: ${yaml:1hunter2}", "`${...}` is not a size"),
    ] {
        let (_, report) = read::<Sample>(&format!("{text}\n"));
        let rendered = report.render();
        let first = rendered.lines().next().unwrap_or_default();
        assert!(first.contains(message), "{text}: {first}");
        assert!(!first.contains("hunter2"), "{text}: {first}");
    }
}

#[test]
fn recursive_expansion_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bomb");
    let reference = format!("${{file:{}}}", file.display());
    for text in [
        reference.clone(),
        reference.repeat(3),
        format!("[{reference}, {reference}]"),
    ] {
        std::fs::write(&file, &text).unwrap();
        let (_, report) = read::<Sample>(&format!("text: \"{text}\""));
        assert!(report.has_errors(), "{}", report.render());
    }
}

#[test]
fn later_source_merges_mappings_and_replaces_lists() {
    let mut report = Report::default();
    let mut base = tree(
        "count: 1\nnames: [a, b]\nplain: {enabled: false, interval: 1s}\n",
        &mut report,
    );
    let over = tree("names: [c]\nplain: {interval: 2s}\ntext: x\n", &mut report);
    merge::merge(&mut base, over, &mut Vec::new(), &mut report);
    let sample: Sample = decode(&base, &mut report).unwrap();
    assert_eq!((sample.count, sample.names), (1, vec!["c".to_owned()]));
    assert_eq!(
        (sample.plain.enabled, sample.plain.interval),
        (false, Duration::secs(2))
    );
    assert_eq!(report.warnings(), 0);

    let wipe = tree("plain:\n", &mut report);
    merge::merge(&mut base, wipe, &mut Vec::new(), &mut report);
    let sample: Sample = decode(&base, &mut report).unwrap();
    assert_eq!(sample.plain, Plain::default());
    assert_eq!(report.warnings(), 1);
}

#[test]
fn anchors_and_merge_keys_work() {
    let sample = good("limits: &base {a: 1, b: 2}\nplain: &p {interval: 1s}\n");
    assert_eq!(sample.limits.len(), 2);
    let (maps, report) =
        read::<Maps>("a: &a {x: 1, y: 1}\nb: {<<: *a, y: 2}\nc: {<<: [{x: 5}, *a]}");
    let maps = maps.unwrap_or_else(|| panic!("{}", report.render()));
    assert_eq!(
        maps.0["b"],
        BTreeMap::from([("x".to_owned(), 1), ("y".to_owned(), 2)])
    );
    assert_eq!(
        maps.0["c"],
        BTreeMap::from([("x".to_owned(), 5), ("y".to_owned(), 1)])
    );
}

#[derive(Debug, Default, Deserialize)]
struct Maps(BTreeMap<String, BTreeMap<String, u8>>);

impl Validate for Maps {}

#[test]
fn fingerprints_differ_only_with_the_configuration() {
    let mut report = Report::default();
    let print = |text: &str, report: &mut Report| tree(text, report).fingerprint();
    let one = print("a: 1\nb: [x, y] # comment", &mut report);
    assert_eq!(one, print("{b: [ x , y ], a: 1}", &mut report));
    assert_ne!(one, print("a: \"1\"\nb: [x, y]", &mut report));
    assert_ne!(one, print("a: 1\nb: [x, y, z]", &mut report));
    assert_ne!(one, print("a: 2\nb: [x, y]", &mut report));
}

#[test]
fn fingerprint_includes_named_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cert.pem");
    let text = format!(
        "auth: {{password_file: '{}', other: '1.2'}}",
        path.display()
    );
    let mut report = Report::default();
    let mut print = || tree(&text, &mut report).fingerprint();
    let missing = print();
    std::fs::write(&path, "old").unwrap();
    let old = print();
    assert_eq!(old, print());
    std::fs::write(&path, "new").unwrap();
    assert!(missing != old && old != print());
}

#[test]
fn fingerprint_ignores_watched_tls_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cert.pem");
    let differs = |keys: &str| {
        let text = format!("tls: {{{keys}: '{}'}}", path.display());
        let mut report = Report::default();
        std::fs::write(&path, "old").unwrap();
        let old = tree(&text, &mut report).fingerprint();
        std::fs::write(&path, "new").unwrap();
        old != tree(&text, &mut report).fingerprint()
    };
    assert!(!differs("cert_file"));
    assert!(!differs("reload_interval: 10s, key_file"));
    assert!(differs("reload_interval: 0s, cert_file"));
    assert!(differs("reload_interval: 0, cert_file"));
    assert!(!differs("client_ca_file_reload: true, client_ca_file"));
    assert!(differs("client_ca_file_reload: false, client_ca_file"));
    assert!(!differs("client_ca_file_reload: false, cert_file"));
}

#[test]
fn report_is_send_and_sync() {
    fn sendable<T: Send>(_: &T) {}
    sendable(&Report::default());
}
