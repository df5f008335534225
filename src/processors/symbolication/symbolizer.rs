//! Symbolization of a batch.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::config::CallSites;
use super::metrics::{Metrics, Outcomes};
use super::room::Room;
use crate::pipeline::batch::Batch;
use crate::pipeline::turns::on_a_turn_if_large;
use tributary_memory::Budget;
use tributary_otlp::Requests;
use tributary_profiles::naming::{
    FunctionIndex, NamedFunction, NamedLine, RequestSymbolizer, ReturnAddresses,
    UnsymbolizedBinary, UnsymbolizedLocations, UnsymbolizedMapping,
};
use tributary_symbols::library::{Library, Lookup, LookupAttempt, Pending};
use tributary_symbols::{BuildId, Frame, FunctionId, MappingRange, Names, RecentNames, SymbolFile};

pub(super) struct Symbolizer {
    library: Arc<Library>,
    call_sites: Arc<CallSites>,
    recent: Arc<RecentNames>,
    metrics: Arc<Metrics>,
    budget: Arc<Budget>,
}

/// Lookup results for the binaries of a batch.
#[derive(Default)]
pub(super) struct Binaries {
    /// Addresses of each request; `None` if the request cannot be decoded.
    requests: Vec<Option<Addresses>>,
    known: HashMap<BuildId, Symbols>,
    /// Binaries whose symbols are being fetched.
    pub(super) pending: Vec<Pending>,
}

/// Addresses of a request without lines.
struct Addresses {
    binaries: Vec<(Option<BuildId>, UnsymbolizedBinary)>,
    return_addresses: ReturnAddresses,
    without_build_id: usize,
}

enum Symbols {
    Ready(Arc<SymbolFile>),
    Pending,
    Absent,
}

impl Symbolizer {
    pub(super) fn new(
        library: Arc<Library>,
        call_sites: CallSites,
        metrics: Metrics,
        budget: Arc<Budget>,
    ) -> Self {
        Symbolizer {
            library,
            call_sites: Arc::new(call_sites),
            recent: Arc::default(),
            metrics: Arc::new(metrics),
            budget,
        }
    }

    /// Looks up the binaries of a batch's locations without lines, and starts to fetch missing
    /// symbols.
    pub(super) async fn binaries(&self, batch: &Batch, asked: LookupAttempt) -> Binaries {
        let requests = batch.wire().clone();
        let call_sites = self.call_sites.clone();
        let read = move || {
            let requests = requests.parts().iter();
            // Requests that cannot be decoded are counted when they are forwarded.
            requests
                .map(|request| Addresses::read(request, &call_sites))
                .collect::<Vec<_>>()
        };
        // `None` at shutdown; the batch is then forwarded without symbols.
        let requests = on_a_turn_if_large(batch.bytes(), read)
            .await
            .unwrap_or_default();
        let binaries = requests.iter().flatten().flat_map(|read| &read.binaries);
        let mut ids: Vec<BuildId> = binaries.filter_map(|(id, _)| id.clone()).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut binaries = Binaries {
            requests,
            ..Binaries::default()
        };
        let found = self.library.look_up(&ids, asked).await;
        for (id, found) in ids.into_iter().zip(found) {
            let symbols = match found {
                Lookup::Ready(file) => Symbols::Ready(file),
                Lookup::Absent(_) => Symbols::Absent,
                Lookup::Pending(pending) => {
                    binaries.pending.push(pending);
                    Symbols::Pending
                }
            };
            binaries.known.insert(id, symbols);
        }
        binaries
    }

    /// Adds the available symbols to a batch. Returns the same batch if there are none, or at
    /// shutdown.
    pub(super) async fn name(&self, batch: Batch, binaries: Binaries) -> Batch {
        let requests = batch.wire().clone();
        let bytes = batch.bytes();
        let (metrics, recent) = (self.metrics.clone(), self.recent.clone());
        let mut room = Room::new(self.budget.empty_permit(), bytes);
        let name = move || {
            let Binaries {
                requests: addresses,
                known,
                ..
            } = binaries;
            let read = requests.parts().iter().zip(addresses);
            let parts = read.map(|(request, addresses)| {
                let named = addresses.map(|addresses| {
                    let symbols = (&known, &*recent);
                    named(request, addresses, symbols, &mut room, &metrics)
                });
                if named.is_none() {
                    metrics.unreadable();
                }
                let named = named.flatten();
                (named.is_some(), named.unwrap_or_else(|| request.clone()))
            });
            let (changed, parts): (Vec<bool>, Vec<Bytes>) = parts.unzip();
            changed.contains(&true).then(|| (parts, room.into_permit()))
        };
        match on_a_turn_if_large(bytes, name).await.flatten() {
            Some((parts, added)) => {
                batch.enlarged(batch.items(), Requests::from_iter(parts), added)
            }
            None => batch,
        }
    }
}

impl Addresses {
    /// Reads the addresses of a request without lines; `None` if the request cannot be decoded.
    fn read(request: &[u8], call_sites: &CallSites) -> Option<Self> {
        let unnamed = UnsymbolizedLocations::read(request).ok()?;
        let return_addresses = match unnamed.binaries.is_empty() {
            true => ReturnAddresses::none(),
            false => call_sites.return_addresses(request).ok()?,
        };
        let binaries = unnamed.binaries.into_iter();
        let mut binaries: Vec<_> = binaries.map(|binary| (build_id(&binary), binary)).collect();
        // Mappings of the same binary are symbolized together.
        binaries.sort_by(|(one, _), (other, _)| one.cmp(other));
        Some(Addresses {
            binaries,
            return_addresses,
            without_build_id: unnamed.without_build_id,
        })
    }
}

