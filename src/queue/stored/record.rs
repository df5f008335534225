//! Encoding of a batch as a record of the log.
//!
//! ```text
//! version:u8 signal:u8 joined:u8 0:u8 requests:u32 length:u32* headers:u32 { name values:u32 value* }* requests
//! ```
//!
//! Numbers are little-endian. Names and values are a u32 length and their bytes. Only the request headers whose values
//! must be equal within a batch are stored.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::pipeline::batch::{Batch, Metadata};
use tributary_otlp::{Requests, Signal};
use tributary_storage::NewRecord;

const VERSION: u8 = 1;

/// Encodes a batch with the headers named in `headers` (lower case). The requests are not copied.
pub(super) fn encode(batch: &mut Batch, headers: &[String]) -> NewRecord {
    let (signal, joined, items) = (batch.signal(), batch.is_joined(), batch.items());
    let kept: Vec<(&String, &Vec<String>)> = match &batch.metadata {
        Some(metadata) => metadata
            .iter()
            .filter(|(name, _)| headers.contains(name))
            .collect(),
        None => Vec::new(),
    };
    let mut head = BytesMut::with_capacity(64);
    head.put_slice(&[VERSION, signal.index() as u8, u8::from(joined), 0]);
    let mut tail = BytesMut::new();
    put_len(&mut tail, kept.len());
    for (name, values) in kept {
        put_text(&mut tail, name);
        put_len(&mut tail, values.len());
        values.iter().for_each(|value| put_text(&mut tail, value));
    }
    let requests = batch.wire().parts();
    put_len(&mut head, requests.len());
    for request in requests {
        put_len(&mut head, request.len());
    }
    head.unsplit(tail);
    let parts = std::iter::once(head.freeze()).chain(requests.iter().cloned());
    NewRecord {
        parts: parts.collect(),
        items,
        memory: batch.memory(),
    }
}

/// Decodes the batch of a record. Returns `None` for data that `encode` did not write. Requests that lie within one
/// part are not copied.
pub fn decode(parts: Vec<Bytes>, items: usize) -> Option<Batch> {
    let mut data = Parts(parts.into_iter().collect());
    let head = data.take(4)?;
    let [VERSION, signal, joined @ (0 | 1), 0] = *head.as_ref() else {
        return None;
    };
    let signal = Signal::ALL
        .into_iter()
        .find(|other| other.index() == usize::from(signal))?;
    let count = data.take_len()?;
    let mut lengths = Vec::new();
    for _ in 0..count {
        lengths.push(data.take_len()?);
    }
    let mut metadata = Metadata::new();
    for _ in 0..data.take_len()? {
        let name = data.take_text()?;
        let mut values = Vec::new();
        for _ in 0..data.take_len()? {
            values.push(data.take_text()?);
        }
        metadata.insert(name, values);
    }
    let mut requests = Requests::default();
    for length in lengths {
        requests.push(data.take(length)?);
    }
    if data.len() > 0 {
        return None;
    }
    let mut batch = Batch::new(signal, items, requests);
    if joined == 1 {
        batch.mark_joined();
    }
    batch.metadata = (!metadata.is_empty()).then(|| Arc::new(metadata));
    Some(batch)
}

/// The unread rest of a record.
struct Parts(VecDeque<Bytes>);

impl Parts {
    fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    fn take(&mut self, len: usize) -> Option<Bytes> {
        if len == 0 {
            return Some(Bytes::new());
        }
        self.pass_empty();
        if let Some(first) = self.0.front_mut().filter(|first| first.len() >= len) {
            return Some(first.split_to(len));
        }
        if self.len() < len {
            return None;
        }
        let mut taken = BytesMut::with_capacity(len);
        while taken.len() < len {
            let mut first = self.0.pop_front()?;
            taken.put(first.split_to(first.len().min(len - taken.len())));
            self.0.push_front(first);
            self.pass_empty();
        }
        Some(taken.freeze())
    }

    fn pass_empty(&mut self) {
        while self.0.front().is_some_and(Bytes::is_empty) {
            self.0.pop_front();
        }
    }

    fn take_len(&mut self) -> Option<usize> {
        self.take(4).map(|mut bytes| bytes.get_u32_le() as usize)
    }

    fn take_text(&mut self) -> Option<String> {
        let len = self.take_len()?;
        String::from_utf8(self.take(len)?.to_vec()).ok()
    }
}

fn put_len(to: &mut BytesMut, len: usize) {
    // The log refuses a record with a larger length, because it is above the size limit.
    to.put_u32_le(u32::try_from(len).unwrap_or(u32::MAX));
}

fn put_text(to: &mut BytesMut, text: &str) {
    put_len(to, text.len());
    to.put_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(record: &NewRecord) -> Bytes {
        record.parts.concat().into()
    }

    fn batch() -> Batch {
        let requests = [&b"one"[..], b"", b"three"].map(Bytes::from_static);
        let mut batch = Batch::new(Signal::Profiles, 7, Requests::from_iter(requests));
        batch.mark_joined();
        let header = |name: &str, value: &str| (name.to_owned(), vec![value.to_owned()]);
        let metadata = [header("tenant", "a"), header("authorization", "secret")];
        batch.metadata = Some(Arc::new(metadata.into_iter().collect()));
        batch
    }

    #[test]
    fn record_keeps_only_requested_headers() {
        let record = encode(&mut batch(), &["tenant".to_owned()]);
        let whole = data(&record);
        let bytes = whole.iter().map(|byte| Bytes::copy_from_slice(&[*byte]));
        // In the original parts, in one part (as it is read from a file), and in single bytes.
        for parts in [record.parts.clone(), vec![whole.clone()], bytes.collect()] {
            let back = decode(parts, record.items).unwrap();
            assert_eq!(
                (back.signal(), back.items(), back.is_joined()),
                (Signal::Profiles, 7, true)
            );
            assert_eq!(back.wire().parts(), batch().wire().parts());
            assert_eq!(
                back.metadata.as_ref().unwrap().keys().collect::<Vec<_>>(),
                ["tenant"]
            );
        }
    }

    #[test]
    fn batch_of_many_requests_is_decoded_in_linear_time() {
        let one = Bytes::from_static(b"one");
        let requests = Requests::from_iter(std::iter::repeat_n(one, 200_000));
        let mut batch = Batch::new(Signal::Logs, 200_000, requests);
        let record = encode(&mut batch, &[]);
        let back = decode(record.parts, record.items).unwrap();
        assert_eq!(back.wire().parts().len(), 200_000);
    }

    #[test]
    fn record_of_wrong_length_is_refused() {
        let whole = data(&encode(&mut batch(), &["tenant".to_owned()]));
        for len in 0..whole.len() {
            assert!(decode(vec![whole.slice(..len)], 7).is_none(), "{len}");
        }
        assert!(decode(vec![whole, Bytes::from_static(b"x")], 7).is_none());
    }
}
