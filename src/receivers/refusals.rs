//! Refused requests of a receiver, by client.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use metrics::{Counter, counter};
use parking_lot::Mutex;

use tributary_config::ComponentId;

/// `tributary_receiver_refused_requests` of a receiver, for one transport.
///
/// The label `client` is the identity in the client's verified certificate; without a certificate there is no label. A
/// hundred clients have their own series; all other clients share the label `other`.
#[derive(Clone)]
pub(super) struct Refusals(Arc<Shared>);

struct Shared {
    receiver: String,
    transport: &'static str,
    anonymous: Counter,
    known: Mutex<HashMap<Arc<str>, Counter>>,
}

/// Clients with their own series, per receiver. Like the series, this list outlives a receiver that a reload replaces.
static SERIES: LazyLock<Mutex<BTreeMap<String, BTreeSet<Arc<str>>>>> =
    LazyLock::new(Mutex::default);

/// Maximum number of client labels per receiver.
const CLIENTS: usize = 100;
/// Label of the remaining clients.
const OTHER: &str = "other";

impl Refusals {
    pub(super) fn new(receiver: &ComponentId, transport: &'static str) -> Self {
        let receiver = receiver.to_string();
        Refusals(Arc::new(Shared {
            anonymous: counter!(NAME, "receiver" => receiver.clone(), "transport" => transport),
            receiver,
            transport,
            known: Mutex::default(),
        }))
    }

    /// Counts a refused request of this client.
    pub(super) fn count(&self, client: Option<&Arc<str>>) {
        let shared = &*self.0;
        let Some(client) = client else {
            return shared.anonymous.increment(1);
        };
        let label = shared.label(client);
        let mut known = shared.known.lock();
        let counter = known.entry(label).or_insert_with_key(|label| {
            counter!(
                NAME,
                "receiver" => shared.receiver.clone(),
                "transport" => shared.transport,
                "client" => label.to_string()
            )
        });
        counter.increment(1);
    }
}

impl Shared {
    /// Returns the client's own label, or [`OTHER`] if too many clients have labels.
    fn label(&self, client: &Arc<str>) -> Arc<str> {
        let mut series = SERIES.lock();
        let clients = series.entry(self.receiver.clone()).or_default();
        if !clients.contains(client) && clients.len() >= CLIENTS {
            return OTHER.into();
        }
        clients.insert(client.clone());
        client.clone()
    }
}

const NAME: &str = "tributary_receiver_refused_requests";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_clients_have_a_series_of_their_own_across_reloads() {
        let label = |receiver: &str, client: usize| {
            let id: ComponentId = receiver.parse().unwrap();
            let refusals = Refusals::new(&id, "grpc");
            let client = Arc::from(format!("client-{client}"));
            refusals.count(Some(&client));
            refusals.0.label(&client)
        };
        for client in 0..CLIENTS {
            assert_eq!(*label("otlp/many", client), format!("client-{client}"));
        }
        assert_eq!(&*label("otlp/many", CLIENTS), OTHER);
        assert_eq!(&*label("otlp/many", 0), "client-0");
        assert_eq!(*label("otlp/another", CLIENTS), format!("client-{CLIENTS}"));
    }
}
