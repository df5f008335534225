//! Reads one unit: its functions, inlined calls and lines.

use std::collections::HashMap;
use std::ops;
use std::rc::Rc;

use gimli::{
    Attribute, AttributeValue, DebugLineOffset, Dwarf, DwarfPackage, DwoId, Unit, UnitHeader,
    UnitType,
};

use super::functions::{Functions, LoadedUnit, Names, Skeleton};
pub(super) use super::unit_error::UnitError;
use super::{Bytes, Read, lines};
use crate::compile::model::{Context, ContextId, Model, NO_CONTEXT, Range, SourcePosition};
use crate::compile::spans::{Row, Span};
use crate::compile::symbol_table::range_containing;
use crate::compile::{CompileError, spans};
use crate::file::NameSource;

/// Files and packages with the split parts of units.
pub(super) struct Splits<'d, 'a> {
    units: HashMap<u64, (&'d Dwarf<Bytes<'a>>, UnitHeader<Bytes<'a>>)>,
    package: Option<&'d DwarfPackage<Bytes<'a>>>,
}

impl<'d, 'a> Splits<'d, 'a> {
    pub(super) fn new(
        files: &'d [Dwarf<Bytes<'a>>],
        package: Option<&'d DwarfPackage<Bytes<'a>>>,
    ) -> Self {
        let mut units = HashMap::new();
        for dwarf in files {
            let mut headers = dwarf.units();
            while let Ok(Some(header)) = headers.next() {
                if let Ok(unit) = dwarf.unit(header)
                    && let Some(id) = unit.dwo_id
                {
                    units.insert(id.0, (dwarf, header));
                }
            }
        }
        Splits { units, package }
    }
}

/// State while reading units.
pub(super) struct Reading<'m> {
    code: &'m [ops::Range<u64>],
    model: &'m mut Model,
    read: Read,
    spans: Vec<Span>,
    rows: Vec<Row>,
}

/// An open entry with addresses.
struct Scope {
    depth: isize,
    context: ContextId,
}

#[derive(Default)]
struct Addresses<'a> {
    low: Option<AttributeValue<Bytes<'a>>>,
    high: Option<AttributeValue<Bytes<'a>>>,
    ranges: Option<AttributeValue<Bytes<'a>>>,
}

impl<'m> Reading<'m> {
    pub(super) fn new(code: &'m [ops::Range<u64>], model: &'m mut Model) -> Self {
        Reading {
            code,
            model,
            read: Read::default(),
            spans: Vec::new(),
            rows: Vec::new(),
        }
    }

    pub(super) fn finish(self) -> Read {
        self.read
    }

