//! Tests the server from outside: real sockets, a real client, and a scripted consumer.

use std::io::Write as _;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use super::*;
use crate::component::Host;
use crate::receivers::profile_intake::testing::{Sink, small_file};
use tributary_config::Endpoint;
use tributary_net::server::Server;
use tributary_profiles::Dictionary;
use tributary_profiles::dictionary::Mapping;

struct Running {
    sink: Arc<Sink>,
    server: Server,
}

/// Response: status, body, and the header `Retry-After`, `Allow` or `WWW-Authenticate`.
type Answer = (u16, String, Option<String>);

impl Running {
    fn new(config: &ServerConfig) -> Self {
        let sink = Arc::new(Sink::default());
        let cx = Host::for_tests().context(&"pprof".parse().unwrap());
        let (consumer, budget) = (sink.clone(), cx.budget.clone());
        let limit = config.max_body();
        let intake = Intake::new(&cx.id, consumer, budget, "http", limit, LIMIT_KEY);
        let mut listening = config.listening(&cx, intake).unwrap();
        listening.start();
        let server = listening.server.unwrap();
        Running { sink, server }
    }

    async fn send(
        &self,
        method: Method,
        target: &str,
        encoding: Option<&str>,
        body: Vec<u8>,
    ) -> Answer {
        let address = self.server.local_address().unwrap();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{address}{target}"));
        if let Some(encoding) = encoding {
            request = request.header("content-encoding", encoding);
        }
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        let response = client.request(request).await.unwrap();
        let headers = ["retry-after", "allow", "www-authenticate"];
        let mut headers = headers
            .iter()
            .filter_map(|name| response.headers().get(*name));
        let header = headers
            .next()
            .map(|value| value.to_str().unwrap().to_owned());
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap(), header)
    }

    async fn post(&self, target: &str, body: Vec<u8>) -> Answer {
        self.send(Method::POST, target, None, body).await
    }
}

