use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tributary_net::auth::ClientAuthenticator as _;
use tributary_net::client::test_server::{TestServer, answer};

use super::endpoint::FetchedToken;
use super::*;
use tributary_config::{ComponentId, Problems, Validate};

fn id() -> ComponentId {
    "oauth2client".parse().unwrap()
}

fn config(server: &TestServer, more: &str) -> Config {
    let yaml = format!(
        "{{client_id: 'my client', client_secret: 'se:cret', token_url: 'http://{}/token'{more}}}",
        server.address
    );
    serde_yaml::from_str(&yaml).unwrap()
}

fn endpoint(server: &TestServer, more: &str) -> TokenEndpoint {
    TokenEndpoint::new(&config(server, more), &id()).unwrap()
}

/// A server with this response to all requests.
async fn responding(status: u16, body: &'static str) -> TestServer {
    TestServer::start(None, move |_| {
        Some(answer(
            status,
            HeaderMap::new(),
            body.as_bytes(),
            HeaderMap::new(),
        ))
    })
    .await
}

fn token(seconds: u64) -> FetchedToken {
    FetchedToken {
        header: HeaderValue::from_static("Bearer t"),
        lifetime: Duration::from_secs(seconds),
    }
}

fn tokens() -> AccessTokens {
    AccessTokens::new(&id(), Duration::from_secs(300))
}

#[tokio::test]
async fn request_has_credentials_scopes_and_parameters() {
    let body = r#"{"access_token": "abc", "token_type": "bearer", "expires_in": 60, "x": 1}"#;
    let server = responding(200, body).await;
    let more = ", scopes: [read, write], endpoint_params: {audience: ['a&b'], resource: [r1, r2]}";
    let fetched = endpoint(&server, more).fetch().await.unwrap();
    assert_eq!(fetched.header, "Bearer abc");
    assert!(fetched.header.is_sensitive());
    assert_eq!(fetched.lifetime, Duration::from_secs(60));
    let requests = server.requests.lock().unwrap();
    let request = &requests[0];
    // `my+client:se%3Acret`
    let basic = "Basic bXkrY2xpZW50OnNlJTNBY3JldA==";
    assert_eq!(request.headers()[AUTHORIZATION], basic);
    assert_eq!(
        request.body(),
        "grant_type=client_credentials&scope=read+write&audience=a%26b&resource=r1&resource=r2"
    );
    assert_eq!(request.uri(), "/token");
}

