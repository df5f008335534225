//! Resolves the members, repeatedly while the exporter runs.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::{sleep, timeout};

use super::config::{Resolver as Config, with_port};
use tributary_net::discovery::{read_targets, single_family};
use tributary_net::files::FileWatch;

/// Source of the members.
pub(super) enum Resolver {
    /// A fixed list.
    Static(BTreeSet<String>),
    /// The addresses of a host name.
    Dns {
        hostname: String,
        port: u16,
        interval: Duration,
        timeout: Duration,
    },
    /// A file.
    File {
        path: PathBuf,
        refresh: Duration,
        watch: Option<FileWatch>,
    },
}

impl Resolver {
    /// Returns the resolver of a valid configuration.
    pub(super) fn new(config: &Config) -> Self {
        if let Some(dns) = &config.dns {
            return Resolver::Dns {
                hostname: dns.hostname.clone(),
                port: dns.port().unwrap_or(super::config::DEFAULT_PORT),
                interval: *dns.interval,
                timeout: *dns.timeout,
            };
        }
        if let Some(file) = &config.file {
            return Resolver::File {
                path: file.path.clone(),
                refresh: *file.refresh_interval,
                watch: None,
            };
        }
        let hostnames = config.fixed.iter().flat_map(|fixed| &fixed.hostnames);
        Resolver::Static(hostnames.map(|hostname| with_port(hostname)).collect())
    }

    /// Returns the value of the metrics' label.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Resolver::Static(_) => "static",
            Resolver::Dns { .. } => "dns",
            Resolver::File { .. } => "file",
        }
    }

    /// Resolves the members' addresses.
    ///
    /// # Errors
    /// The reason as a sentence.
    pub(super) async fn resolve(&mut self) -> Result<BTreeSet<String>, String> {
        match self {
            Resolver::Static(members) => Ok(members.clone()),
            Resolver::Dns {
                hostname,
                port,
                timeout: limit,
                ..
            } => {
                let found = timeout(*limit, lookup_host((hostname.as_str(), *port))).await;
                let found = match found {
                    Ok(Ok(found)) => single_family(found.collect()),
                    Ok(Err(error)) => return Err(format!("cannot resolve {hostname}: {error}")),
                    Err(_) => return Err(format!("cannot resolve {hostname} within {limit:?}")),
                };
                // Name servers briefly return no addresses when a service restarts.
                if found.is_empty() {
                    return Err(format!(
                        "{hostname} has no addresses; check the DNS records"
                    ));
                }
                Ok(found.iter().map(SocketAddr::to_string).collect())
            }
            Resolver::File { path, watch, .. } => {
                // Watching begins before the file is read, so that no change is missed.
                let (next, read) = {
                    let path = path.clone();
                    let look = move || (FileWatch::new([path.clone()]), read(&path));
                    match tokio::task::spawn_blocking(look).await {
                        Ok(looked) => looked,
                        // Only when the process ends.
                        Err(_) => return std::future::pending().await,
                    }
                };
                *watch = Some(next);
                read
            }
        }
    }

    /// Waits until the next resolution is due.
    pub(super) async fn wait(&mut self) {
        match self {
            Resolver::Static(_) => std::future::pending().await,
            Resolver::Dns { interval, .. } => sleep(*interval).await,
            Resolver::File { refresh, watch, .. } => match watch {
                Some(watch) => {
                    let _ = timeout(*refresh, watch.changed()).await;
                }
                None => sleep(*refresh).await,
            },
        }
    }
}

fn read(path: &Path) -> Result<BTreeSet<String>, String> {
    let groups = read_targets(path);
    let groups = groups.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let targets = groups.iter().flat_map(|group| &group.targets);
    let targets: BTreeSet<String> = targets.map(|target| with_port(target)).collect();
    // Without members every request would be refused. An empty list is probably an incomplete or failed update.
    match targets.is_empty() {
        true => Err(format!("the file {} has no targets", path.display())),
        false => Ok(targets),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolver(yaml: &str) -> Resolver {
        Resolver::new(&serde_yaml::from_str(yaml).unwrap())
    }

    fn set(members: &[&str]) -> BTreeSet<String> {
        members.iter().map(|member| (*member).to_owned()).collect()
    }

    #[tokio::test]
    async fn members_without_port_use_otlp_port() {
        let mut fixed = resolver("{static: {hostnames: [b, 'a:1', '::1']}}");
        let members = fixed.resolve().await.unwrap();
        assert_eq!(members, set(&["a:1", "b:4317", "[::1]:4317"]));
        let mut dns = resolver("{dns: {hostname: localhost}}");
        assert_eq!(dns.resolve().await.unwrap(), set(&["127.0.0.1:4317"]));
        let mut missing = resolver("{dns: {hostname: does-not-exist.invalid, timeout: 10s}}");
        assert!(missing.resolve().await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn changed_targets_file_is_read_and_errors_name_cause() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("members.yaml");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("- targets: ['a:1', b]");
        let mut file = resolver(&format!("{{file: {{path: '{}'}}}}", path.display()));
        assert_eq!(file.resolve().await, Ok(set(&["a:1", "b:4317"])));
        write("[{");
        file.wait().await;
        assert!(file.resolve().await.unwrap_err().contains("members.yaml"));
        for nobody in ["", "[]", "- targets: []"] {
            write(nobody);
            file.wait().await;
            let reason = file.resolve().await.unwrap_err();
            assert!(reason.ends_with("members.yaml has no targets"), "{reason}");
        }
        write("- {targets: ['c:1'], labels: {zone: z}}");
        file.wait().await;
        assert_eq!(file.resolve().await, Ok(set(&["c:1"])));
        std::fs::remove_file(&path).unwrap();
        file.wait().await;
        assert!(file.resolve().await.is_err());
    }
}
