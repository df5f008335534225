//! Health of the process and of its exporters. The service and the exporters report it; probes and the console read it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
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

/// Exporters by name. During a reload, several exporters may have the same name; only the newest existing exporter
/// counts.
type Exporters = BTreeMap<(ComponentId, Signal), Vec<Weak<ExporterHealth>>>;

/// Phase in the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Some components do not run yet.
    Starting,
    /// All components run.
    Ready,
    /// A stage has panicked. The process is about to end.
    Failed,
    /// The process is shutting down.
    Stopping,
}

/// Health of one exporter.
#[derive(Debug)]
pub struct ExporterHealth {
    epoch: Instant,
    /// Start of the failure in milliseconds after the epoch, plus one. 0 while the exporter is healthy.
    since: AtomicU64,
    last_error: Mutex<Option<LastError>>,
    arrivals: Mutex<VecDeque<Weak<Arrived>>>,
}

/// The last error of an exporter.
#[derive(Debug, Clone)]
pub struct LastError {
    /// Time of the error.
    pub time: SystemTime,
    /// The error, in one line.
    pub message: String,
}

/// The arrival of all requests within the same second. Each request keeps a reference until its outcome is known.
#[derive(Debug)]
pub struct Arrived(Instant);

/// State of one exporter, for display.
#[derive(Debug)]
pub struct ExporterState {
    /// Id of the exporter.
    pub id: ComponentId,
    /// Signal of the state.
    pub signal: Signal,
    /// Time since the first failed attempt after the last delivery. `None` while the exporter is healthy.
    pub failing: Option<Duration>,
    /// The last error, even if the exporter has delivered since then.
    pub last_error: Option<LastError>,
    /// Time since the arrival of the oldest request without an outcome, to about a second. A request from a queue on
    /// disk counts from the time when it is read.
    pub oldest: Option<Duration>,
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
    pub fn exporter(&self, id: &ComponentId, signal: Signal) -> Arc<ExporterHealth> {
        let exporter = Arc::new(ExporterHealth {
            epoch: Instant::now(),
            since: AtomicU64::new(0),
            last_error: Mutex::default(),
            arrivals: Mutex::default(),
        });
        let mut exporters = self.exporters.lock();
        let same_name = exporters.entry((id.clone(), signal)).or_default();
        same_name.retain(|other| other.strong_count() > 0);
        same_name.push(Arc::downgrade(&exporter));
        exporter
    }

    /// Returns the state of each exporter.
    pub fn exporters(&self) -> Vec<ExporterState> {
        let exporters = self.exporters.lock();
        let state =
            |((id, signal), same_name): (&(ComponentId, Signal), &Vec<Weak<ExporterHealth>>)| {
                let current = same_name.iter().rev().find_map(Weak::upgrade)?;
                Some(ExporterState {
                    id: id.clone(),
                    signal: *signal,
                    failing: current.lasting(),
                    last_error: current.last_error.lock().clone(),
                    oldest: current.oldest(),
                })
            };
        exporters.iter().filter_map(state).collect()
    }

    /// Returns exporters that have delivered nothing for longer than `tolerance` since the first failed attempt.
    pub fn failing(&self, tolerance: Duration) -> Vec<(ComponentId, Signal, Duration)> {
        let lasting = |state: ExporterState| {
            let lasting = state.failing.filter(|lasting| *lasting >= tolerance)?;
            Some((state.id, state.signal, lasting))
        };
        self.exporters().into_iter().filter_map(lasting).collect()
    }
}

impl ExporterHealth {
    /// Records a delivery, which ends the failure.
    pub fn record_delivery(&self) {
        if self.since.load(Relaxed) != 0 {
            self.since.store(0, Relaxed);
        }
    }

