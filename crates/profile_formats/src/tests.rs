//! Promises about all formats.

use tributary_memory::Budget;
use tributary_profiles::{Profiles, folded, top};

use super::*;

mod damage;
mod fixtures;

/// Reads a file within default limits.
fn profiles(file: &[u8]) -> Profiles {
    let mut permit = Budget::new(1 << 30).empty_permit();
    read_profiles(file, None, &FormatLimits::default(), &mut permit).unwrap()
}

fn error(file: &[u8], format: Format) -> String {
    let mut permit = Budget::new(1 << 30).empty_permit();
    let read = read_profiles(file, Some(format), &FormatLimits::default(), &mut permit);
    assert_eq!(permit.bytes(), 0);
    read.unwrap_err().to_string()
}

/// Returns the stacks of a sample type as folded text.
fn stacks(profiles: &Profiles, kind: &str) -> String {
    let kind = top::sample_type(profiles, Some(kind)).unwrap();
    folded::write(profiles, kind)
}

/// Returns the sample types with their units and totals.
fn totals(profiles: &Profiles) -> Vec<(String, i64)> {
    let dictionary = &profiles.dictionary;
    let total = |profile: &tributary_profiles::model::Profile| {
        let kind = profile.header.sample_type;
        let name = format!(
            "{}/{}",
            dictionary.text(kind.kind),
            dictionary.text(kind.unit)
        );
        (
            name,
            profile.samples.iter().map(|sample| sample.total().0).sum(),
        )
    };
    profiles.iter().map(total).collect()
}

#[test]
fn folded_stacks_become_samples() {
    let read = profiles(b"main;a 2\nmain;b 3\nmain;a 1\n");
    assert_eq!(totals(&read), [("samples/count".to_owned(), 6)]);
    assert_eq!(stacks(&read, "samples"), "main;a 3\nmain;b 3\n");
    let wrong = error(b"main;a 2\nmain;b\n", Format::Folded);
    assert!(wrong.contains("line 2"), "{wrong}");
}

fn speedscope(profiles: &str) -> String {
    format!(
        r#"{{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{{"frames":
        [{{"name":"main"}},{{"name":"a","file":"a.py","line":7}}]}},"profiles":[{profiles}]}}"#
    )
}

#[test]
fn sampled_speedscope_profiles_become_times_by_thread() {
    let thread = |name: &str| {
        format!(
            r#"{{"type":"sampled","name":"{name}","unit":"seconds","startValue":0,"endValue":0.03,
            "samples":[[0,1],[0],[0,1]],"weights":[0.01,0.01,0.01]}}"#
        )
    };
    let file = speedscope(&[thread("Thread 1"), thread("Thread 2")].join(","));
    let read = profiles(file.as_bytes());
    assert_eq!(totals(&read), [("time/nanoseconds".to_owned(), 60_000_000)]);
    assert_eq!(stacks(&read, "time"), "main 20000000\nmain;a 40000000\n");
    assert_eq!(read.samples(), 4);
    assert_eq!(read.iter().next().unwrap().header.duration, 30_000_000);
}

#[test]
fn evented_speedscope_profile_counts_own_time() {
    let file = speedscope(
        r#"{"type":"evented","name":"x","unit":"milliseconds","startValue":0,"endValue":9,"events":[
        {"type":"O","frame":0,"at":1},{"type":"O","frame":1,"at":3},{"type":"C","frame":1,"at":6},
        {"type":"C","frame":0,"at":6.5}]}"#,
    );
    let read = profiles(file.as_bytes());
    assert_eq!(stacks(&read, "time"), "main 2500000\nmain;a 3000000\n");
    let crossed = file.replace(r#""C","frame":1"#, r#""C","frame":0"#);
    let wrong = error(crossed.as_bytes(), Format::Speedscope);
    assert!(wrong.contains("event 2"), "{wrong}");
    let cut = error(&file.as_bytes()[..80], Format::Speedscope);
    assert!(cut.contains("line 1, column 80"), "{cut}");
}

#[test]
fn error_is_short_whatever_the_size_of_a_word() {
    let long = "\u{e9}".repeat(100_000);
    let unit = speedscope(&format!(
        r#"{{"type":"sampled","name":"a","unit":"{long}","startValue":0,"endValue":0}}"#
    ));
    let kind = unit.replace(r#""sampled""#, r#""none""#);
    let kind = kind
        .replace(&long, "none")
        .replace(r#""type":"none""#, &format!(r#""type":"{long}""#));
    for (file, format) in [
        (unit, Format::Speedscope),
        (kind, Format::Speedscope),
        (format!(r#"{{"nodes":"{long}"}}"#), Format::CpuProfile),
        (
            format!("version: 1\nevents: Ir\n1{long} 5\n"),
            Format::Callgrind,
        ),
        (
            format!("version: 1\nevents: Ir\n1 {long}\n"),
            Format::Callgrind,
        ),
        (format!("a {}", "1".repeat(100_000)), Format::Folded),
        (format!("heap profile: {long}\n"), Format::HeapText),
    ] {
        let error = error(file.as_bytes(), format);
        assert!(error.len() < 400, "{format}: {} bytes", error.len());
    }
}

#[test]
fn long_labels_of_a_goroutine_are_ignored() {
    let labels = |value: &str| {
        let file = format!(
            "goroutine profile: total 1\n1 @ 0x1\n# labels: {{\"key\":\"{value}\"}}\n#\t0x1\tmain.main+0x1\t/a.go:1\n"
        );
        let read = profiles(file.as_bytes());
        let key = read
            .iter()
            .next()
            .unwrap()
            .samples
            .iter()
            .next()
            .unwrap()
            .key;
        read.dictionary.attributes(key.attributes).len()
    };
    assert_eq!(labels("a"), 1);
    // One byte before the first character would end within a character at the limit.
    assert_eq!(labels(&"\u{e9}".repeat(1 << 16)), 0);
    assert_eq!(labels(&format!("a{}", "\u{e9}".repeat(1 << 16))), 0);
}
