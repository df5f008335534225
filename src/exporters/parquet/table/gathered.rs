//! Data that tables buffer until a row group is written.

/// A buffered container.
pub(super) trait Gathered {
    /// Removes all data. Memory is kept for further data.
    fn clear(&mut self);
    /// Returns the memory in bytes.
    fn memory(&self) -> usize;
}

impl<T: Copy> Gathered for Vec<T> {
    fn clear(&mut self) {
        Vec::clear(self);
    }

    fn memory(&self) -> usize {
        self.capacity() * size_of::<T>()
    }
}

/// A count.
impl Gathered for usize {
    fn clear(&mut self) {
        *self = 0;
    }

    fn memory(&self) -> usize {
        0
    }
}

/// Implements `Gathered` for all fields of a struct, so that no field can be forgotten: an
/// uncleared field would leak into the next file, and an uncounted field would be unbounded.
macro_rules! gathered {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_visibility:vis $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        $visibility struct $name {
            $($(#[$field_meta])* $field_visibility $field: $type,)*
        }

        impl $crate::exporters::parquet::table::gathered::Gathered for $name {
            fn clear(&mut self) {
                $($crate::exporters::parquet::table::gathered::Gathered::clear(&mut self.$field);)*
            }

            fn memory(&self) -> usize {
                0 $(+ $crate::exporters::parquet::table::gathered::Gathered::memory(&self.$field))*
            }
        }
    };
}

pub(super) use gathered;
