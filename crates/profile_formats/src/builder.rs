//! Collects the samples of a file within its limits.

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use tributary_memory::Permit;
use tributary_profiles::dictionary::{
    Dictionary, Function, Line, Location, Mapping, SampleKey, ValueType,
};
use tributary_profiles::id::{
    AttributeId, AttributeSetId, Id as _, LocationId, MappingId, StackId,
};
use tributary_profiles::model::ScopeProfiles;
use tributary_profiles::names;
use tributary_profiles::pprof::Repairs;

use crate::column::{Column, any, scope};
use crate::error::{Fault, FormatError};
use crate::limits::FormatLimits;

/// Attribute of a sample with the name of its thread.
pub(crate) const THREAD_NAME: &str = "thread.name";
/// Attribute of a sample with the id of its thread.
pub(crate) const THREAD_ID: &str = "thread.id";

/// Maximum number of sample types, as in pprof files.
const SAMPLE_TYPES: usize = 64;

/// Maximum size of all interned texts together, in bytes. A few bytes may refer to a long text many times.
const NAMES: usize = 4 << 30;

/// Maximum length of all stacks together, in frames. A few bytes may refer to a deep node of a call tree.
const FRAMES: usize = 1 << 28;

/// Number of interned ids after which the memory is accounted for.
const CHARGED: usize = 4096;

/// A frame of a stack. Empty texts and zeros are unknown.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Frame<'t> {
    pub(crate) name: &'t str,
    pub(crate) system_name: &'t str,
    pub(crate) filename: &'t str,
    pub(crate) start_line: i64,
    pub(crate) line: i64,
    pub(crate) column: i64,
    pub(crate) address: u64,
    pub(crate) mapping: MappingId,
    /// Value of `profile.frame.type`.
    pub(crate) kind: &'t str,
}

/// Profiles in the making: one for each sample type. Equal samples are added up.
#[derive(Debug)]
pub(crate) struct Builder<'b> {
    pub(crate) dictionary: &'b mut Dictionary,
    pub(crate) repairs: Repairs,
    /// Mapping of the program.
    pub(crate) main: Option<MappingId>,
    permit: &'b mut Permit,
    limits: FormatLimits,
    columns: Vec<Column>,
    /// Memory of the dictionary before the file.
    before: usize,
    /// Memory that the permit has grown by for the result.
    charged: usize,
    /// Ids interned since the memory was accounted for.
    pending: usize,
    /// Bytes of texts that were interned.
    named: usize,
    /// Frames of stacks that were interned.
    stacked: usize,
    time: u64,
    duration: u64,
}

impl<'b> Builder<'b> {
    pub(crate) fn new(
        dictionary: &'b mut Dictionary,
        limits: &FormatLimits,
        permit: &'b mut Permit,
    ) -> Self {
        Builder {
            before: dictionary.bytes(),
            dictionary,
            repairs: Repairs::default(),
            main: None,
            permit,
            limits: *limits,
            columns: Vec::new(),
            charged: 0,
            pending: 0,
            named: 0,
            stacked: 0,
            time: 0,
            duration: 0,
        }
    }

    /// Sets the start and the duration of all profiles, in nanoseconds.
    pub(crate) fn cover(&mut self, time: u64, duration: u64) {
        (self.time, self.duration) = (time, duration);
    }

    /// Returns the position of a sample type, and adds it if it is missing.
    pub(crate) fn sample_type(&mut self, kind: &str, unit: &str) -> Result<usize, Fault> {
        let sample_type = ValueType {
            kind: self.dictionary.string(kind),
            unit: self.dictionary.string(unit),
        };
        let mut columns = self.columns.iter();
        let known = columns.position(|column| column.header.sample_type == sample_type);
        if let Some(known) = known {
            return Ok(known);
        }
        if self.columns.len() == SAMPLE_TYPES {
            return Err(too_large("sample types", SAMPLE_TYPES));
        }
        self.columns.push(Column::new(sample_type));
        Ok(self.columns.len() - 1)
    }

    /// Sets the sampling period of one sample type.
    pub(crate) fn period_of(&mut self, column: usize, kind: &str, unit: &str, period: i64) {
        let period_type = ValueType {
            kind: self.dictionary.string(kind),
            unit: self.dictionary.string(unit),
        };
        if let Some(column) = self.columns.get_mut(column) {
            column.header.period_type = period_type;
            column.header.period = period;
        }
    }

    /// Sets the sampling period of all sample types so far.
    pub(crate) fn period(&mut self, kind: &str, unit: &str, period: i64) {
        for column in 0..self.columns.len() {
            self.period_of(column, kind, unit, period);
        }
    }

