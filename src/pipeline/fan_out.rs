//! Delivery of one batch to several consumers.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::Poll;

use futures_util::future::join_all;

use super::Consumer;
use super::refused::Refused;
use crate::pipeline::batch::{Batch, Nack};
use futures_util::future::BoxFuture;

/// Sends every batch to all branches concurrently.
///
/// A batch is accepted when all branches have accepted it. If one branch refuses, the sender is refused and retries the
/// batch. The retry goes only to branches that have not accepted the batch. The sender's
/// [`Progress`](crate::pipeline::batch::Progress) lists the branches that have. Without progress, the batch is
/// recognized by its content (see `refused`). Delivery is at least once.
pub struct FanOut {
    branches: Vec<(usize, Arc<dyn Consumer>)>,
    refused: Refused,
}

/// Branch numbers are unique in the process, because a batch may pass several fan-outs.
static NEXT_BRANCH: AtomicUsize = AtomicUsize::new(0);

impl FanOut {
    /// Creates a consumer for all of `branches`. A single branch is returned as it is.
    pub fn over(mut branches: Vec<Arc<dyn Consumer>>) -> Arc<dyn Consumer> {
        if branches.len() == 1 {
            return branches.remove(0);
        }
        let branches = branches
            .into_iter()
            .map(|consumer| (NEXT_BRANCH.fetch_add(1, Relaxed), consumer))
            .collect();
        Arc::new(FanOut {
            branches,
            refused: Refused::new(),
        })
    }
}

impl Consumer for FanOut {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            let known_progress = batch.progress.clone();
            let mut key = (known_progress.is_none() && self.refused.is_active())
                .then(|| self.refused.key(&batch));
            let remembered = key.and_then(|key| self.refused.take(key));
            let progress = known_progress.clone().or(remembered).unwrap_or_default();
            let may_retry = AtomicBool::new(false);
            let waiting: Vec<_> = self
                .branches
                .iter()
                .filter(|(branch, _)| !progress.has(*branch))
                .map(|(branch, consumer)| {
                    let outcome = consumer.consume(batch.clone());
                    let (progress, may_retry) = (&progress, &may_retry);
                    async move {
                        let outcome = outcome.await;
                        match &outcome {
                            Ok(()) => progress.add(*branch),
                            Err(nack) if nack.retryable => may_retry.store(true, Relaxed),
                            Err(_) => {}
                        }
                        outcome
                    }
                })
                .collect();
            let mut waiting = pin!(join_all(waiting));
            let immediate = poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx))).await;
            if known_progress.is_none() && key.is_none() && may_retry.load(Relaxed) {
                key = Some(self.refused.key(&batch));
            }
            // The branches have clones. Without the original, the memory is free as soon as the branches drop them.
            drop(batch);
            let outcomes = match immediate {
                Poll::Ready(outcomes) => outcomes,
                Poll::Pending => waiting.await,
            };
            let outcome = outcomes.into_iter().reduce(worst).unwrap_or(Ok(()));
            let will_retry = outcome.as_ref().is_err_and(|nack| nack.retryable);
            if known_progress.is_none() && will_retry && !progress.is_empty() {
                self.refused.keep(key.map(|key| (key, progress.clone())));
            }
            outcome
        })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        let branches = self.branches.iter();
        branches.map(|(_, consumer)| consumer.clone()).collect()
    }
}

