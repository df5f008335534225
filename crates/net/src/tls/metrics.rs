//! Metrics of TLS sections.

use metrics::{Counter, counter};

use crate::Owner;

/// Counts reloads of TLS files, and connections that were closed as a result, for one TLS section.
#[derive(Clone)]
pub(super) struct TlsMetrics {
    succeeded: Counter,
    failed: Counter,
    distrusted: Counter,
}

impl TlsMetrics {
    /// Creates the metrics of one server or client.
    pub(super) fn new(owner: &Owner) -> Self {
        let reloads = |outcome| {
            counter!(
                "tributary_tls_reloads",
                &owner.labels_and("outcome", outcome)
            )
        };
        TlsMetrics {
            succeeded: reloads("success"),
            failed: reloads("failure"),
            distrusted: counter!("tributary_tls_distrusted_connections", &owner.labels()),
        }
    }

    /// Counts a reload of changed files, by whether the files could be used.
    pub(super) fn reloaded(&self, successfully: bool) {
        match successfully {
            true => self.succeeded.increment(1),
            false => self.failed.increment(1),
        }
    }

    /// Counts a connection that was closed because its client is no longer trusted.
    pub(super) fn distrusted(&self) {
        self.distrusted.increment(1);
    }
}
