//! Typed indices into the tables of a [`Dictionary`](super::Dictionary).

use std::hash::{Hash, Hasher};

/// Index into a table. 0 is the zero value, which means "not set".
pub trait Id: Copy {
    /// Creates the id of the entry at a position.
    fn new(index: u32) -> Self;
    /// Position in the table.
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

            // A hasher takes 16 bytes in about the time of 4 bytes.
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
    /// Id of a string.
    StringId,
    /// Id of an attribute's value.
    ValueId,
    /// Id of an attribute: key, value, unit.
    AttributeId,
    /// Id of a set of attributes with distinct keys.
    AttributeSetId,
    /// Id of a mapped binary.
    MappingId,
    /// Id of a function.
    FunctionId,
    /// Id of the lines of a location, innermost inlined function first.
    LinesId,
    /// Id of a location in the code.
    LocationId,
    /// Id of the span that was active.
    LinkId,
    /// Id of a stack of locations, the leaf first.
    StackId,
    /// Id of a sample's key, within the profiles of a scope.
    SampleId,
    /// Id of a group of equal items.
    GroupId,
}