    pub(super) fn all<'a>(
        &mut self,
        mut functions: Functions<'_, 'a>,
        splits: &Splits<'_, 'a>,
        is_wanted: impl Fn(Option<gimli::DwLang>) -> bool,
    ) -> Result<(), CompileError> {
        for number in 0..functions.headers.len() {
            match self.unit(&mut functions, number, splits, &is_wanted) {
                Ok(()) => self.read.units += 1,
                Err(UnitError::Damaged) => self.read.damaged += 1,
                Err(UnitError::Compile(error)) => return Err(error),
            }
        }
        Ok(())
    }

    fn unit<'a>(
        &mut self,
        functions: &mut Functions<'_, 'a>,
        number: usize,
        splits: &Splits<'_, 'a>,
        is_wanted: impl Fn(Option<gimli::DwLang>) -> bool,
    ) -> Result<(), UnitError> {
        let header = functions.headers.get(number).map(UnitHeader::type_);
        if matches!(header, Some(UnitType::Type { .. } | UnitType::Partial)) {
            return Ok(());
        }
        let loaded = functions.load(number)?;
        let (dwarf, unit) = (functions.dwarf, &loaded.unit);
        let root = unit.entry(unit.header.root_offset())?;
        let language = match root.attr_value(gimli::DW_AT_language) {
            Some(AttributeValue::Language(language)) => Some(language),
            _ => None,
        };
        if !is_wanted(language) {
            return Ok(());
        }
        self.spans.clear();
        let is_skeleton =
            root.has_attr(gimli::DW_AT_dwo_name) || root.has_attr(gimli::DW_AT_GNU_dwo_name);
        let split = unit.dwo_id.filter(|_| is_skeleton);
        let spans = match split {
            Some(id) => self.split(functions, &loaded, id, splits),
            None => self.entries(functions, &loaded),
        };
        let code = self.code;
        let is_code = |address| range_containing(code, address).is_some();
        let files = &mut loaded.files.borrow_mut();
        let lines = lines::read(dwarf, unit, files, is_code, self.model, &mut self.rows);
        self.emit()?;
        spans.and(lines)
    }

    /// Reads a unit whose entries are in a split file. If the file is missing, reads the entries of the skeleton.
    fn split<'d, 'a>(
        &mut self,
        functions: &mut Functions<'d, 'a>,
        skeleton: &Rc<LoadedUnit<'d, 'a>>,
        id: DwoId,
        splits: &Splits<'_, 'a>,
    ) -> Result<(), UnitError> {
        let packaged;
        let (dwarf, header) = match (splits.units.get(&id.0), splits.package) {
            (Some((dwarf, header)), _) => (*dwarf, *header),
            (None, Some(package)) => {
                let Some(dwarf) = package.find_cu(id, functions.dwarf)? else {
                    self.read.missing += 1;
                    return self.entries(functions, skeleton);
                };
                packaged = dwarf;
                let header = packaged.units().next()?;
                (&packaged, header.ok_or(UnitError::Damaged)?)
            }
            (None, None) => {
                self.read.missing += 1;
                return self.entries(functions, skeleton);
            }
        };
        let mut unit = dwarf.unit(header)?;
        unit.copy_relocated_attributes(&skeleton.unit);
        // File numbers refer to the skeleton's table, whose strings are in the skeleton's sections. From DWARF 5 on,
        // GCC writes a single table into the split file, and no attribute points to the table. LLVM writes such a table
        // for type units only.
        if unit.line_program.is_none() && unit.header.version() >= 5 && is_of_gcc(dwarf, &unit)? {
            let (size, directory, name) = (unit.header.address_size(), unit.comp_dir, unit.name);
            let own = dwarf
                .debug_line
                .program(DebugLineOffset(0), size, directory, name);
            unit.line_program = own.ok();
        }
        unit.comp_dir = unit.comp_dir.or(skeleton.unit.comp_dir);
        let files = unit.line_program.is_none().then(|| Skeleton {
            loaded: Rc::clone(skeleton),
            dwarf: functions.dwarf,
        });
        let mut functions = Functions::new(dwarf);
        self.entries(&mut functions, &LoadedUnit::new(unit, files))
    }

    /// Reads the functions and inlined calls of a unit into spans.
    fn entries<'d, 'a>(
        &mut self,
        functions: &mut Functions<'d, 'a>,
        loaded: &Rc<LoadedUnit<'d, 'a>>,
    ) -> Result<(), UnitError> {
        let mut scopes: Vec<Scope> = Vec::new();
        let mut entries = loaded.unit.entries_raw(None)?;
        while !entries.is_empty() {
            let depth = entries.next_depth();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            // Every entry closes the entries that do not enclose it, even if the entry is not used: sibling blocks have
            // the same depth.
            while scopes.last().is_some_and(|scope| scope.depth >= depth) {
                scopes.pop();
            }
            let inlined = match abbreviation.tag() {
                gimli::DW_TAG_subprogram => false,
                gimli::DW_TAG_inlined_subroutine => true,
                _ => {
                    entries.skip_attributes(abbreviation.attributes())?;
                    continue;
                }
            };
            let mut addresses = Addresses::default();
            let mut names = Names::default();
            let mut call = SourcePosition::default();
            let mut target = None;
            for specification in abbreviation.attributes() {
                let attribute = entries.read_attribute_inline(*specification)?;
                if addresses.take(&attribute) {
                    continue;
                }
                let number = || attribute.udata_value().unwrap_or_default();
                let small = || u32::try_from(number()).unwrap_or_default();
                match attribute.name() {
                    gimli::DW_AT_call_file => {
                        call.file = loaded.file(functions.dwarf, number(), self.model);
                    }
                    gimli::DW_AT_call_line => call.line = small(),
                    gimli::DW_AT_call_column => call.column = small(),
                    _ => names.take(functions.dwarf, loaded, &attribute, &mut target, self.model),
                }
            }
            if addresses.low.is_none() && addresses.ranges.is_none() {
                // A declaration or an abstract function has no code, and neither do calls inlined into it.
                if !inlined {
                    scopes.push(Scope {
                        depth,
                        context: NO_CONTEXT,
                    });
                }
                continue;
            }
            let before = self.spans.len();
            self.addresses(functions.dwarf, loaded, &addresses, depth)?;
            if self.spans.len() == before {
                scopes.push(Scope {
                    depth,
                    context: NO_CONTEXT,
                });
                continue;
            }
            let function = match (inlined, target) {
                (true, Some(target)) => functions.get(loaded, target, self.model)?,
                _ => functions.resolve(loaded, names, target, self.model)?,
            };
            let parent = match inlined {
                true => scopes.last().map_or(NO_CONTEXT, |scope| scope.context),
                false => NO_CONTEXT,
            };
            self.model.spend(1)?;
            let context = self.model.context(Context {
                function,
                parent,
                call,
            });
            // Of several ranges, the first contains the entry point (DWARF 5, 2.17.3).
            if let Some(entry) = self.spans.get(before).filter(|_| !inlined) {
                self.model.entry(entry.start, context);
            }
            for span in self.spans.iter_mut().skip(before) {
                span.context = context;
            }
            scopes.push(Scope { depth, context });
        }
        Ok(())
    }

    /// Appends the address ranges of an entry to the spans.
    fn addresses<'a>(
        &mut self,
        dwarf: &Dwarf<Bytes<'a>>,
        loaded: &LoadedUnit<'_, 'a>,
        addresses: &Addresses<'a>,
        depth: isize,
    ) -> Result<(), UnitError> {
        let unit = &loaded.unit;
        if let Some(ranges) = addresses.ranges {
            let Some(mut ranges) = dwarf.attr_ranges(unit, ranges)? else {
                return Ok(());
            };
            while let Some(range) = ranges.next()? {
                self.span(range.begin, range.end, depth)?;
            }
            return Ok(());
        }
        let low = addresses.low.map(|low| dwarf.attr_address(unit, low));
        let Some(Some(low)) = low.transpose()? else {
            return Ok(());
        };
        let high = match addresses.high {
            None => return Ok(()),
            Some(AttributeValue::Udata(length)) => low.checked_add(length),
            Some(high) => match dwarf.attr_address(unit, high)? {
                Some(high) => Some(high),
                None => high
                    .udata_value()
                    .and_then(|length| low.checked_add(length)),
            },
        };
        match high {
            Some(high) => self.span(low, high, depth),
            None => Ok(()),
        }
    }

    fn span(&mut self, start: u64, end: u64, depth: isize) -> Result<(), UnitError> {
        // If a linker drops a function, the debug information of the function stays, at an address near 0.
        let Some(code) = range_containing(self.code, start) else {
            return Ok(());
        };
        let end = end.min(code.end);
        if start < end {
            self.model.spend(1)?;
            let context = NO_CONTEXT;
            self.spans.push(Span {
                start,
                end,
                depth,
                context,
            });
        }
        Ok(())
    }

    /// Combines the spans and rows of a unit into ranges.
    fn emit(&mut self) -> Result<(), CompileError> {
        let ranges = &mut self.read.ranges;
        let before = ranges.len();
        spans::pieces(&mut self.spans, &self.rows, &mut |piece| {
            let place = piece.row.map_or(SourcePosition::default(), |row| row.place);
            if let Some(last) = ranges.get_mut(before..).and_then(<[Range]>::last_mut)
                && (last.end, last.context, last.place) == (piece.start, piece.context, place)
            {
                last.end = piece.end;
                return;
            }
            ranges.push(Range {
                start: piece.start,
                end: piece.end,
                context: piece.context,
                place,
                source: NameSource::Dwarf,
            });
        });
        self.model.spend((self.read.ranges.len() - before) as u64)
    }
}

fn is_of_gcc<'a>(dwarf: &Dwarf<Bytes<'a>>, unit: &Unit<Bytes<'a>>) -> Result<bool, UnitError> {
    let root = unit.entry(unit.header.root_offset())?;
    let producer = root.attr_value(gimli::DW_AT_producer);
    let producer = producer.and_then(|value| dwarf.attr_string(unit, value).ok());
    Ok(producer.is_some_and(|producer| producer.slice().starts_with(b"GNU ")))
}

impl<'a> Addresses<'a> {
    /// Takes the value of an attribute about addresses. Returns false for any other attribute.
    fn take(&mut self, attribute: &Attribute<Bytes<'a>>) -> bool {
        let place = match attribute.name() {
            gimli::DW_AT_low_pc => &mut self.low,
            gimli::DW_AT_high_pc => &mut self.high,
            gimli::DW_AT_ranges => &mut self.ranges,
            _ => return false,
        };
        *place = Some(attribute.value());
        true
    }
}
