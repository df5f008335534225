//! Copies stacks, locations and their lines.

use smallvec::SmallVec;

use super::super::dictionary::PREFETCH_DISTANCE;
use super::super::entries::{Indices, bytes, fields, index, indices, number, numbers, signed};
use super::super::fault::{DictionaryTable, ProfileFault};
use super::super::id::{FunctionId, LocationId, StackId};
use super::{DictionaryCopier, at};
use crate::entry::{Line, Location};
use tributary_otlp::reader::{Fields, Value};

impl<'s, 'r> DictionaryCopier<'s, 'r> {
    /// Copies a location.
    ///
    /// # Errors
    /// Fails if an index is outside of its table.
    pub fn location(&mut self, index: i32) -> Result<LocationId, ProfileFault> {
        if let Some(id) = self.memo.locations.get(at(index)) {
            return Ok(id);
        }
        let id = match self.entry(DictionaryTable::Location, index)? {
            None => LocationId::default(),
            Some(from) => {
                self.prefetch(index);
                self.new_location(from)?
            }
        };
        self.memo.locations.insert(at(index), id);
        Ok(id)
    }

    /// Prefetches for the locations from this index on. Most tables have locations in the order in which stacks refer
    /// to them.
    fn prefetch(&mut self, index: i32) {
        let first = at(index);
        if first < self.memo.prefetched {
            return;
        }
        let mut places = [Default::default(); PREFETCH_DISTANCE];
        let from = self.entries.locations.iter().skip(first);
        for (place, from) in places.iter_mut().zip(from) {
            let (mut mapping, mut address) = (0, 0);
            for field in Fields::new(from).map_while(Result::ok) {
                match (field.number, field.value) {
                    (1, Value::Varint(value)) => mapping = value as i32,
                    (2, Value::Varint(value)) => {
                        address = value;
                        break;
                    }
                    _ => {}
                }
            }
            let shift = self.memo.shifts.get(at(mapping));
            let mapping = self.memo.mappings.get(at(mapping)).unwrap_or_default();
            let address = u64::wrapping_add(address, shift.copied().unwrap_or_default());
            *place = (mapping, address);
        }
        self.into.prefetch(&places);
        self.memo.prefetched = first + PREFETCH_DISTANCE;
    }

    fn new_location(&mut self, from: &[u8]) -> Result<LocationId, ProfileFault> {
        const PLACE: &str = "a location";
        let (mut mapping, mut address) = (0, 0);
        let mut attributes = Indices::new();
        let mut messages: SmallVec<[&[u8]; 8]> = SmallVec::new();
        let mut lines = std::mem::take(&mut self.memo.lines);
        lines.clear();
        for field in fields(from, PLACE) {
            let field = field?;
            match field.number {
                1 => mapping = index(field, PLACE)?,
                2 => address = number(field, PLACE)?,
                3 => messages.push(bytes(field, PLACE)?),
                4 => indices(field, PLACE, &mut attributes)?,
                _ => self.unknown = true,
            }
        }
        let (mapping, shift) = self.mapping(mapping)?;
        let address = address.wrapping_add(shift);
        let (likely, like) = self.into.likely_location(mapping, address);
        for (message, at) in messages.into_iter().zip(0..) {
            let like = self.into.get_lines(like.lines).get(at);
            let function = like.map_or(FunctionId::default(), |line| line.function);
            lines.push(self.line(message, function)?);
        }
        let location = Location {
            mapping,
            address,
            lines: match self.into.get_lines(like.lines) == lines {
                true => like.lines,
                false => self.into.lines(&lines),
            },
            attributes: self.attribute_set(&attributes)?,
        };
        self.memo.lines = lines;
        Ok(match location == like {
            true => likely,
            false => self.into.location(location),
        })
    }

    /// Copies a line that is probably in the function `likely`.
    fn line(&mut self, from: &[u8], likely: FunctionId) -> Result<Line, ProfileFault> {
        const PLACE: &str = "a line";
        let mut line = Line::default();
        let mut function = 0;
        for field in fields(from, PLACE) {
            let field = field?;
            match field.number {
                1 => function = index(field, PLACE)?,
                2 => line.line = signed(field, PLACE)?,
                3 => line.column = signed(field, PLACE)?,
                _ => self.unknown = true,
            }
        }
        line.function = self.likely_function(function, likely)?;
        Ok(line)
    }

    /// Copies a stack.
    ///
    /// # Errors
    /// Fails if an index is outside of its table.
    pub fn stack(&mut self, index: i32) -> Result<StackId, ProfileFault> {
        if let Some(id) = self.memo.stacks.get(at(index)) {
            return Ok(id);
        }
        let id = match self.entry(DictionaryTable::Stack, index)? {
            None => StackId::default(),
            Some(from) => self.new_stack(from)?,
        };
        self.memo.stacks.insert(at(index), id);
        Ok(id)
    }

    fn new_stack(&mut self, from: &[u8]) -> Result<StackId, ProfileFault> {
        const PLACE: &str = "a stack";
        let mut stack = std::mem::take(&mut self.memo.stack);
        stack.clear();
        for field in fields(from, PLACE) {
            let field = field?;
            match field.number {
                1 => numbers(field, PLACE, |location| {
                    let location = location as i32;
                    // Most locations were copied before. In this innermost loop, copied locations take no call.
                    stack.push(match self.memo.locations.get(at(location)) {
                        Some(id) => id,
                        None => self.location(location)?,
                    });
                    Ok(())
                })?,
                _ => self.unknown = true,
            }
        }
        let id = self.into.stack(&stack);
        self.memo.stack = stack;
        Ok(id)
    }
}
