//! Samples of profiles.

use super::context::{Known as KnownOrigin, Origin};
use super::cost::{RowError, row_memory};
use super::kind::{Partition, TableKind};
use super::known::{Known, KnownPairs, Noted};
use super::read::{each, fields, fixed64s, head, messages};
use super::resolve::{Dictionary, index, indices, varints};
use super::rows::{OncePerTable, Shared, hour, service};
use super::samples::Head;
use super::stacks::Stacks;
use super::{Layout, ProfilesLayout, Sink, expansion, new_contents, stack_expansion};
use tributary_otlp::reader::Fields;
use tributary_otlp::room::Room;
use tributary_otlp::{Malformed, Signal};
use tributary_profiles::entries::Entries;

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
        let frames = depth.saturating_mul(stack_expansion::FRAME_OF_STACK);
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
