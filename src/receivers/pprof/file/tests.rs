//! Times at which files are read, and the handling of unreadable files.

use std::fs;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::time::Instant;

use super::*;
use crate::pipeline::Undelivered;
use crate::pipeline::batch::Nack;
use crate::receivers::profile_intake::testing::{Sink, small_file};
use tributary_memory::Budget;

struct Place {
    directory: TempDir,
    sink: Arc<Sink>,
    files: Files,
}

impl Place {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let sink = Arc::new(Sink::default());
        let id: ComponentId = "pprof".parse().unwrap();
        let budget = Budget::new(1 << 24);
        let intake = Intake::new(&id, sink.clone(), budget, "file", 1 << 16, LIMIT_KEY);
        let glob = Glob::new(&format!("{}/*.pb*", directory.path().display())).unwrap();
        Place {
            files: Files::new(id, glob, vec![text("team", "a")], intake),
            directory,
            sink,
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.directory.path().join(name), bytes).unwrap();
    }

    /// Polls, and returns the number of delivered files.
    async fn poll(&mut self) -> usize {
        self.files.poll(&CancellationToken::new()).await;
        self.sink.taken().len()
    }
}

#[tokio::test]
async fn each_complete_file_version_is_taken_once() {
    let mut place = Place::new();
    place.write("a.pb", &small_file(1));
    assert_eq!(place.poll().await, 0, "it may be half written");
    assert_eq!(place.poll().await, 1);
    assert_eq!(place.poll().await, 1);
    place.write("a.pb", &small_file(1 << 40));
    place.write("b.pb.gz", &small_file(3));
    assert_eq!(place.poll().await, 1);
    assert_eq!(place.poll().await, 3);
    assert_eq!(place.poll().await, 3);
    fs::remove_file(place.directory.path().join("a.pb")).unwrap();
    assert_eq!(place.poll().await, 3);
    assert_eq!(place.files.seen.len(), 1, "what is gone is forgotten");
}

#[tokio::test]
async fn growing_file_is_read_when_complete() {
    let mut place = Place::new();
    let whole = small_file(5);
    for end in (1..whole.len()).step_by(7) {
        place.write("a.pb", &whole[..end]);
        assert_eq!(place.poll().await, 0);
    }
    place.write("a.pb", &whole);
    assert_eq!((place.poll().await, place.poll().await), (0, 1));
}

#[tokio::test]
async fn invalid_file_is_skipped_until_changed() {
    let mut place = Place::new();
    place.write("a.pb", b"no profile");
    place.write("b.pb", &small_file(1));
    place.write("c.pb", &vec![0; (1 << 16) + 1]);
    place.poll().await;
    assert_eq!(place.poll().await, 1);
    assert!(place.files.seen.values().all(|seen| seen.done));
    place.write("a.pb", &small_file(2));
    place.poll().await;
    assert_eq!(place.poll().await, 2);
}

#[tokio::test]
async fn temporarily_unreadable_file_is_retried() {
    let mut place = Place::new();
    let path = place.directory.path().join("a.pb");
    fs::write(&path, small_file(1)).unwrap();
    let stamp = FileStamp::of(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(!place.files.take(&path, &stamp).await, "it is gone");
    fs::create_dir(&path).unwrap();
    assert!(!place.files.take(&path, &stamp).await, "any other error");
    fs::remove_dir(&path).unwrap();
    fs::write(&path, small_file(1)).unwrap();
    assert_eq!((place.poll().await, place.poll().await), (0, 1));
}

#[tokio::test]
async fn resource_has_configured_attributes() {
    let mut place = Place::new();
    place.write("a.pb", &small_file(1));
    place.poll().await;
    place.poll().await;
    let taken = place.sink.taken();
    let resource = taken[0].resource_profiles[0].resource.as_ref();
    assert!(resource.unwrap().attributes.contains(&text("team", "a")));
}

#[tokio::test]
async fn only_retryable_refusals_are_retried() {
    let mut place = Place::new();
    place.write("a.pb", &small_file(1));
    place.poll().await;
    place.sink.answer(Err(Nack::unavailable("not now")));
    assert_eq!((place.poll().await, place.poll().await), (0, 0));
    place.sink.answer(Ok(()));
    assert_eq!((place.poll().await, place.poll().await), (1, 1));
    place.write("a.pb", &small_file(2));
    place.poll().await;
    place.sink.answer(Err(Nack::invalid("never")));
    place.poll().await;
    place.sink.answer(Ok(()));
    assert_eq!(place.poll().await, 1);
}

#[tokio::test(start_paused = true)]
async fn polling_ends_at_shutdown() {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("a.pb"), small_file(1)).unwrap();
    let config = FileConfig {
        include: format!("{}/*", directory.path().display()),
        ..FileConfig::default()
    };
    let sink = Arc::new(Sink::default());
    let id: ComponentId = "pprof".parse().unwrap();
    let intake = Intake::new(
        &id,
        sink.clone(),
        Budget::new(1 << 24),
        "file",
        1 << 20,
        LIMIT_KEY,
    );
    let mut section = config.build(&id, intake).unwrap();
    section.start();
    let taken = async {
        while sink.taken().is_empty() {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    };
    let limit = std::time::Duration::from_secs(3600);
    tokio::time::timeout(limit, taken).await.unwrap();
    let deadline = Instant::now() + limit;
    assert_eq!(section.shutdown(deadline).await, Undelivered::default());
}

#[test]
fn a_section_without_a_pattern_or_an_interval_is_refused() {
    let found = |config: FileConfig| {
        let mut problems = Problems::default();
        config.validate(&mut problems);
        let found = problems.found().iter();
        found
            .map(|problem| problem.path.join("."))
            .collect::<Vec<_>>()
    };
    assert_eq!(found(FileConfig::default()), ["include"]);
    let config = FileConfig {
        include: "a[".to_owned(),
        collection_interval: Duration::default(),
        ..FileConfig::default()
    };
    assert_eq!(found(config), ["include", "collection_interval"]);
}
