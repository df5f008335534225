//! hyper's pooling client, renewed when certificates have changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use arc_swap::ArcSwap;
use http::{Extensions, Request, Response};
use hyper::body::Incoming;
use hyper_util::client::legacy::{self, Builder};
use rustls::ClientConfig;

use super::body::Chunks;
use super::dial::Dialer;
use crate::tls::rotation::RotatingClient;

type Client = legacy::Client<Dialer, Chunks>;

/// A client with a pool of connections, all of them made with the certificates that are current.
///
/// The pool of hyper's client cannot be told to let go of its connections, so with other certificates there is another
/// client. The old one ends with the last request that is under way on it, and its idle connections with it.
pub struct RenewingClient {
    builder: Builder,
    dialer: Dialer,
    tls: Option<RotatingClient>,
    current: ArcSwap<Current>,
}

struct Current {
    client: Client,
    made_with: Option<Arc<ClientConfig>>,
}

/// Whether a connection has brought an answer, noted by the [`Dialer`] on each.
#[derive(Clone, Default)]
pub(super) struct Served(Arc<AtomicBool>);

impl RenewingClient {
    /// A client that connects with `dialer`, whose TLS, if any, comes from `tls`.
    pub fn new(builder: Builder, dialer: Dialer, tls: Option<RotatingClient>) -> Self {
        let current = Current {
            client: builder.build(dialer.clone()),
            made_with: tls.as_ref().map(RotatingClient::config),
        };
        RenewingClient {
            builder,
            dialer,
            tls,
            current: ArcSwap::from_pointee(current),
        }
    }

    /// Sends a request and returns the head of the response.
    ///
    /// A connection that served before and breaks now was most likely closed by the server in between: with HTTP/1 its
    /// `connection: close` crosses the next request on the way. That request goes out once more, at once.
    ///
    /// # Errors
    /// When there is no connection or it broke. The request may have been processed.
    pub async fn send(
        &self,
        request: impl Fn() -> Request<Chunks>,
    ) -> Result<Response<Incoming>, legacy::Error> {
        let sent = self.client().request(request()).await;
        let response = match sent {
            Err(error) if served_before(&error) => self.client().request(request()).await?,
            sent => sent?,
        };
        if let Some(Served(served)) = response.extensions().get() {
            served.store(true, Relaxed);
        }
        Ok(response)
    }

    fn client(&self) -> Client {
        let made_with = self.tls.as_ref().map(RotatingClient::config);
        let current = self.current.load();
        let is_outdated = match (&current.made_with, &made_with) {
            (Some(before), Some(now)) => !Arc::ptr_eq(before, now),
            _ => false,
        };
        if is_outdated {
            let renewed = Current {
                client: self.builder.build(self.dialer.clone()),
                made_with,
            };
            // Whoever comes first: both are made with the same.
            self.current.compare_and_swap(&*current, Arc::new(renewed));
        }
        self.current.load().client.clone()
    }
}

fn served_before(error: &legacy::Error) -> bool {
    let Some(connection) = error.connect_info() else {
        return false;
    };
    let mut extras = Extensions::new();
    connection.get_extras(&mut extras);
    extras
        .get()
        .is_some_and(|Served(served)| served.load(Relaxed))
}
