//! What tables gather until a row group is written.

/// Something that is gathered.
pub(super) trait Gathered {
    /// Forgets all of it. Memory is kept for what is to come.
    fn clear(&mut self);
    /// The memory that it takes, in bytes.
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

/// A struct that is gathered, as all its fields are. None can be forgotten: what is not cleared would be in the next
/// file, and what is not counted is not bounded.
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
