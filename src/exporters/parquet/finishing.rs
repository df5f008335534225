//! Finishes files, and reports the outcome.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::task::spawn_blocking;
use tracing::{error, warn};

use super::early::EarlyReason;
use super::files::{Counted, Files, Setup};
use super::part::{Finished, Part};
use super::place::PlaceError;
use super::signal_files::{Closed, Open};
use crate::pipeline::batch::Code;
use crate::queue::SendError;

impl Files {
    pub(super) fn finish(self: &Arc<Self>, open: Open, early: Option<EarlyReason>) {
        if let Some(early) = early {
            self.metrics.early(early).increment(1);
            self.log_early(early);
        }
        let signal = open.part.key.kind.signal();
        let closed = open.close();
        let closing = self.relief(signal).closing(closed.room);
        self.metrics.open.set(self.open.get() as f64);
        self.finishing.fetch_add(1, Relaxed);
        let files = self.clone();
        self.tasks.spawn(async move {
            let counted = (Counted(&files.finishing), closing);
            let _turn = files.turns.acquire().await;
            let Setup {
                place,
                layout,
                memory,
                ..
            } = &files.setup;
            let outcome = closed.part.finish(place, layout, memory).await;
            match &outcome {
                Ok(finished) => {
                    if let Some(finished) = finished {
                        files.finished(&closed.part, *finished).await;
                    }
                    closed.tell(Ok(()));
                }
                Err(error) => files.failed(&closed, error),
            }
            // Before the batches are released, so that a batch that waits for room finds it.
            drop(counted);
            drop(closed);
        });
    }

    fn log_early(&self, early: EarlyReason) {
        #[allow(clippy::indexing_slicing, reason = "there is one for each reason")]
        let log = &self.early[early as usize];
        if let Some(suppressed) = log.admit() {
            warn!(
                otelcol.component.id = %self.setup.id,
                otelcol.component.kind = "exporter",
                reason = early.explanation(),
                suppressed = (suppressed > 0).then_some(suppressed),
                "Finished a file before it reached the limits of `rotation`"
            );
        }
    }

    async fn finished(self: &Arc<Self>, part: &Arc<Part>, finished: Finished) {
        self.metrics.finished(part, finished);
        if self.setup.manifest.is_none() {
            return;
        }
        let (files, part) = (self.clone(), part.clone());
        let added = spawn_blocking(move || match &files.setup.manifest {
            Some(manifest) => manifest.add(&part, finished),
            None => Ok(()),
        });
        if let Ok(Err(error)) = added.await
            && let Some(suppressed) = self.failures.admit()
        {
            error!(
                otelcol.component.id = %self.setup.id,
                otelcol.component.kind = "exporter",
                %error,
                suppressed = (suppressed > 0).then_some(suppressed),
                "Cannot add a finished file to the manifest; check the directory and the disk"
            );
        }
    }

    pub(super) fn failed(&self, closed: &Closed, error: &PlaceError) {
        let lost = SendError::transient(Code::Unavailable, error.to_string());
        closed.tell(Err(&lost));
        self.metrics.failures.increment(1);
        if let Some(suppressed) = self.failures.admit() {
            error!(
                otelcol.component.id = %self.setup.id,
                otelcol.component.kind = "exporter",
                file = closed.part.path,
                %error,
                suppressed = (suppressed > 0).then_some(suppressed),
                "Cannot write a file; its batches are retried, or refused if there is no queue. Check the \
                 directory and the disk, or the object store"
            );
        }
    }
}
