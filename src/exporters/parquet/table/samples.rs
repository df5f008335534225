//! Columns of samples.

use smallvec::SmallVec;

use super::attributes::Sets;
use super::cost::row_memory;
use super::frames::Frames;
use super::gathered::gathered;
use super::group::RowGroup;
use super::known::KnownPairs;
use super::order::{Rows, values};
use super::ranges::Ranges;
use super::read::{bytes, fields, number};
use super::resolve::{Dictionary, indices};
use super::rows::Shared;
use super::strings::{NONE, Strings};
use super::values::Whole;
use super::{Layout, ProfilesLayout, RowColumns, WriteError};
use tributary_otlp::Malformed;

gathered! {
    /// Columns of samples only.
    pub(super) struct Columns {
        /// Shared data of each profile's samples.
        pub(super) profiles: Vec<Profile>,
        pub(super) profile_attributes: Sets,
        pub(super) profile: Vec<u32>,
        pub(super) value: Vec<i64>,
        pub(super) count: Vec<i64>,
        pub(super) timestamps: Ranges,
        pub(super) timestamp: Vec<i64>,
        pub(super) values: Ranges,
        pub(super) each_value: Vec<i64>,
        pub(super) trace: Vec<Option<[u8; 16]>>,
        pub(super) span: Vec<Option<[u8; 8]>>,
        pub(super) payloads: Strings,
        /// Stacks, if they are columns of the samples.
        pub(super) frames: Frames,
        pub(super) stack: Vec<u32>,
        pub(super) hash: Vec<u64>,
    }
}

/// Shared data of a profile's samples, mostly as numbers of texts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Profile {
    duration: i64,
    sample_type: u32,
    sample_unit: u32,
    period_type: u32,
    period_unit: u32,
    period: i64,
    id: Option<[u8; 16]>,
    dropped: u32,
    payload_format: u32,
    payload: u32,
}

/// An encoded profile without its samples.
#[derive(Debug, Default)]
pub(super) struct Head<'r> {
    sample_type: &'r [u8],
    pub(super) time: u64,
    duration: u64,
    period_type: &'r [u8],
    period: u64,
    id: &'r [u8],
    dropped: u32,
    payload_format: &'r [u8],
    payload: &'r [u8],
    attributes: SmallVec<[i32; 8]>,
    /// Memory in a table, in bytes.
    pub(super) memory: usize,
}

impl<'r> Head<'r> {
    pub(super) fn read(profile: &'r [u8]) -> Result<Self, Malformed> {
        let mut head = Head::default();
        for field in fields(profile) {
            match field? {
                (1, value) => head.sample_type = bytes(value),
                (3, value) => head.time = number(value),
                (4, value) => head.duration = number(value),
                (5, value) => head.period_type = bytes(value),
                (6, value) => head.period = number(value),
                (7, value) => head.id = bytes(value),
                (8, value) => head.dropped = number(value) as u32,
                (9, value) => head.payload_format = bytes(value),
                (10, value) => head.payload = bytes(value),
                (11, value) => indices(value, |at| head.attributes.push(at)),
                _ => {}
            }
        }
        let texts = head.payload.len() + head.payload_format.len();
        head.memory = row_memory(texts, head.attributes.len());
        Ok(head)
    }
}

impl Columns {
    pub(super) fn add_profile(
        &mut self,
        head: &Head<'_>,
        shared: &mut Shared,
        dictionary: &Dictionary<'_>,
        known: &mut KnownPairs,
    ) -> u32 {
        let Shared { texts, pairs, .. } = shared;
        let sample_type = dictionary.value_type(head.sample_type);
        let period_type = dictionary.value_type(head.period_type);
        for at in &head.attributes {
            let found = known.get(dictionary, *at, pairs);
            for pair in found.0.into_iter().chain(found.1) {
                self.profile_attributes.push(pair);
            }
        }
        let id = self
            .profile_attributes
            .id(b"otlp.profile_id", head.id, pairs);
        self.profile_attributes.end(pairs, texts);
        self.profiles.push(Profile {
            duration: head.duration.cast_signed(),
            sample_type: texts.intern(sample_type.0),
            sample_unit: texts.intern(sample_type.1),
            period_type: texts.intern(period_type.0),
            period_unit: texts.intern(period_type.1),
            period: head.period.cast_signed(),
            id,
            dropped: head.dropped,
            payload_format: texts.intern(head.payload_format),
            payload: match head.payload {
                [] => NONE,
                payload => self.payloads.intern(payload),
            },
        });
        (self.profiles.len() - 1) as u32
    }

