//! Samples of profiles.

use smallvec::SmallVec;

use super::attributes::Sets;
use super::context::{Known as KnownOrigin, Origin};
use super::frames::{Frames, Stacks};
use super::gathered::gathered;
use super::group::RowGroup;
use super::order::{Rows, values};
use super::ranges::Ranges;
use super::read::{bytes, each, fields, fixed64s, head, messages, number};
use super::resolve::{Dictionary, Known, KnownPairs, Noted, index, indices, varints};
use super::rows::{OncePerTable, Shared, hour, service};
use super::strings::{NONE, Strings};
use super::values::Whole;
use super::{
    Layout, Partition, ProfilesLayout, RowColumns, RowError, Sink, TableKind, WriteError,
    expansion, new_contents, row_memory,
};
use tributary_otlp::reader::Fields;
use tributary_otlp::room::Room;
use tributary_otlp::{Malformed, Signal};
use tributary_profiles::entries::Entries;

gathered! {
    /// Columns of samples only.
    pub(super) struct Columns {
        /// Shared data of each profile's samples.
        profiles: Vec<Profile>,
        profile_attributes: Sets,
        profile: Vec<u32>,
        value: Vec<i64>,
        count: Vec<i64>,
        timestamps: Ranges,
        timestamp: Vec<i64>,
        values: Ranges,
        each_value: Vec<i64>,
        trace: Vec<Option<[u8; 16]>>,
        span: Vec<Option<[u8; 8]>>,
        payloads: Strings,
        /// Stacks, if they are columns of the samples.
        frames: Frames,
        stack: Vec<u32>,
        hash: Vec<u64>,
    }
}

/// Shared data of a profile's samples, mostly as numbers of texts.
#[derive(Debug, Clone, Copy)]
struct Profile {
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
struct Head<'r> {
    sample_type: &'r [u8],
    time: u64,
    duration: u64,
    period_type: &'r [u8],
    period: u64,
    id: &'r [u8],
    dropped: u32,
    payload_format: &'r [u8],
    payload: &'r [u8],
    attributes: SmallVec<[i32; 8]>,
    /// Memory in a table, in bytes.
    memory: usize,
}

impl<'r> Head<'r> {
    fn read(profile: &'r [u8]) -> Result<Self, Malformed> {
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

/// Reads a request while its dictionary is copied into tables.
struct Reader<'r> {
    dictionary: Dictionary<'r>,
    stacks: Known,
    pairs: KnownPairs,
    /// Stack of each sample: its number in its table, and its hash.
    found: Vec<(u32, u64)>,
    /// Number of frames of each stack of the dictionary.
    depths: Vec<u64>,
    /// Stacks of the samples that were admitted together.
    seen: Noted<()>,
}

/// Memory of an entry of the dictionary while a request is read, in bytes: its position in a list
/// that doubles, its size, and its number in a table.
const ENTRY_BYTES: usize = 96;

/// Distributes the samples of a request.
pub(super) fn append(
    request: &[u8],
    layout: &Layout,
    by_service: bool,
    room: &dyn Room,
    sink: &mut dyn Sink,
) -> Result<(), RowError> {
    let mut entries = Entries::default();
    for dictionary in each(request, 2) {
        room.take(Fields::new(dictionary).count().saturating_mul(ENTRY_BYTES))?;
        let fault = |_| Malformed::new(0, "a dictionary with an invalid encoding");
        entries.add(dictionary).map_err(fault)?;
    }
    let (expansion, depths) = expansion::of_profiles(request, &entries, layout)?;
    expansion.check(Signal::Profiles, request, by_service, room, sink.tables())?;
    room.take(usize::try_from(expansion.largest_head).unwrap_or(usize::MAX))?;
    let mut reader = Reader {
        dictionary: Dictionary { entries },
        stacks: Known::default(),
        pairs: KnownPairs::default(),
        found: Vec::new(),
        depths,
        seen: Noted::default(),
    };
    let of_dictionary = usize::try_from(expansion.dictionary).unwrap_or(usize::MAX);
    let mut once = OncePerTable::default();
    for entry in messages(request, 1) {
        let entry = entry?;
        let mut known = KnownOrigin::default();
        let (resource, resource_schema_url) = head(entry)?;
        let resource = reader.dictionary.resource(resource);
        let service = by_service.then(|| service(&resource));
        for scope_entry in messages(entry, 2) {
            let scope_entry = scope_entry?;
            known.next_scope();
            let (scope, scope_schema_url) = head(scope_entry)?;
            let scope = reader.dictionary.scope(scope);
            let origin = Origin {
                resource: &resource,
                resource_schema_url,
                scope: &scope,
                scope_schema_url,
            };
            for profile in each(scope_entry, 2) {
                let head = Head::read(profile)?;
                let partition = Partition {
                    hour: hour(head.time),
                    service: service.clone(),
                };
                let mut samples = each(profile, 2);
                let mut next = samples.clone().next();
                while let Some(first) = next {
                    reader.seen.forget();
                    let of_head = head.memory.saturating_add(origin.memory());
                    let alone = reader.sample_memory(first)?.saturating_add(of_head);
                    let Some((mut memory, admitted)) =
                        once.admits(sink, &partition, alone, of_dictionary)
                    else {
                        return Ok(());
                    };
                    let these = samples.clone();
                    samples.next();
                    let mut count = 1;
                    next = loop {
                        let Some(sample) = samples.clone().next() else {
                            break None;
                        };
                        let with = memory.saturating_add(reader.sample_memory(sample)?);
                        if with > admitted {
                            break Some(sample);
                        }
                        memory = with;
                        count += 1;
                        samples.next();
                    };
                    let place = (&partition, &origin, &mut known);
                    reader.append(these.take(count), &head, place, layout, sink)?;
                    sink.took(memory);
                }
            }
        }
    }
    Ok(())
}

impl Reader<'_> {
    /// Returns the largest memory of a sample's row, in bytes. A stack counts with the first sample
    /// that has it.
    fn sample_memory(&mut self, sample: &[u8]) -> Result<usize, Malformed> {
        let mut stack = 0;
        for field in fields(sample) {
            if let (1, value) = field? {
                stack = index(value);
            }
        }
        // A value or a reference of one byte becomes a number of eight.
        let row = row_memory(3 * sample.len(), 0);
        let at = usize::try_from(stack).unwrap_or_default();
        let depth = match self.seen.get(at) {
            Some(()) => 0,
            None => self.depths.get(at).copied().unwrap_or_default(),
        };
        self.seen.note(at, self.depths.len(), ());
        let frames = depth.saturating_mul(expansion::FRAME_OF_STACK);
        Ok(row.saturating_add(usize::try_from(frames).unwrap_or(usize::MAX)))
    }

