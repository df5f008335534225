use std::net::SocketAddr;

use tokio_util::sync::CancellationToken;

use super::super::admission::{Admission, CONNECTIONS_SHARE, MIN_CONNECTIONS};
use super::super::buffered::FRAMES_SHARE;
use super::super::client_limit::ClientLimit;
use super::super::peer::Peer;
use super::super::request_slots::{MAX_REFUSALS, Opening, RequestSlots};
use super::*;
use tributary_memory::clients::{CONNECTION_COST, FREE_REQUESTS};

fn gate(limits: Limits, budget: Option<Arc<Budget>>) -> Arc<Gate> {
    let owner = Owner::new(&"otlp".parse().unwrap(), "receiver");
    Gate::new(limits, 1000, owner.with_transport("grpc"), budget)
}

fn admit(gate: &Arc<Gate>, address: &str) -> Result<Admission, ClientLimit> {
    gate.admit(at(address), CancellationToken::new())
}

fn at(address: &str) -> SocketAddr {
    (address.parse::<IpAddr>().unwrap(), 1).into()
}

#[test]
fn connections_are_counted_in_total_and_per_address() {
    let limits = Limits {
        max_connections: 3,
        max_connections_per_peer: 2,
        ..Limits::default()
    };
    let gate = gate(limits, None);
    let first = admit(&gate, "2001:db8::1").unwrap();
    let _second = admit(&gate, "2001:db8::2:1").unwrap();
    let refused = admit(&gate, "2001:db8::3").err();
    assert_eq!(refused, Some(ClientLimit::MaxConnectionsPerPeer));
    let third = admit(&gate, "10.0.0.1").unwrap();
    assert_eq!(
        admit(&gate, "10.0.0.2").err(),
        Some(ClientLimit::MaxConnections)
    );
    drop((first, third));
    let _again = admit(&gate, "::ffff:10.0.0.1").unwrap();
    let networks = gate.networks();
    assert_eq!(networks.len(), 2, "only those with a connection");
    let network = networks.get(&at("10.0.0.1").ip()).unwrap();
    assert_eq!(network.connections.load(Relaxed), 1);
}

#[test]
fn one_network_cannot_take_all_handshakes() {
    let limits = Limits {
        max_handshakes: 8,
        ..Limits::default()
    };
    let gate = gate(limits, None);
    let (one, other) = (
        admit(&gate, "10.0.0.1").unwrap(),
        admit(&gate, "10.0.0.2").unwrap(),
    );
    let slots = (one.handshake(), one.handshake());
    assert!(slots.0.is_some() && slots.1.is_some());
    assert!(one.handshake().is_none() && other.handshake().is_some());
    drop(slots);
    assert!(one.handshake().is_some());
    assert_eq!(gate.handshakes.load(Relaxed), 0);
}

fn many(gate: &Arc<Gate>, address: &str, count: usize) -> Vec<Admission> {
    let admitted = (0..count).map(|_| admit(gate, address).unwrap());
    admitted.collect()
}

#[test]
fn connections_and_partial_frames_have_a_memory_share() {
    let budget = Budget::new(CONNECTIONS_SHARE * 200 * CONNECTION_COST);
    let gate = gate(Limits::default(), Some(budget.clone()));
    let mut open = many(&gate, "10.0.0.1", 100);
    assert_eq!(
        admit(&gate, "10.0.0.1").err(),
        Some(ClientLimit::Memory),
        "one address has half"
    );
    open.extend(many(&gate, "10.0.0.2", 100));
    assert_eq!(admit(&gate, "10.0.0.3").err(), Some(ClientLimit::Memory));
    open.pop();
    assert!(admit(&gate, "10.0.0.3").is_ok());
    assert_eq!(budget.used(), 0);
    open.push(admit(&gate, "10.0.0.3").unwrap());
    let probes = self::gate(Limits::default(), Some(budget.clone()));
    let few = many(&probes, "10.0.0.1", MIN_CONNECTIONS);
    assert_eq!(admit(&probes, "10.0.0.1").err(), Some(ClientLimit::Memory));
    drop(few);

    drop(open);
    let admissions = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|address| {
        let admission = admit(&gate, address).unwrap();
        let mut peer = Peer::new(at(address), gate.clone());
        peer.network = admission.network();
        (admission, peer)
    });
    let [one, other, third] = admissions.each_ref().map(|(_, peer)| peer);
    let half = budget.limit() / FRAMES_SHARE / 2;
    let frame = gate.begin_frame(one, half);
    assert!(frame.is_some() && gate.begin_frame(one, 1).is_none());
    let more = gate.begin_frame(other, half);
    assert!(more.is_some() && gate.begin_frame(third, 1).is_none());
    drop(frame);
    assert!(gate.begin_frame(third, half).is_some());
    assert!(gate.begin_frame(one, half).is_some());
    drop(more);
    assert_eq!(budget.clients.frames.load(Relaxed), 0);
    drop(admissions);
    assert_eq!(budget.clients.connections.load(Relaxed), 0);
    assert_eq!(budget.clients.networks(), 0);
}

