//! Resolves the function of an entry: its names and its declaration.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use gimli::{AttributeValue, DebugInfoOffset, Dwarf, Unit, UnitHeader, UnitOffset, UnitType};

use super::Bytes;
use super::lines::Files;
use super::unit_error::UnitError;
use crate::compile::model::{FileId, Function, FunctionId, Model};

pub(super) struct LoadedUnit<'d, 'a> {
    pub(super) unit: Unit<Bytes<'a>>,
    pub(super) files: RefCell<Files>,
    skeleton: Option<Skeleton<'d, 'a>>,
}

/// The unit whose file table a split unit uses, and the sections with the strings of the table.
pub(super) struct Skeleton<'d, 'a> {
    pub(super) loaded: Rc<LoadedUnit<'d, 'a>>,
    pub(super) dwarf: &'d Dwarf<Bytes<'a>>,
}

impl<'d, 'a> LoadedUnit<'d, 'a> {
    pub(super) fn new(unit: Unit<Bytes<'a>>, skeleton: Option<Skeleton<'d, 'a>>) -> Rc<Self> {
        Rc::new(LoadedUnit {
            unit,
            files: RefCell::default(),
            skeleton,
        })
    }

    pub(super) fn file(&self, dwarf: &Dwarf<Bytes<'a>>, number: u64, model: &mut Model) -> FileId {
        if let Some(skeleton) = &self.skeleton {
            return skeleton.loaded.file(skeleton.dwarf, number, model);
        }
        self.files
            .borrow_mut()
            .get(dwarf, &self.unit, number, model)
    }
}

/// The functions of one file's debug information, by their references.
pub(super) struct Functions<'d, 'a> {
    pub(super) dwarf: &'d Dwarf<Bytes<'a>>,
    pub(super) headers: Vec<UnitHeader<Bytes<'a>>>,
    /// Referenced units, by number. With link-time optimization any unit may be referenced.
    loaded: HashMap<usize, Rc<LoadedUnit<'d, 'a>>>,
    known: HashMap<Target, FunctionId>,
    supplementary: Option<Box<Functions<'d, 'a>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Target {
    Here(DebugInfoOffset),
    Supplementary(DebugInfoOffset),
}

/// Maximum number of referenced units in the cache.
const MAX_CACHED_UNITS: usize = 1024;
/// Maximum length of a chain of references: an abstract origin, its specification, and some reserve.
const LONGEST_CHAIN: usize = 8;

/// Attributes of an entry about its function.
#[derive(Debug, Default)]
pub(super) struct Names<'a> {
    name: Option<Bytes<'a>>,
    linkage_name: Option<Bytes<'a>>,
    file: Option<FileId>,
    line: Option<u32>,
}

impl<'d, 'a> Functions<'d, 'a> {
    pub(super) fn new(dwarf: &'d Dwarf<Bytes<'a>>) -> Self {
        let mut headers = Vec::new();
        let mut units = dwarf.units();
        // Units after a damaged header cannot be located.
        while let Ok(Some(header)) = units.next() {
            headers.push(header);
        }
        let supplementary = dwarf.sup().map(|dwarf| Box::new(Functions::new(dwarf)));
        Functions {
            dwarf,
            headers,
            loaded: HashMap::new(),
            known: HashMap::new(),
            supplementary,
        }
    }

    /// Loads the unit with this number without caching it.
    pub(super) fn load(&self, number: usize) -> Result<Rc<LoadedUnit<'d, 'a>>, UnitError> {
        if let Some(loaded) = self.loaded.get(&number) {
            return Ok(Rc::clone(loaded));
        }
        let header = self.headers.get(number).ok_or(UnitError::Damaged)?;
        Ok(LoadedUnit::new(self.dwarf.unit(*header)?, None))
    }

    pub(super) fn get(
        &mut self,
        here: &Rc<LoadedUnit<'d, 'a>>,
        target: Target,
        model: &mut Model,
    ) -> Result<FunctionId, UnitError> {
        if let Some(known) = self.known.get(&target) {
            return Ok(*known);
        }
        let function = self.resolve(here, Names::default(), Some(target), model)?;
        self.known.insert(target, function);
        Ok(function)
    }

