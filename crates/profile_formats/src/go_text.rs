//! Text profiles of Go with `debug=1`: goroutines, threads, contention. gperftools' contention profiles have the same
//! form.
//!
//! A sample is a line of values and addresses. Comments below the sample name its frames.

use std::collections::BTreeMap;

use tributary_profiles::id::{AttributeSetId, LocationId};

use crate::builder::{Builder, Frame};
use crate::error::Fault;
use crate::maps::Maps;
use crate::text::{addresses, first_line, lines};

/// Maximum size of the labels of a sample, in bytes. Longer labels are ignored.
const LABELS: usize = 64 << 10;

const CONTENTION: [&str; 3] = ["--- contentionz ", "--- contention:", "--- mutex:"];

pub(crate) fn begins_like(bytes: &[u8]) -> bool {
    let line = str::from_utf8(first_line(bytes)).unwrap_or_default();
    CONTENTION.iter().any(|prefix| line.starts_with(prefix)) || counted(line).is_some()
}

/// Returns the name of a profile that counts, such as `goroutine`.
fn counted(line: &str) -> Option<&str> {
    let (name, total) = line.split_once(" profile: total ")?;
    let is_name = !name.is_empty() && !name.contains(char::is_whitespace);
    (is_name && total.bytes().all(|byte| byte.is_ascii_digit())).then_some(name)
}

pub(crate) fn read(bytes: &[u8], builder: &mut Builder<'_>) -> Result<(), Fault> {
    let mut lines = lines(bytes).filter(|(_, line)| !line.is_empty());
    let (number, line) = lines.next().unwrap_or_default();
    let name = counted(&line).map(str::to_owned);
    if name.is_none() && !CONTENTION.iter().any(|prefix| line.starts_with(prefix)) {
        return Err(Fault::line(
            number,
            "the first line does not name a profile",
        ));
    }
    let columns = match &name {
        Some(name) => vec![builder.sample_type(name, "count")?],
        None => vec![
            builder.sample_type("contentions", "count")?,
            builder.sample_type("delay", "nanoseconds")?,
        ],
    };
    let mut maps = Maps::behind(bytes, builder)?;
    let (mut symbols, mut scale) = (Symbols::default(), Scale::default());
    for (number, line) in lines {
        let line = line.trim_start();
        if line.starts_with("---") || line.starts_with("MAPPED_LIBRARIES:") {
            break;
        }
        if line.starts_with('#') {
            symbols.add(builder, line)?;
            continue;
        }
        symbols.flush(builder, &mut maps)?;
        let problem = "a sample must be `VALUES @ ADDRESS...`";
        let fault = || Fault::line(number, problem);
        let Some((values, stack)) = line.split_once('@') else {
            if name.is_none() && scale.set(line, builder) {
                continue;
            }
            return Err(fault());
        };
        let parsed: Option<Vec<i64>> = values
            .split_ascii_whitespace()
            .take(3)
            .map(|value| value.parse().ok())
            .collect();
        let values = match (parsed.as_deref(), &name) {
            (Some([count]), Some(_)) => vec![*count],
            (Some([cycles, count]), None) => scale.apply(*cycles, *count),
            _ => return Err(fault()),
        };
        let values = columns.iter().copied().zip(values).collect();
        symbols.begin(addresses(stack).ok_or_else(fault)?, values);
    }
    symbols.flush(builder, &mut maps)
}

/// Conversion of sampled contentions.
#[derive(Debug)]
struct Scale {
    cycles_per_second: i64,
    period: i64,
}

impl Default for Scale {
    fn default() -> Self {
        Scale {
            cycles_per_second: 0,
            period: 1,
        }
    }
}

impl Scale {
    /// Reads a line `KEY=VALUE`.
    fn set(&mut self, line: &str, builder: &mut Builder<'_>) -> bool {
        let Some((key, value)) = line.split_once('=') else {
            return false;
        };
        let Ok(value) = value.trim().parse::<i64>() else {
            return false;
        };
        match key.trim() {
            "cycles/second" => self.cycles_per_second = value,
            "sampling period" => self.period = value,
            "ms since reset" => {
                let duration = value.max(0).saturating_mul(1_000_000);
                builder.cover(0, duration.cast_unsigned());
            }
            "discarded samples" => {}
            _ => return false,
        }
        true
    }

    /// Returns the contentions and their delay in nanoseconds, as pprof computes them.
    fn apply(&self, cycles: i64, count: i64) -> Vec<i64> {
        if self.period <= 0 {
            return vec![count, cycles];
        }
        let delay = match self.cycles_per_second {
            0 => cycles,
            hertz => (cycles as f64 * self.period as f64 / (hertz as f64 / 1e9)) as i64,
        };
        vec![count.saturating_mul(self.period), delay]
    }
}

/// Addresses and values of a sample.
#[derive(Debug)]
struct Waiting {
    stack: Vec<u64>,
    values: Vec<(usize, i64)>,
}

/// A sample that waits for the names of its frames.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    sample: Option<Waiting>,
    named: Vec<LocationId>,
    attributes: AttributeSetId,
}

impl Symbols {
    /// Begins a sample.
    pub(crate) fn begin(&mut self, stack: Vec<u64>, values: Vec<(usize, i64)>) {
        self.sample = Some(Waiting { stack, values });
        self.named.clear();
        self.attributes = AttributeSetId::default();
    }

    /// Reads a comment: `# ADDRESS NAME+OFFSET FILE:LINE`, or `# labels: {"KEY":"VALUE"}`.
    pub(crate) fn add(&mut self, builder: &mut Builder<'_>, line: &str) -> Result<(), Fault> {
        if self.sample.is_none() {
            return Ok(());
        }
        let line = line.trim_start_matches('#').trim_start();
        if let Some(labels) = line.strip_prefix("labels:") {
            let labels = labels.trim();
            if labels.len() > LABELS {
                return Ok(());
            }
            let labels: BTreeMap<String, String> = serde_json::from_str(labels).unwrap_or_default();
            let mut attributes = Vec::new();
            for (key, value) in labels {
                attributes.push(builder.text(&key, &value)?);
            }
            self.attributes = builder.dictionary.attribute_set(&attributes);
            return Ok(());
        }
        let mut fields = line
            .split('\t')
            .map(str::trim)
            .filter(|field| !field.is_empty());
        let (Some(address), Some(name), Some(place)) =
            (fields.next(), fields.next(), fields.next())
        else {
            return Ok(());
        };
        let address = address
            .strip_prefix("0x")
            .and_then(|of| u64::from_str_radix(of, 16).ok());
        let (filename, number) = place.rsplit_once(':').unwrap_or((place, ""));
        if let Some(address) = address {
            self.named.push(builder.frame(&Frame {
                name: name.rsplit_once("+0x").map_or(name, |(name, _)| name),
                filename,
                line: number.parse().unwrap_or_default(),
                address,
                ..Frame::default()
            })?);
        }
        Ok(())
    }

    /// Adds the sample, with the names if there are some.
    pub(crate) fn flush(
        &mut self,
        builder: &mut Builder<'_>,
        maps: &mut Maps,
    ) -> Result<(), Fault> {
        let Some(Waiting { stack, values }) = self.sample.take() else {
            return Ok(());
        };
        if self.named.is_empty() {
            maps.stack(builder, &stack, true, &mut self.named)?;
        }
        builder.sample(&self.named, self.attributes, &values)
    }
}
