//! Fetches URLs: a profile under `/debug/pprof`, a file on a web server, or a health response.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::printable;
use tributary_config::ComponentId;
use tributary_net::Owner;
use tributary_net::client::{Connector, full_error};
use tributary_net::tls::rotation::RotatingClient;
use tributary_net::tls::{ClientTls, TlsVersion};

/// Default time limit of a response in seconds, in addition to the duration of the requested
/// profile.
const TIMEOUT: u64 = 60;
/// Maximum length of an error response that is read, in bytes.
const REASON: u64 = 4 << 10;

/// Options for fetching URLs.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Reading URLs")]
pub(super) struct Fetching {
    /// Time limit for a URL, in seconds. Default: 60 seconds plus the value of `seconds=` in the
    /// URL.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u32>,
    /// Certificate authorities to trust instead of the system's (PEM).
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Accept any certificate. The connection can then be read and changed by an attacker.
    #[arg(long)]
    insecure_skip_verify: bool,
}

/// Returns the file's name as a URL if it is one.
pub(super) fn url(file: &Path) -> Option<&str> {
    let text = file.to_str()?;
    let is_url = text.starts_with("http://") || text.starts_with("https://");
    is_url.then_some(text)
}

impl Fetching {
    /// Fetches the body of a URL without decoding it, up to `most` bytes.
    pub(super) fn fetch(&self, url: &str, most: u64) -> Result<Vec<u8>, String> {
        let uri: Uri = url
            .parse()
            .map_err(|error| format!("invalid URL: {error}"))?;
        let limit = match self.timeout {
            Some(seconds) => u64::from(seconds),
            None => TIMEOUT.saturating_add(seconds(&uri)),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        runtime.block_on(async {
            let got = timeout(Duration::from_secs(limit), self.get(&uri, most)).await;
            got.unwrap_or_else(|_| {
                Err(format!(
                    "no complete response within {limit} s; raise --timeout"
                ))
            })
        })
    }

    async fn get(&self, uri: &Uri, most: u64) -> Result<Vec<u8>, String> {
        let connector = self.connector(uri)?;
        let addresses = connector.resolve().await.map_err(|error| error.0)?;
        let stream = connector.connect(&addresses).await;
        let stream = stream.map_err(|error| in_arguments(&error.0))?;
        let broke = |error: hyper::Error| match connector.last_failure() {
            Some(verdict) => in_arguments(&verdict),
            None => format!("the connection was closed: {}", full_error(&error)),
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broke)?;
        tokio::spawn(connection);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let host = uri.authority().map_or("", |authority| authority.as_str());
        let request = Request::get(path)
            .header(header::HOST, host)
            .header(
                header::USER_AGENT,
                concat!("tributary/", env!("CARGO_PKG_VERSION")),
            )
            .header(header::ACCEPT_ENCODING, "identity")
            .body(Empty::<Bytes>::new())
            .map_err(|error| format!("invalid URL: {error}"))?;
        let response = sender.send_request(request).await.map_err(broke)?;
        if response.status() != StatusCode::OK {
            return Err(refusal(response, path).await);
        }
        let (bytes, complete) = read(response.into_body(), most).await.map_err(broke)?;
        match complete {
            true => Ok(bytes),
            false => Err(format!("the response has more than {most} bytes")),
        }
    }

    fn connector(&self, uri: &Uri) -> Result<Connector, String> {
        let authority = uri.authority().ok_or("the URL has no host")?;
        if authority.as_str().contains('@') {
            return Err("credentials in a URL are not supported; pipe the response in, as in `curl --user NAME URL | \
                        collector profiles top -`"
                .to_owned());
        }
        let host = authority.host();
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let secure = uri.scheme_str() == Some("https");
        let port = match secure {
            true => authority.port_u16().unwrap_or(443),
            false => authority.port_u16().unwrap_or(80),
        };
        let tls = match secure {
            true => Some(self.tls(host)?),
            false => None,
        };
        Ok(Connector::new(host, port, tls))
    }

    fn tls(
        &self,
        host: &str,
    ) -> Result<(RotatingClient, rustls_pki_types::ServerName<'static>), String> {
        let tls = ClientTls {
            insecure_skip_verify: self.insecure_skip_verify,
            ca_file: self.ca_file.clone().unwrap_or_default(),
            // A profiled service may be older than the services that receive telemetry.
            min_version: Some(TlsVersion::V1_2),
            ..ClientTls::default()
        };
        let failed = |error: tributary_net::tls::TlsError| in_arguments(&error.to_string());
        let name = tls.server_name(host).map_err(failed)?;
        let id: ComponentId = "profiles".parse().map_err(|_| "no id")?;
        let owner = Owner::new(&id, "command");
        let client = RotatingClient::new(&tls, &[b"http/1.1"], owner).map_err(failed)?;
        Ok((client, name))
    }
}

/// Returns the duration that a URL asks a service to measure.
fn seconds(uri: &Uri) -> u64 {
    let parameters = uri.query().unwrap_or_default().split('&');
    let mut seconds = parameters.filter_map(|parameter| parameter.strip_prefix("seconds="));
    let seconds = seconds.find_map(|value| value.parse::<f64>().ok());
    seconds.map_or(0, |seconds| seconds.ceil() as u64)
}

/// Returns the reason in an error response.
async fn refusal(response: Response<Incoming>, path: &str) -> String {
    let status = response.status();
    let answered = format!("the server responded with {status}");
    if status.is_redirection() {
        let target = response.headers().get(header::LOCATION);
        let target = target.map(|target| String::from_utf8_lossy(target.as_bytes()));
        return match target {
            Some(target) => format!(
                "{answered}: redirects are not followed; use {} instead",
                printable(&target)
            ),
            None => answered,
        };
    }
    let body = read(response.into_body(), REASON).await;
    let body = body.map(|(bytes, _)| bytes).unwrap_or_default();
    // The APIs of a collector say in JSON what to do.
    let json: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
    if let Some(error) = json.as_ref().and_then(|json| json["error"].as_str()) {
        return printable(error);
    }
    let text = String::from_utf8_lossy(&body);
    let reason = text.lines().map(str::trim).find(|line| !line.is_empty());
    let reason = match reason {
        Some(reason) if !reason.starts_with('<') => format!(": {}", printable(reason)),
        _ => String::new(),
    };
    let advice = match status {
        StatusCode::NOT_FOUND if path.contains("pprof") => {
            "; check the path: Go serves profiles under /debug/pprof/, such as /debug/pprof/heap"
        }
        _ => "",
    };
    format!("{answered}{reason}{advice}")
}

/// Reads a body up to a limit; returns whether the body is complete.
async fn read(mut body: Incoming, limit: u64) -> Result<(Vec<u8>, bool), hyper::Error> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() as u64 > limit {
            bytes.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
            return Ok((bytes, false));
        }
    }
    Ok((bytes, true))
}

