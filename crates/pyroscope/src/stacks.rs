//! Stacks with values, as text: the frames are separated by semicolons, the root first.

use std::collections::BTreeMap;

use tributary_memory::{NoRoom, Permit};
use tributary_otlp::reader::WireFault;
use tributary_profiles::folded::{self, FoldedError};
use tributary_profiles::model::{Profile, Profiles};

use crate::kinds::StackKind;

/// Maximum length of a stack in bytes.
pub const MAX_STACK: usize = 1 << 20;
/// Memory of a profile for each byte of a stack's text: names, functions, locations and the sample.
const PER_BYTE: usize = 10;
/// Memory of a stack in addition to its text.
const PER_STACK: usize = 128;
/// Maximum size of all stacks with values together, in bytes, equal stacks included. A few bytes of a tree make a long
/// stack.
const MAX_READ: usize = 1 << 30;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// The reason why stacks cannot be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StackError {
    /// The text is not UTF-8.
    #[error("the stacks are not UTF-8")]
    NotText,
    /// A line is not a folded stack.
    #[error(transparent)]
    Folded(#[from] FoldedError),
    /// A number or a name of the binary encoding ends too early.
    #[error("the tree is damaged at byte {at}: {}", fault.text())]
    Wire {
        /// Offset in the input.
        at: usize,
        /// Description of the fault.
        fault: WireFault,
    },
    /// A node announces children that do not follow.
    #[error("the tree is truncated: {0} nodes are missing")]
    Truncated(u64),
    /// A stack is too long.
    #[error("a stack has more than {MAX_STACK} bytes")]
    Long,
    /// The stacks are too long in sum.
    #[error("all stacks together have more than {MAX_READ} bytes")]
    Many,
    /// The tree is too deep.
    #[error("the tree is deeper than {0} nodes")]
    Deep(usize),
    /// The memory budget has no room for the stacks.
    #[error("{0}")]
    NoRoom(#[from] NoRoom),
}

/// Stacks with the sums of their values. The permit covers the stacks and the profile that is made of them.
#[derive(Debug)]
pub struct Stacks<'p> {
    totals: BTreeMap<String, i64>,
    /// Bytes of all stacks that were added.
    read: usize,
    permit: &'p mut Permit,
}

impl<'p> Stacks<'p> {
    /// Creates an empty list, for which `permit` grows.
    pub fn new(permit: &'p mut Permit) -> Self {
        Stacks {
            totals: BTreeMap::new(),
            read: 0,
            permit,
        }
    }

    /// Adds a stack; empty stacks and zeros are ignored.
    ///
    /// # Errors
    /// The stack is too long, all stacks are too long in sum, or there is no memory.
    pub fn add(&mut self, stack: &str, value: i64) -> Result<(), StackError> {
        if stack.is_empty() || value == 0 {
            return Ok(());
        }
        if stack.len() > MAX_STACK {
            return Err(StackError::Long);
        }
        self.read += stack.len();
        if self.read > MAX_READ {
            return Err(StackError::Many);
        }
        if let Some(total) = self.totals.get_mut(stack) {
            *total = total.saturating_add(value);
            return Ok(());
        }
        self.permit.grow(stack.len() * PER_BYTE + PER_STACK)?;
        self.totals.insert(stack.to_owned(), value);
        Ok(())
    }

    /// Adds a stack of bytes; those that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// See [`add`](Self::add).
    pub fn add_bytes(&mut self, stack: &[u8], value: u64) -> Result<(), StackError> {
        // Most nodes of a tree have no own value, and their stacks may be long.
        if value == 0 {
            return Ok(());
        }
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.add(&String::from_utf8_lossy(stack), value)
    }

