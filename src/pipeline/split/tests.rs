use super::*;
use crate::pipeline::batch::Progress;
use crate::pipeline::testing::{span_names, spans};
use crate::testing::named_batch;
use tributary_profiles::testing_requests::sample_names;

fn requests(names: &[&str]) -> Batch {
    let mut batches = names.iter().map(|name| spans([*name]));
    let mut first = batches.next().unwrap();
    batches.for_each(|batch| first.append(batch));
    first
}

/// Sends the batch to a next hop that refuses `bad`. Returns the accepted names, the dropped names, and the number of
/// sends.
fn search(batch: Batch, fault: Fault) -> (Vec<String>, Vec<String>, usize) {
    let mut search = Search::default();
    let (mut accepted, mut dropped, mut sends) = (Vec::new(), Vec::new(), 0);
    let mut todo = std::collections::VecDeque::from([batch]);
    while let Some(part) = todo.pop_front() {
        sends += 1;
        let names = span_names(&part);
        assert_eq!(names.len(), part.items());
        if !names.iter().any(|name| name.starts_with("bad")) {
            search.accepted();
            accepted.extend(names);
            continue;
        }
        match search.refused(part, fault, None) {
            Ok(parts) => todo.extend(parts),
            Err(part) => dropped.extend(span_names(&part)),
        }
    }
    accepted.sort_unstable();
    (accepted, dropped, sends)
}

#[test]
fn bad_request_is_found_among_many() {
    let names: Vec<String> = (0..1000).map(|number| format!("{number:03}")).collect();
    let mut mixed: Vec<&str> = names.iter().map(String::as_str).collect();
    mixed[700] = "bad";
    let (accepted, dropped, sends) = search(requests(&mixed), Fault::Unclear);
    assert_eq!((accepted.len(), dropped), (999, vec!["bad".to_owned()]));
    assert!(sends <= 21, "{sends}");
}

#[test]
fn refusing_next_hop_gets_few_parts() {
    let bad = ["bad"; 2000];
    for (fault, sends) in [
        (Fault::Content, 257),
        (Fault::Unclear, 17),
        (Fault::Elsewhere, 1),
    ] {
        let (_, dropped, sent) = search(requests(&bad), fault);
        assert_eq!((dropped.len(), sent), (2000, sends), "{fault:?}");
    }
}

#[test]
fn single_request_is_split_only_if_joined_or_too_large() {
    let names = ["a", "bad", "c"];
    let whole = ["a", "bad", "c"].map(str::to_owned).to_vec();
    assert_eq!(search(spans(names), Fault::Content).1, whole);
    assert_eq!(search(spans(names), Fault::Size).1, ["bad"]);
    let mut joined = spans(names);
    joined.mark_joined();
    assert_eq!(search(joined, Fault::Content).1, ["bad"]);
}

#[test]
fn joined_profiles_are_split_between_profiles_first() {
    let mut joined = named_batch("s", ["a", "b", "c"]);
    joined.mark_joined();
    let halves = joined.halve(Fault::Content).unwrap();
    let names = halves
        .iter()
        .map(|half| sample_names(&half.clone().into_wire().to_bytes()));
    assert_eq!(names.collect::<Vec<_>>(), [vec!["a", "b"], vec!["c"]]);
}

#[test]
fn parts_fork_the_progress_of_the_whole() {
    let mut batch = requests(&["a", "b"]);
    let progress = Arc::new(Progress::default());
    progress.add(7);
    batch.progress = Some(progress.clone());
    let halves = batch.halve(Fault::Unclear).unwrap();
    let [first, second] = &halves[..] else {
        panic!("{halves:?}");
    };
    first.progress.as_ref().unwrap().add(8);
    assert!(second.progress.as_ref().unwrap().has(7));
    assert!(!second.progress.as_ref().unwrap().has(8) && !progress.has(8));
}

#[test]
fn split_without_memory_drops_the_data() {
    let mut joined = spans(["a", "b"]);
    joined.mark_joined();
    let budget = Budget::new(1);
    let mut others = budget.output_permit();
    others.grow(1 + budget.output_reserve()).unwrap();
    let refused = Search::default().refused(joined, Fault::Content, Some(&budget));
    assert_eq!(refused.unwrap_err().items(), 2);
}
