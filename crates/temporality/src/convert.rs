//! Conversion of requests.

use bytes::Bytes;
use tributary_otlp::edit::{EditError, Editor};
use tributary_otlp::reader::{Field, Fields, Value, WireFault, put_varint};
use tributary_otlp::room::{Room, RoomExhausted};
use tributary_otlp::{Malformed, Signal};

use crate::identity::{IdentityHasher, attributes};
use crate::kinds::{CumulativeKind, DropCause};
use crate::point::PointValue;
use crate::tracker::{DeltaTracker, Tentative};
use crate::wire::WirePoint;

/// A converted request.
pub struct DeltaRequest {
    /// The request; `None` if it is unchanged.
    pub request: Option<Bytes>,
    /// Number of converted points.
    pub points: usize,
    /// Numbers of dropped points, in the order of [`DropCause::ALL`].
    pub dropped: [usize; DropCause::ALL.len()],
    /// The changes of the tracker.
    pub tentative: Tentative,
}

/// Selects metrics by name and kind.
type Selects<'s> = dyn Fn(&str, CumulativeKind) -> bool + 's;

impl DeltaTracker {
    /// Converts the selected cumulative metrics of a valid request, with memory from `room`. The changes of the tracker
    /// take their memory from `undo`: [`Tentative::bytes`], until they are confirmed or undone.
    ///
    /// # Errors
    /// Fails if the request is invalid, or if a room is exhausted. The tracker is then unchanged.
    pub fn convert(
        &self,
        request: &[u8],
        selects: &Selects<'_>,
        room: &dyn Room,
        undo: &dyn Room,
    ) -> Result<DeltaRequest, EditError> {
        match Walk::new(self, selects, room, undo).request(request) {
            Err(Fault::RoomExhausted) => return Err(RoomExhausted.into()),
            Err(Fault::Ambiguous) => {}
            Ok(converted) => return Ok(converted),
        }
        let signal = Signal::Metrics;
        room.take(tributary_otlp::decoded_bytes(signal, request))?;
        let merged = tributary_otlp::merge_repeated(signal, request)?;
        let converted = Walk::new(self, selects, room, undo).request(&merged);
        let mut converted = converted.map_err(|fault| match fault {
            Fault::RoomExhausted => RoomExhausted.into(),
            Fault::Ambiguous => EditError::from(Malformed::new(0, "not a valid request")),
        })?;
        converted.request = converted.request.or(Some(merged));
        Ok(converted)
    }
}

/// Reason why a request cannot be converted in encoded form.
enum Fault {
    /// A singular message occurs twice, or the request is invalid.
    Ambiguous,
    RoomExhausted,
}

impl From<WireFault> for Fault {
    fn from(_: WireFault) -> Self {
        Fault::Ambiguous
    }
}

struct Walk<'t> {
    tracker: &'t DeltaTracker,
    selects: &'t Selects<'t>,
    room: &'t dyn Room,
    undo: &'t dyn Room,
    points: usize,
    dropped: [usize; DropCause::ALL.len()],
    tentative: Tentative,
}

impl<'t> Walk<'t> {
    fn new(
        tracker: &'t DeltaTracker,
        selects: &'t Selects<'t>,
        room: &'t dyn Room,
        undo: &'t dyn Room,
    ) -> Self {
        Walk {
            tracker,
            selects,
            room,
            undo,
            points: 0,
            dropped: Default::default(),
            tentative: tracker.begin(),
        }
    }

