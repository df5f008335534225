//! Files of the real profilers, with the totals that their own tools print. `fixtures/make` makes the files.

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;

use super::*;

fn pairs(totals: &[(&str, i64)]) -> Vec<(String, i64)> {
    let pair = |(name, total): &(&str, i64)| ((*name).to_owned(), *total);
    totals.iter().map(pair).collect()
}

/// Asserts the format and the totals of a file.
fn assert_totals(file: &[u8], format: Format, expected: &[(&str, i64)]) -> Profiles {
    if !file.starts_with(&[0x1f, 0x8b]) {
        assert_eq!(detect(file), Some(format));
    }
    let read = profiles(file);
    assert_eq!(totals(&read), pairs(expected));
    check(&read);
    read
}

/// Asserts that the profiles are well-formed as OTLP.
pub(super) fn check(profiles: &Profiles) {
    let request = ExportProfilesServiceRequest::decode(profiles.encode()).unwrap();
    for finding in tributary_profiles::check::check(&request).findings() {
        assert!(!finding.rule.is_structural(), "{finding}");
    }
}

#[test]
fn async_profiler_recording_has_totals_of_jfrconv() {
    let file = include_bytes!("../../fixtures/async-profiler.jfr.gz");
    let read = assert_totals(
        file,
        Format::Jfr,
        &[
            // `--cpu` counts 2 samples of 20 ms, and `--wall` 114 samples of 100 ms.
            ("cpu/nanoseconds", 2 * 20_000_000),
            ("wall/nanoseconds", 114 * 100_000_000),
            ("alloc_in_new_tlab_objects/count", 51),
            ("alloc_in_new_tlab_bytes/bytes", 106_955_232),
            ("contentions/count", 5),
            ("delay/nanoseconds", 262_426_310),
        ],
    );
    let header = &read.iter().next().unwrap().header;
    assert_eq!(header.period, 20_000_000);
    assert!(header.time > 1_700_000_000_000_000_000);
    assert!((400_000_000..5_000_000_000).contains(&header.duration));
    let delay = stacks(&read, "delay");
    assert!(delay.contains("Load.contend;java.lang.Object "), "{delay}");
    let alloc = stacks(&read, "alloc_in_new_tlab_bytes");
    assert!(alloc.contains("Load.allocate;byte[] "), "{alloc}");
    let threads = read.iter().flat_map(|profile| profile.samples.iter());
    let names = threads.filter_map(|sample| {
        let name = read.dictionary.find(sample.key.attributes, "thread.name")?;
        Some(format!("{:?}", read.dictionary.any_value(name.value)))
    });
    assert!(
        names
            .into_iter()
            .any(|name| name.contains("allocator \u{e9}"))
    );
}

#[test]
fn jdk_recording_has_totals_of_jfr_print() {
    let file = include_bytes!("../../fixtures/jdk.jfr.gz");
    let weight = 17_349_168 + 29 * 2_100_336 + 26_038_800 + 19 * 300_048 + 33_905_424;
    let read = assert_totals(
        file,
        Format::Jfr,
        &[
            // The recording has no settings, so the period is unknown.
            ("samples/count", 1),
            ("alloc_sample_objects/count", 51),
            ("alloc_sample_bytes/bytes", weight),
            ("contentions/count", 1),
            ("delay/nanoseconds", DELAY),
            ("park_contentions/count", 1),
            ("park_delay/nanoseconds", PARK_DELAY),
        ],
    );
    assert_eq!(
        stacks(&read, "delay"),
        format!("Tiny.main;java.lang.Object {DELAY}\n")
    );
}

const DELAY: i64 = 72_224_077;
const PARK_DELAY: i64 = 37_127_217;

