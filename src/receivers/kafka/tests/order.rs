//! The order of waiting messages.

use super::super::intake::{Intake, Message};
use super::super::lanes::{Lanes, Partition, Step};
use super::*;
use crate::pipeline::testing::Scripted;
use tokio_util::sync::CancellationToken;
use tributary_net::kafka::RecordEncoding;

fn lanes(answers: impl IntoIterator<Item = Result<(), Nack>>) -> (Lanes, Arc<Scripted>) {
    let next = Scripted::new(answers);
    let mut outputs = Outputs::default();
    outputs.set(Signal::Logs, next.clone());
    let cx = Host::for_tests().context(&"kafka".parse().unwrap());
    let intake = Arc::new(Intake::new(&Config::default(), &cx, outputs));
    (Lanes::new(intake, CancellationToken::new()), next)
}

fn message(partition: i32, offset: i64) -> Message {
    Message {
        topic: "otlp_logs".into(),
        partition,
        offset,
        signal: Signal::Logs,
        encoding: RecordEncoding::OtlpProto,
        payload: log(&format!("{partition}/{offset}")).into(),
        headers: Vec::new(),
    }
}

fn partition(number: i32) -> Partition {
    ("otlp_logs".into(), number)
}

fn taken(next: &Scripted) -> Vec<String> {
    let batches = next.batches().into_iter();
    batches
        .flat_map(|batch| bodies(&batch.into_wire().to_bytes()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn partition_waits_for_its_first_message_only() {
    let (mut lanes, next) = lanes([Err(Nack::unavailable("away"))]);
    for (number, offset) in [(0, 5), (0, 6), (1, 9), (0, 7)] {
        lanes.push(message(number, offset));
    }
    let mut steps = Vec::new();
    while let Some(step) = lanes.next().await {
        steps.push(step);
    }
    let read = |number, offset| Step::Read(partition(number), offset);
    assert_eq!(steps, [read(1, 9), read(0, 5), read(0, 6), read(0, 7)]);
    assert_eq!(taken(&next), ["1/9", "0/5", "0/6", "0/7"]);
    assert_eq!((lanes.bytes, lanes.free_bytes), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn largest_lane_pauses_until_half_is_delivered() {
    let (mut lanes, _) = lanes([Err(Nack::unavailable("away"))]);
    for offset in 0..4 {
        lanes.push(message(0, offset));
    }
    let most = 2 * lanes.bytes;
    assert!(lanes.is_full(most) && !lanes.is_full(most + 2));
    assert_eq!(lanes.hold(most), [partition(0)]);
    // Half of the remainder is the size of one and a half messages.
    lanes.push(message(1, 9));
    assert!(!lanes.is_full(most));
    lanes.push(message(1, 10));
    lanes.push(message(1, 11));
    assert!(lanes.is_full(most));
    let mut steps = Vec::new();
    while lanes.released().is_empty() {
        assert!(steps.len() < 5, "not before half of it is gone");
        steps.extend(lanes.next().await);
    }
    let read = |number, offset| Step::Read(partition(number), offset);
    assert_eq!(
        steps,
        [read(1, 9), read(1, 10), read(1, 11), read(0, 0), read(0, 1)]
    );
    assert!(!lanes.is_full(most));
    // Messages of a revoked partition release their memory.
    let most = lanes.bytes;
    assert_eq!(lanes.hold(most), [partition(0)]);
    lanes.revoke(&partition(0));
    while lanes.next().await.is_some() {}
    assert_eq!((lanes.bytes, lanes.free_bytes), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn revoked_partition_commits_nothing() {
    let away = || Err(Nack::unavailable("away"));
    let (mut lanes, next) = lanes([away(), away()]);
    lanes.push(message(0, 5));
    lanes.push(message(0, 6));
    lanes.push(message(1, 9));
    lanes.revoke(&partition(0));
    assert_eq!(lanes.next().await, Some(Step::Read(partition(1), 9)));
    // The partition is assigned again, and starts at the committed offset.
    lanes.push(message(0, 5));
    assert_eq!(lanes.next().await, Some(Step::Read(partition(0), 5)));
    assert_eq!(lanes.next().await, None);
    assert_eq!(taken(&next), ["1/9", "0/5"]);
    assert_eq!((lanes.bytes, lanes.free_bytes), (0, 0));
}