#[tokio::test(start_paused = true)]
async fn idle_unknown_clients_make_room_for_new_connections() {
    let budget = Budget::new(CONNECTIONS_SHARE * 200 * CONNECTION_COST);
    let gate = gate(Limits::default(), Some(budget));
    let token = CancellationToken::new();
    let first = gate.admit(at("10.0.0.1"), token.clone()).unwrap();
    let _open = many(&gate, "10.0.0.1", 99);
    assert!(admit(&gate, "10.0.0.1").is_err(), "all have just come");
    tokio::time::advance(Duration::from_secs(2)).await;
    let _newcomer = admit(&gate, "10.0.0.1").unwrap();
    assert!(token.is_cancelled(), "the oldest left");
    drop(first);
    let limits = Limits {
        max_connections_per_peer: 1,
        ..Limits::default()
    };
    let small = self::gate(limits, Some(gate.budget.clone()));
    let idle = admit(&small, "10.0.0.7").unwrap();
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(admit(&small, "10.0.0.7").is_ok());
    assert!(idle.state.is_closing.load(Relaxed));
}

#[test]
fn requests_share_memory_and_one_address_gets_half() {
    let limit = REQUESTS_SHARE * 100 * REQUEST_COST;
    let gate = gate(Limits::default(), Some(Budget::new(limit)));
    let peers = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|address| {
        let admission = admit(&gate, address).unwrap();
        let mut peer = Peer::new(at(address), gate.clone());
        peer.network = admission.network();
        (admission, peer)
    });
    let mut places = peers.each_ref().map(|(_, peer)| RequestSlots::new(peer));
    let [one, other, third] = &mut places;
    let admitted = |places: &mut RequestSlots| {
        let mut open = 0;
        while places.open(open) == Opening::Admitted {
            open += 1;
        }
        open
    };
    let half = FREE_REQUESTS + 50;
    assert_eq!((admitted(one), admitted(other)), (half, half));
    assert_eq!(admitted(third), FREE_REQUESTS);
    assert!(gate.is_short(peers[2].1.network.as_deref()));
    assert_eq!(one.open(half + MAX_REFUSALS - 1), Opening::Refused);
    assert_eq!(one.open(half + MAX_REFUSALS), Opening::Waits);
    one.release_beyond(FREE_REQUESTS + 20);
    assert_eq!(admitted(third), FREE_REQUESTS + 30);
    drop(places);
    assert_eq!(gate.budget.clients.requests.load(Relaxed), 0);
    assert!(!gate.is_short(peers[0].1.network.as_deref()));
}

#[test]
fn responses_share_memory_and_single_one_is_always_allowed() {
    let gate = gate(Limits::default(), Some(Budget::new(ANSWERS_SHARE * 1000)));
    let admission = admit(&gate, "10.0.0.1").unwrap();
    let mut peer = Peer::new(at("10.0.0.1"), gate.clone());
    peer.network = admission.network();
    let huge = gate.begin_answer(&peer, 5000);
    assert!(huge.is_some() && gate.begin_answer(&peer, 1).is_none());
    drop(huge);
    let half = [400, 100].map(|bytes| gate.begin_answer(&peer, bytes));
    assert!(half.iter().all(Option::is_some) && gate.begin_answer(&peer, 1).is_none());
    let stranger = Peer::new(at("10.0.0.2"), gate.clone());
    assert!(gate.begin_answer(&stranger, 500).is_some());
    assert!(gate.begin_answer(&stranger, 501).is_none());
}

#[test]
fn one_network_gets_half_of_the_requests() {
    let limits = Limits {
        max_requests: 4,
        ..Limits::default()
    };
    let gate = gate(limits, None);
    let (one, other) = (
        admit(&gate, "10.0.0.1").unwrap().network(),
        admit(&gate, "10.0.0.2").unwrap().network(),
    );
    let begin = |network: &Option<Arc<Network>>| gate.begin_request(network.as_deref());
    assert_eq!([(); 3].map(|()| begin(&one)), [true, true, false]);
    assert_eq!([(); 3].map(|()| begin(&other)), [true, true, false]);
    gate.end_request(one.as_deref(), Duration::ZERO);
    assert!(!begin(&other) && begin(&one));
}

#[test]
fn zero_is_no_limit() {
    let limits = Limits {
        max_connections: 0,
        max_connections_per_peer: 0,
        max_handshakes: 0,
        max_requests: 0,
        ..Limits::default()
    };
    let gate = gate(limits, None);
    let admission = admit(&gate, "10.0.0.1").unwrap();
    assert!(admission.handshake().is_some() && gate.begin_request(None));
}
