//! Reads fields of a message by number; the basis of the typed views.

use std::marker::PhantomData;

use crate::reader::{Fields, Value, varint};

/// A message of a valid request. Of a repeated singular scalar, the last occurrence is the value, as in
/// prost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Message<'a>(pub(super) &'a [u8]);

/// A type that reads the fields of an encoded message.
pub trait View<'a> {
    /// Returns the view of `message`.
    fn view(message: Message<'a>) -> Self;
}

impl<'a> Message<'a> {
    /// Creates a message from its encoding.
    pub fn new(encoded: &'a [u8]) -> Self {
        Message(encoded)
    }

    /// Returns the encoding.
    pub fn encoded(&self) -> &'a [u8] {
        self.0
    }

    /// Iterates over the fields with their numbers, in order.
    pub(super) fn values(self) -> impl Iterator<Item = (u32, Value<'a>)> + Clone {
        Fields::new(self.0)
            .map_while(Result::ok)
            .map(|field| (field.number, field.value))
    }

    fn last(self, number: u32) -> Option<Value<'a>> {
        self.values()
            .filter(|(found, _)| *found == number)
            .map(|(_, value)| value)
            .last()
    }

    pub(super) fn bytes(self, number: u32) -> &'a [u8] {
        self.last(number).and_then(Value::bytes).unwrap_or_default()
    }

    pub(super) fn text(self, number: u32) -> &'a str {
        text(self.bytes(number))
    }

    pub(super) fn uint64(self, number: u32) -> u64 {
        self.last(number).map_or(0, scalar)
    }

    pub(super) fn uint32(self, number: u32) -> u32 {
        self.uint64(number) as u32
    }

    pub(super) fn int32(self, number: u32) -> i32 {
        self.uint32(number).cast_signed()
    }

    pub(super) fn sint32(self, number: u32) -> i32 {
        let value = self.uint32(number);
        (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
    }

    pub(super) fn boolean(self, number: u32) -> bool {
        self.uint64(number) != 0
    }

    pub(super) fn double(self, number: u32) -> f64 {
        f64::from_bits(self.uint64(number))
    }

    pub(super) fn some_double(self, number: u32) -> Option<f64> {
        self.last(number).map(scalar).map(f64::from_bits)
    }

    pub(super) fn one<V: View<'a>>(self, number: u32) -> Option<V> {
        self.last(number)
            .and_then(Value::bytes)
            .map(|message| V::view(Message(message)))
    }

    pub(super) fn each<V: View<'a>>(self, number: u32) -> Each<'a, V> {
        Each {
            fields: Fields::new(self.0),
            number,
            view: PhantomData,
        }
    }

    pub(super) fn texts(self, number: u32) -> impl Iterator<Item = &'a str> + Clone {
        self.values()
            .filter(move |(found, _)| *found == number)
            .filter_map(|(_, value)| value.bytes().map(text))
    }

    /// Iterates over repeated `fixed64` or varints, packed or not.
    fn scalars(self, number: u32, fixed: bool) -> impl Iterator<Item = u64> + Clone {
        self.values()
            .filter(move |(found, _)| *found == number)
            .flat_map(move |(_, value)| match value {
                Value::Bytes(packed) => Scalars {
                    packed,
                    fixed,
                    single: None,
                },
                single => Scalars {
                    packed: &[],
                    fixed,
                    single: Some(scalar(single)),
                },
            })
    }

    pub(super) fn fixed64s(self, number: u32) -> impl Iterator<Item = u64> + Clone {
        self.scalars(number, true)
    }

    pub(super) fn uint64s(self, number: u32) -> impl Iterator<Item = u64> + Clone {
        self.scalars(number, false)
    }

    pub(super) fn doubles(self, number: u32) -> impl Iterator<Item = f64> + Clone {
        self.scalars(number, true).map(f64::from_bits)
    }
}

/// The messages of a repeated field.
#[derive(Debug, Clone)]
pub struct Each<'a, V> {
    fields: Fields<'a>,
    number: u32,
    view: PhantomData<V>,
}

impl<'a, V: View<'a>> Iterator for Each<'a, V> {
    type Item = V;

    #[inline]
    fn next(&mut self) -> Option<V> {
        loop {
            let field = self.fields.next()?.ok()?;
            if field.number == self.number
                && let Value::Bytes(message) = field.value
            {
                return Some(V::view(Message(message)));
            }
        }
    }
}

#[derive(Clone)]
struct Scalars<'a> {
    packed: &'a [u8],
    fixed: bool,
    single: Option<u64>,
}

impl Iterator for Scalars<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if let Some(value) = self.single.take() {
            return Some(value);
        }
        if self.packed.is_empty() {
            return None;
        }
        let (value, rest) = if self.fixed {
            let (bytes, rest) = self.packed.split_first_chunk()?;
            (u64::from_le_bytes(*bytes), rest)
        } else {
            varint(self.packed).ok()?
        };
        self.packed = rest;
        Some(value)
    }
}

pub(super) fn scalar(value: Value<'_>) -> u64 {
    match value {
        Value::Varint(value) | Value::Fixed64(value) => value,
        Value::Fixed32(value) => value.into(),
        Value::Bytes(_) => 0,
    }
}

/// Converts validated bytes to a text. The safe conversion checks UTF-8 again, which is cheap for short texts.
pub(super) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Declares a view: a type, and a method for each field.
macro_rules! view {
    (
        $(#[$doc:meta])*
        $view:ident {
            $($(#[$field_doc:meta])* $field:ident: $kind:ident $(<$of:ident>)? = $number:literal;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $view<'a>($crate::view::Message<'a>);

        impl<'a> $crate::view::View<'a> for $view<'a> {
            fn view(message: $crate::view::Message<'a>) -> Self {
                $view(message)
            }
        }

        impl<'a> $view<'a> {
            /// Returns the underlying message.
            pub fn message(&self) -> $crate::view::Message<'a> {
                self.0
            }

            $(
                $(#[$field_doc])*
                pub fn $field(&self) -> view!(@type $kind $($of)?) {
                    self.0.$kind($number)
                }
            )*
        }
    };
    (@type bytes) => { &'a [u8] };
    (@type text) => { &'a str };
    (@type uint64) => { u64 };
    (@type uint32) => { u32 };
    (@type int32) => { i32 };
    (@type sint32) => { i32 };
    (@type boolean) => { bool };
    (@type double) => { f64 };
    (@type some_double) => { Option<f64> };
    (@type texts) => { impl Iterator<Item = &'a str> + Clone + use<'a> };
    (@type fixed64s) => { impl Iterator<Item = u64> + Clone + use<'a> };
    (@type uint64s) => { impl Iterator<Item = u64> + Clone + use<'a> };
    (@type doubles) => { impl Iterator<Item = f64> + Clone + use<'a> };
    (@type one $of:ident) => { Option<$of<'a>> };
    (@type each $of:ident) => { $crate::view::Each<'a, $of<'a>> };
}
pub(super) use view;
