//! Intermediate representation of all sources before writing: functions, contexts, address ranges.

use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::strings::{StringId, Strings};
use super::{CompileError, CompileLimits};
use crate::file::NameSource;

/// Index of a function in [`Model::functions`].
pub(super) type FunctionId = u32;
/// Index of a context in [`Model::contexts`]; [`NO_CONTEXT`] for a line without a function.
pub(super) type ContextId = u32;
/// String id of a file's path in [`Model`]; 0 if unknown.
pub(super) type FileId = StringId;

/// Context of lines without a known function.
pub(super) const NO_CONTEXT: ContextId = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Function {
    /// Name in the source, if recorded.
    pub(super) name: StringId,
    /// Linkage name; 0 if the function has no linkage name.
    pub(super) linkage_name: StringId,
    pub(super) file: FileId,
    pub(super) start_line: u32,
}

/// A function and the call it was inlined into. A function that was not inlined has no parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Context {
    pub(super) function: FunctionId,
    pub(super) parent: ContextId,
    pub(super) call: SourcePosition,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SourcePosition {
    pub(super) file: FileId,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// An address range with the same frames throughout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) context: ContextId,
    pub(super) place: SourcePosition,
    pub(super) source: NameSource,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) strings: Strings,
    pub(super) functions: Vec<Function>,
    by_content: HashTable<FunctionId>,
    hasher: FixedState,
    /// Index 0 is reserved for [`NO_CONTEXT`].
    pub(super) contexts: Vec<Context>,
    /// Entry points of functions without a linkage name.
    pub(super) entries: Vec<(u64, ContextId)>,
    /// Remaining budget of entries of all kinds.
    entries_left: u64,
}

impl Model {
    pub(super) fn new(limits: &CompileLimits) -> Self {
        let nothing = Context {
            function: 0,
            parent: NO_CONTEXT,
            call: SourcePosition::default(),
        };
        Model {
            strings: Strings::new(),
            functions: Vec::new(),
            by_content: HashTable::new(),
            hasher: FixedState::with_seed(0),
            contexts: vec![nothing],
            entries: Vec::new(),
            entries_left: limits.entries,
        }
    }

    pub(super) fn function(&mut self, function: Function) -> FunctionId {
        let hash = self.hasher.hash_one(function);
        let functions = &self.functions;
        let same = |id: &FunctionId| functions.get(*id as usize) == Some(&function);
        if let Some(id) = self.by_content.find(hash, same) {
            return *id;
        }
        // `spend` fails long before the number exceeds 32 bits.
        let id = self.functions.len() as FunctionId;
        self.functions.push(function);
        let (functions, hasher) = (&self.functions, &self.hasher);
        self.by_content
            .insert_unique(hash, id, |id| hasher.hash_one(functions.get(*id as usize)));
        id
    }

    pub(super) fn context(&mut self, context: Context) -> ContextId {
        let id = self.contexts.len() as ContextId;
        self.contexts.push(context);
        id
    }

    /// Returns the context of a function whose only known property is its linkage name.
    pub(super) fn symbol(&mut self, name: &[u8]) -> ContextId {
        let name = self.strings.add(name);
        let function = self.function(Function {
            name,
            linkage_name: name,
            file: 0,
            start_line: 0,
        });
        self.context(Context {
            function,
            parent: NO_CONTEXT,
            call: SourcePosition::default(),
        })
    }

    /// Records the entry point of a context's function, if the function has no linkage name.
    pub(super) fn entry(&mut self, address: u64, context: ContextId) {
        let known = self.contexts.get(context as usize);
        let function = known.and_then(|known| self.functions.get(known.function as usize));
        if function.is_some_and(|function| function.linkage_name == 0) {
            self.entries.push((address, context));
        }
    }

    /// Names the function of a context after a symbol. The symbol becomes the linkage name if it is mangled and the
    /// function has none, or if the function has no name at all.
    pub(super) fn name_after_symbol(&mut self, context: ContextId, symbol: ContextId) {
        let function = |context: ContextId| {
            let context = self.contexts.get(context as usize)?;
            self.functions.get(context.function as usize).copied()
        };
        let (Some(function), Some(symbol)) = (function(context), function(symbol)) else {
            return;
        };
        let name = self.strings.get(symbol.linkage_name);
        let mangled = name.starts_with(b"_Z") || name.starts_with(b"_R");
        let wanted = function.linkage_name == 0 && (mangled || function.name == 0);
        let Some(name) = without_clone(name).filter(|_| wanted) else {
            return;
        };
        let linkage_name = match name.len() == self.strings.get(symbol.linkage_name).len() {
            true => symbol.linkage_name,
            false => {
                let name = name.to_owned();
                self.strings.add(&name)
            }
        };
        let named = self.function(Function {
            linkage_name,
            ..function
        });
        if let Some(context) = self.contexts.get_mut(context as usize) {
            context.function = named;
        }
    }

