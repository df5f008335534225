//! Servers of one entry of `targets`, and their jobs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http::Uri;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tracing::warn;

use super::discovery::Discovery;
use super::gauges::ScraperMetrics;
use super::job::{Job, Shared};
use super::target::{Scheme, Target};
use crate::component::BuildError;
use crate::component::identity::host_name;
use crate::receivers::profile_intake::{Intake, SERVICE_NAME, Subject, text};
use crate::receivers::scraping::client::{ScrapeClient, ScrapeTransport, port_of};
use crate::receivers::scraping::found::Found;
use crate::receivers::scraping::schedule::Schedule;
use tributary_config::ComponentId;
use tributary_net::client::{host_of, parse_url};

/// Resource attribute that distinguishes instances of a service.
const INSTANCE_ID: &str = "service.instance.id";

/// Name of a service without a name, according to the specification.
const UNKNOWN: &str = "unknown_service";

/// Servers of one entry.
pub(super) struct Servers {
    target: Target,
    transport: ScrapeTransport,
    intake: Intake,
    metrics: ScraperMetrics,
    id: ComponentId,
    discovery: Option<Discovery>,
}

impl Servers {
    /// Creates the servers of an entry.
    ///
    /// # Errors
    /// Returns an error if the configured endpoint is invalid.
    pub(super) fn new(
        target: &Target,
        transport: ScrapeTransport,
        intake: Intake,
        id: &ComponentId,
    ) -> Result<Self, BuildError> {
        let servers = Servers {
            target: target.clone(),
            transport,
            intake,
            metrics: ScraperMetrics::new(id, "targets"),
            id: id.clone(),
            discovery: Discovery::of(target, id),
        };
        if servers.discovery.is_none() {
            let jobs = servers.given().map_err(BuildError)?;
            debug_assert!(!jobs.is_empty());
        }
        Ok(servers)
    }

    /// Runs the jobs until the future is dropped.
    pub(super) async fn run(mut self, shared: Arc<Shared>) {
        let mut tasks = JoinSet::new();
        let Some(mut discovery) = self.discovery.take() else {
            for job in self.given().unwrap_or_default() {
                tasks.spawn(job.run(shared.clone()));
            }
            while tasks.join_next().await.is_some() {}
            return;
        };
        let mut running: BTreeMap<Found, Vec<AbortHandle>> = BTreeMap::new();
        loop {
            let found = discovery.next().await;
            running.retain(|server, jobs| {
                let stays = found.contains(server);
                if !stays {
                    jobs.iter().for_each(AbortHandle::abort);
                }
                stays
            });
            for server in found {
                if running.contains_key(&server) {
                    continue;
                }
                let jobs = match self.found(&server) {
                    Ok(jobs) => jobs,
                    Err(reason) => {
                        warn!(
                            otelcol.component.id = %self.id,
                            otelcol.component.kind = "receiver",
                            address = server.address,
                            error = reason,
                            "Ignored a discovered target"
                        );
                        Vec::new()
                    }
                };
                let jobs = jobs.into_iter();
                let handles = jobs.map(|job| tasks.spawn(job.run(shared.clone())));
                running.insert(server, handles.collect());
            }
            // Reap the aborted jobs.
            while tasks.try_join_next().is_some() {}
        }
    }

    /// Returns the jobs for the configured endpoint.
    pub(super) fn given(&self) -> Result<Vec<Job>, String> {
        let endpoint = &self.target.endpoint;
        let url = parse_url(endpoint).map_err(|reason| format!("endpoint: {reason}"))?;
        let client = self.transport.client(&url, None)?;
        let prefix = format!(
            "{}{}",
            url.path().trim_end_matches('/'),
            self.target.path_prefix
        );
        self.jobs(&url, url.path(), &prefix, client, &BTreeMap::new())
    }

    /// Returns the jobs for a discovered server.
    pub(super) fn found(&self, server: &Found) -> Result<Vec<Job>, String> {
        let label = |name: &str| server.labels.get(name).map(String::as_str);
        let scheme = match label("__scheme__").unwrap_or(match self.target.scheme {
            None | Some(Scheme::Http) => "http",
            Some(Scheme::Https) => "https",
        }) {
            scheme @ ("http" | "https") => scheme,
            other => {
                return Err(format!(
                    "the scheme `{other}` is not supported: use http or https"
                ));
            }
        };
        if server.address.contains(['/', '?', '#']) {
            return Err("the address is not `host:port`".to_owned());
        }
        let url = parse_url(&format!("{scheme}://{}", server.address))?;
        let client = self.transport.client(&url, server.name.as_deref())?;
        let prefix = label("__profile_path__").unwrap_or(&self.target.path_prefix);
        self.jobs(&url, "", prefix, client, &server.labels)
    }

