//! One batch to several consumers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use futures_util::future::join_all;

use super::{BoxFuture, Consumer};
use crate::batch::{Batch, Nack};

/// Gives every batch to all of its branches, which wait at the same time.
///
/// The payload is brought to its wire form first, so that the copies share the same bytes. The batch is taken when all
/// branches took it. One that is known to refuse it, because its queue is full, is asked before the others are given
/// anything: else each repetition would fill their queues with the same data. When one refuses all the same, the sender
/// is told, and will offer the batch again to all of them unless it keeps a [`Progress`](crate::batch::Progress):
/// delivery is at least once.
pub struct FanOut {
    branches: Vec<(usize, Arc<dyn Consumer>)>,
}

/// Branches are told apart over all fan-outs of the process, because a batch may pass several.
static NEXT_BRANCH: AtomicUsize = AtomicUsize::new(0);

impl FanOut {
    /// A consumer for all of `branches`; a single branch needs no fan-out and is returned as it is.
    pub fn over(mut branches: Vec<Arc<dyn Consumer>>) -> Arc<dyn Consumer> {
        if branches.len() == 1 {
            return branches.remove(0);
        }
        let branches = branches
            .into_iter()
            .map(|consumer| (NEXT_BRANCH.fetch_add(1, Relaxed), consumer))
            .collect();
        Arc::new(FanOut { branches })
    }
}

impl Consumer for FanOut {
    fn consume(&self, mut batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        batch.wire();
        Box::pin(async move {
            let progress = batch.progress.clone();
            // Who keeps a progress offers it to the others only once: they need not wait for the one that is full.
            if progress.is_none()
                && let Some(nack) = self.refuses(&batch)
            {
                return Err(nack);
            }
            let waiting: Vec<_> = self
                .branches
                .iter()
                .filter(|(branch, _)| progress.as_ref().is_none_or(|known| !known.has(*branch)))
                .map(|(branch, consumer)| {
                    let taken = consumer.consume(batch.clone());
                    let progress = progress.as_ref();
                    async move {
                        taken.await?;
                        if let Some(progress) = progress {
                            progress.add(*branch);
                        }
                        Ok(())
                    }
                })
                .collect();
            // They have theirs, and may take long.
            drop(batch);
            join_all(waiting)
                .await
                .into_iter()
                .reduce(worst)
                .unwrap_or(Ok(()))
        })
    }

    fn refuses(&self, batch: &Batch) -> Option<Nack> {
        let mut branches = self.branches.iter();
        branches.find_map(|(_, consumer)| consumer.refuses(batch))
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        let branches = self.branches.iter();
        branches.map(|(_, consumer)| consumer.clone()).collect()
    }
}

/// What the sender is told about two branches: a refusal that may pass wins, because then nothing is lost.
fn worst(one: Result<(), Nack>, other: Result<(), Nack>) -> Result<(), Nack> {
    match (&one, &other) {
        (Err(nack), Err(_)) if nack.retryable => one,
        (_, Err(_)) => other,
        _ => one,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::batch::Progress;
    use crate::pipeline::testing::{Full, Scripted, spans};

    #[tokio::test(start_paused = true)]
    async fn branches_wait_at_the_same_time() {
        let second = Duration::from_secs(1);
        let branches = [Scripted::slow(second), Scripted::slow(second)];
        let fan_out = FanOut::over(branches.iter().map(|branch| branch.clone() as _).collect());
        let start = tokio::time::Instant::now();
        fan_out.consume(spans(["a"])).await.unwrap();
        assert_eq!(start.elapsed().as_secs(), 1);
        assert!(branches.iter().all(|branch| branch.taken() == [1]));
    }

    #[tokio::test]
    async fn a_refusal_that_may_pass_is_what_the_sender_hears() {
        let permanent = Scripted::new([Err(Nack::invalid("bad"))]);
        let transient = Scripted::new([Err(Nack::unavailable("later"))]);
        let fan_out = FanOut::over(vec![permanent, transient, Scripted::new([])]);
        assert!(fan_out.consume(spans(["a"])).await.unwrap_err().retryable);
    }

    #[tokio::test]
    async fn nobody_takes_what_another_one_is_known_to_refuse() {
        let good = Scripted::new([]);
        let inner = FanOut::over(vec![Scripted::new([]), Arc::new(Full)]);
        let fan_out = FanOut::over(vec![good.clone(), inner]);
        let nack = fan_out.consume(spans(["a"])).await.unwrap_err();
        assert!(nack.retryable);
        assert_eq!(good.taken(), Vec::<usize>::new());
    }

    #[tokio::test]
    async fn with_progress_the_others_do_not_wait_for_who_is_known_to_refuse() {
        let good = Scripted::new([]);
        let fan_out = FanOut::over(vec![good.clone(), Arc::new(Full)]);
        let mut batch = spans(["a"]);
        batch.progress = Some(Arc::new(Progress::default()));
        fan_out.consume(batch.clone()).await.unwrap_err();
        fan_out.consume(batch).await.unwrap_err();
        assert_eq!(good.taken(), [1]);
    }

    #[tokio::test]
    async fn a_second_attempt_with_progress_goes_only_to_who_refused() {
        let good = Scripted::new([]);
        let bad = Scripted::new([Err(Nack::unavailable("later"))]);
        let fan_out = FanOut::over(vec![good.clone(), bad.clone()]);
        let mut batch = spans(["a", "b"]);
        batch.progress = Some(Arc::new(Progress::default()));
        fan_out.consume(batch.clone()).await.unwrap_err();
        fan_out.consume(batch).await.unwrap();
        assert_eq!((good.taken(), bad.taken()), (vec![2], vec![2]));
    }
}