    fn append<'s>(
        &mut self,
        samples: impl Iterator<Item = &'s [u8]> + Clone,
        head: &Head<'_>,
        (partition, origin, known): (&Partition, &Origin<'_>, &mut KnownOrigin),
        layout: &Layout,
        sink: &mut dyn Sink,
    ) -> Result<(), Malformed> {
        let is_apart = layout.options.profiles == ProfilesLayout::Stacks;
        if is_apart {
            match sink.table(TableKind::Stacks, partition) {
                Some(table) => {
                    let contents = table.contents();
                    if let super::Columns::Stacks(columns) = &mut table.columns {
                        self.find_stacks(
                            samples.clone(),
                            head,
                            contents,
                            columns,
                            &mut table.shared,
                        );
                    }
                }
                // The stacks are in a file already, and only their hashes are needed.
                None => {
                    let (mut columns, mut shared) = (Stacks::default(), Shared::default());
                    self.find_stacks(
                        samples.clone(),
                        head,
                        new_contents(),
                        &mut columns,
                        &mut shared,
                    );
                }
            }
        }
        let mut found = std::mem::take(&mut self.found).into_iter();
        let Some(table) = sink.table(TableKind::Profiles, partition) else {
            return Ok(());
        };
        let contents = table.contents();
        let (shared, super::Columns::Profiles(columns)) = (&mut table.shared, &mut table.columns)
        else {
            return Ok(());
        };
        self.pairs.begin(contents);
        if !is_apart {
            self.stacks.begin(contents);
        }
        let context = shared.context(contents, origin, known);
        let number = columns.add_profile(head, shared, &self.dictionary, &mut self.pairs);
        let of_profile = columns.profile_attributes.get(number as usize).len();
        for sample in samples {
            let (mut stack, mut link) = (0, 0);
            for field in fields(sample) {
                match field? {
                    (1, value) => stack = index(value),
                    (2, value) => indices(value, |at| {
                        let pairs = self.pairs.get(&self.dictionary, at, &mut shared.pairs);
                        pairs.0.into_iter().chain(pairs.1).for_each(|pair| {
                            shared.attributes.push(pair);
                        });
                    }),
                    (3, value) => link = index(value),
                    (4, value) => varints(value, |value| {
                        columns.each_value.push(value.cast_signed());
                    }),
                    (5, value) => {
                        fixed64s(value, |time| columns.timestamp.push(time.cast_signed()))
                    }
                    _ => {}
                }
            }
            let (stack, hash) = match found.next() {
                Some(found) => found,
                None => {
                    let stack = self
                        .stacks
                        .stack(&self.dictionary, stack, &mut columns.frames);
                    (stack, columns.frames.stack_hash(stack))
                }
            };
            columns.stack.push(stack);
            columns.hash.push(hash);
            columns.profile.push(number);
            columns.end(self.dictionary.link(link), shared);
            shared.push(head.time.cast_signed(), context);
            shared.share(of_profile + columns.frames.depth(stack));
        }
        Ok(())
    }

    /// Copies the stacks of samples into their own table.
    fn find_stacks<'s>(
        &mut self,
        samples: impl Iterator<Item = &'s [u8]>,
        head: &Head<'_>,
        contents: u64,
        columns: &mut Stacks,
        shared: &mut Shared,
    ) {
        self.found.clear();
        self.stacks.begin(contents);
        for sample in samples {
            let mut stack = 0;
            for (field, value) in fields(sample).map_while(Result::ok) {
                if field == 1 {
                    stack = index(value);
                }
            }
            let stack = self
                .stacks
                .stack(&self.dictionary, stack, &mut columns.frames);
            columns.push(shared, head.time.cast_signed(), stack);
            self.found.push((stack, columns.frames.stack_hash(stack)));
        }
    }
}

impl Columns {
    fn add_profile(
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
    fn end(&mut self, (trace, span): (&[u8], &[u8]), shared: &mut Shared) {
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

    /// Returns the profile of a row.
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
