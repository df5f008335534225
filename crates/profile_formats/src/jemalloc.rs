//! Heap profiles of jemalloc (`heap_v2/RATE`): for each stack, the sums of all threads.
//!
//! As in jeprof, sampled allocations are scaled up. Without `prof_accum`, the sums of all allocations are 0.

use tributary_profiles::id::AttributeSetId;

use crate::builder::Builder;
use crate::error::Fault;
use crate::maps::Maps;
use crate::text::{addresses, first_line, four_numbers, lines, unsampled};

const PREFIX: &str = "heap_v2/";

pub(crate) fn begins_like(bytes: &[u8]) -> bool {
    first_line(bytes).starts_with(PREFIX.as_bytes())
}

pub(crate) fn read(bytes: &[u8], builder: &mut Builder<'_>) -> Result<(), Fault> {
    let mut lines = lines(bytes).filter(|(_, line)| !line.is_empty());
    let (number, line) = lines.next().unwrap_or_default();
    let rate = line
        .strip_prefix(PREFIX)
        .and_then(|rate| rate.trim().parse().ok());
    let rate: i64 =
        rate.ok_or_else(|| Fault::line(number, "the first line must be `heap_v2/RATE`"))?;
    let columns = [
        "inuse_objects",
        "inuse_space",
        "alloc_objects",
        "alloc_space",
    ];
    let units = ["count", "bytes", "count", "bytes"];
    let types = columns.into_iter().zip(units);
    let mut has_allocations = false;
    let mut maps = Maps::behind(bytes, builder)?;
    let mut stack = None;
    let mut locations = Vec::new();
    for (number, line) in lines {
        let line = line.trim_start();
        if line.starts_with("MAPPED_LIBRARIES:") {
            break;
        }
        if let Some(of) = line.strip_prefix('@') {
            let of = addresses(of);
            stack = Some(of.ok_or_else(|| Fault::line(number, "a stack has an invalid address"))?);
            continue;
        }
        let Some((thread, numbers)) = line.split_once(':') else {
            return Err(Fault::line(
                number,
                "a line must be `@ ADDRESS...` or `THREAD: NUMBERS`",
            ));
        };
        // The sum of all threads; those before the first stack are the sums of all stacks.
        if thread != "t*" {
            continue;
        }
        let Some(([live, live_bytes, all, all_bytes], _)) = four_numbers(numbers) else {
            let problem = "numbers must be `OBJECTS: BYTES [OBJECTS: BYTES]`";
            return Err(Fault::line(number, problem));
        };
        let Some(addresses) = stack.take() else {
            has_allocations = all != 0;
            continue;
        };
        let live = unsampled(live, live_bytes, rate);
        let all = unsampled(all, all_bytes, rate);
        maps.stack(builder, &addresses, true, &mut locations)?;
        let values = [live.0, live.1, all.0, all.1];
        let kept = if has_allocations { 4 } else { 2 };
        let values = types.clone().zip(values).take(kept);
        let values: Vec<_> = values
            .map(|((kind, unit), value)| Ok((builder.sample_type(kind, unit)?, value)))
            .collect::<Result<_, Fault>>()?;
        builder.sample(&locations, AttributeSetId::default(), &values)?;
    }
    builder.period("space", "bytes", rate.max(1));
    Ok(())
}
