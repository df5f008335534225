//! Encoding of a job for its sender.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::Delivery;
use crate::pipeline::batch::Code;
use crate::pipeline::merge::merge_profiles;
use crate::pipeline::output_memory::OutputMemory;
use crate::pipeline::turns::BLOCKING_BYTES;
use crate::queue::entry::{Entry, Job};
use crate::queue::payload::Content;
use crate::queue::{Encoded, Fault, Identity, SendError};
use tributary_memory::Permit;
use tributary_otlp::{Requests, Signal};

/// A job after encoding.
pub(super) enum Ready {
    /// The encoded batch, and the permit for the bytes that encoding allocated.
    Whole(Encoded, Permit),
    /// Positions of requests in the job, by group. All requests together cannot be merged; the requests of a group can.
    Groups(Vec<Vec<usize>>),
}

impl Delivery {
    /// Encodes the requests of a job.
    pub(super) async fn encode(
        &self,
        job: &mut Job,
        identity: &Arc<Identity>,
    ) -> Result<Ready, SendError> {
        for entry in job.iter_mut() {
            entry.reload().await;
        }
        let items = job.iter().map(Entry::items).sum();
        let bytes: usize = job.iter().map(Entry::bytes).sum();
        let content: Vec<Content> = job.iter_mut().filter_map(Entry::content).collect();
        let packed = content.iter().any(Content::is_packed);
        let (sender, signal, max_bytes) = (self.sender.clone(), self.signal, self.max_bytes);
        let joins = signal == Signal::Profiles && content.len() > 1;
        let budget = self.budget.clone();
        let work = move || {
            let memory = OutputMemory::new(&budget);
            let take = |bytes| {
                memory
                    .take(bytes)
                    .map_err(|_| SendError::no_memory(&memory))
            };
            let mut requests = Requests::default();
            for content in content {
                take(content.bytes_to_expand())?;
                requests.append(content.requests().map_err(|damaged| {
                    SendError::permanent(Code::DataLoss, Fault::Content, damaged.to_string())
                })?);
            }
            if joins {
                let joined = merge_profiles(requests.parts(), max_bytes, &memory);
                let mut joined = joined.map_err(|_| SendError::no_memory(&memory))?;
                if joined.len() != 1 {
                    let groups = joined.into_iter().map(|joined| joined.parts);
                    return Ok(Err(groups.collect()));
                }
                requests = joined.drain(..).map(|joined| joined.request).collect();
            }
            let chunks = sender.encode(signal, &requests, &memory)?;
            // Chunks that share the bytes of a request need no permit of their own.
            let is_part = |chunk: &Bytes| {
                let end = |bytes: &Bytes| bytes.as_ptr().addr() + bytes.len();
                requests
                    .parts()
                    .iter()
                    .any(|part| part.as_ptr() <= chunk.as_ptr() && end(chunk) <= end(part))
            };
            let made = chunks
                .iter()
                .filter(|chunk| packed || joins || !is_part(chunk));
            let made = made.map(Bytes::len).sum();
            Ok(Ok((chunks, memory.keep(made))))
        };
        let heavy = packed || joins || self.sender.encodes_every_byte();
        let chunks = if bytes > BLOCKING_BYTES && heavy {
            tokio::task::spawn_blocking(work).await.map_err(|error| {
                let reason = format!("encoding the batch failed: {error}");
                SendError::permanent(Code::Internal, Fault::Elsewhere, reason)
            })??
        } else {
            work()?
        };
        if let Some(budget) = &self.compression_budget {
            for entry in job.iter_mut() {
                entry.pack(budget).await;
            }
        }
        Ok(match chunks {
            Ok((chunks, permit)) => {
                let encoded = Encoded {
                    signal,
                    items,
                    chunks: chunks.into(),
                    retained_bytes: job.iter().map(Entry::retained_bytes).sum(),
                    identity: identity.clone(),
                };
                Ready::Whole(encoded, permit)
            }
            Err(groups) => Ready::Groups(groups),
        })
    }
}

/// Turns each group of a job's entries into a job, at the front of `todo`.
pub(super) fn regroup(job: Job, groups: Vec<Vec<usize>>, todo: &mut VecDeque<Job>) {
    let mut entries: Vec<Option<Entry>> = job.into_iter().map(Some).collect();
    for group in groups.into_iter().rev() {
        let taken = group
            .into_iter()
            .filter_map(|at| entries.get_mut(at)?.take());
        todo.push_front(taken.collect());
    }
}
