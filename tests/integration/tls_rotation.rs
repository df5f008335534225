//! Certificates are renewed under load, and no request notices.

use std::path::Path;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::authority::{Leaf, replace};
use crate::harness::{Authority, Backend, Client, Collector, Oracle, Signal, grpc_to, yaml};

/// A sidecar that sends to a rack over mutual TLS, and the files of both.
struct Chain {
    /// Certificate files; each collector has separate files.
    files: Authority,
    backend: Backend,
    rack: Collector,
    /// Its configuration.
    rack_yaml: String,
    sidecar: Collector,
}

/// Interval for checking the files in these tests.
const OFTEN: &str = "reload_interval: 200ms";

impl Chain {
    async fn start(exporter: &str, authority: &Authority) -> Self {
        let files = Authority::new();
        let backend = Backend::start().await;
        for name in ["rack", "sidecar"] {
            replace(&files.file(&format!("{name}-ca.pem")), authority.pem());
            renew(&files, name, &authority.leaf());
        }
        let pair = |name: &str| {
            format!(
                "cert_file: '{}', key_file: '{}'",
                files.file(&format!("{name}.pem")).display(),
                files.file(&format!("{name}.key")).display()
            )
        };
        let tls = format!(
            "endpoint: '127.0.0.1:0', tls: {{{}, client_ca_file: '{}', {OFTEN}}}",
            pair("rack"),
            files.file("rack-ca.pem").display()
        );
        let rack_yaml = yaml(&[], &[("otlp_grpc", &grpc_to(&backend, ""))])
            .replace("endpoint: '127.0.0.1:0'", &tls);
        let rack = Collector::start(&rack_yaml).await;
        let endpoint = match exporter {
            "otlp_grpc" => rack.grpc().to_string(),
            _ => format!("https://{}", rack.http()),
        };
        let http2 = match exporter {
            "otlp_http" => "force_attempt_http2: false,",
            _ => "",
        };
        let body = format!(
            "{{endpoint: '{endpoint}', {http2} tls: {{ca_file: '{}', {}, {OFTEN}}}}}",
            files.file("sidecar-ca.pem").display(),
            pair("sidecar")
        );
        let sidecar = Collector::start(&yaml(&[], &[(exporter, &body)])).await;
        Chain {
            files,
            backend,
            rack,
            rack_yaml,
            sidecar,
        }
    }

    /// Applies `change`, and waits until the collector uses the result.
    async fn rotate(&self, collector: &Collector, change: impl FnOnce(&Authority)) {
        let before = collector.lines().len();
        change(&self.files);
        collector.wait_for_line(IN_USE, before, taken).await;
        // Requests succeed with the new files.
        let seen = self.backend.record().accepted.len();
        self.backend
            .wait_for("load", |record| record.accepted.len() > seen + 20)
            .await;
    }
}

const IN_USE: &str = "Loaded changed TLS files; new connections use the new content";

/// A step is done when its last file is in use.
fn taken(line: &crate::harness::collector::Line) -> bool {
    let changed = line.field("changed");
    line.message() == IN_USE && (changed.contains("key_file") || !changed.contains("cert_file"))
}

fn renew(files: &Authority, name: &str, leaf: &Leaf) {
    leaf.write(
        &files.file(&format!("{name}.pem")),
        &files.file(&format!("{name}.key")),
    );
}

fn trust(file: &Path, authorities: &[&Authority]) {
    let pem: String = authorities
        .iter()
        .map(|authority| authority.pem())
        .collect();
    replace(file, &pem);
}