    /// Puts the sample types into this order. Other types stay behind them.
    pub(crate) fn arrange(&mut self, order: &[&str]) {
        let dictionary = &self.dictionary;
        self.columns.sort_by_key(|column| {
            let kind = dictionary.text(column.header.sample_type.kind);
            order
                .iter()
                .position(|name| *name == kind)
                .unwrap_or(order.len())
        });
    }

    /// Interns a frame without inlined callers.
    pub(crate) fn frame(&mut self, frame: &Frame<'_>) -> Result<LocationId, Fault> {
        self.frames(std::slice::from_ref(frame))
    }

    /// Interns the frames of one location, the innermost first. The first frame has the address and the mapping.
    pub(crate) fn frames(&mut self, frames: &[Frame<'_>]) -> Result<LocationId, Fault> {
        let mut lines = Vec::new();
        for frame in frames {
            self.named(frame.name.len() + frame.system_name.len() + frame.filename.len())?;
            let function = Function {
                name: self.dictionary.string(frame.name),
                system_name: self.dictionary.string(frame.system_name),
                filename: self.dictionary.string(frame.filename),
                start_line: frame.start_line.max(0),
            };
            if function == Function::default() {
                continue;
            }
            lines.push(Line {
                function: self.dictionary.function(function),
                line: frame.line.max(0),
                column: frame.column.max(0),
            });
        }
        let first = frames.first().copied().unwrap_or_default();
        let mut attributes = AttributeSetId::default();
        if !first.kind.is_empty() {
            let kind = self
                .dictionary
                .string_attribute(names::FRAME_TYPE, first.kind);
            attributes = self.dictionary.attribute_set(&[kind]);
        }
        let mut location = Location {
            mapping: first.mapping,
            address: first.address,
            lines: self.dictionary.lines(&lines),
            attributes,
        };
        // Without other content, an unset flag distinguishes the location from no location.
        if location == Location::default() {
            let unset = any(Any::BoolValue(false));
            let folded = self.dictionary.any_attribute(names::IS_FOLDED, &unset);
            location.attributes = self.dictionary.attribute_set(&[folded]);
        }
        let id = self.dictionary.location(location);
        self.meter(8 * frames.len() + 8)?;
        Ok(id)
    }

    /// Interns a mapping.
    pub(crate) fn mapping(
        &mut self,
        range: std::ops::Range<u64>,
        file_offset: u64,
        filename: &str,
    ) -> Result<MappingId, Fault> {
        self.named(filename.len())?;
        let mapping = Mapping {
            start: range.start,
            limit: range.end,
            file_offset,
            filename: self.dictionary.string(filename),
            attributes: AttributeSetId::default(),
        };
        let id = self.dictionary.mapping(mapping);
        self.meter(8)?;
        Ok(id)
    }

    /// Interns an attribute with a text.
    pub(crate) fn text(&mut self, key: &str, value: &str) -> Result<AttributeId, Fault> {
        self.named(key.len() + value.len())?;
        let id = self.dictionary.string_attribute(key, value);
        self.meter(8 + value.len() / 16)?;
        Ok(id)
    }

    /// Interns an attribute with a number.
    pub(crate) fn number(&mut self, key: &str, value: i64) -> Result<AttributeId, Fault> {
        let value = any(Any::IntValue(value));
        let id = self.dictionary.any_attribute(key, &value);
        self.meter(8)?;
        Ok(id)
    }

    /// Interns the attributes of a thread with this name and id, if known.
    pub(crate) fn thread(&mut self, name: &str, id: Option<i64>) -> Result<AttributeSetId, Fault> {
        let mut attributes = Vec::new();
        if !name.is_empty() {
            attributes.push(self.text(THREAD_NAME, name)?);
        }
        if let Some(id) = id {
            attributes.push(self.number(THREAD_ID, id)?);
        }
        Ok(self.dictionary.attribute_set(&attributes))
    }

    /// Interns a stack, the leaf first.
    pub(crate) fn stack(&mut self, stack: &[LocationId]) -> Result<StackId, Fault> {
        if stack.len() > self.limits.stack {
            return Err(too_large("frames in one stack", self.limits.stack));
        }
        self.stacked += stack.len();
        if self.stacked > FRAMES {
            return Err(too_large("frames in all stacks", FRAMES));
        }
        let id = self.dictionary.stack(stack);
        self.meter(stack.len())?;
        Ok(id)
    }

    /// Adds a sample of a stack, the leaf first: see [`count`](Self::count).
    pub(crate) fn sample(
        &mut self,
        stack: &[LocationId],
        attributes: AttributeSetId,
        values: &[(usize, i64)],
    ) -> Result<(), Fault> {
        let stack = self.stack(stack)?;
        self.count(stack, attributes, values)
    }

    /// Adds to the totals of a stack. `values` has pairs of a sample type's position and a value; zeros are left out.
    pub(crate) fn count(
        &mut self,
        stack: StackId,
        attributes: AttributeSetId,
        values: &[(usize, i64)],
    ) -> Result<(), Fault> {
        let key = SampleKey {
            stack,
            attributes,
            ..SampleKey::default()
        };
        for (column, value) in values {
            let Some(column) = self.columns.get_mut(*column) else {
                continue;
            };
            if *value == 0 {
                continue;
            }
            let at = column.keys.intern(key).index();
            match column.totals.get_mut(at) {
                None => column.totals.push(*value),
                Some(total) => {
                    let sum = total.checked_add(*value);
                    self.repairs.saturated += u64::from(sum.is_none());
                    *total = sum.unwrap_or_else(|| total.saturating_add(*value));
                }
            }
        }
        self.meter(4)
    }

    /// Counts the bytes of texts before they are interned.
    fn named(&mut self, bytes: usize) -> Result<(), Fault> {
        self.named += bytes;
        match self.named > NAMES {
            true => Err(too_large("bytes in names", NAMES)),
            false => Ok(()),
        }
    }

    /// Takes memory for the tables of a parser.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Fault> {
        Ok(self.permit.grow(bytes)?)
    }