    fn request(mut self, request: &[u8]) -> Result<DeltaRequest, Fault> {
        let mut editor = Editor::within(request, self.room);
        let seed = self.tracker.seed;
        for entry in Fields::new(request) {
            let entry = entry?;
            if entry.number == 1 && entry.value.bytes().is_some() {
                edit(&entry, &mut editor, |editor| {
                    let mut identity = IdentityHasher::new(seed);
                    let resource = only(&entry, 1)?;
                    let hash = resource.map_or(Ok(0), |field| attributes(&field, 1, seed))?;
                    identity.hash(hash);
                    inner(&entry, 2, editor, |scope, editor| {
                        self.scope(scope, identity.clone(), editor)
                    })
                })?;
            }
        }
        let edited = editor.finish_within().map_err(|_| Fault::RoomExhausted)?;
        Ok(DeltaRequest {
            request: edited.map(Bytes::from),
            points: self.points,
            dropped: self.dropped,
            tentative: self.tentative,
        })
    }

    /// Converts a scope. Returns whether it has metrics.
    fn scope<'a>(
        &mut self,
        entry: &Field<'a>,
        mut identity: IdentityHasher,
        editor: &mut Editor<'a>,
    ) -> Result<bool, Fault> {
        let scope = only(entry, 1)?;
        let mut hash = 0;
        let (mut name, mut version): (&[u8], &[u8]) = (&[], &[]);
        if let Some(scope) = &scope {
            hash = attributes(scope, 3, self.tracker.seed)?;
            for field in scope.fields() {
                let field = field?;
                match (field.number, field.value.bytes()) {
                    (1, Some(text)) => name = text,
                    (2, Some(text)) => version = text,
                    _ => {}
                }
            }
        }
        identity.text(name);
        identity.text(version);
        identity.hash(hash);
        edit(entry, editor, |editor| {
            inner(entry, 2, editor, |metric, editor| {
                self.metric(metric, identity.clone(), editor)
            })
        })
    }

    /// Converts a metric. Returns whether it stays.
    fn metric<'a>(
        &mut self,
        metric: &Field<'a>,
        mut identity: IdentityHasher,
        editor: &mut Editor<'a>,
    ) -> Result<bool, Fault> {
        let (mut name, mut unit): (&[u8], &[u8]) = (&[], &[]);
        let mut data = None;
        for field in metric.fields() {
            let field = field?;
            match (field.number, field.value.bytes()) {
                (1, Some(text)) => name = text,
                (3, Some(text)) => unit = text,
                (5 | 7 | 9 | 10 | 11, Some(_)) if data.replace(field).is_some() => {
                    return Err(Fault::Ambiguous);
                }
                _ => {}
            }
        }
        let Some(data) = data else {
            return Ok(true);
        };
        let kind = match data.number {
            7 => CumulativeKind::Sum,
            9 => CumulativeKind::Histogram,
            10 => CumulativeKind::ExponentialHistogram,
            _ => return Ok(true),
        };
        let text = std::str::from_utf8(name).unwrap_or_default();
        if !self.is_cumulative(kind, &data)? || !(self.selects)(text, kind) {
            return Ok(true);
        }
        identity.text(&[kind as u8]);
        identity.text(name);
        identity.text(unit);
        edit(metric, editor, |editor| {
            edit(&data, editor, |editor| {
                let mut temporality = Vec::new();
                put_varint(2 << 3, &mut temporality);
                put_varint(DELTA, &mut temporality);
                let mut stays = false;
                let mut has_points = false;
                for field in data.fields() {
                    let field = field?;
                    match (field.number, field.value) {
                        (1, Value::Bytes(_)) => {
                            has_points = true;
                            stays |= self.point(kind, &field, &identity, editor)?;
                        }
                        (2, Value::Varint(_)) => {
                            editor.replace(&field, |output| output.extend_from_slice(&temporality));
                        }
                        _ => {}
                    }
                }
                // The Collector keeps histograms without points, and removes such sums.
                Ok(stays || (!has_points && kind != CumulativeKind::Sum))
            })
        })
    }

    /// Whether the data of a metric is cumulative, monotonic and has points.
    fn is_cumulative(&self, kind: CumulativeKind, data: &Field<'_>) -> Result<bool, WireFault> {
        let (mut temporality, mut monotonic, mut points) = (0, 0, 0);
        for field in data.fields() {
            let field = field?;
            match (field.number, field.value) {
                (1, Value::Bytes(_)) => points += 1,
                (2, Value::Varint(value)) => temporality = value,
                (3, Value::Varint(value)) => monotonic = value,
                _ => {}
            }
        }
        Ok(temporality == CUMULATIVE
            && match kind {
                CumulativeKind::Sum => monotonic != 0,
                _ => points > 0,
            })
    }

    /// Converts a point. Returns whether it stays.
    fn point<'a>(
        &mut self,
        kind: CumulativeKind,
        point: &Field<'a>,
        identity: &IdentityHasher,
        editor: &mut Editor<'a>,
    ) -> Result<bool, Fault> {
        let memory = WirePoint::memory(point);
        self.room.take(memory).map_err(|_| Fault::RoomExhausted)?;
        let read = WirePoint::read(kind, point)?.ok_or(Fault::Ambiguous)?;
        let number = match kind {
            CumulativeKind::Sum => 7,
            CumulativeKind::Histogram => 9,
            CumulativeKind::ExponentialHistogram => 1,
        };
        let result = match &read.value {
            _ if !read.has_value => Err(DropCause::NoValue),
            PointValue::Double(value) if value.is_nan() => {
                self.room.release(memory);
                return Ok(true);
            }
            value => {
                let attributes = attributes(point, number, self.tracker.seed)?;
                let last = u128::from(read.start) << 32 | u128::from(read.number);
                let identity = identity.with(&[attributes, last]);
                let value = value.clone();
                let (tentative, undo) = (&mut self.tentative, self.undo);
                self.tracker
                    .advance(identity, read.start, read.time, value, tentative, undo)
                    .map_err(|_| Fault::RoomExhausted)?
            }
        };
        match &result {
            Ok(delta) => {
                self.points += 1;
                edit(point, editor, |editor| {
                    read.write(point, delta.start, &delta.value, editor);
                    Ok(true)
                })?;
            }
            Err(cause) => {
                let causes = DropCause::ALL.iter().zip(&mut self.dropped);
                for (_, count) in causes.filter(|(known, _)| *known == cause) {
                    *count += 1;
                }
                editor.delete(point);
            }
        }
        self.room.release(memory);
        Ok(result.is_ok())
    }
}

