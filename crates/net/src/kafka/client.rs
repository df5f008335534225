//! Settings and logging of all librdkafka clients.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::FutureExt as _;
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::config::{Connection, milliseconds};
use crate::files::FileWatch;
use crate::sampled_log::SampledLog;
use tributary_config::ComponentId;

/// Returns the settings of a client with these connections.
pub fn settings(connection: &Connection<'_>) -> ClientConfig {
    let mut settings = ClientConfig::new();
    settings
        .set("bootstrap.servers", connection.brokers.join(","))
        .set("client.id", connection.client_id)
        .set(
            "client.dns.lookup",
            match connection.resolve_canonical_names {
                true => "resolve_canonical_bootstrap_servers_only",
                false => "use_all_dns_ips",
            },
        )
        .set(
            "connections.max.idle.ms",
            milliseconds(connection.idle_timeout).to_string(),
        )
        .set(
            "topic.metadata.refresh.interval.ms",
            milliseconds(connection.metadata.refresh_interval).to_string(),
        )
        // The end of an idle connection is normal.
        .set("log.connection.close", "false")
        // Brokers do not get metrics of this client.
        .set("enable.metrics.push", "false");
    let is_tls = connection.is_tls();
    let protocol = match (is_tls, &connection.auth.sasl) {
        (false, None) => "PLAINTEXT",
        (true, None) => "SSL",
        (false, Some(_)) => "SASL_PLAINTEXT",
        (true, Some(_)) => "SASL_SSL",
    };
    settings.set("security.protocol", protocol);
    if let Some(sasl) = &connection.auth.sasl {
        settings
            .set("sasl.mechanism", sasl.mechanism.name())
            .set("sasl.username", &sasl.username)
            .set("sasl.password", sasl.password.reveal());
    }
    if let Some(tls) = connection.tls.filter(|_| is_tls) {
        let verifies = !tls.insecure_skip_verify;
        settings.set("enable.ssl.certificate.verification", verifies.to_string());
        let names = if verifies { "https" } else { "none" };
        settings.set("ssl.endpoint.identification.algorithm", names);
        for (name, file) in [
            ("ssl.ca.location", &tls.ca_file),
            ("ssl.crl.location", &tls.crl_file),
            ("ssl.certificate.location", &tls.cert_file),
            ("ssl.key.location", &tls.key_file),
        ] {
            set_path(&mut settings, name, file);
        }
        for (name, text) in [
            ("ssl.ca.pem", tls.ca_pem.as_str()),
            ("ssl.certificate.pem", tls.cert_pem.as_str()),
            ("ssl.key.pem", tls.key_pem.reveal()),
        ] {
            if !text.is_empty() {
                settings.set(name, text);
            }
        }
        if tls.ca_pem.is_empty() && tls.ca_file.as_os_str().is_empty() {
            // The compiled-in OpenSSL does not know the location of the system's certificate authorities.
            settings.set("ssl.ca.location", "probe");
        }
    }
    settings
}

fn set_path(settings: &mut ClientConfig, name: &str, file: &Path) {
    if !file.as_os_str().is_empty() {
        settings.set(name, file.to_string_lossy());
    }
}

/// Describes the reason why a client could not be created, without the values of settings, because the password is a
/// setting.
pub fn creation_error(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, reason, name, _) => {
            format!("librdkafka does not accept the setting {name}: {reason}")
        }
        KafkaError::Nul(_) => "a string in the configuration has a zero byte".to_owned(),
        error => error.to_string(),
    }
}

/// Detects changes of the files in a `tls` section, after which the client must be replaced. librdkafka reads the files
/// only once.
#[derive(Debug)]
pub struct Renewals {
    changed: Arc<Notify>,
    /// Tasks that watch the files while this value lives.
    _watching: JoinSet<()>,
}

impl Renewals {
    /// Starts to watch. Call this before creating the client, within a runtime.
    pub fn new(connection: &Connection<'_>) -> Self {
        let changed = Arc::new(Notify::new());
        let mut watching = JoinSet::new();
        let files: Vec<PathBuf> = match connection.tls.filter(|_| connection.is_tls()) {
            Some(tls) => [&tls.ca_file, &tls.crl_file, &tls.cert_file, &tls.key_file]
                .into_iter()
                .filter(|file| !file.as_os_str().is_empty())
                .cloned()
                .collect(),
            None => Vec::new(),
        };
        if !files.is_empty() {
            let (mut watch, changed) = (FileWatch::new(files), changed.clone());
            watching.spawn(async move {
                loop {
                    watch.changed().await;
                    changed.notify_one();
                }
            });
        }
        Renewals {
            changed,
            _watching: watching,
        }
    }

    /// Waits for the next change.
    pub async fn due(&self) {
        self.changed.notified().await;
    }

    /// Whether a file changed since the last call.
    pub fn are_due(&self) -> bool {
        self.due().now_or_never().is_some()
    }
}

/// Log of a component's librdkafka clients. librdkafka repeats lines while a broker is unreachable, so only some lines
/// of each ten seconds are warnings. All other lines are logged at debug level.
#[derive(Debug)]
pub struct Logging {
    id: ComponentId,
    kind: &'static str,
    sampled: SampledLog,
}

impl Logging {
    /// Creates the log of the component with that id and kind (for example `exporter`).
    pub fn new(id: &ComponentId, kind: &'static str) -> Self {
        Logging {
            id: id.clone(),
            kind,
            sampled: SampledLog::default(),
        }
    }

    fn warn(&self, facility: &str, message: &str) {
        match self.sampled.admit() {
            Some(suppressed) => warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = self.kind,
                facility,
                suppressed = (suppressed > 0).then_some(suppressed),
                "librdkafka: {message}"
            ),
            None => self.debug(facility, message),
        }
    }

    fn debug(&self, facility: &str, message: &str) {
        debug!(
            otelcol.component.id = %self.id,
            otelcol.component.kind = self.kind,
            facility,
            "librdkafka: {message}"
        );
    }
}

impl ClientContext for Logging {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error
            | RDKafkaLogLevel::Warning => self.warn(facility, message),
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => {
                self.debug(facility, message);
            }
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        let name = code.map(|code| format!("{code:?}")).unwrap_or_default();
        match code {
            // librdkafka's own log has the broker and the reason.
            Some(RDKafkaErrorCode::AllBrokersDown | RDKafkaErrorCode::BrokerTransportFailure) => {
                self.debug(&name, reason);
            }
            _ => self.warn(&name, reason),
        }
    }
}
