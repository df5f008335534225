//! Folded stacks: see `folded` of `tributary-profiles`, which describes the format.

use memchr::memchr_iter;
use tributary_profiles::folded;
use tributary_profiles::id::AttributeSetId;

use crate::builder::{Builder, Frame};
use crate::error::Fault;

/// Memory of a distinct stack in a sorted map, in bytes.
const STACK: usize = 64;

pub(crate) fn begins_like(bytes: &[u8]) -> bool {
    folded::begins_like(bytes)
}

pub(crate) fn read(bytes: &[u8], builder: &mut Builder<'_>) -> Result<(), Fault> {
    let text = str::from_utf8(bytes)
        .map_err(|error| Fault::byte(error.valid_up_to(), "the text is not UTF-8"))?;
    let lines = memchr_iter(b'\n', bytes).count() + 1;
    builder.grow(lines * STACK)?;
    let totals = folded::totals(text).map_err(|error| Fault::whole(error.to_string()))?;
    let column = builder.sample_type("samples", "count")?;
    let mut locations = Vec::new();
    for (stack, value) in totals {
        locations.clear();
        for name in stack.rsplit(';').filter(|_| !stack.is_empty()) {
            locations.push(builder.frame(&Frame {
                name,
                ..Frame::default()
            })?);
        }
        builder.sample(&locations, AttributeSetId::default(), &[(column, value)])?;
    }
    Ok(())
}
