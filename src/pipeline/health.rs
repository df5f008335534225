//! Health of the process: reported by the service and the exporters, served by `health_check`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use tributary_config::ComponentId;
use tributary_otlp::Signal;

/// The health of the process and of its exporters.
#[derive(Debug)]
pub struct Health {
    phase: AtomicU8,
    started: Instant,
    started_at: SystemTime,
    exporters: Mutex<Exporters>,
}

/// During a reload, several exporters may have one name. The newest one that still exists counts.
type Exporters = BTreeMap<(ComponentId, Signal), Vec<Weak<Trouble>>>;

/// Phase in the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Some components do not run yet.
    Starting,
    /// All components run.
    Ready,
    /// A stage has panicked. The process is about to end.
    Failed,
    /// The process was asked to end.
    Stopping,
}

/// Health of one exporter.
#[derive(Debug)]
pub struct Trouble {
    epoch: Instant,
    /// Start of the failure in milliseconds after the epoch, plus one. 0 while the exporter is healthy.
    since: AtomicU64,
}

impl Default for Health {
    fn default() -> Self {
        Health {
            phase: AtomicU8::new(Phase::Starting as u8),
            started: Instant::now(),
            started_at: SystemTime::now(),
            exporters: Mutex::default(),
        }
    }
}

impl Health {
    /// Moves to another phase. A failed process stays failed.
    pub fn set_phase(&self, phase: Phase) {
        let unless_failed = |now| (now != Phase::Failed as u8).then_some(phase as u8);
        let _ = self.phase.fetch_update(Relaxed, Relaxed, unless_failed);
    }

    /// Returns the current phase.
    pub fn phase(&self) -> Phase {
        [
            Phase::Starting,
            Phase::Ready,
            Phase::Failed,
            Phase::Stopping,
        ]
        .into_iter()
        .find(|phase| *phase as u8 == self.phase.load(Relaxed))
        .unwrap_or(Phase::Failed)
    }

    /// Returns the start time of the process, and its uptime.
    pub fn started(&self) -> (SystemTime, Duration) {
        (self.started_at, self.started.elapsed())
    }

    /// Registers an exporter and returns the handle to report its health.
    pub fn exporter(&self, id: &ComponentId, signal: Signal) -> Arc<Trouble> {
        let trouble = Arc::new(Trouble {
            epoch: Instant::now(),
            since: AtomicU64::new(0),
        });
        let mut exporters = self
            .exporters
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let of_that_name = exporters.entry((id.clone(), signal)).or_default();
        of_that_name.retain(|other| other.strong_count() > 0);
        of_that_name.push(Arc::downgrade(&trouble));
        trouble
    }

    /// Returns exporters that have delivered nothing for longer than `tolerance` since the first failed attempt.
    pub fn failing(&self, tolerance: Duration) -> Vec<(ComponentId, Signal, Duration)> {
        let exporters = self
            .exporters
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        exporters
            .iter()
            .filter_map(|((id, signal), of_that_name)| {
                let current = of_that_name.iter().rev().find_map(Weak::upgrade)?;
                let lasting = current.lasting().filter(|lasting| *lasting >= tolerance)?;
                Some((id.clone(), *signal, lasting))
            })
            .collect()
    }
}

impl Trouble {
    /// Records a delivery, which ends the failure.
    pub fn over(&self) {
        if self.since.load(Relaxed) != 0 {
            self.since.store(0, Relaxed);
        }
    }

    /// Records a failed attempt, a refusal or a loss.
    pub fn begins(&self) {
        let now = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX);
        let _ = self
            .since
            .compare_exchange(0, now.saturating_add(1), Relaxed, Relaxed);
    }

    fn lasting(&self) -> Option<Duration> {
        let since = self.since.load(Relaxed).checked_sub(1)?;
        Some(
            self.epoch
                .elapsed()
                .saturating_sub(Duration::from_millis(since)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exporter_is_unhealthy_from_first_failure_to_delivery() {
        let health = Health::default();
        let trouble = health.exporter(&"otlp_grpc".parse().unwrap(), Signal::Traces);
        assert!(health.failing(Duration::ZERO).is_empty());
        trouble.begins();
        assert_eq!(health.failing(Duration::ZERO).len(), 1);
        assert!(health.failing(Duration::from_secs(3600)).is_empty());
        trouble.over();
        assert!(health.failing(Duration::ZERO).is_empty());
    }

    #[test]
    fn dropped_exporter_is_not_reported() {
        let health = Health::default();
        health
            .exporter(&"gone".parse().unwrap(), Signal::Traces)
            .begins();
        assert!(health.failing(Duration::ZERO).is_empty());
    }

    #[test]
    fn unstarted_exporter_does_not_hide_running_one() {
        let health = Health::default();
        let id = "otlp_grpc".parse().unwrap();
        let running = health.exporter(&id, Signal::Traces);
        drop(health.exporter(&id, Signal::Traces));
        running.begins();
        assert_eq!(health.failing(Duration::ZERO).len(), 1);

        let successor = health.exporter(&id, Signal::Traces);
        assert!(health.failing(Duration::ZERO).is_empty());
        drop(successor);
    }

    #[test]
    fn a_failed_process_stays_failed() {
        let health = Health::default();
        health.set_phase(Phase::Failed);
        health.set_phase(Phase::Ready);
        assert_eq!(health.phase(), Phase::Failed);
    }
}
