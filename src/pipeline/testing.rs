//! Test doubles for stages.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;

use super::Consumer;
use crate::pipeline::batch::{Batch, Nack};
use futures_util::future::BoxFuture;
use tributary_otlp::Signal;

/// A consumer that first returns the scripted outcomes, then accepts everything, and records accepted batches.
pub(crate) struct Scripted {
    answers: Mutex<VecDeque<Result<(), Nack>>>,
    refuses: fn(&Batch) -> Option<Nack>,
    pub(crate) delay: Duration,
    pub(crate) stores: bool,
    taken: Mutex<Vec<Batch>>,
}

impl Scripted {
    pub(crate) fn new(answers: impl IntoIterator<Item = Result<(), Nack>>) -> Arc<Self> {
        Arc::new(Scripted {
            answers: Mutex::new(answers.into_iter().collect()),
            refuses: |_| None,
            delay: Duration::ZERO,
            stores: false,
            taken: Mutex::default(),
        })
    }

    pub(crate) fn slow(delay: Duration) -> Arc<Self> {
        Scripted::slow_then(delay, [])
    }

    pub(crate) fn slow_then(
        delay: Duration,
        answers: impl IntoIterator<Item = Result<(), Nack>>,
    ) -> Arc<Self> {
        let mut double = Scripted::new(answers);
        if let Some(double) = Arc::get_mut(&mut double) {
            double.delay = delay;
        }
        double
    }

    pub(crate) fn refusing(refuses: fn(&Batch) -> Option<Nack>) -> Arc<Self> {
        let mut double = Scripted::new([]);
        if let Some(double) = Arc::get_mut(&mut double) {
            double.refuses = refuses;
        }
        double
    }

    /// Creates a consumer that reports to persist its batches.
    pub(crate) fn storing(answers: impl IntoIterator<Item = Result<(), Nack>>) -> Arc<Self> {
        let mut double = Scripted::new(answers);
        if let Some(double) = Arc::get_mut(&mut double) {
            double.stores = true;
        }
        double
    }

    /// Item counts of the taken batches, in order.
    pub(crate) fn taken(&self) -> Vec<usize> {
        self.taken
            .lock()
            .unwrap()
            .iter()
            .map(Batch::items)
            .collect()
    }

    /// The taken batches, in order.
    pub(crate) fn batches(&self) -> Vec<Batch> {
        self.taken.lock().unwrap().clone()
    }

    pub(crate) fn span_names(&self) -> Vec<String> {
        self.batches().iter().flat_map(span_names).collect()
    }
}

impl Consumer for Scripted {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            tokio::time::sleep(self.delay).await;
            if let Some(nack) = (self.refuses)(&batch) {
                return Err(nack);
            }
            self.answers.lock().unwrap().pop_front().unwrap_or(Ok(()))?;
            self.taken.lock().unwrap().push(batch);
            Ok(())
        })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        Vec::new()
    }

    fn stores(&self) -> bool {
        self.stores
    }
}

/// Returns a batch with one span of each name.
pub(crate) fn spans<'a>(names: impl IntoIterator<Item = &'a str>) -> Batch {
    let spans: Vec<Span> = names
        .into_iter()
        .map(|name| Span {
            name: name.to_owned(),
            ..Span::default()
        })
        .collect();
    let items = spans.len();
    let scope_spans = vec![ScopeSpans {
        spans,
        ..ScopeSpans::default()
    }];
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            scope_spans,
            ..ResourceSpans::default()
        }],
    };
    Batch::new(Signal::Traces, items, Bytes::from(request.encode_to_vec()))
}

pub(crate) fn span_names(batch: &Batch) -> Vec<String> {
    let bytes = batch.clone().into_wire().to_bytes();
    let request = ExportTraceServiceRequest::decode(bytes).unwrap();
    let scopes = request
        .resource_spans
        .into_iter()
        .flat_map(|resource| resource.scope_spans);
    scopes
        .flat_map(|scope| scope.spans)
        .map(|span| span.name)
        .collect()
}
