//! Panics of stages: the first one ends the process.

use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

use crate::pipeline::health::{Health, Phase};

/// Notification of the first panic.
#[derive(Default)]
pub(super) struct Panicked {
    pub(super) happened: Notify,
    pub(super) place: OnceLock<String>,
}

/// Makes a panic in any thread end the process, because a pipeline with a dead stage must not look
/// alive. The hook prints the panic as usual; the service then drains the stages that still work.
///
/// The hook does not log: the panic may come from the logger, and a second panic would abort the
/// process with all buffered data.
pub(super) fn watch_for_panics(health: Arc<Health>) -> Arc<Panicked> {
    let panicked = Arc::new(Panicked::default());
    let noted = panicked.clone();
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        if let Some(place) = panic.location() {
            // Only the first panic is the cause.
            let _ = noted.place.set(place.to_string());
        }
        health.set_phase(Phase::Failed);
        noted.happened.notify_one();
    }));
    panicked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_marks_process_as_failed_and_wakes_service() {
        let health = Arc::new(Health::default());
        health.set_phase(Phase::Ready);
        let panicked = watch_for_panics(health.clone());
        let stage = std::thread::spawn(|| panic!("a stage that this test lets fail"));
        panicked.happened.notified().await;
        assert!(panicked.place.get().unwrap().contains("panics.rs"));
        assert!(stage.join().is_err());
        assert_eq!(health.phase(), Phase::Failed);
    }
}
