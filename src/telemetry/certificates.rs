//! Expiry of the certificates in use.
//!
//! The metric is rendered at every scrape from the certificates in use, because the recorder would
//! expose replaced certificates forever.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::SystemTime;

use super::exposition::escaped;
use crate::metric::shared::CERTIFICATE_EXPIRY;
use tributary_net::tls::rotation::in_use;

/// Appends the metric to a page, when any certificate is in use.
pub(super) fn render(page: &mut String) {
    let now = SystemTime::now();
    // Without the transport: the two servers of a receiver mostly use the same files.
    let mut samples = BTreeMap::new();
    for (owner, used) in in_use() {
        let labels = format!(
            "{}=\"{}\",kind=\"{}\",subject=\"{}\",serial=\"{}\"",
            owner.kind,
            escaped(&owner.id.to_string()),
            used.kind.name(),
            escaped(&used.fields.subject),
            escaped(&used.fields.serial)
        );
        samples.insert(labels, used.days_left(now));
    }
    if samples.is_empty() {
        return;
    }
    let (name, help) = (CERTIFICATE_EXPIRY.name, CERTIFICATE_EXPIRY.help);
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} gauge");
    for (labels, days) in samples {
        let _ = writeln!(page, "{name}{{{labels}}} {days:.4}");
    }
}
