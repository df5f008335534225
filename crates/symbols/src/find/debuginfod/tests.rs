//! Tests with a scripted server on the loopback interface.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::*;
use crate::library::testing::tools;
use crate::testing::{elf, elf_with, id};
use tributary_config::units::{ByteSize, Duration, Headers};
use tributary_net::client::test_server::{Answer, TestServer, answer, header_map};
use tributary_net::client::{ConnectError, Stream};

fn plain(status: u16, body: &[u8]) -> Option<Answer> {
    Some(answer(status, HeaderMap::new(), body, HeaderMap::new()))
}

fn redirect(to: &str) -> Option<Answer> {
    let headers = header_map(&[("location", to)]);
    Some(answer(302, headers, b"", HeaderMap::new()))
}

fn servers(urls: &[String]) -> Servers {
    let config = Debuginfod {
        servers: urls.to_vec(),
        headers: Headers(vec![("x-token".to_owned(), "secret".into())]),
        timeout: Duration::secs(5),
        max_bytes: ByteSize::kib(64),
        ..Debuginfod::default()
    };
    let owner = Owner::new(&"symbolication".parse().unwrap(), "processor");
    let mut servers = Servers::new(&config, &owner).unwrap();
    // Sockets work in real time, so the waits between attempts are removed.
    for server in &mut servers.0 {
        server.first_wait = std::time::Duration::ZERO;
    }
    servers
}

fn url(server: &TestServer) -> String {
    format!("http://{}", server.address)
}

fn asked(server: &TestServer) -> Vec<String> {
    let requests = server.requests.lock().unwrap();
    let paths = requests
        .iter()
        .map(|request| request.uri().path().to_owned());
    paths.collect()
}

async fn find(servers: &Servers, id: &BuildId) -> Result<Vec<Vec<u8>>, Failure> {
    let (_directory, tools) = tools();
    let found = servers.find(id, &tools).await?;
    let files = [&found.binary].into_iter().chain(&found.supplementary);
    Ok(files.map(|file| std::fs::read(file).unwrap()).collect())
}

#[tokio::test]
async fn debug_file_is_requested_before_binary_and_companions() {
    let (one, two, supplementary_id) = (id(1), id(2), id(3));
    let alt = [b"x\0".as_slice(), supplementary_id.as_bytes()].concat();
    let debug = elf_with(&one, &["main"], &[(".gnu_debugaltlink", &alt)]);
    let binary = elf(&two, &["main"]);
    let files = [
        (format!("/buildid/{one}/debuginfo"), debug.clone()),
        (format!("/buildid/{two}/executable"), binary.clone()),
        (
            format!("/buildid/{supplementary_id}/debuginfo"),
            b"supplementary_id".to_vec(),
        ),
    ];
    let server = TestServer::start(None, move |request| {
        let mut files = files.iter();
        match files.find(|(path, _)| path == request.uri().path()) {
            Some((_, file)) => plain(200, file),
            None => plain(404, b"not found"),
        }
    })
    .await;
    let empty = TestServer::start(None, |_| plain(404, b"")).await;
    let servers = servers(&[url(&empty), url(&server) + "/"]);
    let found = find(&servers, &one).await;
    assert_eq!(found, Ok(vec![debug, b"supplementary_id".to_vec()]));
    assert_eq!(find(&servers, &two).await, Ok(vec![binary]));
    assert_eq!(find(&servers, &id(4)).await, Err(Failure::NotFound));
    let requests = server.requests.lock().unwrap();
    let headers = requests[0].headers();
    assert_eq!(headers["x-token"], "secret");
    assert_eq!(headers["x-debuginfod-maxsize"], "65536");
    assert_eq!(
        asked(&empty).len(),
        6,
        "404 is an answer, and not asked again"
    );
}

#[tokio::test]
async fn failing_server_is_retried_until_breaker_opens() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let server = TestServer::start(None, move |_| match counted.fetch_add(1, SeqCst) {
        0 => plain(503, b"later"),
        1 => None,
        2 => plain(200, b"file"),
        _ => plain(500, b"broken"),
    })
    .await;
    let servers = servers(&[url(&server)]);
    assert_eq!(find(&servers, &id(1)).await, Ok(vec![b"file".to_vec()]));
    for _ in 0..3 {
        let failed = find(&servers, &id(2)).await.unwrap_err();
        assert!(matches!(failed, Failure::Unreachable(_)), "{failed}");
    }
    assert_eq!(
        count.load(SeqCst),
        3 + 5,
        "five failures in a row are enough"
    );
}

