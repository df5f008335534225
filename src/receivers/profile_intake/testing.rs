//! Shared code for the tests of the sections.

use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use prost::Message as _;

use crate::pipeline::Consumer;
use crate::pipeline::batch::{Batch, Metadata, Nack};
use futures_util::future::BoxFuture;

/// Records batches, and returns scripted outcomes.
pub(crate) struct Sink {
    taken: Mutex<Vec<Batch>>,
    answer: Mutex<Result<(), Nack>>,
}

impl Default for Sink {
    fn default() -> Self {
        Sink {
            taken: Mutex::default(),
            answer: Mutex::new(Ok(())),
        }
    }
}

impl Sink {
    /// Sets the outcome of further batches.
    pub(crate) fn answer(&self, answer: Result<(), Nack>) {
        *self.answer.lock().unwrap() = answer;
    }

    /// Headers of the recorded batches.
    pub(crate) fn metadata(&self) -> Vec<Option<Arc<Metadata>>> {
        let taken = self.taken.lock().unwrap();
        taken.iter().map(|batch| batch.metadata.clone()).collect()
    }

    /// Returns the accepted requests.
    pub(crate) fn taken(&self) -> Vec<ExportProfilesServiceRequest> {
        let taken = self.taken.lock().unwrap();
        let requests = taken.iter().map(|batch| batch.clone().into_wire());
        requests
            .map(|request| ExportProfilesServiceRequest::decode(request.to_bytes()).unwrap())
            .collect()
    }
}

impl Consumer for Sink {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            self.answer.lock().unwrap().clone()?;
            self.taken.lock().unwrap().push(batch);
            Ok(())
        })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        Vec::new()
    }
}

/// A pprof file of one sample with this value of type `cpu` in `nanoseconds`.
pub(crate) fn small_file(value: u64) -> Vec<u8> {
    of_type("cpu", "nanoseconds", value)
}

/// A pprof file of one sample with this value.
pub(crate) fn of_type(kind: &str, unit: &str, value: u64) -> Vec<u8> {
    use tributary_otlp::reader::put_varint;
    let mut file = Vec::new();
    let mut message = |field: u8, bytes: &[u8]| {
        file.push(field << 3 | 2);
        put_varint(bytes.len() as u64, &mut file);
        file.extend_from_slice(bytes);
    };
    message(1, &[0x08, 1, 0x10, 2]);
    let mut sample = vec![0x08, 1, 0x10];
    put_varint(value, &mut sample);
    message(2, &sample);
    message(4, &[0x08, 1, 0x18, 5]);
    for text in ["", kind, unit] {
        message(6, text.as_bytes());
    }
    file
}
