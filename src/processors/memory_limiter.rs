//! Sets the process-wide memory budget, and refuses data while it is exhausted.
//!
//! The Collector's processor samples the heap and forces garbage collections. Here every receiver
//! takes a permit before it buffers data, so the budget is exact at any time, and this processor
//! only sets its size.

use std::sync::Arc;
use std::time::Duration as StdDuration;

use metrics::Counter;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::info;

use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, Origin, ProcessorConfig, Stage,
};
use crate::entry;
use crate::metric::{self, Metric, shared};
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::{Component, Consumer, Undelivered};
use futures_util::future::BoxFuture;
use tributary_config::units::Duration;
use tributary_config::{Problems, Validate};
use tributary_memory::{Budget, machine_memory};
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ProcessorConfig> = entry!(
    dyn ProcessorConfig,
    Config,
    "memory_limiter",
    aliases: &[],
    "Sets the memory budget for telemetry in the whole process.",
    ALL_SIGNALS,
    collector: Origin::Core,
    metrics: &[shared::PROCESSOR, METRICS]
);

const METRICS: &[Metric] = &[
    metric::counter(
        "otelcol_processor_memory_limiter_accepted_{items}",
        "Number of {items} that the memory limiter accepted",
    ),
    metric::counter(
        "otelcol_processor_memory_limiter_refused_{items}",
        "Number of {items} that the memory limiter refused",
    ),
];

/// Memory budget for telemetry in the process.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Accepted because the Collector requires the key, without an effect: the budget is exact at any time. Default:
    /// 0s.
    pub check_interval: Duration,
    /// Hard limit in MiB; 0 means `limit_percentage`. Takes precedence over `limit_percentage`. One of the two is
    /// required. Default: 0.
    pub limit_mib: u32,
    /// Distance below the hard limit, in MiB, at which data is refused; less than `limit_mib`. Default: a fifth of the
    /// limit.
    pub spike_limit_mib: u32,
    /// Hard limit as a percentage, 1 to 100, of the memory of the cgroup or, without a cgroup limit, of the machine.
    /// Default: 0.
    pub limit_percentage: u32,
    /// Distance below the hard limit at which data is refused, as a percentage of the same memory. Default: a fifth of
    /// the limit.
    pub spike_limit_percentage: u32,
    /// Accepted for compatibility with the Collector, without an effect: there is no garbage
    /// collector.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_gc_interval_when_soft_limited: Duration,
    /// Accepted for compatibility with the Collector, without an effect: there is no garbage
    /// collector.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_gc_interval_when_hard_limited: Duration,
    /// Accepted for compatibility with the Collector, without an effect: there is no garbage
    /// collector.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_gc_interval_when_soft_limited: Duration,
    /// Accepted for compatibility with the Collector, without an effect: there is no garbage
    /// collector.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_gc_interval_when_hard_limited: Duration,
    /// Accepted for compatibility with older Collectors, without an effect: there is no garbage
    /// collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ballast_size_mib: Option<u64>,
}

fn is_zero(duration: &Duration) -> bool {
    duration.is_zero()
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        let no_effect = "has no effect, because this collector counts its memory and has no garbage \
                         collector: remove it";
        if self.ballast_size_mib.is_some() {
            problems.warning(&["ballast_size_mib"], no_effect);
        }
        for (key, interval) in [
            (
                "min_gc_interval_when_soft_limited",
                self.min_gc_interval_when_soft_limited,
            ),
            (
                "min_gc_interval_when_hard_limited",
                self.min_gc_interval_when_hard_limited,
            ),
            (
                "max_gc_interval_when_soft_limited",
                self.max_gc_interval_when_soft_limited,
            ),
            (
                "max_gc_interval_when_hard_limited",
                self.max_gc_interval_when_hard_limited,
            ),
        ] {
            if !interval.is_zero() {
                problems.warning(&[key], no_effect);
            }
        }
        if self.limit_mib == 0 && self.limit_percentage == 0 {
            problems.error(&[], "`limit_mib` or `limit_percentage` must be above 0");
        }
        if self.limit_mib > 0 && self.spike_limit_mib >= self.limit_mib {
            problems.error(&["spike_limit_mib"], "must be smaller than `limit_mib`");
        }
        for (key, percentage) in [
            ("limit_percentage", self.limit_percentage),
            ("spike_limit_percentage", self.spike_limit_percentage),
        ] {
            if percentage > 100 {
                problems.error(&[key], "must be between 1 and 100");
            }
        }
        if self.limit_percentage > 0 && self.spike_limit_percentage >= self.limit_percentage {
            problems.error(
                &["spike_limit_percentage"],
                "must be smaller than `limit_percentage`",
            );
        }
    }
}