    /// Whether the function of a context has a name, or was inlined into a function that may have a name.
    pub(super) fn is_named(&self, context: ContextId) -> bool {
        let Some(context) = self.contexts.get(context as usize) else {
            return false;
        };
        let function = self.functions.get(context.function as usize);
        let has_name =
            function.is_some_and(|function| (function.name, function.linkage_name) != (0, 0));
        has_name || context.parent != NO_CONTEXT
    }

    /// Sets the files of functions without a known file to the file of their code. Otherwise every range of such a
    /// function would have to store the file, because line tables alone do not record it.
    pub(super) fn infer_files(&mut self, ranges: &[Range]) {
        let (contexts, functions) = (&self.contexts, &mut self.functions);
        let mut learn = |context: ContextId, file: FileId| {
            let context = contexts
                .get(context as usize)
                .filter(|_| context != NO_CONTEXT);
            let function = context.and_then(|context| functions.get_mut(context.function as usize));
            if let Some(function) = function.filter(|function| function.file == 0) {
                function.file = file;
            }
        };
        for range in ranges {
            learn(range.context, range.place.file);
        }
        for context in contexts {
            learn(context.parent, context.call.file);
        }
    }

    /// Spends budget before entries (ranges, rows, contexts) are added. Without the budget, a few bytes of a
    /// malicious file could create any number of entries.
    pub(super) fn spend(&mut self, entries: u64) -> Result<(), CompileError> {
        let left = self.entries_left.checked_sub(entries);
        self.entries_left = left.ok_or(CompileError::Limit("entries"))?;
        Ok(())
    }
}

/// Returns the name of the original function of a compiler-made copy (`.constprop.0`, `.isra.0`, `.part.0`, `.llvm.1`).
/// Returns `None` for a moved part of a function (`.cold`, `.__part.1`), because its name does not name the whole
/// function.
fn without_clone(name: &[u8]) -> Option<&[u8]> {
    const MOVED: [&[u8]; 2] = [b"cold", b"__part"];
    const CLONES: [&[u8]; 7] = [
        b"constprop",
        b"isra",
        b"part",
        b"lto_priv",
        b"localalias",
        b"clone",
        b"llvm",
    ];
    let is_word = |word: &[u8]| CLONES.contains(&word) || MOVED.contains(&word);
    // Legacy Rust names spell `::` with two dots: `_ZN..vec..Vec`.
    let mut dots = memchr::memchr_iter(b'.', name).filter(|at| {
        let before = at.checked_sub(1).and_then(|at| name.get(at));
        let words = name.get(at + 1..).unwrap_or_default();
        let word = words.split(|byte| *byte == b'.').next();
        before != Some(&b'.') && word.is_some_and(is_word)
    });
    let Some(end) = dots.next() else {
        return Some(name);
    };
    let (name, suffix) = name.split_at_checked(end)?;
    let mut words = suffix.split(|byte| *byte == b'.');
    (!words.any(|word| MOVED.contains(&word))).then_some(name)
}

/// Sorts ranges and removes overlaps; the range that begins first stays.
pub(super) fn remove_overlaps(ranges: &mut Vec<Range>) {
    ranges.sort_by_key(|range| range.start);
    let mut end = 0;
    ranges.retain_mut(|range| {
        range.start = range.start.max(end);
        let kept = range.start < range.end;
        if kept {
            end = range.end;
        }
        kept
    });
}

/// Fills the gaps of `better` with ranges of `worse`. Both inputs and the result are sorted.
pub(super) fn fill_gaps(better: Vec<Range>, worse: &[Range]) -> Vec<Range> {
    if worse.is_empty() {
        return better;
    }
    let mut filled = Vec::with_capacity(better.len() + worse.len());
    let mut worse = worse.iter().peekable();
    let mut at = 0;
    let mut gap = |filled: &mut Vec<Range>, from: u64, to: u64| {
        while let Some(range) = worse.peek() {
            let part = Range {
                start: range.start.max(from),
                end: range.end.min(to),
                ..**range
            };
            if part.start < part.end {
                filled.push(part);
            }
            if range.end > to {
                break;
            }
            worse.next();
        }
    };
    for range in better {
        gap(&mut filled, at, range.start);
        at = range.end;
        filled.push(range);
    }
    gap(&mut filled, at, u64::MAX);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_keep_the_function_name_and_moved_parts_do_not() {
        for (symbol, expected) in [
            ("_ZL6helperi", Some("_ZL6helperi")),
            ("_ZL6helperi.cold", None),
            ("_ZL6helperi.constprop.0.cold", None),
            ("_ZL6helperi.cold.1", None),
            ("_ZL6helperi.__part.1", None),
            ("_ZL6helperi.constprop.0", Some("_ZL6helperi")),
            ("_ZL6helperi.part.0.isra.0", Some("_ZL6helperi")),
            ("_ZN4core3fooE.llvm.123", Some("_ZN4core3fooE")),
            (
                "_ZN5_$LT$a..part..cold$GT$1fE",
                Some("_ZN5_$LT$a..part..cold$GT$1fE"),
            ),
        ] {
            let name = without_clone(symbol.as_bytes());
            assert_eq!(name, expected.map(str::as_bytes), "{symbol}");
        }
    }
}
