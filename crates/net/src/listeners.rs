//! Listening sockets that survive a reload.

mod holder;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs as _, UdpSocket};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use tributary_config::{ComponentId, Endpoint};

/// Provides listening sockets by address.
///
/// A reload builds the new components while the old ones still serve. Both share the same socket, so no connection is
/// refused during the reload: the next component to accept gets the connections in the kernel's queue. A socket closes
/// when its last component is dropped, whether the component was replaced, removed, or built for a configuration that
/// failed.
#[derive(Debug, Clone, Default)]
pub struct Listeners {
    open: Arc<Mutex<Open<TcpListener>>>,
    datagrams: Arc<Mutex<Open<UdpSocket>>>,
}

/// Open sockets by endpoint.
type Open<S> = HashMap<Key, Weak<Sockets<S>>>;

/// A socket that can be bound to an address.
pub trait BoundSocket: Sized {
    /// Binds a socket that does not block.
    ///
    /// # Errors
    /// The address cannot be used.
    fn bind(address: SocketAddr) -> io::Result<Self>;

    /// Returns the address of the socket.
    ///
    /// # Errors
    /// The system does not report the address.
    fn address(&self) -> io::Result<SocketAddr>;

    /// Names the process that uses the address, if known.
    fn holder(address: SocketAddr) -> Option<String>;
}

impl BoundSocket for TcpListener {
    fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }

    fn holder(address: SocketAddr) -> Option<String> {
        holder::of(address)
    }
}

impl BoundSocket for UdpSocket {
    fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }

    fn holder(_: SocketAddr) -> Option<String> {
        None
    }
}

/// The sockets of one endpoint, one for every local address that its name resolves to: listeners, or sockets for
/// datagrams.
#[derive(Debug)]
pub struct Sockets<S = TcpListener>(Vec<Arc<S>>);

impl<S: BoundSocket> Sockets<S> {
    /// Returns the address of the first socket.
    ///
    /// # Errors
    /// The system does not report the address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let first = self.0.first();
        first.map_or(Err(io::ErrorKind::NotFound.into()), |first| first.address())
    }

    /// Returns the sockets, at least one.
    pub fn iter(&self) -> impl Iterator<Item = &S> {
        self.0.iter().map(|listener| &**listener)
    }
}

impl From<Arc<TcpListener>> for Sockets {
    fn from(listener: Arc<TcpListener>) -> Self {
        Sockets(vec![listener])
    }
}

/// Port 0 means any free port, so sockets on port 0 are keyed by component too.
type Key = (String, Option<ComponentId>);

impl Listeners {
    /// Returns the sockets that listen on `endpoint`, opening them if necessary. A server that accepts from clones must
    /// also keep the original sockets, so that its successor finds them.
    ///
    /// # Errors
    /// The name does not resolve, or one of its addresses cannot be bound. The message names the address and, if known,
    /// the process that already listens there.
    pub fn bind(&self, owner: &ComponentId, endpoint: &Endpoint) -> io::Result<Arc<Sockets>> {
        shared(&mut self.open.lock(), owner, endpoint)
    }

    /// Returns the UDP sockets of `endpoint`, opening them if necessary. During a reload, the old and the new component
    /// receive from the same sockets.
    ///
    /// # Errors
    /// The name does not resolve, or one of its addresses cannot be bound.
    pub fn bind_datagrams(
        &self,
        owner: &ComponentId,
        endpoint: &Endpoint,
    ) -> io::Result<Arc<Sockets<UdpSocket>>> {
        shared(&mut self.datagrams.lock(), owner, endpoint)
    }
}

fn shared<S: BoundSocket>(
    open: &mut Open<S>,
    owner: &ComponentId,
    endpoint: &Endpoint,
) -> io::Result<Arc<Sockets<S>>> {
    let text = match endpoint.0.strip_prefix(':') {
        Some(port) => format!("0.0.0.0:{port}"),
        None => endpoint.0.clone(),
    };
    let key = (text.clone(), text.ends_with(":0").then(|| owner.clone()));
    open.retain(|_, listener| listener.strong_count() > 0);
    if let Some(listener) = open.get(&key).and_then(Weak::upgrade) {
        return Ok(listener);
    }
    let listeners = bind_all(&text).map_err(|error| {
        let text = format!("cannot listen on {text}: {error}");
        io::Error::new(error.kind(), text)
    })?;
    let sockets = Arc::new(Sockets(listeners.into_iter().map(Arc::new).collect()));
    open.insert(key, Arc::downgrade(&sockets));
    Ok(sockets)
}

