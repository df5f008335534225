//! Servers as components.

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tributary_config::{Endpoint, Section};
use tributary_net::Owner;
use tributary_net::server::{
    BoundServer, Handler, Limits, Protocol, Server, ServerOptions, tls_source,
};
use tributary_net::tls::ServerTls;

use crate::component::{BuildContext, BuildError};
use crate::pipeline::{Component, Undelivered};

/// Keys of a component that serves HTTP without further settings of the protocol.
pub(crate) struct HttpEndpoint<'c> {
    pub(crate) endpoint: &'c Endpoint,
    pub(crate) tls: &'c Section<ServerTls>,
    pub(crate) limits: &'c Limits,
}

impl HttpEndpoint<'_> {
    /// Binds the sockets. Connections are accepted only after the start of the component.
    ///
    /// # Errors
    /// An address cannot be bound, or a file of `tls` cannot be used.
    pub(crate) fn serve<H: Handler>(
        &self,
        handler: H,
        cx: &BuildContext,
        owner: Owner,
    ) -> Result<Serving<H>, BuildError> {
        let failed = |error: &dyn std::fmt::Display| BuildError(error.to_string());
        let options = ServerOptions {
            protocol: Protocol::Either,
            tls: tls_source(self.tls, Protocol::Either, &owner).map_err(|error| failed(&error))?,
            limits: self.limits.clone(),
            budget: Some(cx.budget.clone()),
            ..ServerOptions::default()
        };
        let sockets = cx.listeners.bind(&cx.id, self.endpoint);
        let bound = sockets
            .and_then(|sockets| BoundServer::new(sockets, handler, options, "HTTP", owner))
            .map_err(|error| failed(&error))?;
        Ok(Serving::new(bound))
    }
}

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
