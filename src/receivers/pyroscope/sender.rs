//! The sender of a request, and the resources that its labels describe.

use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::KeyValue;

use crate::receivers::profile_intake::{SERVICE_NAME, Subject, text};
use tributary_pyroscope::labels::{self, SeriesLabel};

/// Properties of a request that its body cannot set.
#[derive(Debug, Clone, Default)]
pub(super) struct Sender {
    /// Attribute and value of the tenant; the value is missing if the request has no tenant.
    pub(super) tenant: Option<(String, Option<String>)>,
    /// Attribute and value of the identity in the client's certificate.
    pub(super) identity: Option<(String, Option<Arc<str>>)>,
    /// Time of the request in nanoseconds since 1970 (UTC).
    pub(super) now: u64,
}

impl Sender {
    /// Returns the profiled subject with these labels.
    ///
    /// Labels become attributes of the same name, and `service_name` becomes `service.name`. Private labels are left out,
    /// except for the session, which distinguishes processes of a service. Of labels that become one attribute, the
    /// first one counts.
    pub(super) fn subject(&self, labels: &[SeriesLabel]) -> Subject {
        let mut attributes: Vec<KeyValue> = Vec::with_capacity(labels.len() + 2);
        for (name, value) in labels {
            let key = match name.as_str() {
                labels::SERVICE_NAME => SERVICE_NAME,
                name => name,
            };
            let is_new = attributes.iter().all(|known| known.key != key);
            if is_new && labels::is_public(key) && !value.is_empty() && !self.owns(key) {
                attributes.push(text(key, value));
            }
        }
        if let Some((key, Some(tenant))) = &self.tenant {
            attributes.push(text(key, tenant));
        }
        let Some((key, identity)) = &self.identity else {
            return Subject::new(attributes, None);
        };
        attributes.extend(identity.as_deref().map(|identity| text(key, identity)));
        Subject::new(attributes, None).certified(key.clone())
    }

    /// Whether only the request itself, and no label, sets this attribute.
    fn owns(&self, key: &str) -> bool {
        let tenant = self.tenant.as_ref().map(|(key, _)| key);
        let identity = self.identity.as_ref().map(|(key, _)| key);
        tenant.into_iter().chain(identity).any(|own| own == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_profiles::Dictionary;

    fn attributes(sender: &Sender, labels: &[(&str, &str)]) -> Vec<KeyValue> {
        let owned = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
        let labels: Vec<SeriesLabel> = labels.iter().map(owned).collect();
        let subject = sender.subject(&labels);
        subject.resource(&Dictionary::new(), None).attributes
    }

    #[test]
    fn labels_become_attributes_except_private_ones() {
        let labels = [
            ("__name__", "process_cpu"),
            ("__session_id__", "0a"),
            ("__delta__", "false"),
            ("service_name", "shop"),
            ("service.name", "other"),
            ("pod", "a"),
            ("empty", ""),
        ];
        let expected = [
            text("__session_id__", "0a"),
            text("service.name", "shop"),
            text("pod", "a"),
        ];
        assert_eq!(attributes(&Sender::default(), &labels), expected);
    }

    #[test]
    fn labels_set_neither_tenant_nor_identity() {
        let mut sender = Sender {
            tenant: Some(("tenant.id".to_owned(), None)),
            identity: Some(("service.name".to_owned(), Some("spiffe://a".into()))),
            now: 0,
        };
        let labels = [("service_name", "b"), ("tenant.id", "c"), ("pod", "d")];
        let [pod, identity] = [text("pod", "d"), text("service.name", "spiffe://a")];
        assert_eq!(
            attributes(&sender, &labels),
            [pod.clone(), identity.clone()]
        );
        sender.tenant = Some(("tenant.id".to_owned(), Some("e".to_owned())));
        let tenant = text("tenant.id", "e");
        assert_eq!(attributes(&sender, &labels), [pod, tenant, identity]);
    }
}
