//! Hashes of stacks and of their locations.

use xxhash_rust::xxh3::xxh3_128;

use super::sequence::Sequence;
use super::tables::Tables;
use crate::entries::{Indices, bytes, fields, index, indices, number, signed};
use crate::fault::{DictionaryTable, ProfileFault};
use tributary_otlp::reader::{Value, varint};

impl<'e, 'r> Tables<'e, 'r> {
    #[inline(always)]
    fn location(&mut self, of: i32) -> Result<u128, ProfileFault> {
        match self.locations.get(of) {
            Some(hash) => Ok(hash),
            None => self.new_location(of),
        }
    }

    /// Hashes a location, relative to its mapping.
    #[inline(never)]
    fn new_location(&mut self, of: i32) -> Result<u128, ProfileFault> {
        const PLACE: &str = "a location";
        let (mut mapping, mut address) = (0, 0_u64);
        let mut attributes = Indices::new();
        let mut lines = Sequence::default();
        for field in fields(self.entry(DictionaryTable::Location, of)?, PLACE) {
            let field = field?;
            match field.number {
                1 => mapping = index(field, PLACE)?,
                2 => address = number(field, PLACE)?,
                3 => lines.push(self.line(bytes(field, PLACE)?)?),
                4 => indices(field, PLACE, &mut attributes)?,
                _ => self.unknown = true,
            }
        }
        let (mapping, start) = self.mapping(mapping)?;
        let attributes = self.attribute_set(&attributes)?;
        let mut said = [0; 56];
        said[..16].copy_from_slice(&mapping.to_le_bytes());
        said[16..32].copy_from_slice(&attributes.to_le_bytes());
        said[32..48].copy_from_slice(&lines.to_le_bytes());
        said[48..].copy_from_slice(&address.wrapping_sub(start).to_le_bytes());
        Ok(self.locations.set(of, xxh3_128(&said)))
    }

    #[inline]
    fn line(&mut self, from: &[u8]) -> Result<u128, ProfileFault> {
        const PLACE: &str = "a line";
        let (mut function, mut line, mut column) = (0, 0, 0);
        for field in fields(from, PLACE) {
            let field = field?;
            match field.number {
                1 => function = index(field, PLACE)?,
                2 => line = signed(field, PLACE)?,
                3 => column = signed(field, PLACE)?,
                _ => self.unknown = true,
            }
        }
        let mut said = [0; 32];
        said[..16].copy_from_slice(&self.function(function)?.to_le_bytes());
        said[16..24].copy_from_slice(&line.to_le_bytes());
        said[24..].copy_from_slice(&column.to_le_bytes());
        Ok(xxh3_128(&said))
    }

    #[inline]
    pub(super) fn stack(&mut self, of: i32) -> Result<u128, ProfileFault> {
        match self.stacks.get(of) {
            Some(hash) => Ok(hash),
            None => self.new_stack(of),
        }
    }

    fn new_stack(&mut self, of: i32) -> Result<u128, ProfileFault> {
        const PLACE: &str = "a stack";
        let mut sequence = Sequence::default();
        for field in fields(self.entry(DictionaryTable::Stack, of)?, PLACE) {
            let field = field?;
            match (field.number, field.value) {
                (1, Value::Bytes(packed)) => sequence = self.packed_locations(packed, sequence)?,
                (1, Value::Varint(location)) => sequence.push(self.location(location as i32)?),
                (1, _) => return Err(ProfileFault::Malformed(PLACE)),
                _ => self.unknown = true,
            }
        }
        Ok(self.stacks.set(of, xxh3_128(&sequence.to_le_bytes())))
    }

    fn packed_locations(
        &mut self,
        mut packed: &[u8],
        mut into: Sequence,
    ) -> Result<Sequence, ProfileFault> {
        while !packed.is_empty() {
            packed = self.known_locations(packed, &mut into);
            if !packed.is_empty() {
                let (location, rest) =
                    varint(packed).map_err(|_| ProfileFault::Malformed("a stack"))?;
                into.push(self.location(location as i32)?);
                packed = rest;
            }
        }
        Ok(into)
    }

    /// Hashes locations up to the first one that is not hashed yet, and returns the rest. This is the
    /// innermost loop.
    fn known_locations<'p>(&self, mut packed: &'p [u8], into: &mut Sequence) -> &'p [u8] {
        let hashes = &*self.locations.0;
        let mut sequence = *into;
        while let Ok((location, rest)) = varint(packed)
            // A negative index becomes a position outside of the table.
            && let Some(hash) = hashes.get(location as u32 as usize)
            && *hash != 0
        {
            sequence.push(*hash);
            packed = rest;
        }
        *into = sequence;
        packed
    }
}