/// Values of `AggregationTemporality`.
const DELTA: u64 = 1;
const CUMULATIVE: u64 = 2;

/// Edits a message, and removes it if `change` returns false.
fn edit<'a>(
    message: &Field<'a>,
    editor: &mut Editor<'a>,
    change: impl FnOnce(&mut Editor<'a>) -> Result<bool, Fault>,
) -> Result<bool, Fault> {
    let mark = editor.mark();
    let stays = editor.message(message, change)?;
    if !stays {
        editor.rollback(&mark);
        editor.delete(message);
    }
    Ok(stays)
}

/// Calls `change` for the messages in the fields `number`. Returns whether one of them stays.
fn inner<'a>(
    message: &Field<'a>,
    number: u32,
    editor: &mut Editor<'a>,
    mut change: impl FnMut(&Field<'a>, &mut Editor<'a>) -> Result<bool, Fault>,
) -> Result<bool, Fault> {
    let mut any = false;
    for field in message.fields() {
        let field = field?;
        if field.number == number && field.value.bytes().is_some() {
            any |= change(&field, editor)?;
        }
    }
    Ok(any)
}

/// Returns the message in the field `number`, which occurs at most once.
fn only<'a>(message: &Field<'a>, number: u32) -> Result<Option<Field<'a>>, Fault> {
    let mut found = None;
    for field in message.fields() {
        let field = field?;
        let is_message = field.number == number && field.value.bytes().is_some();
        if is_message && found.replace(field).is_some() {
            return Err(Fault::Ambiguous);
        }
    }
    Ok(found)
}
