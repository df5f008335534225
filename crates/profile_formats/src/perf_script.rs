//! The output of `perf script`: a line for each sample, with its event, and a line for each frame, the leaf first.

use std::borrow::Cow;

use tributary_profiles::id::{AttributeSetId, LocationId};

use crate::builder::{Builder, Frame};
use crate::error::Fault;
use crate::text::{first_line, lines};

/// Attribute with the id of a sample's process.
const PROCESS_ID: &str = "process.pid";

pub(crate) fn begins_like(bytes: &[u8]) -> bool {
    let line = String::from_utf8_lossy(first_line(bytes));
    Header::parse(&line).is_some_and(|header| !header.event.is_empty())
}

/// The line of a sample: `COMMAND PID/TID [CPU] TIME: PERIOD EVENT:`. The process, the CPU and the period may be absent.
#[derive(Debug, PartialEq)]
struct Header<'l> {
    command: &'l str,
    process: Option<i64>,
    thread: i64,
    /// Nanoseconds since an unknown time.
    time: u64,
    period: Option<i64>,
    event: &'l str,
    /// The only frame, in samples without stacks.
    frame: &'l str,
}

impl<'l> Header<'l> {
    fn parse(line: &'l str) -> Option<Self> {
        // The name of the command may have spaces, so the number and the time identify their places.
        let mut rest = line.trim_start();
        loop {
            rest = rest.split_once(' ')?.1.trim_start();
            let command = line.get(..line.len() - rest.len())?;
            if let Some(header) = Header::behind(command.trim(), rest) {
                return Some(header);
            }
        }
    }

    fn behind(command: &'l str, rest: &'l str) -> Option<Self> {
        let (ids, rest) = word(rest)?;
        let (process, thread) = match ids.split_once('/') {
            Some((process, thread)) => (Some(process.parse().ok()?), thread.parse().ok()?),
            None => (None, ids.parse().ok()?),
        };
        let (mut time, mut rest) = word(rest)?;
        if time.starts_with('[') {
            (time, rest) = word(rest)?;
        }
        let time = nanoseconds(time.strip_suffix(':')?)?;
        let (mut event, mut rest) = word(rest)?;
        let period = event.parse().ok();
        if period.is_some() {
            (event, rest) = word(rest)?;
        }
        let event = event.strip_suffix(':')?;
        Some(Header {
            command,
            process,
            thread,
            time,
            period,
            // Modifiers follow the name: `cycles:u`. A tracepoint has a name of two parts: `sched:sched_switch`.
            event: match event.rsplit_once(':') {
                Some((name, modifiers)) if modifiers.chars().all(is_modifier) => name,
                _ => event,
            },
            frame: rest,
        })
    }
}

/// Whether a letter is a modifier of an event: see "EVENT MODIFIERS" of the manual page `perf-list`.
fn is_modifier(letter: char) -> bool {
    "ukhIGHpPSDWeb".contains(letter)
}

/// Splits off the first word.
fn word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    match text.split_once(' ') {
        Some((word, rest)) => Some((word, rest.trim_start())),
        None => (!text.is_empty()).then_some((text, "")),
    }
}

/// Parses seconds with a fraction.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let digits = u32::try_from(fraction.len())
        .ok()
        .filter(|digits| *digits <= 9)?;
    let fraction: u64 = fraction.parse().ok()?;
    let seconds: u64 = seconds.parse().ok()?;
    let fraction = fraction * 10_u64.pow(9 - digits);
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// A line of a frame: `ADDRESS SYMBOL+OFFSET (FILE)`.
#[derive(Debug, PartialEq)]
struct FrameLine<'l> {
    address: u64,
    symbol: &'l str,
    file: &'l str,
}

impl<'l> FrameLine<'l> {
    fn parse(line: &'l str) -> Option<Self> {
        let (address, rest) = word(line)?;
        let address = u64::from_str_radix(address, 16).ok()?;
        let rest = rest.trim_end();
        let (symbol, file) = match rest.strip_suffix(')') {
            Some(inside) => {
                let start = opening(inside)?;
                (inside.get(..start)?, inside.get(start + 1..)?)
            }
            None => (rest, ""),
        };
        let symbol = symbol.trim_end();
        let symbol = match symbol.rsplit_once("+0x") {
            Some((name, offset)) if offset.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
            _ => symbol,
        };
        Some(FrameLine {
            address,
            symbol: if symbol == "[unknown]" { "" } else { symbol },
            file,
        })
    }
}

/// Returns the position of the parenthesis that the missing one at the end closes.
fn opening(inside: &str) -> Option<usize> {
    let mut depth = 0;
    inside.bytes().enumerate().rev().find_map(|(at, byte)| {
        match byte {
            b')' => depth += 1,
            b'(' if depth == 0 => return Some(at),
            b'(' => depth -= 1,
            _ => {}
        }
        None
    })
}

/// The samples of a file in the making.
#[derive(Debug, Default)]
struct Samples<'t> {
    attributes: AttributeSetId,
    values: Vec<(usize, i64)>,
    is_open: bool,
    stack: Vec<LocationId>,
    /// Inlined frames of the next location, with their lines.
    inlined: Vec<Cow<'t, str>>,
    first_event: Option<String>,
    times: Option<(u64, u64)>,
}