    fn jobs(
        &self,
        url: &Uri,
        root: &str,
        prefix: &str,
        client: ScrapeClient,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<Job>, String> {
        let client = Arc::new(client);
        let (attributes, fallback) = identity(url, self.attributes(labels));
        let subject = Arc::new(Subject::new(attributes, Some(fallback)));
        let target = label(url);
        // The offset depends on the instance; otherwise all sidecars would scrape their
        // `localhost:6060` at the same time.
        let instance = instance(url);
        let now = Instant::now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall = wall.unwrap_or_default();
        let jobs = self.target.profiles.iter().map(|profile| {
            let settings = &profile.0;
            let path = match profile.path(prefix) {
                path if settings
                    .path
                    .as_deref()
                    .is_some_and(|path| path.starts_with('/')) =>
                {
                    format!("{}{path}", root.trim_end_matches('/'))
                }
                path => path,
            };
            let url = with_path(url, &path)?;
            let interval = settings
                .collection_interval
                .unwrap_or(self.target.collection_interval);
            let key = format!("{instance}\0{}", settings.name);
            Ok(Job {
                target: target.clone(),
                profile: settings.name.as_str().into(),
                url,
                subject: subject.clone(),
                fetch: client.clone(),
                intake: self.intake.clone(),
                takes: profile.takes(),
                timeout: profile.takes().unwrap_or_default() + *self.target.timeout,
                schedule: Schedule::spread(now, wall, *interval, &key),
                delta: settings.delta.unwrap_or(self.target.delta),
                metrics: self.metrics.clone(),
            })
        });
        jobs.collect()
    }

    /// Returns the resource attributes of a server. Its labels take precedence over the
    /// configuration, since they are more specific.
    fn attributes(&self, labels: &BTreeMap<String, String>) -> Vec<KeyValue> {
        let mut attributes = self.target.resource.clone();
        for (name, value) in labels {
            let name = match name.as_str() {
                name if name.starts_with("__") => continue,
                "job" | "service_name" => SERVICE_NAME,
                "instance" => INSTANCE_ID,
                name => name,
            };
            attributes.insert(name.to_owned(), value.clone());
        }
        let attributes = attributes.iter();
        attributes.map(|(key, value)| text(key, value)).collect()
    }
}

/// Returns the server's host and port, for metrics.
pub(super) fn label(url: &Uri) -> Arc<str> {
    let host = host_of(url);
    let port = port_of(url);
    match host.contains(':') {
        true => format!("[{host}]:{port}").into(),
        false => format!("{host}:{port}").into(),
    }
}

/// Returns the resource attributes of a server, and a fallback for the service name.
pub(super) fn identity(url: &Uri, mut attributes: Vec<KeyValue>) -> (Vec<KeyValue>, String) {
    if !attributes
        .iter()
        .any(|attribute| attribute.key == INSTANCE_ID)
    {
        attributes.push(text(INSTANCE_ID, &instance(url)));
    }
    let fallback = match is_local(url) {
        true => UNKNOWN,
        false => host_of(url),
    };
    (attributes, fallback.to_owned())
}

/// Returns a unique name of a server: host and port. `localhost` is replaced by the name of this
/// machine.
fn instance(url: &Uri) -> Arc<str> {
    match host_name() {
        Some(name) if is_local(url) => format!("{name}:{}", port_of(url)).into(),
        _ => label(url),
    }
}

fn is_local(url: &Uri) -> bool {
    let host = host_of(url);
    let address = host.parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Returns the URL of the same server with another path and query.
fn with_path(url: &Uri, path: &str) -> Result<Uri, String> {
    let mut parts = url.clone().into_parts();
    let path = path.parse::<http::uri::PathAndQuery>();
    parts.path_and_query = Some(path.map_err(|error| error.to_string())?);
    Uri::from_parts(parts).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_targets_are_identified_by_host_name() {
        let of = |url: &str| instance(&url.parse().unwrap()).to_string();
        let machine = host_name().unwrap();
        for local in [
            "http://localhost:6060",
            "http://127.0.0.1:6060",
            "http://[::1]:6060",
        ] {
            assert_eq!(of(local), format!("{machine}:6060"));
        }
        assert_eq!(of("http://10.0.0.1:6060"), "10.0.0.1:6060");
        assert_eq!(of("http://[fd00::1]:6060"), "[fd00::1]:6060");
        let given = vec![text(INSTANCE_ID, "mine")];
        let (attributes, name) = identity(&"http://localhost:6060".parse().unwrap(), given.clone());
        assert_eq!((attributes, name.as_str()), (given, UNKNOWN));
    }
}
