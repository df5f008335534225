//! Connects by URI, for hyper's pooling client.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};

use http::Uri;
use http::uri::Authority;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tower::Service;

use super::connect::Connector;
use super::connect_error::ConnectError;
use super::stream::Stream;
use futures_util::future::BoxFuture;

/// Connects to a fixed set of hosts.
#[derive(Clone)]
pub struct Dialer(Arc<HashMap<Authority, Connector>>);

impl Dialer {
    /// Creates a dialer for these hosts.
    pub fn new(connectors: HashMap<Authority, Connector>) -> Self {
        Dialer(Arc::new(connectors))
    }
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<Stream>;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Self::Response, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = uri.authority().and_then(|authority| self.0.get(authority));
        let connector = connector.cloned();
        Box::pin(async move {
            let connector = connector
                .ok_or_else(|| ConnectError(format!("{uri} is not one of the endpoints")))?;
            let addresses = connector.resolve().await?;
            Ok(TokioIo::new(connector.connect(&addresses).await?))
        })
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        let connected = Connected::new()
            .proxy(self.is_absolute_form())
            .extra(Served::default());
        match self.negotiated_http2() {
            true => connected.negotiated_h2(),
            false => connected,
        }
    }
}

/// Whether a connection has received a response. The [`Dialer`] attaches the value to each connection.
#[derive(Clone, Default)]
pub(super) struct Served(pub(super) Arc<AtomicBool>);