/// Combines the outcomes of two branches. A retryable refusal takes precedence, because then no data is lost.
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
    use crate::pipeline::batch::Progress;
    use crate::pipeline::testing::{Scripted, spans};

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
    async fn retryable_refusal_takes_precedence() {
        let permanent = Scripted::new([Err(Nack::invalid("bad"))]);
        let transient = Scripted::new([Err(Nack::unavailable("later"))]);
        let fan_out = FanOut::over(vec![permanent, transient, Scripted::new([])]);
        assert!(fan_out.consume(spans(["a"])).await.unwrap_err().retryable);
    }

    #[tokio::test]
    async fn retry_with_progress_skips_accepted_branches() {
        let good = Scripted::new([]);
        let bad = Scripted::new([Err(Nack::unavailable("later"))]);
        let fan_out = FanOut::over(vec![good.clone(), bad.clone()]);
        let mut batch = spans(["a", "b"]);
        batch.progress = Some(Arc::new(Progress::default()));
        fan_out.consume(batch.clone()).await.unwrap_err();
        fan_out.consume(batch).await.unwrap();
        assert_eq!((good.taken(), bad.taken()), (vec![2], vec![2]));
    }

    /// Returns a consumer that refuses `times` times.
    fn refusing(times: usize) -> Arc<Scripted> {
        Scripted::new((0..times).map(|_| Err(Nack::unavailable("full"))))
    }

    #[tokio::test(start_paused = true)]
    async fn retries_go_only_to_refusing_branches() {
        let good = Scripted::slow(Duration::from_secs(1));
        let full = refusing(5);
        let fan_out = FanOut::over(vec![good.clone(), full.clone()]);
        for _ in 0..5 {
            fan_out.consume(spans(["a", "b"])).await.unwrap_err();
        }
        assert_eq!(good.taken(), [2]);
        fan_out.consume(spans(["a", "b"])).await.unwrap();
        assert_eq!((good.taken(), full.taken()), (vec![2], vec![2]));
        // All branches have accepted the batch, so the same content again is a new batch.
        fan_out.consume(spans(["a", "b"])).await.unwrap();
        assert_eq!((good.taken(), full.taken()), (vec![2; 2], vec![2; 2]));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_refusal_is_recognized_from_second_retry() {
        let good = Scripted::new([]);
        let refusals = (0..5).map(|_| Err(Nack::unavailable("full")));
        let slow = Scripted::slow_then(Duration::from_secs(1), refusals);
        let fan_out = FanOut::over(vec![good.clone(), slow]);
        for _ in 0..5 {
            fan_out.consume(spans(["a", "b"])).await.unwrap_err();
        }
        assert_eq!(good.taken(), [2, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_equal_batch_counts_as_retry() {
        let good = Scripted::new([]);
        let fan_out = FanOut::over(vec![good.clone(), refusing(1)]);
        let of = |tenant: &str| {
            let mut batch = spans(["a"]);
            let header = ("tenant".to_owned(), vec![tenant.to_owned()]);
            batch.metadata = Some(Arc::new([header].into()));
            batch
        };
        fan_out.consume(of("one")).await.unwrap_err();
        fan_out.consume(of("another")).await.unwrap();
        fan_out.consume(spans(["a"])).await.unwrap();
        fan_out.consume(spans(["ab"])).await.unwrap();
        assert_eq!(good.taken().len(), 4);
        fan_out.consume(of("one")).await.unwrap();
        assert_eq!(good.taken().len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_equal_batches_are_distinct() {
        let good = Scripted::new([]);
        let refusals = [Err(Nack::unavailable("full"))];
        let slow = Scripted::slow_then(Duration::from_secs(1), refusals);
        let fan_out = FanOut::over(vec![good.clone(), refusing(1), slow.clone()]);
        fan_out.consume(spans(["a"])).await.unwrap_err();
        let both = [(); 2].map(|()| fan_out.consume(spans(["a"])));
        for outcome in join_all(both).await {
            outcome.unwrap();
        }
        assert_eq!((good.taken(), slow.taken()), (vec![1, 1], vec![1, 1]));
    }

    #[tokio::test(start_paused = true)]
    async fn permanent_refusal_is_not_remembered() {
        let good = Scripted::new([]);
        let bad = Scripted::new([Err(Nack::invalid("bad"))]);
        let fan_out = FanOut::over(vec![good.clone(), bad]);
        fan_out.consume(spans(["a"])).await.unwrap_err();
        fan_out.consume(spans(["a"])).await.unwrap();
        assert_eq!(good.taken(), [1, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn refused_batches_expire_and_are_bounded() {
        let good = Scripted::new([]);
        let fan_out = FanOut::over(vec![good.clone(), refusing(1)]);
        fan_out.consume(spans(["a"])).await.unwrap_err();
        tokio::time::sleep(Duration::from_secs(300)).await;
        fan_out.consume(spans(["a"])).await.unwrap();
        assert_eq!(good.taken().len(), 2);

        let good = Scripted::new([]);
        let fan_out = FanOut::over(vec![refusing(6000), good.clone()]);
        for number in 0..6000 {
            let name = number.to_string();
            fan_out.consume(spans([name.as_str()])).await.unwrap_err();
        }
        // A refusing branch does not prevent other branches from accepting their data.
        assert_eq!(good.taken().len(), 6000);
        fan_out.consume(spans(["5999"])).await.unwrap();
        assert_eq!(good.taken().len(), 6000);
        fan_out.consume(spans(["1"])).await.unwrap();
        assert_eq!(good.taken().len(), 6001);
    }
}