/// Returns the GNU build id, or else Go's, even where Go's is labelled as a GNU build id. Other
/// text is untrusted and is not used.
fn build_id(binary: &UnsymbolizedBinary) -> Option<BuildId> {
    let gnu = binary.gnu_build_id.as_deref();
    let gnu = gnu.and_then(|id| BuildId::from_go_digits(id).or_else(|| id.parse().ok()));
    gnu.or_else(|| binary.go_build_id.as_deref().map(BuildId::from_go))
}

/// Adds symbols to a request; `None` if there are none.
fn named(
    request: &Bytes,
    addresses: Addresses,
    (known, recent): (&HashMap<BuildId, Symbols>, &RecentNames),
    room: &mut Room,
    metrics: &Metrics,
) -> Option<Bytes> {
    let mut outcomes = Outcomes {
        without_build_id: addresses.without_build_id,
        ..Outcomes::default()
    };
    // Created for the first symbolized binary, since it reads all strings and functions.
    let mut naming = None;
    for same in addresses
        .binaries
        .chunk_by(|(one, _), (other, _)| one == other)
    {
        let locations: usize = same.iter().map(|(_, binary)| binary.unnamed()).sum();
        let id = same.first().and_then(|(id, _)| id.as_ref());
        match id.map(|id| known.get(id)) {
            None => outcomes.without_build_id += locations,
            Some(Some(Symbols::Ready(file))) => {
                let naming = match &mut naming {
                    Some(naming) => naming,
                    // The request was decoded before.
                    none => none.insert(RequestSymbolizer::new(request).ok()?),
                };
                let mappings = same.iter().flat_map(|(_, binary)| &binary.mappings);
                let found = Found {
                    file,
                    recent,
                    return_addresses: &addresses.return_addresses,
                };
                found.name(mappings, naming, room, &mut outcomes);
            }
            Some(Some(Symbols::Pending)) => outcomes.pending += locations,
            Some(Some(Symbols::Absent) | None) => outcomes.without_symbols += locations,
        }
    }
    metrics.count(&outcomes);
    let naming = naming?;
    room.next(naming.added());
    naming.write()
}

/// Approximate size of a line in a request, in bytes.
const LINE_BYTES: usize = 12;

/// A binary with available symbols.
struct Found<'f> {
    file: &'f SymbolFile,
    recent: &'f RecentNames,
    return_addresses: &'f ReturnAddresses,
}

impl Found<'_> {
    /// Adds the available names while there is room for them.
    fn name<'m>(
        &self,
        mappings: impl Iterator<Item = &'m UnsymbolizedMapping>,
        naming: &mut RequestSymbolizer<'_>,
        room: &mut Room,
        outcomes: &mut Outcomes,
    ) {
        let mut cursor = self.file.cursor();
        let mut functions = Functions {
            names: self.file.names_with(self.recent),
            known: HashMap::default(),
        };
        for mapping in mappings {
            let mut left = mapping.locations.len();
            // Sorted by address, which makes the cursor fast.
            for (address, location) in &mapping.locations {
                let Some(address) = self.address(*address, *location, mapping) else {
                    (outcomes.unknown, left) = (outcomes.unknown + 1, left - 1);
                    continue;
                };
                let frames = cursor.frames(address);
                let source = frames.source();
                let mut full = false;
                let mut count = 0;
                let lines: SmallVec<[NamedLine; 8]> = frames
                    .map_while(|frame| {
                        let line = functions.line(&frame, naming)?;
                        count += 1;
                        full |= !room.has(naming.added() + count * LINE_BYTES);
                        (!full).then_some(line)
                    })
                    .collect();
                if full {
                    break;
                }
                left -= 1;
                let named = naming.name(mapping, *location, lines);
                let source = source.filter(|_| named).map(|source| source as usize);
                match source.and_then(|source| outcomes.named.get_mut(source)) {
                    Some(named) => *named += 1,
                    None => outcomes.unknown += 1,
                }
            }
            outcomes.without_room += left;
        }
    }

    /// Returns the address in the binary to look up for a location.
    fn address(&self, address: u64, location: usize, mapping: &UnsymbolizedMapping) -> Option<u64> {
        // Subtract before the conversion: a return address at the end of a mapping is outside of
        // it.
        let address = match self.return_addresses.has(location) {
            true => address.saturating_sub(1),
            false => address,
        };
        let range = MappingRange {
            memory_start: mapping.memory_start,
            memory_limit: mapping.memory_limit,
            file_offset: mapping.file_offset,
        };
        self.file.normalise(address, &range)
    }
}

/// Functions of a file in the request's table, each read once.
struct Functions<'f> {
    names: Names<'f>,
    known: HashMap<FunctionId, FunctionIndex, RandomState>,
}

impl Functions<'_> {
    fn line(&mut self, frame: &Frame, naming: &mut RequestSymbolizer<'_>) -> Option<NamedLine> {
        let function = match self.known.get(&frame.function) {
            Some(known) => *known,
            None => {
                let function = self.names.of(frame.function)?;
                let index = naming.function(&NamedFunction {
                    name: function.name,
                    system_name: function.system_name,
                    file: function.file,
                    start_line: function.start_line,
                });
                self.known.insert(frame.function, index);
                index
            }
        };
        Some(NamedLine {
            function,
            line: frame.line,
            column: frame.column,
        })
    }
}