    /// Ends the sample whose values and times have been pushed.
    pub(super) fn end(&mut self, (trace, span): (&[u8], &[u8]), shared: &mut Shared) {
        let row = self.count.len();
        self.timestamps.push(self.timestamp.len());
        let times = self.timestamps.get(row).len();
        let values = self.each_value.len() - self.values.end();
        let sum = match values {
            0 => times as i128,
            _ => {
                let values = self.each_value.iter().rev().take(values);
                values.map(|value| i128::from(*value)).sum()
            }
        };
        let bounded = sum.clamp(i64::MIN.into(), i64::MAX.into());
        self.value.push(i64::try_from(bounded).unwrap_or_default());
        self.count.push(values.max(times) as i64);
        if values == 1 && times == 0 {
            // The value alone is sufficient.
            self.each_value.pop();
        }
        self.values.push(self.each_value.len());
        let Shared {
            texts,
            pairs,
            attributes,
            ..
        } = shared;
        let trace = attributes.id(b"otlp.trace_id", trace, pairs);
        self.trace.push(trace);
        let span = attributes.id(b"otlp.span_id", span, pairs);
        self.span.push(span);
        attributes.end(pairs, texts);
    }

    fn profile(&self, row: usize) -> Profile {
        self.profiles[self.profile[row] as usize]
    }
}

impl RowColumns for Columns {
    fn order(&self, shared: &Shared) -> Vec<u32> {
        let profiles = self.profiles.iter();
        let ranks = shared
            .texts
            .ranks(profiles.map(|profile| profile.sample_type));
        shared.order(|row| ranks[self.profile(row).sample_type as usize])
    }

    fn entries_of(&self, row: usize) -> usize {
        let of_profile = self.profile_attributes.get(self.profile[row] as usize);
        // No frames if the stack is in the other table.
        of_profile.len() + self.frames.depth(self.stack[row])
    }

    fn write(
        &self,
        shared: &Shared,
        layout: &Layout,
        rows: Rows<'_>,
        group: &mut RowGroup<'_>,
    ) -> Result<(), WriteError> {
        let texts = &shared.texts;
        let profiles = rows.iter().map(|row| self.profile(row));
        shared.write_times(rows, group)?;
        group.deltas("duration_nano", profiles.clone().map(|p| p.duration))?;
        shared.write_service(rows, group)?;
        group.texts(
            "sample_type",
            texts,
            profiles.clone().map(|p| p.sample_type),
        )?;
        group.texts(
            "sample_unit",
            texts,
            profiles.clone().map(|p| p.sample_unit),
        )?;
        group.texts(
            "period_type",
            texts,
            profiles.clone().map(|p| p.period_type),
        )?;
        group.texts(
            "period_unit",
            texts,
            profiles.clone().map(|p| p.period_unit),
        )?;
        group.deltas("period", profiles.clone().map(|p| p.period))?;
        group.amounts("value", rows.of(&self.value))?;
        group.deltas("sample_count", rows.of(&self.count))?;
        let times = values(rows.lists(&self.timestamps), &self.timestamp);
        group.time_lists(["observation_timestamps", "observation_nanos"], times)?;
        let each = values(rows.lists(&self.values), &self.each_value);
        group.list("observation_values", Whole::deltas(), each)?;
        group.ids("profile_id", profiles.clone().map(|p| p.id))?;
        group.ids("trace_id", rows.of(&self.trace))?;
        group.plain_ids("span_id", rows.of(&self.span))?;
        let names = ["attributes", "attribute_types"];
        group.attributes(names, &shared.attributes, shared, rows.iter())?;
        let of_profiles = rows.of(&self.profile).map(|profile| profile as usize);
        let names = ["profile_attributes", "profile_attribute_types"];
        group.attributes(names, &self.profile_attributes, shared, of_profiles)?;
        let dropped = profiles.clone().map(|p| p.dropped);
        group.numbers("dropped_attributes_count", dropped, false)?;
        let formats = profiles.clone().map(|p| p.payload_format);
        group.texts("original_payload_format", texts, formats)?;
        let payloads = profiles.map(|p| p.payload);
        group.optional_texts("original_payload", &self.payloads, payloads)?;
        group.hashes("stack_hash", rows.of(&self.hash))?;
        if layout.options.profiles == ProfilesLayout::Wide {
            self.frames.write(rows.of(&self.stack), group)?;
        }
        Ok(())
    }
}
