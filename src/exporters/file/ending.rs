//! Inspection of the end of an existing file, to find the position of the next request.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use serde::de::IgnoredAny;

/// Separation of the requests in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// Each request ends with a newline.
    Lines,
    /// Each request follows its length in 4 bytes, most significant first.
    Lengths,
}

/// The end of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The next request can follow.
    Whole,
    /// The last line is complete except for its newline.
    Unended,
    /// The bytes from this offset are an incomplete request, which was never acknowledged.
    Part(u64),
    /// The file has no complete request, so it may have another format.
    Foreign,
}

/// Maximum number of inspected bytes of the last line.
const MAX_LINE_BYTES: u64 = 64 << 20;
const CHUNK: u64 = 64 << 10;

/// Returns the kind of ending of the first `len` bytes of the file.
pub(super) fn ending(file: &File, len: u64, framing: Framing) -> io::Result<Ending> {
    if len == 0 {
        return Ok(Ending::Whole);
    }
    match framing {
        Framing::Lines => of_lines(file, len),
        Framing::Lengths => of_lengths(file, len),
    }
}

fn of_lines(file: &File, len: u64) -> io::Result<Ending> {
    let mut tail: Vec<u8> = Vec::new();
    let mut start = len;
    let mut line = None;
    while line.is_none() && start > 0 && len - start < MAX_LINE_BYTES {
        let from = start.saturating_sub(CHUNK);
        let mut chunk = vec![0; usize::try_from(start - from).unwrap_or_default()];
        file.read_exact_at(&mut chunk, from)?;
        line = memchr::memrchr(b'\n', &chunk).map(|at| from + at as u64 + 1);
        chunk.append(&mut tail);
        (tail, start) = (chunk, from);
    }
    if line == Some(len) {
        return Ok(Ending::Whole);
    }
    let from = usize::try_from(line.unwrap_or(start) - start).unwrap_or_default();
    let text = tail.get(from..).unwrap_or_default();
    Ok(match (serde_json::from_slice::<IgnoredAny>(text), line) {
        (Ok(_), _) => Ending::Unended,
        (Err(_), Some(at)) => Ending::Part(at),
        (Err(_), None) => Ending::Foreign,
    })
}

fn of_lengths(file: &File, len: u64) -> io::Result<Ending> {
    let mut at = 0;
    while at < len {
        let mut prefix = [0; 4];
        let next = match len - at {
            0..4 => None,
            left => {
                file.read_exact_at(&mut prefix, at)?;
                let size = u64::from(u32::from_be_bytes(prefix));
                (size <= left - 4).then_some(at + 4 + size)
            }
        };
        match next {
            Some(next) => at = next,
            None if at == 0 => return Ok(Ending::Foreign),
            None => return Ok(Ending::Part(at)),
        }
    }
    Ok(Ending::Whole)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn of(content: &[u8], framing: Framing) -> Ending {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        ending(&file, content.len() as u64, framing).unwrap()
    }

    #[test]
    fn half_a_line_is_found_and_a_whole_one_is_kept() {
        let of = |text: &str| of(text.as_bytes(), Framing::Lines);
        assert_eq!(of(""), Ending::Whole);
        assert_eq!(of("{}\n"), Ending::Whole);
        assert_eq!(of("{}\n{\"a\":1}"), Ending::Unended);
        assert_eq!(of("{}\n{\"a\""), Ending::Part(3));
        assert_eq!(of("{\"a\""), Ending::Foreign);
        let long = format!("{{}}\n\"{}", "x".repeat(200_000));
        assert_eq!(of(&long), Ending::Part(3));
        assert_eq!(of(&format!("{long}\"")), Ending::Unended);
    }

    #[test]
    fn half_a_message_is_found() {
        let of = |bytes: &[u8]| of(bytes, Framing::Lengths);
        assert_eq!(of(b"\0\0\0\x02ab"), Ending::Whole);
        assert_eq!(of(b"\0\0\0\x02ab\0\0\0\0"), Ending::Whole);
        for cut in 7..11 {
            assert_eq!(of(&b"\0\0\0\x02ab\0\0\0\x02c"[..cut]), Ending::Part(6));
        }
        assert_eq!(of(b"{\"resourceSpans\""), Ending::Foreign);
        assert_eq!(of(b"\0\0"), Ending::Foreign);
    }
}
