//! The state of one attribute while actions are applied.

use std::borrow::Cow;

use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;
use regex::Regex;
use smallvec::SmallVec;

use super::encode;
use crate::reader::Field;
use crate::view;
use crate::view::{Message, View as _};

/// An attribute of the set that an action concerns.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) attribute: Field<'a>,
    /// Field with the value, if there is one.
    pub(super) value: Option<Field<'a>>,
    /// Whether the attribute consists of one key and one value, in this order.
    pub(super) plain: bool,
}

/// An encoded `AnyValue`, or `None` for an attribute without a value.
pub(super) type Encoded<'v> = Option<Cow<'v, [u8]>>;

/// State of one key while the actions are applied.
#[derive(Clone, Default)]
pub(super) struct State<'a, 'v> {
    pub(super) key: Cow<'v, [u8]>,
    pub(super) found: Option<Found<'a>>,
    /// Whether the found attribute is kept.
    pub(super) kept: bool,
    /// Number of attributes added before this attribute; `None` if it was not added.
    pub(super) added: Option<usize>,
    pub(super) value: Option<Encoded<'v>>,
}

impl<'a: 'v, 'v> State<'a, 'v> {
    pub(super) fn is_present(&self) -> bool {
        self.kept || self.added.is_some()
    }

    pub(super) fn current(&self) -> Option<Encoded<'v>> {
        self.is_present().then(|| {
            self.value.clone().unwrap_or_else(|| {
                let value = self.found.and_then(|found| found.value);
                value.and_then(|field| field.value.bytes().map(Cow::Borrowed))
            })
        })
    }

    pub(super) fn set(&mut self, value: Encoded<'v>, added: &mut usize) {
        if !self.is_present() {
            self.added = Some(*added);
            *added += 1;
        }
        self.value = Some(value);
    }

    pub(super) fn remove(&mut self) {
        self.kept = false;
        self.added = None;
        self.value = None;
    }

    pub(super) fn change(&mut self, change: impl FnOnce(view::AnyValue<'_>) -> Option<Value>) {
        let Some(current) = self.current() else {
            return;
        };
        let current = current.unwrap_or_default();
        if let Some(value) = with_view(&current, change) {
            self.value = Some(Some(Cow::Owned(encode(&value))));
        }
    }

    pub(super) fn matches(&self, pattern: &Regex) -> bool {
        is_match(pattern, &self.key)
    }
}

/// Calls `read` with the value. A list or a map is decoded and encoded first, so that its duplicate fields are merged
/// as in prost.
fn with_view<R>(encoded: &[u8], read: impl FnOnce(view::AnyValue<'_>) -> R) -> R {
    match view::AnyValue::view(Message::new(encoded)) {
        view::AnyValue::Array(_) | view::AnyValue::Map(_) => {
            let plain = AnyValue::decode(encoded).unwrap_or_default();
            read(view::AnyValue::view(Message::new(&plain.encode_to_vec())))
        }
        value => read(value),
    }
}

pub(super) fn is_match(pattern: &Regex, key: &[u8]) -> bool {
    std::str::from_utf8(key).is_ok_and(|key| pattern.is_match(key))
}

pub(super) type States<'a, 'v> = SmallVec<[State<'a, 'v>; 4]>;