#[tokio::test]
async fn oversized_download_is_refused_with_and_without_length() {
    for (status, body, said) in [(200, vec![0; 65 << 10], false), (406, Vec::new(), true)] {
        let server = TestServer::start(None, move |_| plain(status, &body)).await;
        let failed = find(&servers(&[url(&server)]), &id(1)).await;
        assert!(
            matches!(failed, Err(Failure::TooLarge(_))),
            "{failed:?} {said}"
        );
        assert_eq!(asked(&server).len(), 1);
    }
}

#[tokio::test]
async fn truncated_file_is_refused() {
    let server = TestServer::start(None, |_| {
        let headers = header_map(&[("content-length", "1000")]);
        Some(answer(200, headers, b"half", HeaderMap::new()))
    })
    .await;
    let failed = find(&servers(&[url(&server)]), &id(1)).await;
    assert!(matches!(failed, Err(Failure::Unreachable(_))), "{failed:?}");
}

#[tokio::test]
async fn redirects_are_bounded_and_drop_headers() {
    let other = TestServer::start(None, |_| plain(200, b"file")).await;
    let redirect_connector = format!("{}/redirect_connector", url(&other));
    let server = TestServer::start(None, move |request| {
        let path = request.uri().path();
        match path.split('/').next_back() {
            Some("debuginfo") if path.contains(&id(1).to_string()) => redirect("/once"),
            Some("once") => redirect(&redirect_connector),
            _ => redirect(path),
        }
    })
    .await;
    let mut servers = servers(&[url(&server)]);
    servers.0[0].network = told(&["8.8.8.8:80"; 32]);
    assert_eq!(find(&servers, &id(1)).await, Ok(vec![b"file".to_vec()]));
    assert!(
        !other.requests.lock().unwrap()[0]
            .headers()
            .contains_key("x-token")
    );
    let failed = find(&servers, &id(2)).await.unwrap_err().to_string();
    assert!(failed.contains("redirects more than 3 times"), "{failed}");
    assert_eq!(asked(&server).len(), 2 + 3 * 4);
}

#[test]
fn redirect_target_is_url_or_path() {
    let from: Uri = "https://a.example/buildid/x".parse().unwrap();
    let to = |location: &str| {
        let headers = header_map(&[("location", location)]);
        redirected(&from, &headers).ok().map(|url| url.to_string())
    };
    assert_eq!(to("/x?y"), Some("https://a.example/x?y".to_owned()));
    assert_eq!(
        to("https://b.example/"),
        Some("https://b.example/".to_owned())
    );
    for location in ["x/y", "?y", "", "b.example:80", "file:/etc/passwd"] {
        assert_eq!(to(location), None, "{location}");
    }
}

/// Resolves hosts to scripted addresses, in the order of the lookups, and connects to the test server.
struct Told {
    addresses: std::sync::Mutex<VecDeque<&'static str>>,
    connected: std::sync::Mutex<Vec<Vec<SocketAddr>>>,
}

fn listed(addresses: &str) -> Vec<SocketAddr> {
    let addresses = addresses.split(' ');
    addresses.map(|address| address.parse().unwrap()).collect()
}

impl Network for Told {
    fn addresses<'a>(
        &'a self,
        _: &'a Connector,
    ) -> BoxFuture<'a, Result<Vec<SocketAddr>, ConnectError>> {
        let next = self.addresses.lock().unwrap().pop_front();
        Box::pin(async move { Ok(listed(next.unwrap())) })
    }

    fn connect<'a>(
        &'a self,
        host: &'a Connector,
        addresses: &'a [SocketAddr],
    ) -> BoxFuture<'a, Result<Stream, ConnectError>> {
        self.connected.lock().unwrap().push(addresses.to_vec());
        Box::pin(async move { host.connect(&host.resolve().await?).await })
    }
}

