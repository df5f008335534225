use metrics_exporter_prometheus::PrometheusBuilder;
use std::time::Duration;

use super::*;
use crate::receivers::profile_intake::origin::Subject;
use crate::receivers::profile_intake::testing::{Sink, small_file};

#[tokio::test]
async fn file_without_memory_is_retryable() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let page = recorder.handle();
    let budget = Budget::new(1000);
    let id = "pprof".parse().unwrap();
    let intake = metrics::with_local_recorder(&recorder, || {
        let consumer = Arc::new(Sink::default());
        Intake::new(&id, consumer, budget.clone(), "http", 1 << 20, "limit")
    });
    let take = async |bytes: Vec<u8>| {
        let held = ReceivedBytes {
            permit: budget.acquire(bytes.len()).unwrap(),
            bytes: bytes.into(),
        };
        let origin = Origin {
            subject: Arc::new(Subject::default()),
            profile: None,
            start: 1,
            duration: Duration::ZERO,
            is_interval: false,
        };
        intake.take(held, origin).await.unwrap_err()
    };
    let unreadable = || {
        let page = page.render();
        let line = page
            .lines()
            .find(|line| line.starts_with("tributary_receiver_unreadable_requests"));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    };
    let _others = budget.acquire(800).unwrap();
    assert!(matches!(take(small_file(1)).await, Refused::NoRoom(_)));
    assert_eq!(unreadable(), 0);
    assert!(matches!(take(vec![0xff]).await, Refused::Unreadable(_)));
    assert_eq!(unreadable(), 1);
}

#[test]
fn file_that_exceeds_a_limit_is_too_large_for_the_client() {
    let (what, limit) = ("frames in one stack", 1);
    let nack = Nack::from(Refused::Unusable(FormatError::TooLarge { what, limit }));
    assert_eq!(
        (nack.code, nack.retryable),
        (Code::ResourceExhausted, false)
    );
    let unknown = Nack::from(Refused::Unusable(FormatError::Unknown));
    assert_eq!(unknown.code, Code::InvalidArgument);
}