    /// Records a failed attempt, a refusal or a loss.
    pub fn record_failure(&self) {
        let now = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX);
        let _ = self
            .since
            .compare_exchange(0, now.saturating_add(1), Relaxed, Relaxed);
    }

    /// Records the error of a failed attempt.
    pub fn record_error(&self, error: &impl Display) {
        *self.last_error.lock() = Some(LastError {
            time: SystemTime::now(),
            message: error.to_string(),
        });
    }

    /// Records the arrival of a request. The request has no outcome until the result is dropped.
    pub fn record_arrival(&self) -> Arc<Arrived> {
        let mut arrivals = self.arrivals.lock();
        if let Some(current) = arrivals.back().and_then(Weak::upgrade)
            && current.0.elapsed() < Arrived::SPAN
        {
            return current;
        }
        arrivals.retain(|arrived| arrived.strong_count() > 0);
        // Bound the memory during a long outage: thin out the older half.
        if arrivals.len() >= MAX_ARRIVALS {
            let mut index = 0;
            arrivals.retain(|_| {
                index += 1;
                index > MAX_ARRIVALS / 2 || index % 2 == 1
            });
        }
        let current = Arc::new(Arrived(Instant::now()));
        arrivals.push_back(Arc::downgrade(&current));
        current
    }

    fn oldest(&self) -> Option<Duration> {
        let mut arrivals = self.arrivals.lock();
        arrivals.retain(|arrived| arrived.strong_count() > 0);
        let oldest = arrivals.iter().find_map(Weak::upgrade)?;
        Some(oldest.0.elapsed())
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

impl Arrived {
    /// Time within which arrivals count as simultaneous.
    const SPAN: Duration = Duration::from_secs(1);
}

/// Maximum number of arrivals per exporter. A larger number would only make the age of old requests more exact.
const MAX_ARRIVALS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exporter_is_unhealthy_from_first_failure_to_delivery() {
        let health = Health::default();
        let exporter = health.exporter(&"otlp_grpc".parse().unwrap(), Signal::Traces);
        assert!(health.failing(Duration::ZERO).is_empty());
        exporter.record_failure();
        assert_eq!(health.failing(Duration::ZERO).len(), 1);
        assert!(health.failing(Duration::from_secs(3600)).is_empty());
        exporter.record_delivery();
        assert!(health.failing(Duration::ZERO).is_empty());
    }

    #[test]
    fn dropped_exporter_is_not_reported() {
        let health = Health::default();
        health
            .exporter(&"gone".parse().unwrap(), Signal::Traces)
            .record_failure();
        assert!(health.failing(Duration::ZERO).is_empty());
    }

    #[test]
    fn unstarted_exporter_does_not_hide_running_one() {
        let health = Health::default();
        let id = "otlp_grpc".parse().unwrap();
        let running = health.exporter(&id, Signal::Traces);
        drop(health.exporter(&id, Signal::Traces));
        running.record_failure();
        assert_eq!(health.failing(Duration::ZERO).len(), 1);

        let successor = health.exporter(&id, Signal::Traces);
        assert!(health.failing(Duration::ZERO).is_empty());
        drop(successor);
    }

    #[test]
    fn oldest_request_counts_until_its_outcome() {
        let health = Health::default();
        let exporter = health.exporter(&"otlp_grpc".parse().unwrap(), Signal::Traces);
        let oldest = || health.exporters()[0].oldest;
        assert_eq!(oldest(), None);
        let (first, second) = (exporter.record_arrival(), exporter.record_arrival());
        drop(first);
        assert!(oldest().is_some());
        drop(second);
        assert_eq!(oldest(), None);
    }

    #[test]
    fn last_error_stays_after_delivery() {
        let health = Health::default();
        let exporter = health.exporter(&"otlp_grpc".parse().unwrap(), Signal::Traces);
        exporter.record_failure();
        exporter.record_error(&"connection refused");
        exporter.record_delivery();
        let state = &health.exporters()[0];
        assert_eq!(
            state.last_error.as_ref().unwrap().message,
            "connection refused"
        );
        assert_eq!(state.failing, None);
    }

    #[test]
    fn failed_process_stays_failed() {
        let health = Health::default();
        health.set_phase(Phase::Failed);
        health.set_phase(Phase::Ready);
        assert_eq!(health.phase(), Phase::Failed);
    }
}
