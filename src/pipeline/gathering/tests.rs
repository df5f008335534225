use super::*;

/// A request with these items and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request(usize, usize);

impl Measured for Request {
    fn items(&self) -> usize {
        self.0
    }

    fn bytes(&self) -> usize {
        self.1
    }
}

const TIMEOUT: Duration = Duration::from_millis(200);
const MILLI: Duration = Duration::from_millis(1);

fn gathering(min: (usize, usize), max: (usize, usize)) -> Gathering<Request> {
    let [min, max] = [min, max].map(|(items, bytes)| Limit { items, bytes });
    Gathering::new(Sizes { min, max }, TIMEOUT)
}

fn of(tenant: &str) -> Partition {
    vec![vec![tenant.to_owned()]]
}

/// Adds requests of one partition. Returns the item counts of the completed batches.
fn push(gathering: &mut Gathering<Request>, requests: &[Request]) -> Vec<Vec<usize>> {
    let mut complete = Vec::new();
    for request in requests {
        gathering.push(&of("a"), *request, |batch| {
            complete.push(batch.iter().map(Measured::items).collect());
        });
    }
    complete
}

#[tokio::test(start_paused = true)]
async fn either_threshold_completes_a_batch() {
    let mut gathering = gathering((4, 100), (usize::MAX, usize::MAX));
    let complete = push(
        &mut gathering,
        &[
            Request(3, 1),
            Request(2, 1),
            Request(1, 99),
            Request(1, 1),
            Request(9, 1),
        ],
    );
    assert_eq!(complete, [vec![3, 2], vec![1, 1], vec![9]]);
    assert!(gathering.take_all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn oversized_request_starts_next_batch() {
    for (max, request) in [
        ((4, usize::MAX), Request(2, 1)),
        ((usize::MAX, 4), Request(2, 2)),
    ] {
        let mut gathering = gathering((usize::MAX, usize::MAX), max);
        let complete = push(&mut gathering, &[request; 3]);
        assert_eq!(complete, [vec![2, 2]]);
        let rest = gathering.take(&of("a")).unwrap();
        assert_eq!(rest.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn incomplete_batch_is_due_one_timeout_after_its_first_request() {
    let mut gathering = gathering((4, usize::MAX), (usize::MAX, usize::MAX));
    let start = Instant::now();
    // The first batch is complete and leaves its deadline behind.
    assert_eq!(
        push(&mut gathering, &[Request(3, 1), Request(1, 1)]).len(),
        1
    );
    tokio::time::sleep(MILLI).await;
    assert!(!gathering.push(&of("a"), Request(1, 1), |_| panic!("incomplete")));
    tokio::time::sleep(MILLI).await;
    gathering.push(&of("b"), Request(2, 1), |_| panic!("incomplete"));
    gathering.push(&of("a"), Request(1, 1), |_| panic!("incomplete"));
    assert_eq!(gathering.next_deadline(), Some(start + MILLI + TIMEOUT));
    assert!(gathering.take_due(start + TIMEOUT).is_none());
    let (partition, batch) = gathering.take_due(start + MILLI + TIMEOUT).unwrap();
    assert_eq!((partition, batch.len()), (of("a"), 2));
    assert_eq!(gathering.next_deadline(), Some(start + 2 * MILLI + TIMEOUT));
}

#[tokio::test(start_paused = true)]
async fn partitions_never_share_a_batch() {
    let mut gathering = gathering((2, usize::MAX), (usize::MAX, usize::MAX));
    let mut complete = 0;
    for tenant in ["a", "b"] {
        gathering.push(&of(tenant), Request(1, 1), |_| complete += 1);
    }
    assert_eq!(complete, 0);
    let mut all = gathering.take_all();
    all.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let all: Vec<_> = all.iter().map(|(of, batch)| (of, batch.len())).collect();
    assert_eq!(all, [(&of("a"), 1), (&of("b"), 1)]);
    assert_eq!(gathering.next_deadline(), None);
}
