//! The running connector. Profiles are acknowledged once they are counted into a window, or skipped:
//! the connector observes, and never refuses profiles for lack of room.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::config::Config;
use super::event;
use super::history::{History, Outcome};
use super::measure::{Content, measure};
use super::metrics::Metrics;
use super::window::{Skipped, Window, WindowBounds};
use crate::component::{BuildContext, Outputs, Terminal};
use crate::connectors::delivering::counted;
use crate::pipeline::account::{Account, DropReason};
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::holding::{Collected, Deliveries, Holder, Holding, Life};
use crate::pipeline::senders::{CLOSED, Senders};
use crate::pipeline::turns::{on_a_turn, on_a_turn_if_large};
use crate::pipeline::{Consumer, FlushReason};
use futures_util::future::BoxFuture;
use tributary_memory::Budget;
use tributary_otlp::{Limit, Signal};
use tributary_profiles::decoded_bytes;

/// Size of emitted requests: small enough for any receiver.
const REQUEST_BYTES: usize = 2 << 20;

pub(super) fn build(config: &Config, cx: &BuildContext, next: Arc<dyn Consumer>) -> Terminal {
    let account = Account::of_connector(&cx.id);
    let next = counted(&account, next);
    let settings = config.settings();
    let observer = Arc::new(Observer {
        window: config.window.0,
        bounds: WindowBounds {
            max_series: settings.max_series,
            max_bytes: settings.max_bytes,
        },
        console: config.console_url.clone(),
        history: Arc::new(Mutex::new(History::new(settings, &cx.budget))),
        budget: cx.budget.clone(),
        metrics: Metrics::new(&cx.id.to_string()),
        account,
        holding: Holding::new(next),
    });
    let mut inputs = Outputs::default();
    inputs.set(Signal::Profiles, Arc::new(Entrance(observer.clone())));
    Terminal {
        inputs,
        component: Box::new(Life::new(observer)),
    }
}

struct Observer {
    window: Duration,
    bounds: WindowBounds,
    /// Address of the console; empty without links.
    console: String,
    /// Locked only by the task that closes windows.
    history: Arc<Mutex<History>>,
    budget: Arc<Budget>,
    metrics: Metrics,
    account: Account,
    holding: Holding<Option<Window>, Window>,
}

fn now() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Observer {
    /// Decodes a batch and adds its profiles to the window.
    async fn observe(&self, batch: &Batch) -> Result<(), Nack> {
        let requests = batch.wire().clone();
        let needed = requests.parts().iter().map(|part| decoded_bytes(part));
        let needed = needed.fold(0, usize::saturating_add);
        let Ok(mut memory) = self.budget.acquire(needed) else {
            self.metrics.skipped(Skipped::NoRoom, batch.items() as u64);
            return Ok(());
        };
        let work = move || {
            let mut content = Content::default();
            for part in requests.parts() {
                let samples = tributary_otlp::count(Signal::Profiles, part) as u64;
                let more = measure(part, samples, &mut memory);
                content.profiles.extend(more.profiles);
                content.skipped.extend(more.skipped);
            }
            (content, memory)
        };
        let Some((content, memory)) = on_a_turn_if_large(batch.bytes(), work).await else {
            return Err(Nack::unavailable(CLOSED));
        };
        for (reason, samples) in content.skipped {
            self.metrics.skipped(reason, samples);
        }
        let mut state = self.holding.state();
        if state.closed {
            return Err(Nack::unavailable(CLOSED));
        }
        let is_new = state.gathered.is_none();
        let window = state.gathered.get_or_insert_with(|| {
            let due = Instant::now() + self.window;
            Window::new(due, millis(now()), self.budget.empty_permit())
        });
        for profile in content.profiles {
            let samples = profile.samples;
            if let Err(reason) = window.add(profile, self.bounds) {
                self.metrics.skipped(reason, samples);
            }
        }
        drop(state);
        drop(memory);
        if is_new {
            self.holding.wake();
        }
        Ok(())
    }

    /// Adds a window to the history and returns the encoded findings.
    async fn close(&self, window: Window) -> Option<Vec<u8>> {
        let history = self.history.clone();
        // A comparison sorts the windows of each function, whatever the size of this window.
        let compared = on_a_turn(move || history.lock().add(&window.sums));
        let Outcome {
            findings,
            comparisons,
            no_room,
            too_many,
        } = compared.await?;
        self.metrics.comparisons.increment(comparisons);
        self.metrics.skipped(Skipped::NoRoom, no_room);
        self.metrics.skipped(Skipped::TooMany, too_many);
        findings
            .iter()
            .for_each(|finding| self.metrics.found(finding));
        let time = u64::try_from(now().as_nanos()).unwrap_or(u64::MAX);
        Some(event::request(&findings, time, &self.console))
    }
}

impl Holder for Observer {
    type Gathered = Option<Window>;
    type Ready = Window;

    // One window at a time, in their order.
    const MAX_DELIVERIES: Deliveries = Deliveries {
        count: 1,
        bytes: usize::MAX,
    };

    fn holding(&self) -> &Holding<Option<Window>, Window> {
        &self.holding
    }

    async fn collect(&self) -> Collected {
        let mut state = self.holding.state();
        let state = &mut *state;
        let now = Instant::now();
        // The window at the end of the connector's life is incomplete, and not compared.
        if state.closed {
            state.gathered = None;
        } else if let Some(mut window) = state.gathered.take_if(|window| window.due <= now) {
            window.sums.times.1 = millis(self::now()).max(window.sums.times.0);
            match state.ready.is_full(self.bounds.max_bytes) {
                true => self.metrics.skipped(Skipped::Full, window.samples()),
                false => state.ready.push(window),
            }
        }
        Collected {
            due: state.gathered.as_ref().map(|window| window.due),
            closed: state.closed,
        }
    }

    async fn hand_on(&self, window: Window) {
        let Some(request) = self.close(window).await else {
            return;
        };
        let request = bytes::Bytes::from(request);
        let limit = Limit {
            items: usize::MAX,
            bytes: REQUEST_BYTES,
        };
        let parts = crate::pipeline::split(Signal::Logs, &request, limit);
        let records = parts.iter().map(|(records, _)| records).sum::<usize>();
        self.account.received(records);
        self.holding.became(0, records);
        let mut senders = Senders::acknowledged(records);
        for (records, part) in parts.into_iter().filter(|(records, _)| *records > 0) {
            let mut batch = Batch::new(Signal::Logs, records, part);
            batch.mark_joined();
            if let Ok(permit) = self.budget.acquire(batch.bytes()) {
                batch.hold(permit);
            }
            // A refusal that is not temporary is logged and counted.
            let _ = self.holding.hand_on(batch, &mut senders).await;
        }
    }
}

struct Entrance(Arc<Observer>);

impl Consumer for Entrance {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            let observer = &self.0;
            let samples = batch.items();
            observer.observe(&batch).await?;
            // The samples became part of the sums of a window.
            observer.account.received(samples);
            observer.account.dropped(samples, DropReason::Merged);
            Ok(())
        })
    }

    /// Each batch ends here.
    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        Vec::new()
    }

    /// Findings are passed on at once; only the next stages may hold some.
    fn request_flush(&self, reason: FlushReason) {
        self.0.holding.next.consumer.request_flush(reason);
    }
}