    /// Returns the profile of these stacks. Values that count samples are multiplied by the period of `rate`, in Hz, or
    /// stay counts if the rate is 0.
    pub fn into_profiles(self, kind: &StackKind, rate: u32) -> Profiles {
        let period = NANOS_PER_SECOND.checked_div(i64::from(rate));
        let period = period.filter(|_| kind.is_time).map(|period| period.max(1));
        let (sample_type, unit) = match kind.is_time && period.is_none() {
            true => ("samples", "count"),
            false => (kind.sample_type, kind.unit),
        };
        let totals = self.totals.iter();
        let scaled = totals
            .map(|(stack, value)| (stack.as_str(), value.saturating_mul(period.unwrap_or(1))));
        let mut profiles = folded::from_stacks(scaled);
        let Profiles {
            dictionary,
            resources,
        } = &mut profiles;
        let scopes = resources
            .iter_mut()
            .flat_map(|resource| &mut resource.scopes);
        for Profile { header, .. } in scopes.flat_map(|scope| &mut scope.profiles) {
            header.sample_type.kind = dictionary.string(sample_type);
            header.sample_type.unit = dictionary.string(unit);
            (header.period_type, header.period) = Default::default();
            if let Some(period) = period {
                header.period_type.kind = dictionary.string("cpu");
                header.period_type.unit = dictionary.string("nanoseconds");
                header.period = period;
            }
        }
        profiles
    }
}

/// Reads folded stacks: `main;run 5` in each line.
///
/// # Errors
/// See [`StackError`].
pub fn groups(body: &[u8], stacks: &mut Stacks<'_>) -> Result<(), StackError> {
    // The parser keeps a slice and a sum for each line.
    let lines = memchr::memchr_iter(b'\n', body).count() + 1;
    let held = stacks.permit.bytes();
    stacks.permit.grow(lines.saturating_mul(PER_STACK))?;
    let parsed = folded::totals(text(body)?)?;
    for (stack, value) in parsed {
        stacks.add(stack, value)?;
    }
    let kept = stacks.permit.bytes() - lines.saturating_mul(PER_STACK);
    stacks.permit.shrink_to(kept.max(held));
    Ok(())
}

/// Reads a stack in each line; each line counts 1.
///
/// # Errors
/// See [`StackError`].
pub fn lines(body: &[u8], stacks: &mut Stacks<'_>) -> Result<(), StackError> {
    for line in text(body)?.lines() {
        stacks.add(line.trim(), 1)?;
    }
    Ok(())
}

fn text(body: &[u8]) -> Result<&str, StackError> {
    str::from_utf8(body).map_err(|_| StackError::NotText)
}

/// A reader of the numbers and names of a binary tree.
#[derive(Debug)]
pub(crate) struct Nodes<'b> {
    body: &'b [u8],
    rest: &'b [u8],
}

/// A node in a binary tree, before its children.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node<'b> {
    pub(crate) name: &'b [u8],
    pub(crate) value: u64,
    pub(crate) children: u64,
}

impl<'b> Nodes<'b> {
    pub(crate) fn new(body: &'b [u8]) -> Self {
        Nodes { body, rest: body }
    }

