//! The current resource, scope and item, with the changes that statements made to them.

use std::borrow::Cow;

use tributary_otlp::edit::put_delimited;
use tributary_otlp::reader::Fields;
use tributary_otlp::room::{Room, RoomExhausted};
use tributary_otlp::view::Message;
use tributary_ottl::path::Context;
use tributary_ottl::statement::PartChange;
use tributary_ottl::{EvaluationTarget, ProfileFields};

/// An encoded part of a request.
#[derive(Debug, Default)]
pub(super) struct EncodedPart<'a> {
    bytes: Cow<'a, [u8]>,
    is_changed: bool,
    /// Bytes taken from the memory budget.
    taken: usize,
}

impl<'a> EncodedPart<'a> {
    pub(super) fn new(bytes: Cow<'a, [u8]>) -> Self {
        EncodedPart {
            bytes,
            is_changed: false,
            taken: 0,
        }
    }

    pub(super) fn message(&self) -> Message<'_> {
        Message::new(&self.bytes)
    }

    /// Returns the bytes, if they changed.
    pub(super) fn changed(&self) -> Option<&[u8]> {
        self.is_changed.then_some(&*self.bytes)
    }

    fn replace(&mut self, bytes: Vec<u8>, room: &dyn Room) -> Result<(), RoomExhausted> {
        if let Some(more) = bytes.len().checked_sub(self.taken).filter(|more| *more > 0) {
            room.take(more)?;
            self.taken += more;
        }
        self.bytes = Cow::Owned(bytes);
        self.is_changed = true;
        Ok(())
    }

    /// Begins another part, and returns the memory of the previous one.
    pub(super) fn begin(&mut self, bytes: Cow<'a, [u8]>, room: &dyn Room) {
        if self.taken > 0 {
            room.release(self.taken);
        }
        *self = EncodedPart::new(bytes);
    }
}

/// The parts that an expression can refer to.
#[derive(Debug, Default)]
pub(super) struct Parts<'a> {
    pub(super) resource: EncodedPart<'a>,
    pub(super) scope: EncodedPart<'a>,
    /// A span, a metric or a log record.
    pub(super) item: EncodedPart<'a>,
    /// A span event or a data point.
    pub(super) inner: EncodedPart<'a>,
    /// For a data point: the field of the metric that contains it.
    pub(super) form: u32,
    pub(super) profile: Option<Box<ProfileFields>>,
    /// Bytes taken from the memory budget for the profile.
    profile_taken: usize,
    pub(super) cache: Vec<u8>,
    /// Metrics that statements added to the current scope.
    pub(super) added: Vec<Vec<u8>>,
}

impl Parts<'_> {
    pub(super) fn target(&self) -> EvaluationTarget<'_> {
        EvaluationTarget {
            resource: self.resource.message(),
            scope: self.scope.message(),
            item: self.item.message(),
            profile: self.profile.as_deref(),
            inner: self.inner.message(),
            form: self.form,
            cache: Message::new(&self.cache),
        }
    }

    /// Applies a change.
    pub(super) fn apply(
        &mut self,
        change: PartChange,
        room: &dyn Room,
    ) -> Result<(), RoomExhausted> {
        match change {
            PartChange::Part(context, bytes) => {
                let part = match context {
                    Context::Resource => &mut self.resource,
                    Context::Scope => &mut self.scope,
                    Context::Span | Context::Metric | Context::Log | Context::Profile => {
                        &mut self.item
                    }
                    Context::SpanEvent | Context::DataPoint => &mut self.inner,
                };
                part.replace(bytes, room)
            }
            PartChange::Profile(profile) => {
                let bytes = profile.attributes.len() + profile.payload_format.len();
                if let Some(more) = bytes.checked_sub(self.profile_taken) {
                    room.take(more)?;
                    self.profile_taken = bytes;
                }
                self.profile = Some(profile);
                Ok(())
            }
            PartChange::Cache(cache) => {
                match cache.len().checked_sub(self.cache.len()) {
                    Some(more) => room.take(more)?,
                    None => room.release(self.cache.len() - cache.len()),
                }
                self.cache = cache;
                Ok(())
            }
        }
    }

    /// Begins another profile, and returns the memory of the previous one.
    pub(super) fn begin_profile(&mut self, profile: ProfileFields, room: &dyn Room) {
        room.release(self.profile_taken);
        self.profile_taken = 0;
        self.profile = Some(Box::new(profile));
    }

    /// Empties the cache before another item.
    pub(super) fn clear_cache(&mut self, room: &dyn Room) {
        if !self.cache.is_empty() {
            room.release(self.cache.len());
            self.cache.clear();
        }
    }
}

/// Returns a message without the fields of a number.
pub(super) fn without(message: &[u8], number: u32) -> Vec<u8> {
    let fields = Fields::new(message).map_while(Result::ok);
    let mut rest = Vec::new();
    for field in fields.filter(|field| field.number != number) {
        rest.extend_from_slice(field.raw);
    }
    rest
}

/// Returns a metric without its data points.
pub(super) fn without_points(metric: &[u8]) -> Vec<u8> {
    let mut rest = Vec::new();
    for field in Fields::new(metric).map_while(Result::ok) {
        match (is_data(field.number), field.value.bytes()) {
            (true, Some(data)) => put_delimited(field.number, &without(data, 1), &mut rest),
            _ => rest.extend_from_slice(field.raw),
        }
    }
    rest
}

/// Whether a field of a metric has data points.
pub(super) fn is_data(number: u32) -> bool {
    matches!(number, 5 | 7 | 9 | 10 | 11)
}