#[tokio::test]
async fn server_may_want_the_credentials_in_the_body() {
    let server = TestServer::start(None, |request| {
        let body = String::from_utf8_lossy(request.body());
        let in_body = body.ends_with("&client_id=my+client&client_secret=se%3Acret");
        let (status, body) = match in_body && !request.headers().contains_key(AUTHORIZATION) {
            true => (200, r#"{"access_token": "abc", "expires_in": "60"}"#),
            false => (401, r#"{"error": "invalid_client"}"#),
        };
        Some(answer(
            status,
            HeaderMap::new(),
            body.as_bytes(),
            HeaderMap::new(),
        ))
    })
    .await;
    let endpoint = endpoint(&server, "");
    for requests in [2, 3] {
        let fetched = endpoint.fetch().await.unwrap();
        assert_eq!(fetched.lifetime, Duration::from_secs(60));
        assert_eq!(server.requests.lock().unwrap().len(), requests);
    }
}

#[tokio::test]
async fn failures_are_explained_without_secrets() {
    let refusal = r#"{"error": "invalid_scope", "error_description": "no such\n scope"}"#;
    for (status, body, expected) in [
        (
            400,
            refusal,
            "400 Bad Request (invalid_scope: no such scope)",
        ),
        (302, "", "responded with 302 Found"),
        (200, "abc", "not JSON with an `access_token`"),
        (200, r#"{"access_token": ""}"#, "an empty `access_token`"),
        (
            200,
            r#"{"access_token": "a\nb"}"#,
            "not allowed in a header",
        ),
    ] {
        let server = responding(status, body).await;
        let error = endpoint(&server, "").fetch().await.unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(
            !error.contains("cret") && !error.contains("client"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn silent_server_runs_into_the_time_limit() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/token", silent.local_addr().unwrap());
    let yaml = format!("{{client_id: a, client_secret: b, token_url: '{url}', timeout: 50ms}}");
    let config: Config = serde_yaml::from_str(&yaml).unwrap();
    let error = TokenEndpoint::new(&config, &id()).unwrap().fetch().await;
    assert_eq!(error.unwrap_err(), format!("{url} did not respond in time"));
}

#[tokio::test]
async fn rotated_secret_is_read_from_its_file() {
    let body = r#"{"access_token": "abc"}"#;
    let server = responding(200, body).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let more = format!(", client_secret_file: '{}'", file.path().display());
    let endpoint = endpoint(&server, &more);
    for secret in ["one", "two\n"] {
        std::fs::write(file.path(), secret).unwrap();
        endpoint.fetch().await.unwrap();
    }
    let requests = server.requests.lock().unwrap();
    let headers: Vec<_> = requests
        .iter()
        .map(|request| &request.headers()[AUTHORIZATION])
        .collect();
    // `my+client:one` and `my+client:two`
    assert_eq!(
        headers,
        ["Basic bXkrY2xpZW50Om9uZQ==", "Basic bXkrY2xpZW50OnR3bw=="]
    );
}

#[tokio::test]
async fn requests_wait_until_there_is_a_token() {
    let works = Arc::new(AtomicBool::new(false));
    let (asked, mut requests) = mpsc::unbounded_channel();
    let server = TestServer::start(None, {
        let works = works.clone();
        move |_| {
            asked.send(()).unwrap();
            let (status, body) = match works.load(SeqCst) {
                true => (200, r#"{"access_token": "abc"}"#),
                false => (503, ""),
            };
            Some(answer(
                status,
                HeaderMap::new(),
                body.as_bytes(),
                HeaderMap::new(),
            ))
        }
    })
    .await;
    let tokens = Arc::new(tokens());
    let mut changes = tokens.changes.subscribe();
    let endpoint = endpoint(&server, "");
    let renewing = tokio::spawn({
        let tokens = tokens.clone();
        async move { tokens.renew(&endpoint).await }
    });
    let limit = Duration::from_secs(30);
    timeout(limit, requests.recv()).await.unwrap().unwrap();
    let reason = "the extension `oauth2client` has no access token yet";
    assert_eq!(tokens.missing().unwrap(), reason);
    works.store(true, SeqCst);
    timeout(limit, changes.changed()).await.unwrap().unwrap();
    assert_eq!(tokens.missing(), None);
    let mut headers = HeaderMap::new();
    tokens.add(&mut headers);
    assert_eq!(headers[AUTHORIZATION], "Bearer abc");
    assert_eq!(tokens.version(), 1);
    renewing.abort();
}

#[tokio::test(start_paused = true)]
async fn token_is_due_before_it_expires() {
    let tokens = tokens();
    for (lifetime, due) in [(3600, 3300), (400, 200), (1, 1)] {
        assert_eq!(tokens.replace(token(lifetime)), Duration::from_secs(due));
    }
    tokens.replace(token(60));
    tokio::time::advance(Duration::from_secs(59)).await;
    assert_eq!(tokens.missing(), None);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(tokens.missing().is_some());
}

#[tokio::test(start_paused = true)]
async fn refused_token_is_replaced_unless_it_is_new() {
    let tokens = tokens();
    tokens.replace(token(3600));
    tokens.refresh();
    assert_eq!((tokens.version(), tokens.missing()), (1, None));
    tokio::time::advance(Duration::from_secs(10)).await;
    tokens.refresh();
    assert_eq!(tokens.version(), 2);
    assert!(tokens.missing().is_some());
}

#[test]
fn incomplete_settings_are_reported_at_their_keys() {
    let yaml = "{client_secret_file: /nowhere, token_url: 'http://example.com/', endpoint_params: {scope: [a]}}";
    let config: Config = serde_yaml::from_str(yaml).unwrap();
    let mut problems = Problems::default();
    config.validate(&mut problems);
    let paths: Vec<String> = problems
        .found()
        .iter()
        .map(|found| found.path.join("."))
        .collect();
    assert_eq!(
        paths,
        [
            "client_id",
            "client_secret_file",
            "token_url",
            "endpoint_params.scope"
        ]
    );
}
