//! Heap profiles as text: of gperftools (`@ heapprofile`, `@ heap_v2/RATE`, `@ growthz`), and of Go with `debug=1`
//! (`@ heap/RATE`).
//!
//! As in pprof, sampled allocations are scaled up, and the sample types are those of allocations and of live memory, or
//! only `objects` and `space` if the file does not distinguish them.

use crate::builder::Builder;
use crate::error::Fault;
use crate::go_text::Symbols;
use crate::maps::Maps;
use crate::text::{addresses, first_line, four_numbers, lines, unsampled};

const PREFIX: &str = "heap profile:";

pub(crate) fn begins_like(bytes: &[u8]) -> bool {
    first_line(bytes).starts_with(PREFIX.as_bytes())
}

/// The first line of a file.
struct Header {
    /// Mean number of bytes between samples; 1 if there is no sampling.
    rate: i64,
    has_allocations: bool,
}

impl Header {
    fn parse(line: &str) -> Option<Header> {
        let (numbers, rest) = four_numbers(line.strip_prefix(PREFIX)?)?;
        let (kind, rate) = match rest.strip_prefix('@')?.trim().split_once('/') {
            Some((kind, rate)) => (kind, rate.parse().ok()?),
            None => (rest.strip_prefix('@')?.trim(), 0),
        };
        let rate = match kind {
            "heapz_v2" | "heap_v2" => rate,
            // Go writes twice the rate.
            "heap" => rate / 2,
            "heapprofile" | "growth" | "growthz" | "fragmentation" | "fragmentationz" => 1,
            _ => return None,
        };
        let [live, live_bytes, all, all_bytes] = numbers;
        let has_allocations =
            (all != live && all != 0) || (all_bytes != live_bytes && all_bytes != 0);
        Some(Header {
            rate,
            has_allocations,
        })
    }
}

pub(crate) fn read(bytes: &[u8], builder: &mut Builder<'_>) -> Result<(), Fault> {
    let mut lines = lines(bytes).filter(|(_, line)| !line.is_empty());
    let (number, line) = lines.next().unwrap_or_default();
    let header = Header::parse(&line).ok_or_else(|| {
        let line = line.chars().take(80).collect::<String>();
        Fault::line(
            number,
            format!("`{line}` is not the first line of a heap profile"),
        )
    })?;
    let types: &[(&str, &str)] = match header.has_allocations {
        true => &[
            ("alloc_objects", "count"),
            ("alloc_space", "bytes"),
            ("inuse_objects", "count"),
            ("inuse_space", "bytes"),
        ],
        false => &[("objects", "count"), ("space", "bytes")],
    };
    let columns: Vec<usize> = types
        .iter()
        .map(|(kind, unit)| builder.sample_type(kind, unit))
        .collect::<Result<_, _>>()?;
    builder.period("space", "bytes", header.rate.max(1));
    let mut maps = Maps::behind(bytes, builder)?;
    let mut symbols = Symbols::default();
    for (number, line) in lines {
        let line = line.trim_start();
        if line.starts_with("MAPPED_LIBRARIES:") || line.starts_with("---") {
            break;
        }
        if line.starts_with('#') {
            symbols.add(builder, line)?;
            continue;
        }
        symbols.flush(builder, &mut maps)?;
        let sample = four_numbers(line)
            .and_then(|(numbers, rest)| Some((numbers, addresses(rest.strip_prefix('@')?)?)));
        let Some(([live, live_bytes, all, all_bytes], addresses)) = sample else {
            let problem = "a sample must be `OBJECTS: BYTES [OBJECTS: BYTES] @ ADDRESS...`";
            return Err(Fault::line(number, problem));
        };
        let live = unsampled(live, live_bytes, header.rate);
        let all = unsampled(all, all_bytes, header.rate);
        let values = match header.has_allocations {
            true => vec![all.0, all.1, live.0, live.1],
            false => vec![live.0, live.1],
        };
        let values = columns.iter().copied().zip(values).collect();
        symbols.begin(addresses, values);
    }
    symbols.flush(builder, &mut maps)?;
    Ok(())
}
