//! Damaged files: no panic, bounded memory, well-formed results.

use proptest::prelude::*;
use tributary_compression::Codec;
use tributary_compression::decompress::decompress;

use super::*;

/// Returns a decompressed file of each format.
fn files() -> Vec<(Format, Vec<u8>)> {
    let mut permit = Budget::new(1 << 30).empty_permit();
    let mut inflate = |file: &[u8]| decompress(Codec::Gzip, file, 1 << 20, &mut permit).unwrap();
    let heap = include_bytes!("../../fixtures/gperftools.heap").to_vec();
    vec![
        (
            Format::Jfr,
            inflate(include_bytes!("../../fixtures/async-profiler.jfr.gz")),
        ),
        (
            Format::Callgrind,
            inflate(include_bytes!("../../fixtures/callgrind.out.gz")),
        ),
        (
            Format::GperftoolsCpu,
            include_bytes!("../../fixtures/gperftools.cpu").to_vec(),
        ),
        (Format::HeapText, heap),
        (
            Format::Jemalloc,
            include_bytes!("../../fixtures/jemalloc.heap").to_vec(),
        ),
        (
            Format::PerfScript,
            include_bytes!("../../fixtures/perf-script.txt").to_vec(),
        ),
        (
            Format::CpuProfile,
            include_bytes!("../../fixtures/node.cpuprofile").to_vec(),
        ),
        (
            Format::Speedscope,
            include_bytes!("../../fixtures/py-spy.speedscope.json").to_vec(),
        ),
        (
            Format::Folded,
            include_bytes!("../../fixtures/py-spy.folded").to_vec(),
        ),
        (
            Format::GoText,
            b"goroutine profile: total 3\n2 @ 0x1 0x2\n1 @ 0x3\n".to_vec(),
        ),
    ]
}

/// Reads a file in a small budget. Profiles of a damaged file must be well-formed.
fn survive(file: &[u8], format: Format) {
    let budget = Budget::new(16 << 20);
    let mut permit = budget.acquire(7).unwrap();
    let limits = FormatLimits {
        input: 1 << 20,
        memory: 8 << 20,
        ..FormatLimits::default()
    };
    detect(file);
    match read_profiles(file, Some(format), &limits, &mut permit) {
        Ok(read) => {
            let samples = read.iter().map(|profile| profile.samples.bytes());
            let bytes = read.dictionary.bytes() + samples.sum::<usize>();
            // Metering is in steps, and tables have a least size.
            assert!(
                bytes < permit.bytes() + (256 << 10),
                "{bytes} {}",
                permit.bytes()
            );
            fixtures::check(&read);
        }
        Err(error) => {
            assert_eq!(permit.bytes(), 7);
            assert!(error.to_string().len() < 400, "{error}");
        }
    }
}

#[test]
fn every_format_has_a_file_and_is_detected() {
    let files = files();
    for format in Format::ALL {
        let (_, file) = files.iter().find(|(of, _)| of == format).unwrap();
        assert_eq!(detect(file), Some(*format));
        // The beginning suffices.
        let start = file.len().min(8 << 10);
        assert_eq!(detect(&file[..start]), Some(*format));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn damaged_file_is_refused_or_well_formed(
        at in any::<prop::sample::Index>(),
        end in prop::option::of(any::<prop::sample::Index>()),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u32), 0..6),
    ) {
        let files = files();
        let (format, mut file) = at.get(&files).clone();
        for (at, bit) in flips {
            let at = at.index(file.len());
            file[at] ^= 1 << bit;
        }
        if let Some(end) = end {
            file.truncate(end.index(file.len()));
        }
        survive(&file, format);
    }

    #[test]
    fn file_of_another_format_is_survived(
        at in any::<prop::sample::Index>(),
        other in any::<prop::sample::Index>(),
    ) {
        let files = files();
        survive(&at.get(&files).1, *other.get(Format::ALL));
    }
}

#[test]
fn truncated_recording_is_named() {
    let (_, file) = files().swap_remove(0);
    let wrong = error(&file[..file.len() - 1], Format::Jfr);
    assert!(
        wrong.contains("byte 0") && wrong.contains("truncated"),
        "{wrong}"
    );
    let twice = [file.as_slice(), &file[..100]].concat();
    let wrong = error(&twice, Format::Jfr);
    assert!(wrong.contains(&format!("byte {}", file.len())), "{wrong}");
    // Chunks are added up.
    let once = totals(&profiles(&file));
    let both = totals(&profiles(&[file.as_slice(), file.as_slice()].concat()));
    for ((name, one), (_, two)) in once.into_iter().zip(both) {
        assert_eq!(2 * one, two, "{name}");
    }
}

#[test]
fn stack_beyond_the_limit_is_refused() {
    let frames = "a;".repeat(70_000);
    let wrong = error(format!("{frames}b 1\n").as_bytes(), Format::Folded);
    assert_eq!(wrong, "the file has more than 65536 frames in one stack");
}

#[test]
fn deep_json_is_refused_without_recursion() {
    let deep = format!("{{\"x\":{}", "[".repeat(1 << 20));
    let wrong = error(deep.as_bytes(), Format::Speedscope);
    assert!(wrong.contains("EOF while parsing a list"), "{wrong}");
}

#[test]
fn chain_of_calls_is_bounded_by_memory() {
    // A node for each call: the stacks of a chain grow with the square of its length.
    let node = |id: usize| {
        let call = r#"{"functionName":"f","url":"","lineNumber":0,"columnNumber":0}"#;
        format!(
            r#"{{"id":{id},"callFrame":{call},"hitCount":1,"children":[{}]}}"#,
            id + 1
        )
    };
    let nodes: Vec<String> = (0..40_000).map(node).collect();
    let last = r#"{"id":40000,"callFrame":{"functionName":"f"},"hitCount":1}"#;
    let nodes = nodes.join(",");
    let file = format!(r#"{{"nodes":[{nodes},{last}],"startTime":0,"endTime":1}}"#);
    let limits = FormatLimits {
        memory: 8 << 20,
        ..FormatLimits::default()
    };
    let mut permit = Budget::new(1 << 30).empty_permit();
    let read = read_profiles(
        file.as_bytes(),
        Some(Format::CpuProfile),
        &limits,
        &mut permit,
    );
    let what = "bytes in memory";
    let limit = limits.memory;
    assert_eq!(read.unwrap_err(), FormatError::TooLarge { what, limit });
}

#[test]
fn more_than_64_sample_types_are_refused() {
    let sample = |event: usize| format!("a 1 2.5: 3 e{event}:\n\t1 f (/a)\n\n");
    let text: String = (0..40).map(sample).collect();
    let wrong = error(text.as_bytes(), Format::PerfScript);
    assert_eq!(wrong, "the file has more than 64 sample types");
}

#[test]
fn long_line_of_spaces_takes_linear_time() {
    let line = format!("a{}1 x\n", " ".repeat(1 << 20));
    let wrong = error(line.as_bytes(), Format::PerfScript);
    assert!(wrong.contains("line 1: a sample must be"), "{wrong}");
}

#[test]
fn permit_covers_only_the_result_at_the_end() {
    for (format, file) in files() {
        let mut permit = Budget::new(1 << 30).empty_permit();
        let read = read_profiles(&file, None, &FormatLimits::default(), &mut permit).unwrap();
        let samples = read.iter().map(|profile| profile.samples.bytes());
        let bytes = read.dictionary.bytes() + samples.sum::<usize>();
        let held = permit.bytes();
        assert!(held < 2 * bytes + (64 << 10), "{format}: {held} {bytes}");
    }
}
