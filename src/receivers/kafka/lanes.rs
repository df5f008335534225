//! Messages that wait, in the order of their partitions.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use super::intake::{Intake, Message, Verdict};
use crate::pipeline::BoxFuture;

/// What a message costs besides its value, in bytes: itself, and its place in a lane.
const MESSAGE_BYTES: usize = 256;

/// A topic and the number of a partition.
pub(super) type Partition = (Arc<str>, i32);

/// A lane for each partition: one message of it is under way at a time, the others wait.
pub(super) struct Lanes {
    intake: Arc<Intake>,
    stop: CancellationToken,
    lanes: HashMap<Partition, Lane>,
    under_way: FuturesUnordered<BoxFuture<'static, Settled>>,
    bytes: usize,
    /// Of the lane that is made next.
    generation: u64,
}

struct Lane {
    generation: u64,
    waiting: VecDeque<Message>,
    busy: bool,
    stuck: bool,
    /// Cancelled when the partition is somebody else's.
    revoked: CancellationToken,
}

/// A message that is not under way any more.
struct Settled {
    partition: Partition,
    generation: u64,
    offset: i64,
    bytes: usize,
    verdict: Verdict,
}

/// What is to be done about a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// The offset was read.
    Read(Partition, i64),
    /// The partition stops.
    Stuck(Partition),
}

impl Lanes {
    pub(super) fn new(intake: Arc<Intake>, stop: CancellationToken) -> Self {
        Lanes {
            intake,
            stop,
            lanes: HashMap::new(),
            under_way: FuturesUnordered::new(),
            bytes: 0,
            generation: 0,
        }
    }

    /// Bytes of all messages that are here.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether the partition has stopped.
    pub(super) fn is_stuck(&self, partition: &Partition) -> bool {
        self.lanes.get(partition).is_some_and(|lane| lane.stuck)
    }

    /// Takes a message in.
    pub(super) fn push(&mut self, message: Message) {
        let partition = (message.topic.clone(), message.partition);
        let generation = &mut self.generation;
        let lane = self.lanes.entry(partition.clone()).or_insert_with(|| {
            *generation += 1;
            Lane {
                generation: *generation,
                waiting: VecDeque::new(),
                busy: false,
                stuck: false,
                revoked: self.stop.child_token(),
            }
        });
        if lane.stuck {
            return;
        }
        self.bytes += cost(&message);
        lane.waiting.push_back(message);
        self.advance(&partition);
    }

    /// The partition is somebody else's: its messages will come to them.
    pub(super) fn revoke(&mut self, partition: &Partition) {
        let Some(lane) = self.lanes.remove(partition) else {
            return;
        };
        lane.revoked.cancel();
        self.bytes -= lane.waiting.iter().map(cost).sum::<usize>();
    }

    /// Waits until something is to be done about a partition. Nothing when nothing is under way.
    pub(super) async fn next(&mut self) -> Option<Step> {
        while let Some(settled) = self.under_way.next().await {
            self.bytes -= settled.bytes;
            let partition = settled.partition;
            let lane = self.lanes.get_mut(&partition);
            let Some(lane) = lane.filter(|lane| lane.generation == settled.generation) else {
                continue;
            };
            lane.busy = false;
            match settled.verdict {
                Verdict::Passed => {
                    self.advance(&partition);
                    return Some(Step::Read(partition, settled.offset));
                }
                Verdict::Stuck => {
                    lane.stuck = true;
                    self.bytes -= lane
                        .waiting
                        .drain(..)
                        .map(|message| cost(&message))
                        .sum::<usize>();
                    return Some(Step::Stuck(partition));
                }
                Verdict::Interrupted => {}
            }
        }
        None
    }

    /// Sends the next message of a partition on its way, if it is its turn.
    fn advance(&mut self, partition: &Partition) {
        let Some(lane) = self.lanes.get_mut(partition) else {
            return;
        };
        if lane.busy || self.stop.is_cancelled() {
            return;
        }
        let Some(message) = lane.waiting.pop_front() else {
            return;
        };
        lane.busy = true;
        let (generation, revoked) = (lane.generation, lane.revoked.clone());
        let (intake, partition) = (self.intake.clone(), partition.clone());
        self.under_way.push(Box::pin(async move {
            let verdict = intake.take(&message, &revoked).await;
            Settled {
                partition,
                generation,
                offset: message.offset,
                bytes: cost(&message),
                verdict,
            }
        }));
    }
}

fn cost(message: &Message) -> usize {
    let headers: usize = message.headers.iter().map(|(_, value)| value.len()).sum();
    message.payload.len() + headers + MESSAGE_BYTES
}
