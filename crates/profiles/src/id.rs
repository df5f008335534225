//! Typed indices into the tables of a [`Dictionary`](super::Dictionary).

use std::hash::{Hash, Hasher};

/// An index into one of the tables. 0 is the zero value, which means "not set".
pub trait Id: Copy {
    /// The entry at this position.
    fn new(index: u32) -> Self;
    /// The position in the table.
    fn index(self) -> usize;
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident,)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(u32);

        impl Id for $name {
            fn new(index: u32) -> Self {
                $name(index)
            }

            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                state.write_u32(self.0);
            }

            // A hasher takes 16 bytes in about the time of four.
            fn hash_slice<H: Hasher>(ids: &[Self], state: &mut H) {
                let (quads, rest) = ids.as_chunks::<4>();
                for [a, b, c, d] in quads {
                    let low = u128::from(a.0) | u128::from(b.0) << 32;
                    let high = u128::from(c.0) | u128::from(d.0) << 32;
                    state.write_u128(low | high << 64);
                }
                for id in rest {
                    state.write_u32(id.0);
                }
            }
        }
    )+};
}

ids! {
    /// A string.
    StringId,
    /// The value of an attribute.
    ValueId,
    /// An attribute: key, value, unit.
    AttributeId,
    /// A set of attributes with different keys.
    AttributeSetId,
    /// A binary that is mapped into memory.
    MappingId,
    /// A function.
    FunctionId,
    /// The lines of a location: what was inlined there, the innermost first.
    LinesId,
    /// A location in the code.
    LocationId,
    /// The span that was active.
    LinkId,
    /// A stack of locations, the leaf first.
    StackId,
    /// What makes samples the same, within the profiles of a scope.
    SampleId,
    /// A group of what is equal.
    GroupId,
}
