//! Recognizes files of other formats that senders confuse with pprof.

use super::super::folded;
use tributary_otlp::reader::varint;

/// Names the format of bytes that are not a pprof file, if the format is well known.
pub(super) fn identify_foreign(bytes: &[u8]) -> Option<&'static str> {
    const OTLP: &str = "OTLP profiles; send the file to a receiver `otlp`";
    const FOLDED: &str =
        "folded stacks; convert the file with `collector profiles convert FILE -o OUT.pb.gz`";
    identify(bytes)
        .or_else(|| begins_like_otlp(bytes).then_some(OTLP))
        .or_else(|| folded::begins_like(bytes).then_some(FOLDED))
}

/// Whether a `ResourceProfiles` with a resource or profiles stands where pprof has a `ValueType` of two integers.
fn begins_like_otlp(bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(&[0x0a]) else {
        return false;
    };
    varint(rest).is_ok_and(|(_, message)| matches!(message, [0x0a | 0x12, ..]))
}

/// Names the format of bytes by their beginning, if the format is well known.
pub(super) fn identify(bytes: &[u8]) -> Option<&'static str> {
    let text = bytes.trim_ascii_start();
    let starts = |with: &[&str]| with.iter().any(|with| text.starts_with(with.as_bytes()));
    if starts(&["heap profile:"]) && !is_heap_of_go(text) {
        return Some(
            "a heap profile of gperftools; convert the file with `collector profiles convert`",
        );
    }
    if starts(&["heap_v2/"]) {
        return Some(
            "a heap profile of jemalloc; convert the file with `collector profiles convert`",
        );
    }
    if starts(&[
        "heap profile:",
        "goroutine profile:",
        "threadcreate profile:",
    ]) {
        return Some("Go's text format; remove `debug=` from the URL");
    }
    if starts(&[
        "--- contention",
        "--- mutex:",
        "--- heapz",
        "--- Heapz",
        "--- threadz",
        "--- Threadz",
    ]) || starts(&["--- contentionz", "--- growthz", "--- profile"])
    {
        return Some("a text profile of gperftools or Go; convert the file with `pprof -proto`");
    }
    if starts(&["<!DOCTYPE", "<!doctype", "<html", "<HTML"]) {
        return Some("an HTML page");
    }
    if starts(&["{"]) {
        return Some("JSON");
    }
    if bytes.starts_with(b"FLR\0") {
        return Some(
            "a recording of Java Flight Recorder; convert the file with `collector profiles convert`",
        );
    }
    if bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Some("compressed with zstd; compress the file with gzip");
    }
    // gperftools: words of 4 or 8 bytes in either byte order; the first is 0, the second 3.
    let words: [&[u8]; 4] = [
        &[0, 0, 0, 0, 3, 0, 0, 0],
        &[0, 0, 0, 0, 0, 0, 0, 3],
        &[0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0],
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3],
    ];
    if words.iter().any(|words| bytes.starts_with(words)) {
        return Some(
            "a CPU profile of gperftools; convert the file with `collector profiles convert`",
        );
    }
    None
}

/// Whether the first line ends with `@ heap/` and a sampling rate, as written by Go. gperftools and jemalloc write
/// `@ heapprofile`, `@ heap_v2/` or `@ growthz`.
fn is_heap_of_go(text: &[u8]) -> bool {
    let line = text.split(|byte| *byte == b'\n').next();
    line.and_then(|line| str::from_utf8(line).ok())
        .and_then(|line| line.rsplit_once("@ heap/"))
        .is_some_and(|(_, rate)| rate.trim_end().bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_stacks_are_identified() {
        for folded in ["main;run;work 5\n", "\nmain;a\t5", "a b;c 12\r\nd 1"] {
            let name = identify_foreign(folded.as_bytes()).unwrap_or_default();
            assert!(name.contains("folded stacks"), "{folded:?}: {name}");
        }
        for other in ["main;run;work\n", "error 404\n", "5", "a;\x01b 5"] {
            assert_eq!(identify_foreign(other.as_bytes()), None, "{other:?}");
        }
    }

    #[test]
    fn otlp_profiles_are_identified_and_sample_types_are_not() {
        let otlp = [0x0a, 4, 0x12, 2, 0x12, 0];
        assert!(identify_foreign(&otlp).unwrap_or_default().contains("OTLP"));
        for pprof in [&[0x0a, 4, 8, 1, 16, 2][..], &[0x0a, 0], &[0x0a], b""] {
            assert_eq!(identify_foreign(pprof), None);
        }
    }

    #[test]
    fn foreign_file_is_identified() {
        let named = |bytes: &[u8], word: &str| {
            let name = identify(bytes).unwrap_or_default();
            assert!(name.contains(word), "{name}");
        };
        named(b"heap profile: 1: 2 [3: 4] @ heap/1048576\n", "debug=");
        named(b"heap profile: 1: 2 [3: 4] @ heapprofile\n", "gperftools");
        named(
            b"heap profile: 1: 2 [3: 4] @ heap_v2/524288\n",
            "gperftools",
        );
        named(b"heap_v2/524288\n  t*: 1: 2 [0: 0]\n", "jemalloc");
        named(b"--- contention:\ncycles/second = 1\n", "gperftools");
        named(b"\n<!doctype html><p>404", "HTML");
        named(b"{\"resourceProfiles\":[]}", "JSON");
        named(b"FLR\0\0\x02", "Java");
        named(
            &[0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0],
            "gperftools",
        );
        assert_eq!(identify(&[0x0a, 4, 8, 1, 16, 2]), None);
        assert_eq!(identify(b""), None);
    }
}
