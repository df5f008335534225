//! Listening sockets that survive a reload.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tributary_config::{ComponentId, Endpoint};

/// Hands out listening sockets by address.
///
/// A reload builds the new components while the old ones still serve. Both then hold the same socket, so no connection
/// is refused in between: what the kernel has queued is accepted by whoever asks next. A socket closes when the last
/// component that holds it is gone, whether that was replaced, left out, or built for a configuration that failed.
#[derive(Debug, Clone, Default)]
pub struct Listeners {
    open: Arc<Mutex<HashMap<Key, Weak<TcpListener>>>>,
}

/// Port 0 asks for any free port, so there the component tells sockets apart, not the address alone.
type Key = (String, Option<ComponentId>);

impl Listeners {
    /// A socket that listens on `endpoint`: the one that is already open, or a new one. Whoever accepts from a clone of
    /// it keeps the socket itself as well, so that others find it.
    ///
    /// # Errors
    /// When the name does not resolve, or the address cannot be bound; the message names it.
    pub fn bind(&self, owner: &ComponentId, endpoint: &Endpoint) -> io::Result<Arc<TcpListener>> {
        let text = match endpoint.0.strip_prefix(':') {
            Some(port) => format!("0.0.0.0:{port}"),
            None => endpoint.0.clone(),
        };
        let key = (text.clone(), text.ends_with(":0").then(|| owner.clone()));
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, listener| listener.strong_count() > 0);
        if let Some(listener) = open.get(&key).and_then(Weak::upgrade) {
            return Ok(listener);
        }
        let listener = bind_first(&text).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {text}: {error}"))
        })?;
        let listener = Arc::new(listener);
        open.insert(key, Arc::downgrade(&listener));
        Ok(listener)
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
    fn the_same_address_is_the_same_socket_until_the_last_component_lets_go_of_it() {
        let listeners = Listeners::default();
        let owner: ComponentId = "otlp".parse().unwrap();
        let first = listeners.bind(&owner, &any()).unwrap();
        let address = first.local_addr().unwrap();
        let other = listeners.bind(&"otlp/2".parse().unwrap(), &any()).unwrap();
        assert_ne!(address, other.local_addr().unwrap());

        // However many configurations come and go without asking for it.
        let again = listeners.bind(&owner, &any()).unwrap();
        assert_eq!(address, again.local_addr().unwrap());
        drop(first);
        TcpListener::bind(address).expect_err("one component still listens");
        let third = listeners.bind(&owner, &any()).unwrap();
        assert_eq!(address, third.local_addr().unwrap());
        drop((again, third));
        TcpListener::bind(address).expect("the port is free again");
    }
}