fn config() -> ServerConfig {
    ServerConfig {
        endpoint: Endpoint("127.0.0.1:0".to_owned()),
        ..ServerConfig::default()
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn file_is_accepted_in_every_compression() {
    let running = Running::new(&config());
    let file = small_file(5);
    for (encoding, body) in [
        (None, file.clone()),
        (None, gzip(&file)),
        (Some("gzip"), gzip(&file)),
        (Some("gzip"), gzip(&gzip(&file))),
        (Some("identity"), file.clone()),
        (Some("zstd"), zstd::encode_all(file.as_slice(), 1).unwrap()),
    ] {
        let answer = running
            .send(Method::POST, "/v1/pprof", encoding, body)
            .await;
        assert_eq!(answer, (204, String::new(), None), "{encoding:?}");
    }
    let taken = running.sink.taken();
    assert_eq!(taken.len(), 6);
    let profile = |at: usize| {
        let profile = &taken[at].resource_profiles[0].scope_profiles[0].profiles[0];
        assert_ne!(
            profile.time_unix_nano, 0,
            "when it came, as it does not say it"
        );
        assert_eq!(profile.profile_id.len(), 16);
        profile.samples.clone()
    };
    assert!((1..6).all(|at| profile(at) == profile(0)));
}

#[tokio::test]
async fn the_query_becomes_resource_attributes_and_the_profiles_name() {
    let running = Running::new(&config());
    let target = "/v1/pprof?service.name=check%20out&profile=mutex";
    assert_eq!(running.post(target, small_file(1)).await.0, 204);
    let taken = running.sink.taken();
    let resource = &taken[0].resource_profiles[0];
    let attributes = &resource.resource.as_ref().unwrap().attributes;
    assert_eq!(attributes[0], text("service.name", "check out"));
    let scope = resource.scope_profiles[0].scope.as_ref().unwrap();
    assert!(
        scope
            .attributes
            .contains(&text("pprof.profile.name", "mutex"))
    );
    let (status, body, _) = running.post("/v1/pprof?a=1&a=2", small_file(1)).await;
    assert_eq!(status, 400);
    assert_eq!(body, "400 parameter 2 of the query repeats `a`");
}

#[tokio::test]
async fn invalid_profile_is_refused_with_reason() {
    let running = Running::new(&ServerConfig {
        max_request_body_size: 1000,
        ..config()
    });
    for (body, status, reason) in [
        (
            Vec::new(),
            400,
            "400 not a usable pprof file: the file is empty",
        ),
        (b"<html>".to_vec(), 400, "400 not a usable pprof file: "),
        (
            gzip(b"nonsense")[..12].to_vec(),
            400,
            "400 not a usable pprof file: cannot decompress",
        ),
        (
            vec![1; 1001],
            413,
            "413 the request is larger than 1000 bytes; send smaller batches, or raise `max_request_body_size`",
        ),
        (
            gzip(&vec![0; 2000]),
            413,
            "413 the profile is larger than 1000 bytes; raise `max_request_body_size` to accept it",
        ),
    ] {
        let (found, text, _) = running.post("/v1/pprof", body).await;
        assert_eq!(found, status, "{text}");
        assert!(text.starts_with(reason), "{text}");
    }
    let (_, group, _) = running.post("/v1/pprof", vec![0x4b, 0x4c]).await;
    assert!(
        group.contains("a group (wire type 3 or 4), which is not supported"),
        "{group}"
    );
    let bad = running
        .send(Method::POST, "/v1/pprof", Some("br"), small_file(1))
        .await;
    assert!(
        bad.0 == 400 && bad.1.contains("unsupported Content-Encoding: br"),
        "{bad:?}"
    );
    assert!(running.sink.taken().is_empty());
}

#[tokio::test]
async fn other_paths_and_methods_get_hint() {
    let running = Running::new(&config());
    let (status, text, _) = running.post("/debug/pprof", small_file(1)).await;
    assert_eq!(
        (status, text.as_str()),
        (
            404,
            "404 page not found; the path for pprof files is /v1/pprof"
        )
    );
    for method in [Method::GET, Method::PUT, Method::OPTIONS] {
        let (status, _, allow) = running.send(method, "/v1/pprof", None, Vec::new()).await;
        assert_eq!((status, allow.as_deref()), (405, Some("POST")));
    }
}

#[tokio::test]
async fn refusal_status_and_delay_match_cause() {
    let running = Running::new(&config());
    let second = Some("1");
    let minute = std::time::Duration::from_secs(60);
    let exhausted = Nack::exhausted("later", minute);
    for (nack, status, retry_after) in [
        (Nack::unavailable("not now"), 503, second),
        (exhausted, 429, Some("60")),
        (Nack::invalid("never"), 400, None),
        (Nack::permanent(Code::Internal, "never"), 500, None),
    ] {
        running.sink.answer(Err(nack));
        let (found, _, header) = running.post("/v1/pprof", small_file(1)).await;
        assert_eq!((found, header.as_deref()), (status, retry_after));
    }
    running.sink.answer(Ok(()));
    assert_eq!(running.post("/v1/pprof", small_file(1)).await.0, 204);
}

#[test]
fn a_server_without_an_endpoint_is_refused() {
    let mut problems = Problems::default();
    ServerConfig::default().validate(&mut problems);
    let found: Vec<_> = problems
        .found()
        .iter()
        .map(|problem| problem.path.clone())
        .collect();
    assert_eq!(found, [["endpoint"]]);
}

#[test]
fn client_identity_comes_only_from_certificate() {
    let mut dictionary = Dictionary::new();
    let filename = dictionary.string("/bin/made-up");
    let main = dictionary.mapping(Mapping {
        filename,
        ..Mapping::default()
    });
    let names = |key, identity| {
        let said = vec![text("service.name", "made-up"), text("zone", "z")];
        let resource = subject(said, key, identity).resource(&dictionary, Some(main));
        let attributes = resource.attributes.into_iter();
        let named = attributes.filter(|attribute| attribute.key == "service.name");
        named.collect::<Vec<_>>()
    };
    assert_eq!(names(None, Some("a")), [text("service.name", "made-up")]);
    let key = Some("service.name");
    assert_eq!(names(key, Some("a")), [text("service.name", "a")]);
    // A certificate without a name: then the file's does not count either.
    assert_eq!(names(key, None), []);
}

#[tokio::test]
async fn headers_are_kept_if_configured() {
    for wanted in [true, false] {
        let running = Running::new(&ServerConfig {
            include_metadata: wanted,
            ..config()
        });
        assert_eq!(running.post("/v1/pprof", small_file(1)).await.0, 204);
        let kept = running.sink.metadata();
        let host = kept[0].as_ref().and_then(|headers| headers.get("host"));
        assert_eq!(host.is_some(), wanted);
    }
}