    /// Returns memory of a parser's tables.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let rest = self.permit.bytes().saturating_sub(bytes);
        self.permit.shrink_to(rest);
    }

    /// Accounts for the memory of the result after some more work.
    pub(crate) fn meter(&mut self, work: usize) -> Result<(), Fault> {
        self.pending += work;
        if self.pending < CHARGED {
            return Ok(());
        }
        self.pending = 0;
        let columns: usize = self.columns.iter().map(Column::bytes).sum();
        let bytes = columns + self.dictionary.bytes().saturating_sub(self.before);
        if bytes > self.limits.memory {
            return Err(too_large("bytes in memory", self.limits.memory));
        }
        let lacking = bytes.saturating_sub(self.charged);
        self.permit.grow(lacking)?;
        self.charged += lacking;
        Ok(())
    }

    /// Returns the profiles, in the order of their sample types, and their memory. A sample type without values has a
    /// single sample of 0.
    pub(crate) fn finish(mut self) -> Result<(ScopeProfiles, usize), Fault> {
        self.meter(CHARGED)?;
        let scope = scope(self.columns, self.time, self.duration);
        Ok((scope, self.charged))
    }
}

fn too_large(what: &'static str, limit: usize) -> Fault {
    Fault::Other(FormatError::TooLarge { what, limit })
}

#[cfg(test)]
mod tests {
    use tributary_memory::Budget;

    use super::*;

    /// Builds with a budget of 1 MiB.
    fn build(build: impl Fn(&mut Builder<'_>) -> Result<(), Fault>) -> Result<(), Fault> {
        let mut permit = Budget::new(1 << 20).empty_permit();
        let mut dictionary = Dictionary::new();
        let mut builder = Builder::new(&mut dictionary, &FormatLimits::default(), &mut permit);
        build(&mut builder)
    }

    #[test]
    fn all_interned_texts_count_toward_one_limit() {
        let full = Err(too_large("bytes in names", NAMES));
        let filled = |then: fn(&mut Builder<'_>) -> Result<(), Fault>| {
            build(|builder| {
                builder.named = NAMES - 2;
                then(builder)
            })
        };
        let mapping = |builder: &mut Builder<'_>| builder.mapping(0..0, 0, "abc").map(drop);
        assert_eq!(filled(mapping), full);
        assert_eq!(filled(|builder| builder.text("k", "ab").map(drop)), full);
        let frame = |builder: &mut Builder<'_>| {
            let name = "abc";
            let frame = Frame {
                name,
                ..Frame::default()
            };
            builder.frame(&frame).map(drop)
        };
        assert_eq!(filled(frame), full);
        assert_eq!(filled(|builder| builder.text("k", "a").map(drop)), Ok(()));
    }

    #[test]
    fn stacks_are_bounded_in_sum() {
        let read = build(|builder| {
            let location = builder.frame(&Frame::default())?;
            builder.stacked = FRAMES - 1;
            builder.stack(&[location])?;
            builder.stack(&[location]).map(drop)
        });
        assert_eq!(read, Err(too_large("frames in all stacks", FRAMES)));
    }

    #[test]
    fn sample_type_beyond_the_limit_is_refused() {
        let read = build(|builder| {
            for at in 0..SAMPLE_TYPES {
                builder.sample_type(&at.to_string(), "count")?;
            }
            assert_eq!(builder.sample_type("0", "count"), Ok(0));
            builder.sample_type("more", "count").map(drop)
        });
        assert_eq!(read, Err(too_large("sample types", SAMPLE_TYPES)));
    }
}
