//! Queues of messages by partition, and selection of the partitions to pause.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use super::intake::{Intake, Message, Verdict};
use futures_util::future::BoxFuture;

/// Memory of a message in addition to its value, in bytes: the message and its entry in a lane.
const MESSAGE_BYTES: usize = 256;

/// A topic and the number of a partition.
pub(super) type Partition = (Arc<str>, i32);

/// One lane for each partition: one message is in flight, and later messages wait.
pub(super) struct Lanes {
    intake: Arc<Intake>,
    stop: CancellationToken,
    lanes: HashMap<Partition, Lane>,
    in_flight: FuturesUnordered<BoxFuture<'static, Finished>>,
    /// Bytes of all messages.
    pub(super) bytes: usize,
    /// Bytes of messages in lanes that are not paused.
    pub(super) free_bytes: usize,
    released: Vec<Partition>,
    /// Generation of the next lane.
    generation: u64,
}

struct Lane {
    generation: u64,
    waiting: VecDeque<Message>,
    /// Bytes of waiting and in-flight messages.
    bytes: usize,
    busy: bool,
    stuck: bool,
    /// The lane is paused until its size is at most this many bytes.
    held_until: Option<usize>,
    /// Cancelled when the partition is revoked.
    revoked: CancellationToken,
}

/// A message that is no longer in flight.
struct Finished {
    partition: Partition,
    generation: u64,
    offset: i64,
    bytes: usize,
    verdict: Verdict,
}

/// Action for a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Marks the messages up to the offset as consumed.
    Read(Partition, i64),
    /// Stops the partition.
    Stuck(Partition),
}

impl Lanes {
    pub(super) fn new(intake: Arc<Intake>, stop: CancellationToken) -> Self {
        Lanes {
            intake,
            stop,
            lanes: HashMap::new(),
            in_flight: FuturesUnordered::new(),
            bytes: 0,
            free_bytes: 0,
            released: Vec::new(),
            generation: 0,
        }
    }

    /// Whether the lanes are full, if all may use `max` bytes. Lanes that are not paused may use half of the
    /// remainder, so that working partitions always have room, even if many partitions are blocked.
    pub(super) fn is_full(&self, max: usize) -> bool {
        let others = self.bytes - self.free_bytes;
        self.free_bytes > 0 && self.free_bytes >= max.saturating_sub(others) / 2
    }

    /// Pauses the largest partitions until there is room for the other partitions, and returns the paused partitions.
    /// Each is [released](Self::released) once half of its messages are finished.
    pub(super) fn hold(&mut self, max: usize) -> Vec<Partition> {
        let mut held = Vec::new();
        while self.is_full(max) {
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
            // At least one lane has the average size, so this is not reached.
            if held.len() == before {
                break;
            }
        }
        held
    }

    /// Returns the partitions to resume since the last call.
    pub(super) fn released(&mut self) -> Vec<Partition> {
        std::mem::take(&mut self.released)
    }

    /// Whether no message is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

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

    /// Drops the lane of a revoked partition, because the partition's new member receives the messages.
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

    /// Waits for the next action. Returns `None` if no message is in flight.
    pub(super) async fn next(&mut self) -> Option<Step> {
        while let Some(finished) = self.in_flight.next().await {
            self.bytes -= finished.bytes;
            let partition = finished.partition;
            let lane = self.lanes.get_mut(&partition);
            let Some(lane) = lane.filter(|lane| lane.generation == finished.generation) else {
                continue;
            };
            lane.busy = false;
            let mut released = finished.bytes;
            if finished.verdict == Verdict::Stuck {
                lane.stuck = true;
                let waited: usize = lane.waiting.drain(..).map(|message| cost(&message)).sum();
                self.bytes -= waited;
                released += waited;
            }
            lane.bytes -= released;
            match lane.held_until {
                None => self.free_bytes -= released,
                Some(max) if lane.bytes <= max => {
                    lane.held_until = None;
                    self.free_bytes += lane.bytes;
                    if !lane.stuck {
                        self.released.push(partition.clone());
                    }
                }
                Some(_) => {}
            }
            match finished.verdict {
                Verdict::Passed => {
                    self.advance(&partition);
                    return Some(Step::Read(partition, finished.offset));
                }
                Verdict::Stuck => return Some(Step::Stuck(partition)),
                Verdict::Interrupted => {}
            }
        }
        None
    }

    /// Starts the next message of a partition, if none is in flight.
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
        self.in_flight.push(Box::pin(async move {
            let verdict = intake.take(&message, &revoked).await;
            Finished {
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