fn told(addresses: &[&'static str]) -> Arc<Told> {
    Arc::new(Told {
        addresses: std::sync::Mutex::new(addresses.iter().copied().collect()),
        connected: std::sync::Mutex::default(),
    })
}

/// Requests a file from a server with these resolved addresses. Returns the result and the addresses that
/// were connected to.
async fn led(server: &TestServer, addresses: &[&'static str]) -> (String, Vec<Vec<SocketAddr>>) {
    led_among(&[server], addresses).await
}

/// Like [`led`], with several configured servers. Only the first server is queried.
async fn led_among(
    all: &[&TestServer],
    addresses: &[&'static str],
) -> (String, Vec<Vec<SocketAddr>>) {
    let urls: Vec<String> = all.iter().map(|server| url(server)).collect();
    let mut servers = servers(&urls);
    servers.0.truncate(1);
    let told = told(&addresses.repeat(ATTEMPTS as usize));
    servers.0[0].network = told.clone();
    let said = match find(&servers, &id(1)).await {
        Ok(_) => "found".to_owned(),
        Err(failure) => failure.to_string(),
    };
    let connected = told.connected.lock().unwrap().clone();
    (said, connected)
}

#[tokio::test]
async fn public_server_cannot_redirect_into_private_network() {
    let inside = TestServer::start(None, |_| plain(200, b"secret")).await;
    let redirect_connector = format!("{}/latest/meta-data", url(&inside));
    let between = {
        let redirect_connector = redirect_connector.clone();
        TestServer::start(None, move |_| redirect(&redirect_connector)).await
    };
    let onward = format!("{}/onward", url(&between));
    let outside = TestServer::start(None, move |_| redirect(&redirect_connector)).await;
    // Address of the server, and target of the redirect.
    for (server, to) in [
        ("8.8.8.8:80", "10.0.0.1:80"),
        ("[2600::1]:80", "[::ffff:192.168.0.1]:80"),
        ("8.8.8.8:80", "8.8.4.4:80 10.0.0.1:80"),
        ("8.8.8.8:80 10.0.0.2:80", "10.0.0.3:80"),
    ] {
        let (said, _) = led(&outside, &[server, to]).await;
        assert!(said.contains("private network"), "{to}: {said}");
    }
    // The internal server redirects to a public server, which redirects back.
    let within = TestServer::start(None, move |_| redirect(&onward)).await;
    let (said, _) = led(&within, &["10.0.0.1:80", "8.8.8.8:80", "10.0.0.2:80"]).await;
    assert!(said.contains("private network"), "{said}");
    assert_eq!(asked(&inside), [""; 0]);
}

#[tokio::test]
async fn private_redirects_reach_configured_servers_only() {
    let other = TestServer::start(None, |_| plain(200, b"file")).await;
    let redirect_connector = url(&other);
    let within = TestServer::start(None, move |_| redirect(&redirect_connector)).await;
    for to in [
        "127.0.0.1:80",
        "0.0.0.0:80",
        "169.254.169.254:80",
        "[::1]:80",
        "[fe80::1]:80",
        "[::ffff:127.0.0.2]:80",
        "10.0.0.2:80 127.0.0.1:80",
    ] {
        let (said, _) = led_among(&[&within, &other], &["10.0.0.1:80", to]).await;
        assert!(said.contains("loopback or link-local"), "{to}: {said}");
    }
    let addresses = ["10.0.0.1:80", "10.0.0.2:80"];
    let (said, _) = led(&within, &addresses).await;
    assert!(said.contains("not one of `servers`"), "{said}");
    assert_eq!(asked(&other), [""; 0]);
    let (said, _) = led_among(&[&within, &other], &addresses).await;
    assert_eq!(said, "found");
}

#[tokio::test]
async fn connection_uses_the_checked_address() {
    let other = TestServer::start(None, |_| plain(200, b"file")).await;
    let redirect_connector = url(&other);
    let server = TestServer::start(None, move |request| match request.uri().path() {
        "/again" => redirect(&redirect_connector),
        _ => redirect("/again"),
    })
    .await;
    // A second resolution would return other addresses.
    let (said, connected) = led(&server, &["8.8.8.8:80", "8.8.4.4:80", "10.0.0.1:80"]).await;
    assert_eq!(said, "found");
    let expected = ["8.8.8.8:80", "8.8.8.8:80", "8.8.4.4:80"];
    assert_eq!(connected, expected.map(listed));
}
