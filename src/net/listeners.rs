//! Listening sockets that survive a reload.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::{ComponentId, Endpoint};

/// Hands out listening sockets by address.
///
/// A reload builds the new components while the old ones still serve. Both then hold the same socket, so no connection
/// is refused in between: what the kernel has queued is accepted by whoever asks next.
#[derive(Debug, Clone, Default)]
pub struct Listeners {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    generation: u64,
    open: HashMap<Key, Open>,
}

/// Port 0 asks for any free port, so there the component tells sockets apart, not the address alone.
type Key = (String, Option<ComponentId>);

#[derive(Debug)]
struct Open {
    listener: TcpListener,
    opened: u64,
    last_used: u64,
}

impl Listeners {
    /// A new configuration is about to be built. End with [`keep_new`](Self::keep_new) or
    /// [`keep_old`](Self::keep_old).
    pub fn begin(&self) {
        self.table().generation += 1;
    }

    /// The new configuration is in use: closes the sockets that it did not ask for.
    pub fn keep_new(&self) {
        let mut table = self.table();
        let generation = table.generation;
        table.open.retain(|_, open| open.last_used == generation);
    }

    /// The new configuration could not be built: closes the sockets that only it asked for.
    pub fn keep_old(&self) {
        let mut table = self.table();
        let generation = table.generation;
        table.open.retain(|_, open| open.opened < generation);
    }

    /// The component that listens on `endpoint` goes on as it is, without asking for its socket again. With port 0, all
    /// sockets of that address are kept.
    pub fn keep(&self, endpoint: &Endpoint) {
        let text = address(endpoint);
        let mut table = self.table();
        let generation = table.generation;
        for (_, open) in table.open.iter_mut().filter(|(key, _)| key.0 == text) {
            open.last_used = generation;
        }
    }

    /// A socket that listens on `endpoint`: the one that is already open, or a new one.
    ///
    /// # Errors
    /// When the name does not resolve, or the address cannot be bound; the message names it.
    pub fn bind(&self, owner: &ComponentId, endpoint: &Endpoint) -> io::Result<TcpListener> {
        let text = address(endpoint);
        let key = (text.clone(), text.ends_with(":0").then(|| owner.clone()));
        let mut table = self.table();
        let generation = table.generation;
        if let Some(open) = table.open.get_mut(&key) {
            open.last_used = generation;
            return open.listener.try_clone();
        }
        let listener = bind_first(&text).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {text}: {error}"))
        })?;
        let shared = listener.try_clone()?;
        let open = Open {
            listener,
            opened: generation,
            last_used: generation,
        };
        table.open.insert(key, open);
        Ok(shared)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn address(endpoint: &Endpoint) -> String {
    match endpoint.0.strip_prefix(':') {
        Some(port) => format!("0.0.0.0:{port}"),
        None => endpoint.0.clone(),
    }
}

fn bind_first(text: &str) -> io::Result<TcpListener> {
    // The Collector listens on the first address a name resolves to. `localhost` needs no resolver (RFC 6761, 6.3), and
    // IPv4 comes first because that is where SDKs connect first.
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
    let listener = TcpListener::bind(addresses.as_slice())?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any() -> Endpoint {
        Endpoint("127.0.0.1:0".to_owned())
    }

    #[test]
    fn the_same_address_is_the_same_socket_until_a_configuration_goes_without_it() {
        let listeners = Listeners::default();
        listeners.begin();
        let owner: ComponentId = "otlp".parse().unwrap();
        let first = listeners.bind(&owner, &any()).unwrap();
        let again = listeners.bind(&owner, &any()).unwrap();
        let address = first.local_addr().unwrap();
        assert_eq!(address, again.local_addr().unwrap());
        let other = listeners.bind(&"otlp/2".parse().unwrap(), &any()).unwrap();
        assert_ne!(address, other.local_addr().unwrap());
        listeners.keep_new();

        drop((first, again));
        TcpListener::bind(address).expect_err("the table still holds the socket");
        listeners.begin();
        listeners.keep_new();
        TcpListener::bind(address).expect("the port is free again");
    }

    #[test]
    fn a_configuration_that_fails_leaves_the_sockets_of_the_old_one() {
        let listeners = Listeners::default();
        listeners.begin();
        let old = listeners
            .bind(&"old".parse().unwrap(), &any())
            .unwrap()
            .local_addr()
            .unwrap();
        listeners.keep_new();
        listeners.begin();
        listeners.bind(&"old".parse().unwrap(), &any()).unwrap();
        let new = listeners
            .bind(&"new".parse().unwrap(), &any())
            .unwrap()
            .local_addr()
            .unwrap();
        listeners.keep_old();
        TcpListener::bind(old).expect_err("the old configuration still serves");
        TcpListener::bind(new).expect("the new one never will");
    }
}