/// Binds every address of a name. A client may try any address first, and must not reach another process at that
/// address. (The Collector binds only the first address.) Addresses that this machine does not have, such as IPv6 where
/// IPv6 is disabled, are skipped if any other address remains.
fn bind_all<S: BoundSocket>(text: &str) -> io::Result<Vec<S>> {
    // `localhost` needs no resolver (RFC 6761, 6.3). IPv4 comes first, because SDKs connect there first.
    let mut addresses: Vec<SocketAddr> = match text.rsplit_once(':') {
        Some(("localhost", port)) if let Ok(port) = port.parse() => {
            vec![
                (Ipv4Addr::LOCALHOST, port).into(),
                (Ipv6Addr::LOCALHOST, port).into(),
            ]
        }
        _ => text.to_socket_addrs()?.collect(),
    };
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses.dedup();
    let any_port = addresses.iter().any(|address| address.port() == 0);
    let mut attempts = if any_port { ATTEMPTS } else { 1 };
    loop {
        attempts -= 1;
        match bind_each(&addresses) {
            // The free port of the first address is taken on another address.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts > 0 => {}
            outcome => return outcome,
        }
    }
}

fn bind_each<S: BoundSocket>(addresses: &[SocketAddr]) -> io::Result<Vec<S>> {
    let mut bound: Vec<S> = Vec::new();
    let mut missing = None;
    for address in addresses {
        let mut address = *address;
        if let Some(first) = bound.first()
            && address.port() == 0
        {
            address.set_port(first.address()?.port());
        }
        match S::bind(address) {
            Ok(socket) => bound.push(socket),
            Err(error) if is_unassigned_address(&error) => missing = Some(error),
            Err(error) => {
                let by = S::holder(address)
                    .filter(|_| error.kind() == io::ErrorKind::AddrInUse)
                    .map(|holder| format!(" by {holder}"))
                    .unwrap_or_default();
                let text = format!("{address}: {error}{by}");
                return Err(io::Error::new(error.kind(), text));
            }
        }
    }
    match missing {
        Some(error) if bound.is_empty() => Err(error),
        None if bound.is_empty() => Err(io::Error::other("the name has no addresses")),
        _ => Ok(bound),
    }
}

fn is_unassigned_address(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

/// Number of attempts to find a port that is free on all addresses.
const ATTEMPTS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn any() -> Endpoint {
        Endpoint("127.0.0.1:0".to_owned())
    }

    #[test]
    fn listeners_share_a_socket_until_last_drop() {
        let listeners = Listeners::default();
        let owner: ComponentId = "otlp".parse().unwrap();
        let first = listeners.bind(&owner, &any()).unwrap();
        let address = first.local_addr().unwrap();
        let other = listeners.bind(&"otlp/2".parse().unwrap(), &any()).unwrap();
        assert_ne!(address, other.local_addr().unwrap());

        // Sockets of this endpoint do not depend on earlier configurations without the endpoint.
        let again = listeners.bind(&owner, &any()).unwrap();
        assert_eq!(address, again.local_addr().unwrap());
        drop(first);
        TcpListener::bind(address).expect_err("one component still listens");
        let third = listeners.bind(&owner, &any()).unwrap();
        assert_eq!(address, third.local_addr().unwrap());
        drop((again, third));
        TcpListener::bind(address).expect("the port is free again");
    }

    #[test]
    fn localhost_binds_all_addresses_or_names_the_used_one() {
        let listeners = Listeners::default();
        let owner: ComponentId = "otlp".parse().unwrap();
        let local = Endpoint("localhost:0".to_owned());
        let sockets = listeners.bind(&owner, &local).unwrap();
        let port = sockets.local_addr().unwrap().port();
        let hosts: Vec<_> = sockets
            .iter()
            .map(|listener| listener.local_addr().unwrap())
            .collect();
        let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        assert_eq!(hosts.len(), 1 + usize::from(has_ipv6));
        assert!(hosts.iter().all(|address| address.port() == port));
        drop(sockets);
        for host in hosts {
            let _taken = TcpListener::bind(host).unwrap();
            let same = Endpoint(format!("localhost:{port}"));
            let error = listeners.bind(&owner, &same).unwrap_err().to_string();
            let expected = format!("cannot listen on localhost:{port}: {host}: ");
            assert!(error.starts_with(&expected), "{error}");
            #[cfg(target_os = "linux")]
            assert!(error.contains(" by process "), "{error}");
        }
    }
}
