//! Fetching, from a server on a loopback port.

use http::HeaderMap;

use super::*;
use crate::receivers::scraping::client::ScrapeClient;
use tributary_net::auth::ClientAuthenticator;
use tributary_net::client::test_server::{TestServer, answer, certificates, header_map};
use tributary_net::tls::ServerTls;

fn client(server: &TestServer, headers: &str) -> (ScrapeClient, Uri) {
    let headers: tributary_config::Headers = serde_yaml::from_str(headers).unwrap();
    let transport = ScrapeTransport {
        tls: None,
        options: ClientOptions::default(),
        headers: super::headers(&headers),
        auth: None,
        proxy: None,
    };
    let url: Uri = format!("http://{}/debug/pprof/heap", server.address)
        .parse()
        .unwrap();
    (transport.client(&url, None).unwrap(), url)
}

/// Returns the outcome of this response, with at most `limit` bytes and this budget.
async fn fetched(
    status: u16,
    headers: &'static [(&'static str, &'static str)],
    body: &'static [u8],
    limit: usize,
    budget: &Arc<Budget>,
) -> Result<Fetched, Failure> {
    let respond = move |_: &http::Request<bytes::Bytes>| {
        Some(answer(
            status,
            header_map(headers),
            body,
            Default::default(),
        ))
    };
    let server = TestServer::start(None, respond).await;
    let (client, url) = client(&server, "{}");
    let bounds = BodyBounds {
        limit,
        budget: budget.clone(),
    };
    client.fetch(&url, &bounds).await
}

#[tokio::test]
async fn body_within_limit_is_counted_in_memory() {
    let budget = Budget::new(1 << 20);
    let got = fetched(
        200,
        &[("content-type", "Application/X")],
        &[7; 5000],
        5000,
        &budget,
    )
    .await;
    let got = got.unwrap();
    assert_eq!(got.held.bytes.len(), 5000);
    assert_eq!(got.content_type, "application/x");
    assert!(budget.used() >= 5000);
    drop(got);
    let got = fetched(200, &[], &[7; 5000], 4999, &budget).await;
    assert_eq!(got.unwrap_err(), Failure::TooLarge(4999));
    let small = Budget::new(1000);
    let got = fetched(200, &[], &[7; 5000], 5000, &small).await;
    assert!(matches!(got.unwrap_err(), Failure::NoRoom(_)));
    assert_eq!((budget.used(), small.used()), (0, 0));
}

#[tokio::test]
async fn invalid_response_is_described() {
    let budget = Budget::new(1 << 20);
    let said = async |status, headers, body| {
        let got = fetched(status, headers, body, 1000, &budget).await;
        got.unwrap_err().to_string()
    };
    let redirect = said(302, &[("location", "http://login.example/")], b"").await;
    assert!(redirect.contains("http://login.example/"), "{redirect}");
    let busy = said(500, &[], b"Could not enable CPU profiling: already in use").await;
    assert!(busy.contains("stop the other profiler"), "{busy}");
    let empty = said(200, &[], b"").await;
    assert!(empty.contains("empty"), "{empty}");
    let encoded = said(200, &[("content-encoding", "br")], b"x").await;
    assert!(encoded.contains("`br`"), "{encoded}");
}

#[tokio::test]
async fn requests_have_configured_headers() {
    let respond = |_: &http::Request<bytes::Bytes>| {
        Some(answer(200, Default::default(), b"x", Default::default()))
    };
    let server = TestServer::start(None, respond).await;
    let (client, url) = client(&server, "{x-tenant: a, user-agent: mine}");
    let bounds = BodyBounds {
        limit: 10,
        budget: Budget::new(1 << 20),
    };
    client.fetch(&url, &bounds).await.unwrap();
    client.fetch(&url, &bounds).await.unwrap();
    let requests = server.requests.lock().unwrap();
    let request = requests.first().unwrap();
    assert_eq!(request.uri().path(), "/debug/pprof/heap");
    for (name, value) in [
        ("x-tenant", "a"),
        ("user-agent", "mine"),
        ("accept-encoding", "identity"),
    ] {
        assert_eq!(request.headers()[name], value);
    }
    assert_eq!(server.connections(), 1);
}

/// An authenticator with a new token after each refusal.
struct Tokens(Mutex<u32>);

impl ClientAuthenticator for Tokens {
    fn add(&self, headers: &mut HeaderMap) {
        let token = format!("Bearer {}", self.0.lock().unwrap());
        headers.insert("authorization", token.parse().unwrap());
    }

    fn version(&self) -> u64 {
        u64::from(*self.0.lock().unwrap())
    }

    fn refresh(&self) {
        *self.0.lock().unwrap() += 1;
    }
}

#[tokio::test]
async fn https_certificate_is_checked_before_credentials_are_sent() {
    let (ca, certificate, key) = certificates();
    let server = ServerTls {
        cert_pem: certificate,
        key_pem: key.as_str().into(),
        ..ServerTls::default()
    };
    let respond = |request: &http::Request<bytes::Bytes>| {
        let status = match request.headers()["authorization"].as_bytes() {
            b"Bearer 2" => 200,
            _ => 401,
        };
        Some(answer(status, HeaderMap::new(), b"x", HeaderMap::new()))
    };
    let server = TestServer::start(Some(server.build(&[b"http/1.1"]).unwrap()), respond).await;
    let url: Uri = format!("https://localhost:{}/heap", server.address.port())
        .parse()
        .unwrap();
    let tokens = Arc::new(Tokens(Mutex::new(1)));
    let client = |ca: String| {
        let config = ClientTls {
            ca_pem: ca,
            ..ClientTls::default()
        };
        let transport = ScrapeTransport {
            tls: Some(tls(&config, false, &context("pprof")).unwrap()),
            options: ClientOptions::default(),
            headers: HeaderMap::new(),
            auth: Some(tokens.clone()),
            proxy: None,
        };
        transport.client(&url, None).unwrap()
    };
    let bounds = BodyBounds {
        limit: 10,
        budget: Budget::new(1 << 20),
    };
    let (other, ..) = certificates();
    let refused = client(other).fetch(&url, &bounds).await.unwrap_err();
    assert!(
        matches!(&refused, Failure::Unreachable(why) if why.contains("certificate")),
        "{refused}"
    );
    assert!(server.requests.lock().unwrap().is_empty());
    let client = client(ca);
    let refused = client.fetch(&url, &bounds).await.unwrap_err();
    assert!(refused.to_string().contains("401"), "{refused}");
    // A refused token is replaced.
    let got = client.fetch(&url, &bounds).await.unwrap();
    assert_eq!(got.held.bytes, "x");
}