#[test]
fn gperftools_cpu_profile_has_totals_of_pprof() {
    let file = include_bytes!("../../fixtures/gperftools.cpu");
    let read = assert_totals(
        file,
        Format::GperftoolsCpu,
        &[("samples/count", 182), ("cpu/nanoseconds", 1_820_000_000)],
    );
    let dictionary = &read.dictionary;
    let profile = read.iter().next().unwrap();
    let counts: Vec<i64> = profile
        .samples
        .iter()
        .map(|sample| sample.total().0)
        .collect();
    // pprof lists the first stack twice, because frames of the signal handler were removed from some of its samples.
    assert_eq!(counts, [15 + 9, 1, 77, 40, 40]);
    let sample = profile.samples.iter().next().unwrap();
    let leaf = dictionary.get_location(dictionary.locations(sample.key.stack)[0]);
    let mapping = dictionary.get_mapping(leaf.mapping);
    assert_eq!((mapping.start, mapping.file_offset), (0x40_0000, 0));
    assert!(dictionary.text(mapping.filename).ends_with("/work"));
}

#[test]
fn gperftools_heap_profile_has_totals_of_pprof() {
    let file = include_bytes!("../../fixtures/gperftools.heap");
    assert_totals(
        file,
        Format::HeapText,
        &[
            ("alloc_objects/count", 91),
            ("alloc_space/bytes", 12_150_072),
            ("inuse_objects/count", 61),
            ("inuse_space/bytes", 9_150_072),
        ],
    );
}

#[test]
fn jemalloc_heap_profile_has_totals_of_jeprof() {
    let file = include_bytes!("../../fixtures/jemalloc.heap");
    assert_totals(
        file,
        Format::Jemalloc,
        &[
            ("inuse_objects/count", 60),
            ("inuse_space/bytes", 10_063_735),
        ],
    );
}

#[test]
fn callgrind_profile_has_program_total() {
    let file = include_bytes!("../../fixtures/callgrind.out.gz");
    let read = assert_totals(file, Format::Callgrind, &[("Ir/count", 81_534_792)]);
    let text = stacks(&read, "Ir");
    // Two calls of `burn` with 3,000,000 and 6,000,000 iterations of 9 instructions.
    assert!(text.contains("burn 81000010\n"), "{text}");
}

#[test]
fn perf_script_has_totals_of_perf_report() {
    let file = include_bytes!("../../fixtures/perf-script.txt");
    let read = assert_totals(
        file,
        Format::PerfScript,
        &[
            ("samples/count", 38),
            ("task-clock/nanoseconds", 383_838_380),
        ],
    );
    let text = stacks(&read, "samples");
    assert!(text.contains("__libc_start_call_main;main;burn "), "{text}");
}

#[test]
fn node_cpu_profile_has_sampled_time() {
    let file = include_bytes!("../../fixtures/node.cpuprofile");
    let read = assert_totals(
        file,
        Format::CpuProfile,
        &[("samples/count", 24), ("wall/nanoseconds", 539_138_000)],
    );
    let text = stacks(&read, "wall");
    assert!(text.contains(";work;fib;fib;fib"), "{text}");
    assert!(!text.contains("(root);"), "{text}");
}

#[test]
fn py_spy_files_have_number_of_samples() {
    let raw = include_bytes!("../../fixtures/py-spy.folded");
    assert_totals(raw, Format::Folded, &[("samples/count", 141)]);
    let file = include_bytes!("../../fixtures/py-spy.speedscope.json");
    let read = assert_totals(
        file,
        Format::Speedscope,
        &[("time/nanoseconds", SPEEDSCOPE)],
    );
    let text = stacks(&read, "time");
    assert!(text.contains("run;work;fib"), "{text}");
}

/// 191 weights of 20 ms.
const SPEEDSCOPE: i64 = 191 * 20_000_000;

const MUTEX: &[u8] = b"--- mutex:\ncycles/second=2000000000\nsampling period=10\n400 2 @ 0x46 0x47\n\
    #\t0x45\tsync.(*Mutex).Unlock+0x25\t/go/src/sync/mutex.go:189\n#\t0x46\tmain.f+0x2\t/a/main.go:7\n";

