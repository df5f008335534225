//! `collector profiles check` names the file, the rule and the position of each violation, and has an exit code for
//! scripts.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, Line, Link, Location, Mapping, Profile, ProfilesData, ProfilesDictionary,
    ResourceProfiles, Sample, ScopeProfiles, Stack, ValueType,
};
use prost::Message as _;

use crate::harness::collector::BINARY;

fn data() -> ProfilesData {
    let strings = ["", "cpu", "nanoseconds", "main"];
    let dictionary = ProfilesDictionary {
        mapping_table: vec![Mapping::default()],
        location_table: vec![
            Location::default(),
            Location {
                lines: vec![Line {
                    function_index: 1,
                    line: 3,
                    column: 0,
                }],
                ..Default::default()
            },
        ],
        function_table: vec![
            Function::default(),
            Function {
                name_strindex: 3,
                ..Default::default()
            },
        ],
        link_table: vec![Link::default()],
        string_table: strings.map(str::to_owned).to_vec(),
        attribute_table: vec![Default::default()],
        stack_table: vec![
            Stack::default(),
            Stack {
                location_indices: vec![1],
            },
        ],
    };
    let kind = Some(ValueType {
        type_strindex: 1,
        unit_strindex: 2,
    });
    let profile = Profile {
        sample_type: kind,
        period_type: kind,
        samples: vec![Sample {
            stack_index: 1,
            values: vec![5],
            ..Default::default()
        }],
        ..Default::default()
    };
    ProfilesData {
        resource_profiles: vec![ResourceProfiles {
            scope_profiles: vec![ScopeProfiles {
                profiles: vec![profile],
                ..Default::default()
            }],
            ..Default::default()
        }],
        dictionary: Some(dictionary),
    }
}

/// With an index that leads nowhere.
fn bad() -> ProfilesData {
    let mut data = data();
    data.dictionary.as_mut().unwrap().location_table[1].mapping_index = 7;
    data
}

/// Data with an unreferenced string.
fn untidy() -> ProfilesData {
    let mut data = data();
    let tables = data.dictionary.as_mut().unwrap();
    tables.string_table.push("unused".to_owned());
    data
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Files(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn check(files: &[&Path], more: &[&str]) -> (i32, String) {
    let mut command = Command::new(BINARY);
    let output = command
        .args(["profiles", "check"])
        .args(files)
        .args(more)
        .output()
        .unwrap();
    finish(output)
}

fn finish(output: Output) -> (i32, String) {
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), text)
}

#[test]
fn valid_file_passes_raw_compressed_and_from_stdin() {
    let files = Files::new();
    let bytes = data().encode_to_vec();
    let raw = files.write("raw.otlp", &bytes);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&bytes).unwrap();
    let compressed = files.write("compressed.gz", &gzip.finish().unwrap());
    let (code, text) = check(&[&raw, &compressed], &[]);
    assert_eq!(code, 0, "{text}");
    let good = "good: 1 profile with 1 sample";
    let expected = format!(
        "{}: {good}\n{}: {good}\n",
        raw.display(),
        compressed.display()
    );
    assert_eq!(text, expected);

    let mut child = Command::new(BINARY)
        .args(["profiles", "check", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let (code, text) = finish(child.wait_with_output().unwrap());
    assert_eq!((code, text), (0, format!("-: {good}\n")));
}

#[test]
fn broken_rule_is_named_with_position() {
    let files = Files::new();
    let broken = files.write("broken.otlp", &bad().encode_to_vec());
    let fine = files.write("fine.otlp", &data().encode_to_vec());
    let missing = files.0.path().join("missing.otlp");
    let (code, text) = check(&[&missing, &broken, &fine], &[]);
    assert_eq!(code, 1);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].contains("missing.otlp: error: cannot read the file"),
        "{text}"
    );
    assert!(
        lines[1].ends_with(
            "broken.otlp: error: dictionary.location_table[1].mapping_index: is 7, but \
             mapping_table has 1 entries [index-out-of-range]"
        ),
        "{text}"
    );
    assert!(lines[2].ends_with("broken.otlp: 1 error, 0 warnings: 1 profile with 1 sample"));
    assert!(lines[3].ends_with("fine.otlp: good: 1 profile with 1 sample"));
    assert_eq!(lines.len(), 4, "{text}");
}

