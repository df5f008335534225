//! Profiles of callgrind, and of other tools that write its format: costs of each function and line.
//!
//! The format has calls between functions, but no stacks. Therefore each sample is the own cost of a line, and the stack
//! is its function alone. The format is described in `callgrind/docs/cl-format.xml` of Valgrind.

use std::collections::HashMap;
use std::rc::Rc;

use foldhash::fast::RandomState;
use tributary_profiles::id::AttributeSetId;

use crate::builder::{Builder, Frame};
use crate::error::Fault;
use crate::json::contains;
use crate::text::{first_line, lines};

/// Maximum number of events of a file, and of positions of a line.
const COLUMNS: usize = 64;
/// Memory of a name in a table that may be half empty, in bytes, besides its text.
const NAME: usize = 96;

pub(crate) fn begins_like(bytes: &[u8]) -> bool {
    let start = bytes.get(..8 << 10).unwrap_or(bytes);
    bytes.trim_ascii_start().starts_with(b"# callgrind format")
        || (contains(start, "\nevents:") && {
            let line = first_line(bytes);
            ["version:", "creator:", "positions:", "cmd:", "pid:"]
                .iter()
                .any(|key| line.starts_with(key.as_bytes()))
        })
}

/// Names by number: `(7) main` names 7, and `(7)` refers to it.
#[derive(Debug, Default)]
struct Names(HashMap<u64, Rc<str>, RandomState>);

impl Names {
    fn get(&mut self, text: &str, builder: &mut Builder<'_>) -> Result<Rc<str>, Fault> {
        let text = text.trim();
        let number = text.strip_prefix('(').and_then(|text| text.split_once(')'));
        let number = number.and_then(|(number, name)| Some((number.parse().ok()?, name.trim())));
        match number {
            None => Ok(text.into()),
            Some((number, "")) => Ok(self.0.get(&number).cloned().unwrap_or_default()),
            Some((number, name)) => {
                builder.grow(NAME + name.len())?;
                let name: Rc<str> = name.into();
                self.0.insert(number, Rc::clone(&name));
                Ok(name)
            }
        }
    }
}

#[derive(Debug, Default)]
struct Reader {
    objects: Names,
    files: Names,
    functions: Names,
    object: Rc<str>,
    file: Rc<str>,
    function: Rc<str>,
    columns: Vec<usize>,
    /// Positions that precede the costs: a line, and an instruction before it.
    positions: Vec<u64>,
    has_instructions: bool,
    /// Whether the next line of costs belongs to a call.
    is_call: bool,
}

pub(crate) fn read(bytes: &[u8], builder: &mut Builder<'_>) -> Result<(), Fault> {
    let mut reader = Reader {
        positions: vec![0],
        ..Reader::default()
    };
    for (number, line) in lines(bytes) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        reader.line(line, builder).map_err(|fault| match fault {
            Fault::Whole(problem) => Fault::line(number, problem),
            fault => fault,
        })?;
    }
    match reader.columns.is_empty() {
        true => Err(Fault::whole("the line `events:` is missing")),
        false => Ok(()),
    }
}

impl Reader {
    fn line(&mut self, line: &str, builder: &mut Builder<'_>) -> Result<(), Fault> {
        if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            return self.costs(line, builder);
        }
        if let Some((key, name)) = line.split_once('=') {
            match key {
                "ob" => self.object = self.objects.get(name, builder)?,
                "fl" | "fi" | "fe" => self.file = self.files.get(name, builder)?,
                "fn" => self.function = self.functions.get(name, builder)?,
                // Names of called functions define numbers.
                "cob" => drop(self.objects.get(name, builder)?),
                "cfi" | "cfl" => drop(self.files.get(name, builder)?),
                "cfn" => drop(self.functions.get(name, builder)?),
                "calls" => self.is_call = true,
                _ => {}
            }
            return Ok(());
        }
        match line.split_once(':') {
            Some(("events", events)) => {
                let events: Vec<&str> = events.split_ascii_whitespace().collect();
                if events.is_empty() || events.len() > COLUMNS {
                    return Err(Fault::whole(format!("there must be 1 to {COLUMNS} events")));
                }
                self.columns = events
                    .iter()
                    .map(|event| builder.sample_type(event, "count"))
                    .collect::<Result<_, _>>()?;
            }
            Some(("positions", positions)) => {
                self.has_instructions = positions.contains("instr");
                let count = positions.split_ascii_whitespace().count();
                self.positions = vec![0; count.clamp(1, COLUMNS)];
            }
            Some(_) => {}
            None => return Err(Fault::whole("the line has no costs, no `=` and no `:`")),
        }
        Ok(())
    }

    fn costs(&mut self, line: &str, builder: &mut Builder<'_>) -> Result<(), Fault> {
        let mut words = line.split_ascii_whitespace();
        for position in &mut self.positions {
            let word = words.next().unwrap_or("*");
            let invalid = || Fault::whole(format!("`{word}` is not a position"));
            *position = match word.as_bytes().first() {
                Some(b'*') => *position,
                Some(b'+') => position.wrapping_add(number(&word[1..]).ok_or_else(invalid)?),
                Some(b'-') => position.wrapping_sub(number(&word[1..]).ok_or_else(invalid)?),
                _ => number(word).ok_or_else(invalid)?,
            };
        }
        // The costs of a call belong to the called functions.
        if std::mem::take(&mut self.is_call) {
            return Ok(());
        }
        let mut values = Vec::new();
        for (column, word) in self.columns.iter().zip(words) {
            let value = number(word).and_then(|value| i64::try_from(value).ok());
            let invalid = || Fault::whole(format!("`{word}` is not a cost"));
            values.push((*column, value.ok_or_else(invalid)?));
        }
        let mapping = match &*self.object {
            "" => Default::default(),
            object => builder.mapping(0..0, 0, object)?,
        };
        let line = self.positions.last().copied().unwrap_or_default();
        let address = self.positions.first().filter(|_| self.has_instructions);
        let location = builder.frame(&Frame {
            name: &self.function,
            filename: if &*self.file == "???" { "" } else { &self.file },
            line: i64::try_from(line).unwrap_or_default(),
            address: address.copied().unwrap_or_default(),
            mapping,
            ..Frame::default()
        })?;
        builder.sample(&[location], AttributeSetId::default(), &values)
    }
}

/// Parses a decimal number, or a hexadecimal one that begins with `0x`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(text) => u64::from_str_radix(text, 16).ok(),
        None => text.parse().ok(),
    }
}
