//! Listening sockets that survive a reload.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::{ComponentId, Endpoint};

/// Hands out listening sockets by address.
///
/// A reload builds the new components while the old ones still serve. Both then hold the same socket, so no connection
/// is refused in between: what the kernel has queued is accepted by whoever asks next.
#[derive(Debug, Clone, Default)]
pub struct Listeners {
    open: Arc<Mutex<HashMap<Key, TcpListener>>>,
}

/// Port 0 asks for any free port, so there the component tells sockets apart, not the address alone.
type Key = (String, Option<ComponentId>);

impl Listeners {
    /// A socket that listens on `endpoint`: the one that is already open, or a new one.
    ///
    /// # Errors
    /// When the name does not resolve, or the address cannot be bound; the message names it.
    pub fn bind(&self, owner: &ComponentId, endpoint: &Endpoint) -> io::Result<TcpListener> {
        let text = match endpoint.0.strip_prefix(':') {
            Some(port) => format!("0.0.0.0:{port}"),
            None => endpoint.0.clone(),
        };
        let key = (text.clone(), text.ends_with(":0").then(|| owner.clone()));
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listener) = open.get(&key) {
            return listener.try_clone();
        }
        let listener = bind_first(&text).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {text}: {error}"))
        })?;
        let shared = listener.try_clone()?;
        open.insert(key, listener);
        Ok(shared)
    }

    /// Closes the sockets that nobody but this table holds any more: call it when a reload is over, with the addresses
    /// still in use.
    pub fn retain(&self, in_use: &[SocketAddr]) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, listener| {
            listener
                .local_addr()
                .is_ok_and(|address| in_use.contains(&address))
        });
    }
}

fn bind_first(text: &str) -> io::Result<TcpListener> {
    // The Collector listens on the first address a name resolves to; prefer IPv4 so that `localhost` means 127.0.0.1,
    // which is where SDKs connect first.
    let mut addresses: Vec<SocketAddr> = text.to_socket_addrs()?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let listener = TcpListener::bind(addresses.as_slice())?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_address_is_the_same_socket_until_nobody_uses_it() {
        let listeners = Listeners::default();
        let owner: ComponentId = "otlp".parse().unwrap();
        let any = Endpoint("127.0.0.1:0".to_owned());
        let first = listeners.bind(&owner, &any).unwrap();
        let again = listeners.bind(&owner, &any).unwrap();
        assert_eq!(first.local_addr().unwrap(), again.local_addr().unwrap());
        let other = listeners.bind(&"otlp/2".parse().unwrap(), &any).unwrap();
        assert_ne!(first.local_addr().unwrap(), other.local_addr().unwrap());

        listeners.retain(&[]);
        let address = first.local_addr().unwrap();
        drop((first, again));
        TcpListener::bind(address).expect("the port is free again");
    }
}