impl Config {
    /// Returns the soft limit of the Collector in bytes, above which data is refused.
    fn soft_limit(&self, machine: u64) -> usize {
        const MIB: u64 = 1 << 20;
        let percent = |percentage: u32| machine / 100 * u64::from(percentage);
        let (limit, spike) = if self.limit_mib > 0 {
            (
                u64::from(self.limit_mib) * MIB,
                u64::from(self.spike_limit_mib) * MIB,
            )
        } else {
            (
                percent(self.limit_percentage),
                percent(self.spike_limit_percentage),
            )
        };
        // The Collector's default is a fifth of the limit.
        let spike = if spike == 0 { limit / 5 } else { spike };
        usize::try_from(limit.saturating_sub(spike)).unwrap_or(usize::MAX)
    }
}

impl ProcessorConfig for Config {
    fn build(&self, cx: &BuildContext, signal: Signal) -> Result<Stage, BuildError> {
        let limit = self.soft_limit(machine_memory());
        let budget = cx.budget.clone();
        let count = |outcome: &str| {
            let items = signal.items_name();
            let name = format!("otelcol_processor_memory_limiter_{outcome}_{items}");
            metrics::counter!(name, "processor" => cx.id.to_string())
        };
        let (accepted, refused) = (count("accepted"), count("refused"));
        Ok(Stage::Buffering(Box::new(move |next| {
            let limiter = Limiter {
                budget: budget.clone(),
                accepted,
                refused,
                next: next.consumer,
            };
            (Arc::new(limiter), Box::new(LimitSetter { budget, limit }))
        })))
    }
}

/// Refuses data without a permit while the budget is exhausted.
struct Limiter {
    budget: Arc<Budget>,
    accepted: Counter,
    refused: Counter,
    next: Arc<dyn Consumer>,
}

/// Retry delay of refused senders: the default initial delay of OTLP's exponential backoff.
const RETRY_AFTER: StdDuration = StdDuration::from_secs(1);

impl Consumer for Limiter {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        let items = batch.items() as u64;
        if self.budget.used() > self.budget.limit() {
            self.refused.increment(items);
            let nack = Nack::exhausted("data refused due to high memory usage", RETRY_AFTER);
            return Box::pin(async { Err(nack) });
        }
        self.accepted.increment(items);
        self.next.consume(batch)
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        vec![self.next.clone()]
    }
}

/// Applies the limit when the configuration takes effect, not when the component is built.
struct LimitSetter {
    budget: Arc<Budget>,
    limit: usize,
}

impl Component for LimitSetter {
    fn start(&mut self) {
        let before = self.budget.limit();
        self.budget.set_limit(self.limit);
        let now = self.budget.limit();
        // Every pipeline has an instance, but one log line is enough.
        if now != before {
            info!(soft_limit_mib = now >> 20, "Memory limiter configured");
        }
    }

    fn shutdown(self: Box<Self>, _: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async { Undelivered::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::Host;
    use crate::pipeline::Next;
    use crate::pipeline::account::Account;
    use crate::pipeline::testing::{Scripted, spans};

    #[test]
    fn soft_limit_is_limit_minus_spike() {
        let mib = Config {
            limit_mib: 100,
            ..Config::default()
        };
        assert_eq!(mib.soft_limit(0), 80 << 20);
        let mib = Config {
            spike_limit_mib: 30,
            ..mib
        };
        assert_eq!(mib.soft_limit(0), 70 << 20);
        let share = Config {
            limit_percentage: 50,
            spike_limit_percentage: 10,
            ..Config::default()
        };
        assert_eq!(share.soft_limit(1000), 400);
    }

    #[tokio::test]
    async fn data_is_refused_for_a_while_when_the_budget_is_exceeded() {
        let host = Host::for_tests();
        let config = Config {
            limit_mib: 5,
            spike_limit_mib: 1,
            ..Config::default()
        };
        let cx = host.context(&"memory_limiter".parse().unwrap());
        let Stage::Buffering(connect) = config.build(&cx, Signal::Traces).unwrap() else {
            panic!("it has a life of its own");
        };
        let exporter = Scripted::new([]);
        let account = Account::of_pipeline("traces");
        let (consumer, mut component) = connect(Next {
            consumer: exporter.clone(),
            account,
        });
        let large = host.budget.acquire(100 << 20).unwrap();
        component.start();
        assert_eq!(host.budget.limit(), 4 << 20);

        let nack = consumer.consume(spans(["a"])).await.unwrap_err();
        assert!(nack.retryable && nack.retry_after.is_some());
        drop(large);
        consumer.consume(spans(["b"])).await.unwrap();
        assert_eq!(exporter.span_names(), ["b"]);
    }

    #[test]
    fn limiter_without_limit_is_rejected() {
        let mut problems = Problems::default();
        Config::default().validate(&mut problems);
        assert_eq!(problems.found().len(), 1);
    }
}
