//! A batch as a record of the log, and back.
//!
//! ```text
//! version:u8 signal:u8 joined:u8 0:u8 requests:u32 length:u32* headers:u32 { name values:u32 value* }* requests
//! ```
//!
//! Numbers are little-endian; names and values are a length, u32, and their bytes. Of the headers that came with a
//! batch those are kept that keep batches apart.

use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::batch::{Batch, Metadata, Requests, Signal};
use crate::storage::NewRecord;

/// The version of this.
const VERSION: u8 = 1;

/// The record of a batch, with the headers of these names, in lower case. The requests are not copied.
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
    }
}

/// The batch of a record; `None` for what `encode` did not write.
pub fn decode(mut data: Bytes, items: usize) -> Option<Batch> {
    let head = take(&mut data, 4)?;
    let [VERSION, signal, joined @ (0 | 1), 0] = *head.as_ref() else {
        return None;
    };
    let signal = Signal::ALL
        .into_iter()
        .find(|other| other.index() == usize::from(signal))?;
    let count = take_len(&mut data)?;
    let mut lengths = Vec::new();
    for _ in 0..count {
        lengths.push(take_len(&mut data)?);
    }
    let mut metadata = Metadata::new();
    for _ in 0..take_len(&mut data)? {
        let name = take_text(&mut data)?;
        let mut values = Vec::new();
        for _ in 0..take_len(&mut data)? {
            values.push(take_text(&mut data)?);
        }
        metadata.insert(name, values);
    }
    let mut requests = Requests::default();
    for length in lengths {
        requests.push(take(&mut data, length)?);
    }
    if !data.is_empty() {
        return None;
    }
    let mut batch = Batch::new(signal, items, requests);
    if joined == 1 {
        batch.mark_joined();
    }
    batch.metadata = (!metadata.is_empty()).then(|| Arc::new(metadata));
    Some(batch)
}

fn put_len(to: &mut BytesMut, len: usize) {
    // Larger ones make a record that is above the limit of the log.
    to.put_u32_le(u32::try_from(len).unwrap_or(u32::MAX));
}

fn put_text(to: &mut BytesMut, text: &str) {
    put_len(to, text.len());
    to.put_slice(text.as_bytes());
}

fn take(from: &mut Bytes, len: usize) -> Option<Bytes> {
    (from.len() >= len).then(|| from.split_to(len))
}

fn take_len(from: &mut Bytes) -> Option<usize> {
    take(from, 4).map(|mut bytes| bytes.get_u32_le() as usize)
}

fn take_text(from: &mut Bytes) -> Option<String> {
    let len = take_len(from)?;
    String::from_utf8(take(from, len)?.to_vec()).ok()
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
    fn a_batch_comes_back_without_the_headers_that_nobody_asked_for() {
        let record = encode(&mut batch(), &["tenant".to_owned()]);
        let mut back = decode(data(&record), record.items).unwrap();
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

    #[test]
    fn what_is_cut_short_or_longer_is_no_batch() {
        let whole = data(&encode(&mut batch(), &["tenant".to_owned()]));
        for len in 0..whole.len() {
            assert!(decode(whole.slice(..len), 7).is_none(), "{len}");
        }
        assert!(decode([whole.as_ref(), b"x"].concat().into(), 7).is_none());
    }
}
