//! Servers as components.

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tributary_net::server::{BoundServer, Handler, Server};

use crate::pipeline::{Component, Undelivered};

/// A component that consists of one server.
pub(crate) struct Serving<H> {
    bound: Option<BoundServer<H>>,
    pub(crate) server: Option<Server>,
}

impl<H> Serving<H> {
    /// Creates a server that accepts connections once the component is started.
    pub(crate) fn new(bound: BoundServer<H>) -> Self {
        Serving {
            bound: Some(bound),
            server: None,
        }
    }
}

impl<H: Handler> Component for Serving<H> {
    fn start(&mut self) {
        self.server = self.bound.take().map(BoundServer::start);
    }

    fn shutdown(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            if let Some(server) = self.server {
                server.shutdown(deadline).await;
            }
            Undelivered::default()
        })
    }
}