    /// Returns the next node: the length of the name, the name, the value and the number of children. `None` at the end
    /// of the input.
    pub(crate) fn next(&mut self) -> Result<Option<Node<'b>>, StackError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let length = self.number()?;
        let at = usize::try_from(length).unwrap_or(usize::MAX);
        let (name, rest) = self
            .rest
            .split_at_checked(at)
            .ok_or_else(|| self.damaged(WireFault::Truncated))?;
        self.rest = rest;
        Ok(Some(Node {
            name,
            value: self.number()?,
            children: self.number()?,
        }))
    }

    fn number(&mut self) -> Result<u64, StackError> {
        let (number, rest) =
            tributary_otlp::reader::varint(self.rest).map_err(|fault| self.damaged(fault))?;
        self.rest = rest;
        Ok(number)
    }

    fn damaged(&self, fault: WireFault) -> StackError {
        StackError::Wire {
            at: self.body.len() - self.rest.len(),
            fault,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use tributary_memory::Budget;
    use tributary_otlp::reader::put_varint;
    use tributary_profiles::top;

    use super::*;
    use crate::kinds::of_service;

    /// Writes a node of a binary tree.
    pub(crate) fn node(name: &str, value: u64, children: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_varint(name.len() as u64, &mut bytes);
        bytes.extend_from_slice(name.as_bytes());
        put_varint(value, &mut bytes);
        put_varint(children, &mut bytes);
        bytes
    }

    /// Reads stacks and returns them as folded text.
    pub(crate) fn read(
        budget: usize,
        read: impl FnOnce(&mut Stacks<'_>) -> Result<(), StackError>,
    ) -> Result<String, StackError> {
        let mut permit = Budget::new(budget).empty_permit();
        let mut stacks = Stacks::new(&mut permit);
        read(&mut stacks)?;
        let lines = stacks
            .totals
            .iter()
            .map(|(stack, value)| format!("{stack} {value}\n"));
        Ok(lines.collect())
    }

    #[test]
    fn lines_of_equal_stacks_are_counted() {
        let text = b"main;a\nmain;b\n\nmain;a\n";
        assert_eq!(
            read(1 << 20, |stacks| lines(text, stacks)).unwrap(),
            "main;a 2\nmain;b 1\n"
        );
    }

    #[test]
    fn groups_have_a_value_at_the_end_of_each_line() {
        let text = b"main;a 2\n main;b 3";
        assert_eq!(
            read(1 << 20, |stacks| groups(text, stacks)).unwrap(),
            "main;a 2\nmain;b 3\n"
        );
        let wrong = read(1 << 20, |stacks| groups(b"main;a", stacks)).unwrap_err();
        assert!(matches!(wrong, StackError::Folded(_)), "{wrong}");
        let wrong = read(1 << 20, |stacks| groups(b"\xff 1", stacks)).unwrap_err();
        assert_eq!(wrong, StackError::NotText);
    }

    #[test]
    fn stacks_without_memory_are_refused() {
        let text: String = (0..1000).map(|at| format!("main;f{at} 1\n")).collect();
        let error = read(10_000, |stacks| groups(text.as_bytes(), stacks)).unwrap_err();
        assert!(matches!(error, StackError::NoRoom(_)));
        let long = "x".repeat(MAX_STACK + 1);
        assert_eq!(
            read(1 << 30, |stacks| lines(long.as_bytes(), stacks)),
            Err(StackError::Long)
        );
    }

    #[test]
    fn stacks_are_bounded_in_sum() {
        let stack = "x".repeat(MAX_STACK);
        let error = read(1 << 30, |stacks| {
            stacks.read = MAX_READ - MAX_STACK;
            stacks.add_bytes(stack.as_bytes(), 0)?;
            stacks.add_bytes(stack.as_bytes(), 1)?;
            stacks.add_bytes(b"x", 0)?;
            stacks.add_bytes(b"x", 1)
        });
        assert_eq!(error, Err(StackError::Many));
    }

    #[test]
    fn counted_samples_become_time() {
        let mut permit = Budget::new(1 << 20).empty_permit();
        let mut stacks = Stacks::new(&mut permit);
        stacks.add("main;a", 3).unwrap();
        let (_, kind) = of_service("shop.cpu").unwrap();
        let profiles = stacks.into_profiles(&kind, 100);
        let kind = top::sample_type(&profiles, None).unwrap();
        assert_eq!(folded::write(&profiles, kind), "main;a 30000000\n");
        let header = &profiles.iter().next().unwrap().header;
        let text = |id| profiles.dictionary.text(id);
        let sample_type = (text(header.sample_type.kind), text(header.sample_type.unit));
        assert_eq!(sample_type, ("cpu", "nanoseconds"));
        assert_eq!(
            (text(header.period_type.kind), header.period),
            ("cpu", 10_000_000)
        );
    }
}