#[tokio::test]
async fn certificates_rotate_under_load_without_failures() {
    for exporter in ["otlp_grpc", "otlp_http"] {
        let (old, new) = (Authority::new(), Authority::new());
        let chain = Chain::start(exporter, &old).await;
        let Chain { rack, sidecar, .. } = &chain;
        let oracle = Oracle::default();
        let enough = CancellationToken::new();
        let mut load = JoinSet::new();
        for number in 0..3 {
            let client = Client::grpc(&format!("client{number}"), sidecar.grpc(), &oracle).await;
            let (client, enough) = (Arc::new(client), enough.clone());
            load.spawn(async move {
                while !enough.is_cancelled() {
                    for signal in [Signal::Traces, Signal::Logs] {
                        let sent = client.send(&client.request(signal, 5)).await;
                        sent.expect("no refusal");
                    }
                }
            });
        }
        let both = [&old, &new];
        // The chain trusts the new authority, then uses it, then no longer trusts the old authority.
        chain
            .rotate(rack, |files| trust(&files.file("rack-ca.pem"), &both))
            .await;
        chain
            .rotate(sidecar, |files| trust(&files.file("sidecar-ca.pem"), &both))
            .await;
        chain
            .rotate(rack, |files| renew(files, "rack", &new.leaf()))
            .await;
        chain
            .rotate(sidecar, |files| renew(files, "sidecar", &new.leaf()))
            .await;
        chain
            .rotate(rack, |files| trust(&files.file("rack-ca.pem"), &[&new]))
            .await;
        chain
            .rotate(sidecar, |files| {
                trust(&files.file("sidecar-ca.pem"), &[&new])
            })
            .await;
        // A second rotation within the new authority.
        for (collector, name) in [(rack, "rack"), (sidecar, "sidecar")] {
            chain
                .rotate(collector, |files| renew(files, name, &new.leaf()))
                .await;
        }
        enough.cancel();
        while let Some(ended) = load.join_next().await {
            ended.unwrap();
        }
        assert_eq!(
            oracle.wait_for_delivery(&chain.backend).await,
            0,
            "nothing twice"
        );
        for collector in [rack, sidecar] {
            let metrics = collector.assert_conservation().await;
            let reloads = |outcome| metrics.sum("tributary_tls_reloads", &[("outcome", outcome)]);
            assert!(reloads("success") >= 4.0, "{metrics}");
            assert_eq!(reloads("failure"), 0.0, "{metrics}");
            assert_eq!(
                metrics.sum("tributary_tls_distrusted_connections", &[]),
                0.0
            );
            for line in collector.lines() {
                // Tests may run as root.
                let bad = ["warn", "error"].contains(&line.field("level"))
                    && !line.message().starts_with("Running as root");
                let failed = line.message().starts_with("Exporting failed.");
                assert!(!bad && !failed, "{}", line.text);
            }
        }
    }
}

#[tokio::test]
async fn metrics_show_certificates_and_bad_files_are_ignored() {
    let authority = Authority::new();
    let chain = Chain::start("otlp_grpc", &authority).await;
    let days = |metrics: &crate::harness::metrics::Metrics, kind| {
        let name = "tributary_tls_certificate_expiry_days";
        let labels = [("receiver", "otlp"), ("kind", kind)];
        (
            metrics
                .labels(name)
                .into_iter()
                .filter(|labels| labels["kind"] == kind)
                .map(|labels| labels["serial"].clone())
                .collect::<Vec<_>>(),
            metrics.sum(name, &labels),
        )
    };
    let before = chain.rack.metrics().await;
    let (serials, left) = days(&before, "certificate");
    assert_eq!(serials.len(), 1, "both servers use the same: {before}");
    assert!(left > 365.0, "{before}");
    assert_eq!(days(&before, "client_ca").0.len(), 1);
    // Half of a pair: only the counter changes, and the log has the reason.
    let file = chain.files.file("rack.pem");
    let leaf = authority.leaf_of(|params| params.not_after = rcgen::date_time_ymd(2030, 1, 1));
    replace(&file, &leaf.certificate);
    let bad = "Cannot load changed TLS files; still using the previous content";
    let line = chain.rack.wait_for(bad).await;
    assert_eq!(line.field("files"), file.display().to_string());
    assert!(
        line.field("error").contains("tls::cert_file"),
        "{}",
        line.text
    );
    assert!(!line.text.contains("PRIVATE"), "{}", line.text);
    let metrics = chain.rack.metrics().await;
    assert!(metrics.sum("tributary_tls_reloads", &[("outcome", "failure")]) > 0.0);
    assert_eq!(days(&metrics, "certificate").0, serials);
    // The pair is complete.
    replace(&chain.files.file("rack.key"), &leaf.key);
    chain.rack.wait_for_line(IN_USE, 0, taken).await;
    let what = "only the new certificate";
    chain
        .rack
        .wait_for_metrics(what, |metrics| {
            let (now, _) = days(metrics, "certificate");
            now.len() == 1 && now != serials
        })
        .await;
    let oracle = Oracle::default();
    let client = Client::grpc("client", chain.sidecar.grpc(), &oracle).await;
    client
        .send(&client.request(Signal::Traces, 1))
        .await
        .unwrap();
    assert_eq!(oracle.wait_for_delivery(&chain.backend).await, 0);
    // For a reload, the receiver with its renewed certificate is unchanged, and its servers stay.
    let started = |collector: &Collector| {
        let lines = collector.lines();
        let servers = lines.iter().filter(|line| {
            line.message().starts_with("Starting ") && line.field("otelcol.component.id") == "otlp"
        });
        servers.count()
    };
    assert_eq!(started(&chain.rack), 2);
    chain.rack.reload(&chain.rack_yaml).await.unwrap();
    assert_eq!(started(&chain.rack), 2);
}
