//! From a batch to the same batch with names.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::metrics::{Metrics, Outcomes};
use crate::batch::Batch;
use crate::processors::offer::away;
use crate::profiles::naming::{
    FunctionIndex, NamedFunction, NamedLine, Naming, Unnamed, UnnamedMapping,
};
use crate::symbols::library::{Asked, Library, Lookup, Pending};
use crate::symbols::{BuildId, Frame, FunctionId, MappingRange, Names, SymbolFile};

/// Names locations.
pub(super) struct Symbolizer {
    library: Arc<Library>,
    metrics: Arc<Metrics>,
}

/// What is known of the binaries of a batch.
#[derive(Default)]
pub(super) struct Binaries {
    known: HashMap<BuildId, Symbols>,
    /// Those that are being fetched.
    pub(super) pending: Vec<Pending>,
}

enum Symbols {
    Ready(Arc<SymbolFile>),
    Pending,
    Absent,
}

impl Symbolizer {
    pub(super) fn new(library: Arc<Library>, metrics: Metrics) -> Self {
        Symbolizer {
            library,
            metrics: Arc::new(metrics),
        }
    }

    /// What is known of the binaries of a batch's locations that have no names. Begins to fetch what is missing.
    pub(super) async fn binaries(&self, batch: &mut Batch) -> Binaries {
        let mut ids: Vec<BuildId> = Vec::new();
        for request in batch.wire().parts() {
            // What cannot be read is counted when it goes on.
            let unnamed = Unnamed::read(request).unwrap_or_default();
            ids.extend(unnamed.mappings.iter().filter_map(build_id));
        }
        ids.sort_unstable();
        ids.dedup();
        let mut binaries = Binaries::default();
        let found = self.library.look_up(&ids, Asked::First).await;
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

    /// The batch with the names that are known; itself if there are none, or the runtime ends.
    pub(super) async fn name(&self, mut batch: Batch, binaries: Binaries) -> Batch {
        let requests = batch.wire().clone();
        let bytes = batch.bytes();
        let metrics = self.metrics.clone();
        let name = move || {
            let named = requests.parts().iter().map(|request| {
                let named = named(request, &binaries, &metrics);
                (named.is_some(), named.unwrap_or_else(|| request.clone()))
            });
            let (changed, parts): (Vec<bool>, Vec<Bytes>) = named.unzip();
            changed.contains(&true).then_some(parts)
        };
        match away(bytes, name).await.flatten() {
            Some(parts) => batch.remade(batch.items(), crate::batch::Requests::from_iter(parts)),
            None => batch,
        }
    }
}

/// The GNU build id, else Go's. What is none is a stranger's text and goes nowhere.
fn build_id(mapping: &UnnamedMapping<'_>) -> Option<BuildId> {
    let gnu = mapping.gnu_build_id.and_then(|id| id.parse().ok());
    gnu.or_else(|| mapping.go_build_id.map(BuildId::from_go))
}

/// A request with names; none if there are none.
fn named(request: &Bytes, binaries: &Binaries, metrics: &Metrics) -> Option<Bytes> {
    let Ok(unnamed) = Unnamed::read(request) else {
        metrics.unreadable();
        return None;
    };
    let mut outcomes = Outcomes {
        without_build_id: unnamed.without_build_id,
        ..Outcomes::default()
    };
    if unnamed.mappings.is_empty() {
        metrics.count(&outcomes);
        return None;
    }
    let mut naming = Naming::new(&unnamed);
    for mapping in &unnamed.mappings {
        let locations = mapping.locations.len();
        let Some(id) = build_id(mapping) else {
            outcomes.without_build_id += locations;
            continue;
        };
        match binaries.known.get(&id) {
            Some(Symbols::Ready(file)) => {
                name_mapping(mapping, file, &mut naming, &mut outcomes);
            }
            Some(Symbols::Pending) => outcomes.pending += locations,
            Some(Symbols::Absent) | None => outcomes.without_symbols += locations,
        }
    }
    metrics.count(&outcomes);
    naming.write(request)
}

/// Names what there are names for.
fn name_mapping(
    mapping: &UnnamedMapping<'_>,
    file: &SymbolFile,
    naming: &mut Naming<'_>,
    outcomes: &mut Outcomes,
) {
    let range = MappingRange {
        memory_start: mapping.memory_start,
        memory_limit: mapping.memory_limit,
        file_offset: mapping.file_offset,
    };
    let mut cursor = file.cursor();
    let mut functions = Functions {
        names: file.names(),
        known: HashMap::default(),
    };
    // In the order of the addresses, which the cursor is fast with.
    for (address, location) in &mapping.locations {
        let Some(address) = file.normalise(*address, &range) else {
            outcomes.unknown += 1;
            continue;
        };
        let frames = cursor.frames(address);
        let source = frames.source();
        let lines: SmallVec<[NamedLine; 8]> = frames
            .map_while(|frame| functions.line(&frame, naming))
            .collect();
        let named = naming.name(mapping, *location, lines);
        let source = source.filter(|_| named).map(|source| source as usize);
        match source.and_then(|source| outcomes.named.get_mut(source)) {
            Some(named) => *named += 1,
            None => outcomes.unknown += 1,
        }
    }
}

/// The functions of a file that are in the request's table, each read once.
struct Functions<'f> {
    names: Names<'f>,
    known: HashMap<FunctionId, FunctionIndex, RandomState>,
}

impl Functions<'_> {
    fn line(&mut self, frame: &Frame, naming: &mut Naming<'_>) -> Option<NamedLine> {
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
