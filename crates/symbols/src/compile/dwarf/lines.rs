//! Reads line programs, which assign lines to addresses.

use gimli::{ColumnType, Dwarf, LineProgramHeader, Unit};

use super::Bytes;
use super::unit_error::UnitError;
use crate::compile::model::{FileId, Model, SourcePosition};
use crate::compile::spans::Row;

#[derive(Debug, Default)]
pub(super) struct Files {
    /// Files that were looked up, by number.
    known: Vec<Option<FileId>>,
    path: Vec<u8>,
}

impl Files {
    /// Returns the path of a file: the compilation directory, the file's directory and its name. An absolute
    /// part replaces the parts before it.
    pub(super) fn get(
        &mut self,
        dwarf: &Dwarf<Bytes<'_>>,
        unit: &Unit<Bytes<'_>>,
        number: u64,
        model: &mut Model,
    ) -> FileId {
        let Some(program) = &unit.line_program else {
            return 0;
        };
        let header = program.header();
        // File numbers begin with 0 or 1; larger numbers are invalid.
        let count = header.file_names().len();
        let Some(index) = usize::try_from(number).ok().filter(|index| *index <= count) else {
            return 0;
        };
        if self.known.is_empty() {
            self.known.resize(count + 1, None);
        }
        if let Some(Some(known)) = self.known.get(index) {
            return *known;
        }
        self.path.clear();
        let file = match render(dwarf, unit, header, number, &mut self.path) {
            Some(()) => model.strings.add(&self.path),
            None => 0,
        };
        if let Some(known) = self.known.get_mut(index) {
            *known = Some(file);
        }
        file
    }
}

fn render(
    dwarf: &Dwarf<Bytes<'_>>,
    unit: &Unit<Bytes<'_>>,
    header: &LineProgramHeader<Bytes<'_>>,
    number: u64,
    path: &mut Vec<u8>,
) -> Option<()> {
    let file = header.file(number)?;
    if let Some(directory) = unit.comp_dir {
        push(path, directory.slice());
    }
    // Directory 0 is the compilation directory.
    if file.directory_index() != 0
        && let Some(directory) = file.directory(header)
        && let Ok(directory) = dwarf.attr_string(unit, directory)
    {
        push(path, directory.slice());
    }
    let name = dwarf.attr_string(unit, file.path_name()).ok()?;
    push(path, name.slice());
    Some(())
}

/// Appends to a path; an absolute part replaces the path.
fn push(path: &mut Vec<u8>, part: &[u8]) {
    if part.starts_with(b"/") {
        path.clear();
    } else if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(part);
}

/// Reads the line program of a unit into sorted `rows`. Sequences outside of the code (`is_code`) are
/// skipped.
pub(super) fn read(
    dwarf: &Dwarf<Bytes<'_>>,
    unit: &Unit<Bytes<'_>>,
    files: &mut Files,
    is_code: impl Fn(u64) -> bool,
    model: &mut Model,
    rows: &mut Vec<Row>,
) -> Result<(), UnitError> {
    rows.clear();
    let Some(program) = unit.line_program.clone() else {
        return Ok(());
    };
    let mut begins = Vec::new();
    let mut in_sequence = false;
    let mut wanted = false;
    let mut file = (u64::MAX, 0);
    let mut read = program.rows();
    loop {
        let row = match read.next_row() {
            Ok(Some((_, row))) => row,
            Ok(None) => break,
            // The rows before the error are valid.
            Err(error) => {
                finish(rows, &begins, in_sequence && wanted);
                return Err(error.into());
            }
        };
        let address = row.address();
        if !in_sequence {
            in_sequence = true;
            wanted = is_code(address);
            if wanted {
                begins.push(rows.len());
            }
        }
        if row.end_sequence() {
            in_sequence = false;
        }
        if !wanted {
            continue;
        }
        if row.file_index() != file.0 {
            let number = row.file_index();
            file = (number, files.get(dwarf, unit, number, model));
        }
        let column = match row.column() {
            ColumnType::LeftEdge => 0,
            ColumnType::Column(column) => u32::try_from(column.get()).unwrap_or_default(),
        };
        let row = Row {
            address,
            position: SourcePosition {
                file: file.1,
                line: row
                    .line()
                    .map_or(0, |line| u32::try_from(line.get()).unwrap_or_default()),
                column,
            },
            end: row.end_sequence(),
        };
        let first = begins.last() == Some(&rows.len());
        match rows.last_mut().filter(|_| !first) {
            // Of several rows at one address, the last row applies.
            Some(last) if last.address == address => *last = row,
            Some(last) if last.position == row.position && !row.end => {}
            _ => {
                model.spend(1)?;
                rows.push(row);
            }
        }
    }
    finish(rows, &begins, in_sequence && wanted);
    Ok(())
}

/// Sorts the sequences. Of two overlapping sequences, the first sequence stays.
fn finish(rows: &mut Vec<Row>, begins: &[usize], unfinished: bool) {
    if unfinished && let Some(last) = rows.last_mut() {
        last.end = true;
    }
    if rows.is_sorted_by_key(|row| row.address) {
        return;
    }
    let ends = begins.iter().skip(1).copied().chain([rows.len()]);
    let mut sequences: Vec<&mut [Row]> = Vec::new();
    let mut rest = &mut rows[..];
    let mut at = 0;
    for end in ends {
        let (sequence, others) = rest.split_at_mut(end - at);
        sequence.sort_by_key(|row| row.address);
        sequences.push(sequence);
        (rest, at) = (others, end);
    }
    sequences.sort_by_key(|sequence| sequence.first().map(|row| row.address));
    let mut sorted: Vec<Row> = Vec::with_capacity(sequences.iter().map(|rows| rows.len()).sum());
    for sequence in sequences {
        let begin = sequence.first().map(|row| row.address);
        if sorted.last().map(|row| row.address) <= begin {
            sorted.extend_from_slice(sequence);
        }
    }
    *rows = sorted;
}