#[test]
fn warnings_fail_only_with_strict() {
    let files = Files::new();
    let untidy = files.write("untidy.otlp", &untidy().encode_to_vec());
    let (code, text) = check(&[&untidy], &[]);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("warning: dictionary.string_table[4]: "),
        "{text}"
    );
    assert!(text.contains("[orphan]"), "{text}");
    assert!(text.contains("0 errors, 1 warning: "), "{text}");
    assert_eq!(check(&[&untidy], &["--strict"]), (1, text));
}

#[test]
fn every_message_of_a_file_exporter_file_is_checked() {
    let files = Files::new();
    let mut framed = Vec::new();
    for message in [data(), bad()] {
        let bytes = message.encode_to_vec();
        framed.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        framed.extend_from_slice(&bytes);
    }
    let whole = files.write("whole.otlp", &framed);
    let (code, text) = check(&[&whole], &[]);
    assert_eq!(code, 1);
    assert!(
        text.contains("error: message 2: dictionary.location_table[1]"),
        "{text}"
    );
    assert!(text.contains("2 profiles with 2 samples"), "{text}");
    let cut = files.write("cut.otlp", &framed[..framed.len() - 3]);
    let (code, text) = check(&[&cut], &[]);
    assert_eq!(code, 1);
    assert!(
        text.contains("ends 3 bytes before the end of its last message"),
        "{text}"
    );
}

#[test]
fn non_profiles_and_old_layouts_are_named() {
    let files = Files::new();
    let text_file = files.write("text", b"not a profile");
    let (code, text) = check(&[&text_file], &[]);
    assert_eq!(code, 1);
    assert!(text.contains("error: this is text; "), "{text}");
    let json = files.write("speedscope.json", br#"{"shared": {"frames": []}}"#);
    let (code, text) = check(&[&json], &[]);
    assert_eq!(code, 1);
    assert!(text.contains("`resourceProfiles` is missing"), "{text}");
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiles/heap.pb.gz");
    let (code, text) = check(&[&recorded], &[]);
    assert_eq!(code, 1);
    assert!(text.contains("error: this is a pprof file; "), "{text}");
    // Until 1.9 the values of a sample had the field number that its attributes have now.
    let mut old = data();
    let profile = &mut old.resource_profiles[0].scope_profiles[0].profiles[0];
    profile.samples[0].attribute_indices = vec![5];
    profile.samples[0].values.clear();
    let old = files.write("old.otlp", &old.encode_to_vec());
    let (code, text) = check(&[&old], &[]);
    assert_eq!(code, 1);
    assert!(text.contains("the layout of OTLP 1.9 or earlier"), "{text}");
    let gzip = files.write("bad.gz", &[0x1f, 0x8b, 8, 0, 1, 2]);
    let (code, text) = check(&[&gzip], &[]);
    assert_eq!(code, 1);
    assert!(text.contains("cannot read the file"), "{text}");
}

#[test]
fn json_output_of_convert_can_be_checked() {
    let files = Files::new();
    let json = files.write("cpu.json", b"");
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiles/cpu.pb.gz");
    let mut convert = Command::new(BINARY);
    convert.args(["profiles", "convert", "-o"]).arg(&json);
    assert!(convert.arg(&recorded).status().unwrap().success());
    let (code, text) = check(&[&json], &[]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("cpu.json: good: 2 profiles with "), "{text}");
}

#[test]
fn usage_is_explained_and_completed() {
    let run = |arguments: &[&str]| Command::new(BINARY).args(arguments).output().unwrap();
    let bare = run(&["profiles", "check"]);
    assert_eq!(bare.status.code(), Some(2));
    let help = run(&["profiles", "check", "--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("FILE"));
    let script = run(&["completions", "bash"]);
    assert!(
        String::from_utf8_lossy(&script.stdout)
            .contains("collector__subcmd__profiles__subcmd__check")
    );
}
