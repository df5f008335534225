//! Messages that wait, in the order of their partitions, and which partitions keep the others from going on.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use super::intake::{Intake, Message, Verdict};
use futures_util::future::BoxFuture;

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
    /// Of all messages that are here.
    pub(super) bytes: usize,
    /// Of those in lanes that are not held.
    pub(super) free_bytes: usize,
    /// Partitions that are not held any more.
    released: Vec<Partition>,
    /// Of the lane that is made next.
    generation: u64,
}

struct Lane {
    generation: u64,
    waiting: VecDeque<Message>,
    /// Of what waits and what is under way.
    bytes: usize,
    busy: bool,
    stuck: bool,
    /// Nothing more is fetched until there are at most so many bytes.
    held_until: Option<usize>,
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
            free_bytes: 0,
            released: Vec::new(),
            generation: 0,
        }
    }

    /// Whether nothing more should be taken in for now, where all may have `most` bytes. What is not held may have half
    /// of what the others leave: so there is always room for a partition that goes on, however many do not.
    pub(super) fn is_full(&self, most: usize) -> bool {
        let others = self.bytes - self.free_bytes;
        self.free_bytes > 0 && self.free_bytes >= most.saturating_sub(others) / 2
    }

    /// Holds the partitions that have the most, until there is room for the others; which ones these are. Each is
    /// [released](Self::released) when half of its messages have gone on.
    pub(super) fn hold(&mut self, most: usize) -> Vec<Partition> {
        let mut held = Vec::new();
        while self.is_full(most) {
            let free = self.lanes.values().filter(|lane| lane.is_free());
            let average = self.free_bytes / free.count().max(1);
            let before = held.len();
            for (partition, lane) in &mut self.lanes {
                if lane.is_free() && lane.bytes >= average {
                    lane.held_until = Some(lane.bytes / 2);
                    self.free_bytes -= lane.bytes;
                    held.push(partition.clone());
                }
            }
            // Not so: one has the average at least.
            if held.len() == before {
                break;
            }
        }
        held
    }

    /// The partitions that are not held any more since the last call.
    pub(super) fn released(&mut self) -> Vec<Partition> {
        std::mem::take(&mut self.released)
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
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
                bytes: 0,
                busy: false,
                stuck: false,
                held_until: None,
                revoked: self.stop.child_token(),
            }
        });
        if lane.stuck {
            return;
        }
        let bytes = cost(&message);
        self.bytes += bytes;
        lane.bytes += bytes;
        if lane.is_free() {
            self.free_bytes += bytes;
        }
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
        if lane.is_free() {
            self.free_bytes -= lane.bytes;
        }
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
            let mut gone = settled.bytes;
            if settled.verdict == Verdict::Stuck {
                lane.stuck = true;
                let waited: usize = lane.waiting.drain(..).map(|message| cost(&message)).sum();
                self.bytes -= waited;
                gone += waited;
            }
            lane.bytes -= gone;
            match lane.held_until {
                None => self.free_bytes -= gone,
                Some(most) if lane.bytes <= most => {
                    lane.held_until = None;
                    self.free_bytes += lane.bytes;
                    if !lane.stuck {
                        self.released.push(partition.clone());
                    }
                }
                Some(_) => {}
            }
            match settled.verdict {
                Verdict::Passed => {
                    self.advance(&partition);
                    return Some(Step::Read(partition, settled.offset));
                }
                Verdict::Stuck => return Some(Step::Stuck(partition)),
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

impl Lane {
    fn is_free(&self) -> bool {
        self.held_until.is_none()
    }
}

fn cost(message: &Message) -> usize {
    let headers: usize = message.headers.iter().map(|(_, value)| value.len()).sum();
    message.payload.len() + headers + MESSAGE_BYTES
}
