//! `GET /metrics`.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, VARY};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use metrics::{Counter, counter};

use super::config::Config;
use super::negotiate::{Format, Syntax, takes_gzip};
use super::page::{Answer, Page};
use super::table::Table;
use crate::component::auth;
use crate::component::{BuildContext, BuildError};
use tributary_net::Owner;
use tributary_net::auth::Guard;
use tributary_net::server::{
    BoundServer, Handler, Peer, Protocol, ServerOptions, busy, plain, tls_source,
};

/// Binds the socket. Connections are accepted only after the start.
pub(super) fn bind(
    config: &Config,
    cx: &BuildContext,
    table: &Arc<Table>,
) -> Result<BoundServer<Scrapes>, BuildError> {
    let owner = Owner::new(&cx.id, "exporter").with_transport("http");
    let counter = |format: &'static str| {
        counter!(
            "tributary_exporter_prometheus_scrapes",
            "exporter" => cx.id.to_string(),
            "format" => format
        )
    };
    let handler = Scrapes {
        guard: auth::guard(config.auth.as_ref(), cx, &owner)?,
        table: table.clone(),
        open_metrics: config.enable_open_metrics,
        timestamps: config.send_timestamps,
        response_headers: config.response_headers.to_map(),
        scrapes: ["text", "openmetrics", "protobuf"].map(counter),
    };
    let options = ServerOptions {
        protocol: Protocol::Either,
        tls: tls_source(&config.tls, Protocol::Either, &owner)
            .map_err(|error| BuildError(error.to_string()))?,
        keep_alive: config.keep_alives_enabled,
        header_timeout: config.read_header_timeout.unless_zero(),
        max_idle: config.idle_timeout.unless_zero(),
        limits: config.limits.clone(),
        budget: Some(cx.budget.clone()),
        ..ServerOptions::default()
    };
    cx.listeners
        .bind(&cx.id, &config.endpoint)
        .and_then(|listener| BoundServer::new(listener, handler, options, "HTTP", owner))
        .map_err(|error| BuildError(error.to_string()))
}

pub(super) struct Scrapes {
    guard: Option<Guard>,
    table: Arc<Table>,
    open_metrics: bool,
    timestamps: bool,
    response_headers: HeaderMap,
    scrapes: [Counter; 3],
}

impl Scrapes {
    fn answer(&self, request: &Request<Incoming>) -> Response<Answer> {
        match (request.method(), request.uri().path()) {
            (&Method::GET | &Method::HEAD, "/metrics") => {}
            (&Method::GET | &Method::HEAD, _) => {
                return whole(plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n"));
            }
            _ => {
                let mut response = whole(plain(StatusCode::METHOD_NOT_ALLOWED, "use GET\n"));
                let headers = response.headers_mut();
                headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                return response;
            }
        }
        let format = Format::negotiate(request.headers(), self.open_metrics);
        let gzip = takes_gzip(request.headers());
        let body = match *request.method() {
            Method::HEAD => Answer::Whole(Full::default()),
            _ => {
                let counter = match format.syntax {
                    Syntax::Text => &self.scrapes[0],
                    Syntax::OpenMetrics => &self.scrapes[1],
                    Syntax::Protobuf => &self.scrapes[2],
                };
                counter.increment(1);
                let page = Page::new(self.table.clone(), format, self.timestamps, gzip);
                Answer::Page(Box::new(page))
            }
        };
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, format.content_type());
        headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
        if gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}

impl Handler for Scrapes {
    type Body = Answer;

    async fn handle(&self, mut request: Request<Incoming>, peer: &Peer) -> Response<Answer> {
        let refused = match &self.guard {
            Some(guard) => guard.admit(request.headers_mut(), peer).await.err(),
            None => None,
        };
        let mut response = match (&self.guard, refused) {
            (Some(guard), Some(nack)) => whole(tributary_net::auth::refusal(guard, nack)),
            _ => self.answer(&request),
        };
        let headers = self.response_headers.iter();
        let added = headers.map(|(name, value)| (name.clone(), value.clone()));
        response.headers_mut().extend(added);
        response
    }

    fn busy(&self, _: &Request<Incoming>) -> Response<Answer> {
        whole(busy())
    }
}

fn whole(response: Response<Full<Bytes>>) -> Response<Answer> {
    response.map(Answer::Whole)
}