/// Replaces the configuration keys in connection errors by the names of arguments.
fn in_arguments(error: &str) -> String {
    let words = [
        (
            "set tls::insecure to true",
            "use a URL that begins with http://",
        ),
        (
            "set tls::insecure to false, or use an endpoint that begins with https://",
            "use a URL that begins with https://",
        ),
        ("tls::ca_file", "--ca-file"),
    ];
    let mut error = error.to_owned();
    for (key, argument) in words {
        error = error.replace(key, argument);
    }
    error
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use tributary_net::client::test_server::{TestServer, answer, certificates, header_map};

    async fn fetched(arguments: Fetching, url: String) -> Result<Vec<u8>, String> {
        let fetch = move || arguments.fetch(&url, 1 << 10);
        tokio::task::spawn_blocking(fetch).await.unwrap()
    }

    #[tokio::test]
    async fn url_is_fetched_and_errors_name_the_cause() {
        let server = TestServer::start(None, |request| {
            let plain =
                |status, text: &[u8]| answer(status, HeaderMap::new(), text, HeaderMap::new());
            Some(match request.uri().path() {
                "/debug/pprof/heap" => plain(200, b"profile"),
                "/moved" => {
                    let headers = header_map(&[("location", "/debug/pprof/heap")]);
                    answer(302, headers, b"", HeaderMap::new())
                }
                "/busy" => plain(
                    500,
                    b"\nCould not enable CPU profiling: already in use\nmore",
                ),
                "/cut" => return None,
                _ => plain(404, b"<html>no</html>"),
            })
        })
        .await;
        let get = |path: &str| {
            let url = format!("http://{}{path}", server.address);
            fetched(Fetching::default(), url)
        };
        assert_eq!(get("/debug/pprof/heap?gc=1").await.unwrap(), b"profile");
        let request = server.requests.lock().unwrap().pop().unwrap();
        assert_eq!(request.headers()["host"], server.address.to_string());
        assert_eq!(request.uri().query(), Some("gc=1"));
        for (path, said) in [
            (
                "/moved",
                "redirects are not followed; use /debug/pprof/heap instead",
            ),
            (
                "/busy",
                "500 Internal Server Error: Could not enable CPU profiling: already in use",
            ),
            (
                "/pprof/heap",
                "404 Not Found; check the path: Go serves profiles under /debug/pprof/",
            ),
            ("/cut", "closed the connection"),
        ] {
            let error = get(path).await.unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[tokio::test]
    async fn certificate_is_checked_by_default() {
        let (ca, certificate, key) = certificates();
        let server = tributary_net::tls::ServerTls {
            cert_pem: certificate,
            key_pem: key.as_str().into(),
            ..Default::default()
        };
        let server = TestServer::start(Some(server.build(&[b"http/1.1"]).unwrap()), |_| {
            Some(answer(200, HeaderMap::new(), b"profile", HeaderMap::new()))
        })
        .await;
        let url = format!("https://localhost:{}/", server.address.port());
        let directory = tempfile::tempdir().unwrap();
        let ca_file = directory.path().join("ca.pem");
        std::fs::write(&ca_file, ca).unwrap();
        let trusting = Fetching {
            ca_file: Some(ca_file),
            ..Default::default()
        };
        assert_eq!(fetched(trusting, url.clone()).await.unwrap(), b"profile");
        let blind = Fetching {
            insecure_skip_verify: true,
            ..Default::default()
        };
        assert_eq!(fetched(blind, url.clone()).await.unwrap(), b"profile");
        let (other, ..) = certificates();
        let ca_file = directory.path().join("other.pem");
        std::fs::write(&ca_file, other).unwrap();
        let misled = Fetching {
            ca_file: Some(ca_file),
            ..Default::default()
        };
        let error = fetched(misled, url).await.unwrap_err();
        assert!(error.contains("--ca-file"), "{error}");
        let plain = format!("http://{}/", server.address);
        let error = fetched(Fetching::default(), plain).await.unwrap_err();
        assert!(error.contains("https://"), "{error}");
    }

    #[tokio::test]
    async fn waiting_ends_and_credentials_are_not_put_on_the_wire() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap();
        let arguments = Fetching {
            timeout: Some(0),
            ..Default::default()
        };
        let late = fetched(arguments, format!("http://{address}/")).await;
        assert!(late.unwrap_err().contains("--timeout"));
        let credentials = fetched(Fetching::default(), format!("http://me:secret@{address}/"));
        let error = credentials.await.unwrap_err();
        assert!(
            error.contains("credentials") && !error.contains("secret"),
            "{error}"
        );
    }

    #[test]
    fn requested_seconds_extend_timeout() {
        let of = |url: &str| seconds(&url.parse().unwrap());
        assert_eq!(of("http://a/debug/pprof/profile?debug=0&seconds=30"), 30);
        assert_eq!(of("http://a/?seconds=0.5"), 1);
        assert_eq!(of("http://a/?seconds=x"), 0);
        assert_eq!(of("http://a/"), 0);
    }
}
