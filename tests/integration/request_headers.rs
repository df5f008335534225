//! Headers of requests to the next hop: those of clients, and access tokens.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::authentication::with_extensions;
use crate::harness::{Collector, Signal, Telemetry, raw, within, yaml};

type Respond = dyn Fn(&Request<Bytes>) -> (u16, &'static str) + Send + Sync;

/// Starts a server. The function returns status and body for a request.
async fn serve(
    respond: impl Fn(&Request<Bytes>) -> (u16, &'static str) + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let respond: Arc<Respond> = Arc::new(respond);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let respond = respond.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let respond = respond.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await?.to_bytes();
                    let (status, body) = respond(&Request::from_parts(head, body));
                    let mut response =
                        Response::new(Full::new(Bytes::from_static(body.as_bytes())));
                    *response.status_mut() = status.try_into().unwrap();
                    Ok::<_, hyper::Error>(response)
                }
            });
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                let _ = builder
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    address
}

async fn send(collector: &Collector, id: &str, headers: &[(&str, &str)]) {
    let body = Telemetry::of(Signal::Traces, &[id.to_owned()]).encode();
    let mut all = vec![("content-type", "application/x-protobuf")];
    all.extend_from_slice(headers);
    let path = raw::path(Signal::Traces);
    let response = raw::http(collector.http(), Method::POST, path, &all, body).await;
    assert_eq!(response.status, 200, "{}", response.text());
}

#[tokio::test]
async fn tenants_stay_apart_in_a_queue_that_merges() {
    let (arrived, mut arrivals) = watch::channel(BTreeSet::new());
    let next = serve(move |request| {
        let tenant = request.headers().get("x-scope-orgid");
        let tenant = tenant
            .map_or("none", |tenant| tenant.to_str().unwrap())
            .to_owned();
        let body = request.body();
        let has = |id: &str| body.windows(id.len()).any(|part| part == id.as_bytes());
        let ids: Vec<&str> = ["item-1", "item-2", "item-3"]
            .into_iter()
            .filter(|id| has(id))
            .collect();
        arrived.send_modify(|all| {
            all.insert((tenant, ids.join(" ")));
        });
        (200, "")
    })
    .await;
    let setter =
        "{headers: [{key: X-Scope-OrgID, from_context: Tenant, default_value: anonymous}]}";
    let exporter = format!(
        "{{endpoint: 'http://{next}', compression: none, auth: {{authenticator: headers_setter}}, \
         sending_queue: {{batch: {{flush_timeout: 100ms, min_size: 1000, sizer: items}}}}}}"
    );
    let open = "endpoint: '127.0.0.1:0'";
    let config = yaml(&[], &[("otlp_http", &exporter)]);
    let config = config.replace(open, &format!("{open}, include_metadata: true"));
    let config = with_extensions(&config, &[("headers_setter", setter)]);
    let collector = Collector::start(&config).await;
    send(&collector, "item-1", &[("tenant", "acme")]).await;
    send(&collector, "item-2", &[("tenant", "other")]).await;
    send(&collector, "item-3", &[]).await;
    let expected = [
        ("acme", "item-1"),
        ("anonymous", "item-3"),
        ("other", "item-2"),
    ];
    let expected = expected.map(|(tenant, id)| (tenant.to_owned(), id.to_owned()));
    let all = arrivals.wait_for(|all| all.len() == 3);
    assert_eq!(
        *within("the data of all tenants", all).await.unwrap(),
        BTreeSet::from(expected)
    );
    collector.assert_conservation().await;
}

#[tokio::test]
async fn data_waits_for_the_first_access_token() {
    // The token endpoint fails once.
    let asked = Arc::new(AtomicUsize::new(0));
    let login = serve(move |request| {
        assert_eq!(request.body(), "grant_type=client_credentials");
        match asked.fetch_add(1, SeqCst) {
            0 => (503, ""),
            _ => (
                200,
                r#"{"access_token": "a.token", "token_type": "Bearer", "expires_in": 3600}"#,
            ),
        }
    })
    .await;
    let headers = Arc::new(Mutex::new(Vec::new()));
    let (arrived, mut arrivals) = watch::channel(0);
    let seen = headers.clone();
    let next = serve(move |request| {
        let header = request.headers().get("authorization").cloned();
        seen.lock().unwrap().push(header);
        arrived.send_modify(|count| *count += 1);
        (200, "")
    })
    .await;
    let client = format!(
        "{{client_id: collector, client_secret: a-client-secret, token_url: 'http://{login}/token'}}"
    );
    let exporter = format!(
        "{{endpoint: 'http://{next}', auth: {{authenticator: oauth2client}}, \
         retry_on_failure: {{initial_interval: 20ms, max_interval: 100ms}}}}"
    );
    let config = yaml(&[], &[("otlp_http", &exporter)]);
    let config = with_extensions(&config, &[("oauth2client", &client)]);
    let collector = Collector::start(&config).await;
    send(&collector, "item-1", &[]).await;
    within("the data", arrivals.wait_for(|count| *count > 0))
        .await
        .unwrap();
    assert_eq!(
        *headers.lock().unwrap(),
        [Some("Bearer a.token".parse().unwrap())]
    );
    collector.assert_conservation().await;
    for line in collector.lines() {
        assert!(
            !line.text.contains("a-client-secret") && !line.text.contains("a.token"),
            "{}",
            line.text
        );
    }
}
