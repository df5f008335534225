//! Clients of the receivers, and counters of their data.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use tributary_config::ComponentId;
use tributary_net::server::Peer;
use tributary_otlp::Signal;

/// Maximum number of clients with counters of their own, because any number of addresses may send.
const MAX_CLIENTS: usize = 1000;

/// Identifies the sender of data: the identity of its certificate and its address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientKey {
    /// Identity from the client's certificate. `None` without mutual TLS.
    pub identity: Option<Arc<str>>,
    /// Address of the client.
    pub address: IpAddr,
    /// Receiver that accepted the data.
    pub receiver: ComponentId,
    /// Signal of the data.
    pub signal: Signal,
}

/// Accepted data of one client.
#[derive(Debug, Clone, Copy)]
pub struct ClientCounts {
    /// Number of requests.
    pub requests: u64,
    /// Number of spans, data points, log records or samples.
    pub items: u64,
    /// Bytes of the decompressed requests.
    pub bytes: u64,
    /// Time of the last request.
    pub last: SystemTime,
    /// Position of the last request among all requests.
    order: u64,
}

/// Counters of all clients.
#[derive(Default)]
pub struct ClientStatistics(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    clients: HashMap<ClientKey, ClientCounts>,
    /// Requests of evicted clients.
    evicted: u64,
    requests: u64,
}

impl ClientStatistics {
    /// Counts a request that the pipeline accepted. Above `MAX_CLIENTS` clients, the clients without recent requests
    /// are evicted.
    pub fn accepted(
        &self,
        peer: &Peer,
        receiver: &ComponentId,
        signal: Signal,
        items: usize,
        bytes: usize,
    ) {
        let key = ClientKey {
            identity: peer.identity.clone(),
            address: peer.address.ip(),
            receiver: receiver.clone(),
            signal,
        };
        let now = SystemTime::now();
        let mut counted = self.0.lock();
        counted.requests += 1;
        let order = counted.requests;
        if counted.clients.len() >= MAX_CLIENTS && !counted.clients.contains_key(&key) {
            counted.evict_oldest();
        }
        let counts = counted.clients.entry(key).or_insert(ClientCounts {
            requests: 0,
            items: 0,
            bytes: 0,
            last: now,
            order,
        });
        counts.requests += 1;
        counts.items += items as u64;
        counts.bytes += bytes as u64;
        counts.last = now;
        counts.order = order;
    }

    /// Returns all known clients, and the number of requests of evicted clients.
    pub fn all(&self) -> (Vec<(ClientKey, ClientCounts)>, u64) {
        let counted = self.0.lock();
        let clients = counted.clients.iter();
        let clients = clients.map(|(key, counts)| (key.clone(), *counts));
        (clients.collect(), counted.evicted)
    }
}

impl Counted {
    /// Evicts the half of the clients with the oldest last requests. Evicting many clients at once keeps the cost per
    /// request low during a flood of new addresses.
    fn evict_oldest(&mut self) {
        let mut orders: Vec<u64> = self.clients.values().map(|counts| counts.order).collect();
        let half = orders.len() / 2;
        let (_, median, _) = orders.select_nth_unstable(half);
        let median = *median;
        let mut evicted = 0;
        self.clients.retain(|_, counts| {
            let stays = counts.order > median;
            evicted += if stays { 0 } else { counts.requests };
            stays
        });
        self.evicted += evicted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_bounded_and_busy_clients_stay() {
        let clients = ClientStatistics::default();
        let receiver: ComponentId = "otlp".parse().unwrap();
        let mut peer = Peer::unconnected();
        for address in 0..5000_u32 {
            peer.address = (std::net::Ipv4Addr::from(address), 0).into();
            clients.accepted(&peer, &receiver, Signal::Logs, 2, 10);
            peer.address = (std::net::Ipv4Addr::LOCALHOST, 0).into();
            clients.accepted(&peer, &receiver, Signal::Logs, 1, 5);
        }
        let (all, evicted) = clients.all();
        assert!(all.len() <= MAX_CLIENTS);
        assert_eq!(evicted, 5001 - all.len() as u64);
        let busy = all.iter().find(|(key, _)| key.address.is_loopback());
        let (_, counts) = busy.unwrap();
        assert_eq!(
            (counts.requests, counts.items, counts.bytes),
            (5000, 5000, 25_000)
        );
    }
}
