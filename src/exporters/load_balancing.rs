//! `load_balancing`, alias `loadbalancing`: sends OTLP over gRPC to several members. Items with the
//! same routing key go to the same member.
//!
//! ```text
//! queue -> balancer: by key (keys, rendezvous) -> available members (health) -> otlp_grpc's exporter, one per member
//!              ^                                        |
//!              +------- shares that members refused ----+            resolver: the list of members
//! ```
//!
//! Members have no queues of their own: the backlog waits in front of the balancer, where any
//! member can take it. A batch is delivered when members have accepted all its shares. A refused
//! share goes to the next member of its keys. Accepted shares are not sent again when the rest of
//! the batch is retried (`progress`).

mod balancer;
mod config;
mod health;
mod keys;
mod members;
mod metrics;
mod progress;
mod protocol;
mod rendezvous;
mod resolver;
#[cfg(test)]
mod tests;

pub use self::config::{Config, Dns, File, MemberBackoff, Resolver, RoutingKey, Static};
pub use self::protocol::{MemberProtocol, Otlp};

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::balancer::Balancer;
use self::keys::Keys;
use self::members::{Maker, Members};
use self::metrics::ResolverMetrics;
use crate::component::auth;
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, ExporterConfig, Origin, Terminal,
};
use crate::metric::{self, Metric, shared};
use crate::pipeline::{Component, Undelivered};
use crate::queue;
use crate::queue::{Sender, Settings};
use futures_util::future::BoxFuture;
use tributary_config::Problems;
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExporterConfig> = crate::entry!(
    dyn ExporterConfig,
    Config,
    "load_balancing",
    aliases: &["loadbalancing"],
    "Sends OTLP over gRPC to several members; items with the same routing key go to the same member.",
    ALL_SIGNALS,
    collector: Origin::Contrib,
    metrics: &[shared::EXPORTER, shared::STORED_QUEUE, shared::TLS, shared::CALLS_OUT, METRICS]
);

const METRICS: &[Metric] = &[
    metric::counter(
        "otelcol_loadbalancer_num_resolutions",
        "Number of resolutions of the member list, by success",
    ),
    metric::counter(
        "otelcol_loadbalancer_num_backend_updates",
        "Number of changes of the member list",
    ),
    metric::gauge(
        "otelcol_loadbalancer_num_backends",
        "Number of members, including those that are avoided after failures",
    ),
    metric::counter(
        "otelcol_loadbalancer_backend_outcome",
        "Number of requests to each member, by success",
    ),
    metric::histogram(
        "otelcol_loadbalancer_backend_latency",
        "Duration of requests to each member, in milliseconds",
    ),
];

impl ExporterConfig for Config {
    fn check_signal(&self, signal: Signal, problems: &mut Problems) {
        if let Some(key) = self.routing_key
            && !key.signals().contains(&signal)
        {
            let names: Vec<&str> = key.signals().iter().map(|signal| signal.name()).collect();
            let message = format!(
                "`{}` is supported for {}, not for {signal}: set another key, or use a separate exporter for \
                 {signal}",
                key.name(),
                names.join(" and ")
            );
            problems.error(&["routing_key"], message);
        }
    }

    fn build(&self, cx: &BuildContext, signals: &[Signal]) -> Result<Terminal, BuildError> {
        let failed = |reason| BuildError(format!("exporter {}: {reason}", cx.id));
        let mut otlp = self.protocol.otlp.clone();
        if let Some(dns) = &self.resolver.dns
            && otlp.tls.server_name_override.is_empty()
        {
            // Certificates are issued for the host name, not for the members' addresses.
            otlp.tls.server_name_override.clone_from(&dns.hostname);
        }
        let resolver = resolver::Resolver::new(&self.resolver);
        let maker = Maker {
            id: cx.id.clone(),
            // Files are read once for all members.
            tls: otlp.at("member:4317").tls_source(&cx.id).map_err(failed)?,
            auth: auth::client(otlp.auth.as_ref(), cx)?,
            otlp,
            backoff: self.member_backoff.clone(),
            budget: cx.budget.clone(),
        };
        let metrics = ResolverMetrics::new(&cx.id, resolver.name());
        let members = Arc::new(Members::new(maker, metrics));
        let balancer = Balancer::new(
            members.clone(),
            Keys::new(self),
            self.hash_balance_factor,
            cx.budget.clone(),
        );
        let settings = Settings {
            queue: self.sending_queue.0.clone(),
            retry: self.retry_on_failure.0.clone(),
            timeout: *self.timeout,
        };
        let sender: Arc<dyn Sender> = Arc::new(balancer);
        let Terminal { inputs, component } = queue::terminal(cx, signals, &settings, &sender)?;
        let component = Box::new(LoadBalancing {
            queues: component,
            resolving: Resolving::Before(members, resolver),
        });
        Ok(Terminal { inputs, component })
    }
}

/// The running exporter: its queues, and the task that resolves the members.
struct LoadBalancing {
    queues: Box<dyn Component>,
    resolving: Resolving,
}

enum Resolving {
    Before(Arc<Members>, resolver::Resolver),
    Running(JoinHandle<()>),
}

impl Component for LoadBalancing {
    fn start(&mut self) {
        if let Resolving::Before(members, resolver) = &mut self.resolving {
            let nothing = resolver::Resolver::Static(Default::default());
            let resolver = std::mem::replace(resolver, nothing);
            let running = tokio::spawn(resolve(members.clone(), resolver));
            self.resolving = Resolving::Running(running);
        }
        self.queues.start();
    }

    fn idle(&self) -> bool {
        self.queues.idle()
    }

    fn flush(&self) {
        self.queues.flush();
    }

    fn shutdown(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            let undelivered = self.queues.shutdown(deadline).await;
            if let Resolving::Running(running) = self.resolving {
                running.abort();
            }
            undelivered
        })
    }
}

async fn resolve(members: Arc<Members>, mut resolver: resolver::Resolver) {
    loop {
        match resolver.resolve().await {
            Ok(addresses) => members.resolved(&addresses),
            Err(reason) => members.unresolved(&reason),
        }
        resolver.wait().await;
    }
}
