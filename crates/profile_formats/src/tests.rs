//! Promises about all formats.

use tributary_memory::Budget;
use tributary_profiles::{Profiles, folded, top};

use super::*;

/// Reads a file within default limits.
fn profiles(file: &[u8]) -> Profiles {
    let mut permit = Budget::new(1 << 30).empty_permit();
    read_profiles(file, None, &Limits::default(), &mut permit).unwrap()
}

fn error(file: &[u8], format: Format) -> String {
    let mut permit = Budget::new(1 << 30).empty_permit();
    let read = read_profiles(file, Some(format), &Limits::default(), &mut permit);
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

fn pairs(totals: &[(&str, i64)]) -> Vec<(String, i64)> {
    let pair = |(name, total): &(&str, i64)| ((*name).to_owned(), *total);
    totals.iter().map(pair).collect()
}

#[test]
fn async_profiler_recording_has_totals_of_its_converter() {
    let read = profiles(include_bytes!("../fixtures/async-profiler.jfr.gz"));
    // `jfrconv --cpu` counts 19 samples of 20 ms, and `--wall` 116 samples of 100 ms.
    let expected = [
        ("cpu/nanoseconds", 19 * 20_000_000),
        ("wall/nanoseconds", 116 * 100_000_000),
        ("alloc_in_new_tlab_objects/count", 114),
        ("alloc_in_new_tlab_bytes/bytes", 239_076_208),
        ("contentions/count", 9),
        ("delay/nanoseconds", 397_641_573),
    ];
    assert_eq!(totals(&read), pairs(&expected));
    let header = &read.iter().next().unwrap().header;
    assert_eq!(
        (header.time, header.duration),
        (1_795_646_053_240_246_000, 431_234_000)
    );
    let alloc = stacks(&read, "alloc_in_new_tlab_objects");
    assert!(alloc.contains("Load.allocate;byte[] "), "{alloc}");
}

#[test]
fn recording_of_jdk_has_totals_of_jfr_print() {
    let read = profiles(include_bytes!("../fixtures/jdk.jfr.gz"));
    let expected = [
        ("samples/count", 3),
        ("alloc_sample_objects/count", 60),
        ("alloc_sample_bytes/bytes", 273_999_600),
        ("contentions/count", 1),
        ("delay/nanoseconds", 40_083_948),
        ("park_contentions/count", 1),
        ("park_delay/nanoseconds", 20_092_479),
    ];
    assert_eq!(totals(&read), pairs(&expected));
    let delay = stacks(&read, "delay");
    assert_eq!(delay, "Tiny.main;java.lang.Object 40083948\n");
}