pub(crate) fn read(bytes: &[u8], builder: &mut Builder<'_>) -> Result<(), Fault> {
    let mut samples = Samples::default();
    for (number, line) in lines(bytes) {
        if line.starts_with('#') {
            continue;
        }
        if line.is_empty() {
            samples.close(builder)?;
        } else if !line.starts_with([' ', '\t']) || !samples.is_open {
            // A short command is indented.
            samples.close(builder)?;
            let header = Header::parse(&line);
            let header = header.ok_or_else(|| {
                Fault::line(
                    number,
                    "a sample must be `COMMAND PID TIME: PERIOD EVENT:`; do not use --fields",
                )
            })?;
            samples.open(&header, builder)?;
        } else {
            samples.frame(line, number, builder)?;
        }
    }
    samples.close(builder)?;
    if let Some((first, last)) = samples.times {
        builder.cover(0, last.saturating_sub(first));
    }
    Ok(())
}

impl<'t> Samples<'t> {
    fn open(&mut self, header: &Header<'_>, builder: &mut Builder<'_>) -> Result<(), Fault> {
        let event = header.event;
        let first = self.first_event.get_or_insert_with(|| event.to_owned());
        let count = match *first == event {
            true => builder.sample_type("samples", "count")?,
            false => builder.sample_type(&format!("{event}_samples"), "count")?,
        };
        self.values = vec![(count, 1)];
        if let Some(period) = header.period {
            let unit = match event {
                "task-clock" | "cpu-clock" => "nanoseconds",
                _ => "count",
            };
            self.values
                .push((builder.sample_type(event, unit)?, period));
        }
        let mut attributes = vec![
            builder.text(crate::builder::THREAD_NAME, header.command)?,
            builder.number(crate::builder::THREAD_ID, header.thread)?,
        ];
        if let Some(process) = header.process {
            attributes.push(builder.number(PROCESS_ID, process)?);
        }
        self.attributes = builder.dictionary.attribute_set(&attributes);
        let (first, last) = self.times.unwrap_or((header.time, header.time));
        self.times = Some((first.min(header.time), last.max(header.time)));
        self.is_open = true;
        if !header.frame.is_empty() {
            self.frame(Cow::Owned(header.frame.to_owned()), 0, builder)?;
        }
        Ok(())
    }

    fn frame(
        &mut self,
        line: Cow<'t, str>,
        number: usize,
        builder: &mut Builder<'_>,
    ) -> Result<(), Fault> {
        let Some(frame) = FrameLine::parse(&line) else {
            // Output of --srcline, or data of a tracepoint.
            let words = line.split_ascii_whitespace().count();
            return match words == 1 || number == 0 {
                true => Ok(()),
                false => Err(Fault::line(
                    number,
                    "a frame must be `ADDRESS SYMBOL (FILE)`",
                )),
            };
        };
        if frame.file == "inlined" {
            builder.grow(size_of::<Cow<'_, str>>())?;
            self.inlined.push(line);
            return Ok(());
        }
        let mapping = match frame.file {
            "" | "[unknown]" => Default::default(),
            file => builder.mapping(0..0, 0, file)?,
        };
        let mut frames: Vec<Frame<'_>> = Vec::new();
        for inlined in &self.inlined {
            let name = FrameLine::parse(inlined).map_or("", |frame| frame.symbol);
            frames.push(Frame {
                name,
                ..Frame::default()
            });
        }
        frames.push(Frame {
            name: frame.symbol,
            ..Frame::default()
        });
        if let Some(first) = frames.first_mut() {
            first.address = frame.address;
            first.mapping = mapping;
            first.kind = match frame.file.starts_with("[kernel") || frame.file.ends_with(".ko") {
                true => "kernel",
                false => "native",
            };
        }
        let location = builder.frames(&frames)?;
        self.inlined.clear();
        self.stack.push(location);
        Ok(())
    }

    fn close(&mut self, builder: &mut Builder<'_>) -> Result<(), Fault> {
        if self.is_open {
            builder.sample(&self.stack, self.attributes, &self.values)?;
        }
        self.is_open = false;
        self.stack.clear();
        self.inlined.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_has_command_with_spaces_ids_and_event() {
        let header = Header::parse("Web Content 7 12/34 [003] 9.5: 1010 cpu-clock:ppp:").unwrap();
        let expected = Header {
            command: "Web Content 7",
            process: Some(12),
            thread: 34,
            time: 9_500_000_000,
            period: Some(1010),
            event: "cpu-clock",
            frame: "",
        };
        assert_eq!(header, expected);
        let event = |line| Header::parse(line).map(|header| header.event);
        assert_eq!(
            event("a 1 2.000003: sched:sched_switch:"),
            Some("sched:sched_switch")
        );
        assert_eq!(
            event("a 1 2.000003: cycles:u:  ffff main (/a)"),
            Some("cycles")
        );
        assert_eq!(event("a 1 2.000003: irq:entry:"), Some("irq:entry"));
        assert_eq!(event("a 1 2.000003: cycles:ukhppp:"), Some("cycles"));
        assert_eq!(event("main;a 1"), None);
    }

    #[test]
    fn frame_has_symbol_with_parentheses_and_file() {
        let line = "\t  1f a(int) const+0x12 (/memfd:x (deleted))";
        let expected = FrameLine {
            address: 0x1f,
            symbol: "a(int) const",
            file: "/memfd:x (deleted)",
        };
        assert_eq!(FrameLine::parse(line), Some(expected));
        assert_eq!(
            FrameLine::parse(" 1 [unknown] ([unknown])").unwrap().symbol,
            ""
        );
        assert_eq!(FrameLine::parse("work.c:5"), None);
    }
}
