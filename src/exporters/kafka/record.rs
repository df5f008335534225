//! Content of one Kafka record.

use bytes::Bytes;

use tributary_net::kafka::RecordEncoding;
use tributary_otlp::Limit;
use tributary_otlp::Signal;

/// Bytes of a record in addition to key, value and headers: 61 for a batch with one record, and at most 37 for the
/// record, in the format of Kafka 0.11 and later (<https://kafka.apache.org/documentation/#recordbatch>).
pub(super) const FRAMING: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// Spans, data points, log records, samples.
    pub(super) items: usize,
    /// The topic's name.
    pub(super) topic: Bytes,
    /// Empty: none.
    pub(super) key: Bytes,
    /// The value.
    pub(super) payload: Bytes,
}

/// Number of chunks in a batch for each record.
const CHUNKS: usize = 4;

impl Record {
    /// Converts the record into chunks of an encoded batch.
    pub(super) fn into_chunks(self) -> [Bytes; CHUNKS] {
        let items = Bytes::copy_from_slice(&(self.items as u64).to_le_bytes());
        [items, self.topic, self.key, self.payload]
    }
}

/// Returns the records of an encoded batch.
pub(super) fn records(chunks: &[Bytes]) -> impl Iterator<Item = Record> + '_ {
    chunks.chunks_exact(CHUNKS).filter_map(|chunks| {
        let [items, topic, key, payload] = chunks else {
            return None;
        };
        let items = u64::from_le_bytes(items.as_ref().try_into().ok()?);
        Some(Record {
            items: usize::try_from(items).ok()?,
            topic: topic.clone(),
            key: key.clone(),
            payload: payload.clone(),
        })
    })
}

/// Splits the request into values of at most `max` bytes, each with its number of items, in order. A single item may
/// exceed the size.
///
/// # Errors
///
/// The request cannot be expressed in the encoding.
pub(super) fn values(
    signal: Signal,
    request: Bytes,
    encoding: RecordEncoding,
    max: usize,
) -> Result<Vec<(usize, Bytes)>, String> {
    let mut values = Vec::new();
    let items = tributary_otlp::count(signal, &request);
    let mut todo = vec![(items, request)];
    while let Some((items, request)) = todo.pop() {
        let value = match encoding {
            RecordEncoding::OtlpProto => request.clone(),
            RecordEncoding::OtlpJson => tributary_otlp::json::from_wire(signal, &request)
                .map_err(|error| error.to_string())?
                .into(),
        };
        if value.len() <= max || items <= 1 {
            values.push((items, value));
            continue;
        }
        // JSON is larger than protobuf, by a factor that is similar throughout a request.
        let bytes = request.len().saturating_mul(max) / value.len().max(1);
        let mut pieces = crate::pipeline::split(
            signal,
            &request,
            Limit {
                items: items - 1,
                bytes: bytes.max(1),
            },
        );
        if pieces.len() <= 1 {
            // The request cannot be split.
            values.push((items, value));
            continue;
        }
        pieces.reverse();
        todo.extend(pieces);
    }
    Ok(values)
}
