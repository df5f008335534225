//! Request bodies made of chunks that are already in memory.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

/// A body of prepared chunks. Clones share the chunks, so a retry copies nothing.
#[derive(Debug, Clone)]
pub struct Chunks {
    chunks: Arc<[Bytes]>,
    next: usize,
    left: u64,
}

impl Chunks {
    /// Creates a body of these chunks, in order.
    pub fn new(chunks: Arc<[Bytes]>) -> Self {
        Chunks {
            left: chunks.iter().map(|chunk| chunk.len() as u64).sum(),
            chunks,
            next: 0,
        }
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.next;
        let Some(chunk) = self.chunks.get(next).cloned() else {
            return Poll::Ready(None);
        };
        self.next += 1;
        self.left -= chunk.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Size in bytes below which chunks are copied into one chunk. Every chunk costs at least one frame and one system
/// call, about as much as copying 10 KiB.
const SMALL_CHUNK: usize = 16 * 1024;
/// Maximum size in bytes of chunks that were copied together.
const MAX_JOINED_BYTES: usize = 64 * 1024;

/// Copies runs of small chunks together.
pub fn coalesce(chunks: impl IntoIterator<Item = Bytes>) -> Vec<Bytes> {
    let mut out: Vec<Bytes> = Vec::new();
    let mut joined = BytesMut::new();
    for chunk in chunks {
        if chunk.is_empty() {
            continue;
        }
        if chunk.len() >= SMALL_CHUNK {
            flush(&mut joined, &mut out);
            out.push(chunk);
            continue;
        }
        if joined.len() + chunk.len() > MAX_JOINED_BYTES {
            flush(&mut joined, &mut out);
        }
        joined.extend_from_slice(&chunk);
    }
    flush(&mut joined, &mut out);
    out
}

fn flush(joined: &mut BytesMut, out: &mut Vec<Bytes>) {
    if !joined.is_empty() {
        out.push(joined.split().freeze());
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[test]
    fn only_small_chunks_are_copied_together() {
        let large = Bytes::from(vec![7; SMALL_CHUNK]);
        let small = Bytes::from(vec![1; 1000]);
        let mut chunks = vec![small.clone(); 100];
        chunks.push(Bytes::new());
        chunks.push(large.clone());
        chunks.push(small);
        let out = coalesce(chunks.clone());
        assert_eq!(out.len(), 4);
        assert!(out.iter().any(|chunk| chunk.as_ptr() == large.as_ptr()));
        assert_eq!(out.concat(), chunks.concat());
    }

    #[tokio::test]
    async fn body_has_declared_size() {
        let chunks: Arc<[Bytes]> = [Bytes::from("abc"), Bytes::from("de")].into();
        let body = Chunks::new(chunks);
        assert_eq!(body.size_hint().exact(), Some(5));
        assert!(!body.is_end_stream());
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abcde");
        assert!(Chunks::new([].into()).is_end_stream());
    }
}