#[test]
fn go_text_has_names_values_and_labels() {
    let read = assert_totals(
        MUTEX,
        Format::GoText,
        &[("contentions/count", 20), ("delay/nanoseconds", 2000)],
    );
    assert_eq!(stacks(&read, "delay"), "main.f;sync.(*Mutex).Unlock 2000\n");
    let goroutines = b"goroutine profile: total 3\n2 @ 0x1 0x2\n# labels: {\"job\":\"a\"}\n\
        #\t0x1\tmain.g+0x1\t/a.go:1\n\n1 @ 0x3\n";
    let read = assert_totals(goroutines, Format::GoText, &[("goroutine/count", 3)]);
    let sample = read
        .iter()
        .next()
        .unwrap()
        .samples
        .iter()
        .next()
        .unwrap()
        .key;
    assert!(read.dictionary.find(sample.attributes, "job").is_some());
    let heap =
        b"heap profile: 1: 8 [2: 16] @ heap/2\n1: 8 [2: 16] @ 0x5\n#\t0x4\tmain.h+0x1\t/a.go:1\n\n\
        # runtime.MemStats\n# Alloc = 7\n";
    let read = assert_totals(
        heap,
        Format::HeapText,
        &[
            ("alloc_objects/count", 2),
            ("alloc_space/bytes", 16),
            ("inuse_objects/count", 1),
            ("inuse_space/bytes", 8),
        ],
    );
    assert_eq!(stacks(&read, "inuse_space"), "main.h 8\n");
}

#[test]
fn faults_name_line_or_byte() {
    let wrong = error(b"goroutine profile: total 3\n2 @ 0x1\nx\n", Format::GoText);
    assert!(wrong.contains("line 3: a sample must be"), "{wrong}");
    let wrong = error(b"events: Ir\nfn=a\n+1 x\n", Format::Callgrind);
    assert_eq!(
        wrong,
        "not a valid callgrind file: line 3: `x` is not a cost"
    );
    let file = include_bytes!("../../fixtures/gperftools.cpu");
    let wrong = error(&file[..100], Format::GperftoolsCpu);
    assert!(wrong.contains("byte 40: "), "{wrong}");
    let mut permit = Budget::new(1 << 30).empty_permit();
    let unknown =
        read_profiles(b"\x01\x02", None, &FormatLimits::default(), &mut permit).unwrap_err();
    assert!(
        unknown
            .to_string()
            .starts_with("the format of the file is unknown")
    );
}

#[test]
fn small_recording_has_period_context_and_lines() {
    for file in [
        include_bytes!("../../fixtures/small.jfr").as_slice(),
        include_bytes!("../../fixtures/small-raw.jfr"),
    ] {
        let read = assert_totals(file, Format::Jfr, &[("cpu/nanoseconds", 3 * 20_000_000)]);
        assert_eq!(stacks(&read, "cpu"), "a.Main.main;a.Main.work 60000000\n");
        let profile = read.iter().next().unwrap();
        assert_eq!(profile.header.duration, 2_000_000_000);
        let key = profile.samples.iter().next().unwrap().key;
        let dictionary = &read.dictionary;
        let attribute = |key_name: &str| {
            let attribute = dictionary.find(key.attributes, key_name).unwrap();
            dictionary.any_value(attribute.value).value.unwrap()
        };
        assert_eq!(attribute(JFR_CONTEXT), Value::IntValue(9));
        assert_eq!(attribute("thread.id"), Value::IntValue(70));
        assert_eq!(attribute("thread.name"), Value::StringValue("java".into()));
        let leaf = dictionary.get_location(dictionary.locations(key.stack)[0]);
        assert_eq!(dictionary.get_lines(leaf.lines)[0].line, 11);
    }
}

#[test]
fn settings_of_first_chunk_hold_for_later_chunks() {
    let file = include_bytes!("../../fixtures/small-two-chunks.jfr");
    assert_totals(file, Format::Jfr, &[("cpu/nanoseconds", 6 * 20_000_000)]);
}
