//! The queues of an exporter, as a component that starts and stops them.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::Sender;
use super::config::Settings;
use super::feed::feed;
use super::sending::SendingQueue;
use crate::component::{BuildContext, BuildError, Outputs, Terminal};
use crate::pipeline::{Component, Undelivered};
use futures_util::future::BoxFuture;
use tributary_otlp::Signal;

/// Creates the terminal of an exporter that sends through `sender`. Each signal has a queue of its own.
///
/// # Errors
/// A queue on disk cannot be opened.
pub fn terminal(
    cx: &BuildContext,
    signals: &[Signal],
    settings: &Settings,
    sender: &Arc<dyn Sender>,
) -> Result<Terminal, BuildError> {
    let mut queues = Vec::with_capacity(signals.len());
    for signal in signals {
        queues.push(Arc::new(SendingQueue::new(
            cx,
            *signal,
            settings,
            sender.clone(),
        )?));
    }
    let mut inputs = Outputs::default();
    for queue in &queues {
        inputs.set(queue.delivery.signal, queue.clone());
    }
    let component = Box::new(Queues {
        queues,
        tasks: JoinSet::new(),
    });
    Ok(Terminal { inputs, component })
}

/// The queues of one exporter, as a component.
struct Queues {
    queues: Vec<Arc<SendingQueue>>,
    tasks: JoinSet<()>,
}

impl Component for Queues {
    fn start(&mut self) {
        for queue in &self.queues {
            let Some(config) = &queue.config else {
                continue;
            };
            // Set the metric only at the start: an exporter that is built but never started must not change the
            // metrics of a running exporter.
            let metrics = &queue.delivery.ledger.metrics;
            metrics.queue_capacity.set(queue.room.capacity() as f64);
            if let Some(stored) = &queue.stored {
                stored.start();
                let queue = queue.clone();
                let stored = stored.clone();
                self.tasks.spawn(async move {
                    feed(&stored, &queue.batcher, &queue.delivery).await;
                });
            }
            for _ in 0..config.num_consumers {
                self.tasks.spawn(queue.clone().work());
            }
            if queue.batcher.merges() {
                let queue = queue.clone();
                self.tasks.spawn(async move {
                    tokio::select! {
                        () = queue.batcher.run_timers() => {}
                        () = queue.delivery.stopping.cancelled() => {}
                    }
                });
            }
        }
    }

    fn idle(&self) -> bool {
        self.queues.iter().all(|queue| match &queue.stored {
            Some(stored) => stored.idle(),
            None => queue.room.free() >= queue.room.capacity(),
        })
    }

    fn shutdown(mut self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            for queue in &self.queues {
                queue.close();
            }
            let finished = async { while self.tasks.join_next().await.is_some() {} };
            if timeout_at(deadline, finished).await.is_err() {
                // This drops the entries of the tasks, which then count as lost.
                self.tasks.shutdown().await;
            }
            let mut total = Undelivered::default();
            for queue in &self.queues {
                queue.batcher.clear();
                if let Some(stored) = &queue.stored {
                    stored.close().await;
                }
                queue.delivery.log_loss();
                total += queue.delivery.ledger.undelivered();
            }
            total
        })
    }
}