    /// Returns the function with these names, completed from the referenced entries.
    pub(super) fn resolve(
        &mut self,
        here: &Rc<LoadedUnit<'d, 'a>>,
        mut names: Names<'a>,
        mut target: Option<Target>,
        model: &mut Model,
    ) -> Result<FunctionId, UnitError> {
        for _ in 0..LONGEST_CHAIN {
            target = match target {
                None => break,
                Some(Target::Here(at)) => self.entry(Some(here), at, &mut names, model)?,
                Some(Target::Supplementary(at)) => {
                    let Some(supplementary) = &mut self.supplementary else {
                        break;
                    };
                    let next = supplementary.entry(None, at, &mut names, model)?;
                    next.map(|target| match target {
                        Target::Here(at) => Target::Supplementary(at),
                        target => target,
                    })
                }
            };
        }
        let mut add =
            |name: Option<Bytes<'_>>| name.map_or(0, |name| model.strings.add(name.slice()));
        let function = Function {
            name: add(names.name),
            linkage_name: add(names.linkage_name),
            file: names.file.unwrap_or_default(),
            start_line: names.line.unwrap_or_default(),
        };
        Ok(model.function(function))
    }

    /// Reads the entry at an offset; known values stay.
    fn entry(
        &mut self,
        here: Option<&Rc<LoadedUnit<'d, 'a>>>,
        at: DebugInfoOffset,
        names: &mut Names<'a>,
        model: &mut Model,
    ) -> Result<Option<Target>, UnitError> {
        let within =
            |loaded: &&Rc<LoadedUnit<'d, 'a>>| at.to_unit_offset(&loaded.unit.header).is_some();
        let loaded = match here.filter(within) {
            Some(here) => Rc::clone(here),
            None => self.unit_of(at)?,
        };
        let unit = &loaded.unit;
        let offset = at.to_unit_offset(&unit.header).ok_or(UnitError::Damaged)?;
        let mut entries = unit.entries_raw(Some(offset))?;
        let Some(abbreviation) = entries.read_abbreviation()? else {
            return Ok(None);
        };
        let mut target = None;
        for specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(*specification)?;
            names.take(self.dwarf, &loaded, &attribute, &mut target, model);
        }
        Ok(target)
    }

    /// Returns the unit that contains an offset, and caches the unit for later references.
    fn unit_of(&mut self, at: DebugInfoOffset) -> Result<Rc<LoadedUnit<'d, 'a>>, UnitError> {
        let behind = self.headers.partition_point(|header| {
            header
                .debug_info_offset()
                .is_some_and(|offset| offset.0 <= at.0)
        });
        let number = behind.checked_sub(1).ok_or(UnitError::Damaged)?;
        let loaded = self.load(number)?;
        if self.loaded.len() >= MAX_CACHED_UNITS {
            self.loaded.clear();
        }
        self.loaded.insert(number, Rc::clone(&loaded));
        Ok(loaded)
    }
}

impl<'a> Names<'a> {
    /// Takes the value of an attribute, unless the value is known from another entry.
    pub(super) fn take(
        &mut self,
        dwarf: &Dwarf<Bytes<'a>>,
        loaded: &LoadedUnit<'_, 'a>,
        attribute: &gimli::Attribute<Bytes<'a>>,
        target: &mut Option<Target>,
        model: &mut Model,
    ) {
        let unit = &loaded.unit;
        match attribute.name() {
            gimli::DW_AT_name if self.name.is_none() => {
                self.name = dwarf.attr_string(unit, attribute.value()).ok();
            }
            gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name
                if self.linkage_name.is_none() =>
            {
                self.linkage_name = dwarf.attr_string(unit, attribute.value()).ok();
            }
            gimli::DW_AT_decl_file if self.file.is_none() => {
                let number = attribute.udata_value();
                self.file = number.map(|number| loaded.file(dwarf, number, model));
            }
            gimli::DW_AT_decl_line if self.line.is_none() => {
                let line = attribute.udata_value();
                self.line = line.and_then(|line| u32::try_from(line).ok());
            }
            gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                *target = reference(attribute.value(), &unit.header);
            }
            _ => {}
        }
    }
}

pub(super) fn reference(
    value: AttributeValue<Bytes<'_>>,
    header: &UnitHeader<Bytes<'_>>,
) -> Option<Target> {
    match value {
        AttributeValue::UnitRef(offset) => here(offset, header).map(Target::Here),
        AttributeValue::DebugInfoRef(offset) => Some(Target::Here(offset)),
        AttributeValue::DebugInfoRefSup(offset) => Some(Target::Supplementary(offset)),
        _ => None,
    }
}

fn here(offset: UnitOffset, header: &UnitHeader<Bytes<'_>>) -> Option<DebugInfoOffset> {
    match header.type_() {
        UnitType::Type { .. } | UnitType::SplitType { .. } => None,
        _ => offset.to_debug_info_offset(header),
    }
}
