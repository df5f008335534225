//! hyper's pooling client, replaced when certificates change.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::ArcSwap;
use http::{Extensions, Request, Response};
use hyper::body::Incoming;
use hyper_util::client::legacy::{self, Builder};
use rustls::ClientConfig;

use super::body::Chunks;
use super::dial::Dialer;
pub(super) use super::dial::Served;
use crate::tls::rotation::RotatingClient;

type Client = legacy::Client<Dialer, Chunks>;

/// A client whose connections all use the current certificates.
///
/// hyper's client cannot close its pooled connections, so new certificates need a new client. The old client and its
/// idle connections end with its last open request.
pub struct RenewingClient {
    builder: Builder,
    dialer: Dialer,
    tls: Option<RotatingClient>,
    current: ArcSwap<Current>,
}

struct Current {
    client: Client,
    tls_config: Option<Arc<ClientConfig>>,
}

impl RenewingClient {
    /// Creates a client that connects with `dialer`. `tls` is the source of the TLS configuration, if any.
    pub fn new(builder: Builder, dialer: Dialer, tls: Option<RotatingClient>) -> Self {
        let current = Current {
            client: builder.build(dialer.clone()),
            tls_config: tls.as_ref().map(RotatingClient::config),
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
    /// If a connection that has served requests breaks, the server most likely closed it in the meantime. With HTTP/1,
    /// the server may announce the end while the next request is on its way. Such a request is retried once, without a delay.
    ///
    /// # Errors
    /// The connection is missing or broke. The server may have processed the request.
    pub async fn send(
        &self,
        request: impl Fn() -> Request<Chunks>,
    ) -> Result<Response<Incoming>, legacy::Error> {
        let sent = self.client().request(request()).await;
        let response = match sent {
            Err(error) if has_served_before(&error) => self.client().request(request()).await?,
            sent => sent?,
        };
        if let Some(Served(served)) = response.extensions().get() {
            served.store(true, Relaxed);
        }
        Ok(response)
    }

    fn client(&self) -> Client {
        let tls_config = self.tls.as_ref().map(RotatingClient::config);
        let current = self.current.load();
        let is_outdated = match (&current.tls_config, &tls_config) {
            (Some(before), Some(now)) => !Arc::ptr_eq(before, now),
            _ => false,
        };
        if is_outdated {
            let renewed = Current {
                client: self.builder.build(self.dialer.clone()),
                tls_config,
            };
            // A concurrent renewal used the same configuration, so either result is valid.
            self.current.compare_and_swap(&*current, Arc::new(renewed));
        }
        self.current.load().client.clone()
    }
}

fn has_served_before(error: &legacy::Error) -> bool {
    let Some(connection) = error.connect_info() else {
        return false;
    };
    let mut extras = Extensions::new();
    connection.get_extras(&mut extras);
    extras
        .get()
        .is_some_and(|Served(served)| served.load(Relaxed))
}
