//! Sources of the targets of a job.

use std::collections::BTreeSet;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::config::{DnsRecord, ScrapeConfig};
use super::http_sd::HttpList;
use crate::component::{BuildContext, BuildError};
use crate::receivers::scraping::dns_sd::{Dns, HostNames, RecordType};
use crate::receivers::scraping::file_sd::Files;
use crate::receivers::scraping::found::Found;

/// A source whose targets change.
enum Source {
    Files(Files),
    Dns(Dns),
    Http(Box<HttpList>),
}

/// All sources of a job.
pub(super) struct Sources {
    fixed: BTreeSet<Found>,
    changing: Vec<Source>,
}

impl Sources {
    /// Creates the sources of a job.
    ///
    /// # Errors
    /// A client cannot be set up.
    pub(super) fn new(job: &ScrapeConfig, cx: &BuildContext) -> Result<Self, BuildError> {
        let fixed = job.static_configs.iter().flat_map(|group| {
            group.targets.iter().map(|address| Found {
                address: address.clone(),
                name: None,
                labels: group.labels.clone(),
            })
        });
        let files = job.file_sd_configs.iter();
        let mut changing: Vec<Source> = files
            .map(|files| Source::Files(Files::new(&files.file_sd(), &cx.id, true)))
            .collect();
        changing.extend(job.dns_sd_configs.iter().map(|config| {
            let names = HostNames {
                names: config.names.clone(),
                kind: Some(match config.kind {
                    DnsRecord::Aaaa => RecordType::Aaaa,
                    // Validation has rejected the others.
                    _ => RecordType::A,
                }),
                port: config.port,
                refresh: config.refresh_interval.0,
            };
            Source::Dns(Dns::new(names, &cx.id))
        }));
        for config in &job.http_sd_configs {
            changing.push(Source::Http(Box::new(HttpList::new(config, cx)?)));
        }
        Ok(Sources {
            fixed: fixed.collect(),
            changing,
        })
    }

    /// Calls `changed` with all targets, at first and whenever they change. Never ends.
    pub(super) async fn run(self, mut changed: impl FnMut(BTreeSet<Found>)) {
        let Sources { fixed, changing } = self;
        let mut latest: Vec<BTreeSet<Found>> = changing.iter().map(|_| BTreeSet::new()).collect();
        let (sender, mut receiver) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        for (at, mut source) in changing.into_iter().enumerate() {
            let sender = sender.clone();
            tasks.spawn(async move {
                loop {
                    let found = source.next().await;
                    if sender.send((at, found)).await.is_err() {
                        return;
                    }
                }
            });
        }
        changed(fixed.clone());
        // The sender above is never dropped, so this waits forever if no source changes.
        while let Some((at, found)) = receiver.recv().await {
            if let Some(place) = latest.get_mut(at) {
                *place = found;
            }
            let all = fixed.iter().chain(latest.iter().flatten());
            changed(all.cloned().collect());
        }
    }
}

impl Source {
    async fn next(&mut self) -> BTreeSet<Found> {
        match self {
            Source::Files(files) => files.next().await,
            Source::Http(list) => list.next().await,
            Source::Dns(dns) => {
                let found = dns.next().await.into_iter().map(|found| {
                    let mut labels = found.labels;
                    if let Some(name) = found.name {
                        labels.insert("__meta_dns_name".to_owned(), name);
                    }
                    // As in Prometheus, the certificate must be valid for the address.
                    Found {
                        address: found.address,
                        name: None,
                        labels,
                    }
                });
                found.collect()
            }
        }
    }
}
