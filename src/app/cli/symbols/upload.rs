//! `collector symbols upload`: sends files to the `symbol_upload` extension.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use futures_util::stream;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::Outcome;
use tributary_config::ComponentId;
use tributary_net::Owner;
use tributary_net::client::{Connector, full_error, host_of, parse_url};
use tributary_net::tls::rotation::RotatingClient;
use tributary_net::tls::{ClientTls, TlsVersion};
use tributary_symbols::BuildId;
use tributary_symbols::describe::describe;

#[derive(Debug, Args)]
pub(in crate::app::cli) struct Arguments {
    /// URL of the collector's `symbol_upload` extension, such as
    /// https://collector.example.com:13135.
    #[arg(long, value_name = "URL")]
    to: String,
    /// File with the bearer token for authentication.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Upload the files as executables; their debug information is uploaded separately.
    #[arg(long)]
    executable: bool,
    /// Time limit for one file, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u32,
    /// Certificate authorities to trust instead of the system's (PEM).
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Accept any certificate. The token can then be read by an attacker.
    #[arg(long)]
    insecure_skip_verify: bool,
    /// Binaries that contain debug information, or separate debug files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(super) fn upload(arguments: &Arguments) -> Outcome {
    let mut outcome = Outcome::default();
    let uploader = match Uploader::new(arguments) {
        Ok(uploader) => uploader,
        Err(error) => {
            outcome.notes = format!("error: {error}\n");
            outcome.code = 1;
            return outcome;
        }
    };
    for file in &arguments.files {
        match uploader.upload(file) {
            Ok(id) => outcome
                .output
                .push_str(&format!("{id} {}\n", file.display())),
            // The other files may still succeed.
            Err(error) => {
                outcome
                    .notes
                    .push_str(&format!("error: {}: {error}\n", file.display()));
                outcome.code = 1;
            }
        }
    }
    outcome
}

struct Uploader {
    runtime: tokio::runtime::Runtime,
    connector: Connector,
    base: Uri,
    token: Option<HeaderValue>,
    suffix: &'static str,
    timeout: Duration,
}

/// Bytes of a file read at once.
const READ_SIZE: usize = 256 << 10;
/// Bytes of a response shown in an error.
const ANSWER: usize = 1024;

impl Uploader {
    fn new(arguments: &Arguments) -> Result<Self, String> {
        let base = parse_url(&arguments.to)?;
        let token = arguments.token_file.as_deref().map(token).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let connector = {
            let _inside = runtime.enter();
            connector(&base, arguments)?
        };
        Ok(Uploader {
            runtime,
            connector,
            base,
            token,
            suffix: match arguments.executable {
                true => "/executable",
                false => "",
            },
            timeout: Duration::from_secs(arguments.timeout.into()),
        })
    }

    fn upload(&self, path: &Path) -> Result<BuildId, String> {
        let description = describe(path, 0).map_err(|error| error.to_string())?;
        let id = description
            .build_id
            .ok_or("not an ELF file with a build id; link with `-Wl,--build-id` (gcc and clang)")?;
        let file = File::open(path).map_err(|error| error.to_string())?;
        let send = async { timeout(self.timeout, self.send(&id, file)).await };
        let sent = self.runtime.block_on(send);
        sent.unwrap_or_else(|_| {
            Err(format!(
                "the upload was not complete within {} s; raise --timeout",
                self.timeout.as_secs()
            ))
        })?;
        Ok(id)
    }

    async fn send(&self, id: &BuildId, file: File) -> Result<(), String> {
        let length = file.metadata().map_err(|error| error.to_string())?.len();
        let addresses = self.connector.resolve().await.map_err(|error| error.0)?;
        let stream = self.connector.connect(&addresses).await;
        let stream = stream.map_err(|error| error.0)?;
        let broke = |error: hyper::Error| match self.connector.last_failure() {
            Some(verdict) => verdict,
            None => format!("the connection was closed: {}", full_error(&error)),
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broke)?;
        tokio::spawn(connection);
        let path = self.base.path().trim_end_matches('/');
        let host = self.base.authority().map_or("", |host| host.as_str());
        let mut request = Request::put(format!("{path}/symbols/{id}{}", self.suffix))
            .header(header::HOST, host)
            .header(header::CONTENT_LENGTH, length)
            .body(StreamBody::new(pieces(file)))
            .map_err(|error| error.to_string())?;
        if let Some(token) = &self.token {
            let headers = request.headers_mut();
            headers.insert(header::AUTHORIZATION, token.clone());
        }
        let mut response = sender.send_request(request).await.map_err(broke)?;
        if response.status().is_success() {
            return Ok(());
        }
        let mut said = Vec::new();
        while let Some(Ok(frame)) = response.body_mut().frame().await {
            said.extend(frame.into_data().unwrap_or_default());
            if said.len() > ANSWER {
                break;
            }
        }
        said.truncate(ANSWER);
        let said = String::from_utf8_lossy(&said);
        let said: String = said.trim().chars().filter(|c| !c.is_control()).collect();
        Err(format!(
            "the server responded with {}: {said}",
            response.status()
        ))
    }
}

/// Streams a file in chunks.
fn pieces(file: File) -> impl futures_util::Stream<Item = std::io::Result<Frame<Bytes>>> {
    stream::unfold(Some(file), |file| async {
        let mut file = file?;
        let mut piece = vec![0; READ_SIZE];
        // Blocking is fine: no other task runs on this thread.
        match file.read(&mut piece) {
            Ok(0) => None,
            Ok(length) => {
                piece.truncate(length);
                Some((Ok(Frame::data(piece.into())), Some(file)))
            }
            Err(error) => Some((Err(error), None)),
        }
    })
}

/// Maximum size of a token file in bytes: the largest header that servers usually accept.
const LARGEST_TOKEN: u64 = 64 << 10;

fn token(path: &Path) -> Result<HeaderValue, String> {
    let named = |reason: String| format!("--token-file {}: {reason}", path.display());
    let mut token = String::new();
    File::open(path)
        .and_then(|file| file.take(LARGEST_TOKEN).read_to_string(&mut token))
        .map_err(|error| named(error.to_string()))?;
    let value = HeaderValue::try_from(format!("Bearer {}", token.trim()));
    let mut value = value.map_err(|_| named("the file is empty".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

fn connector(base: &Uri, arguments: &Arguments) -> Result<Connector, String> {
    let host = host_of(base);
    if base.scheme_str() != Some("https") {
        return Ok(Connector::new(host, base.port_u16().unwrap_or(80), None));
    }
    let tls = ClientTls {
        insecure_skip_verify: arguments.insecure_skip_verify,
        ca_file: arguments.ca_file.clone().unwrap_or_default(),
        min_version: Some(TlsVersion::V1_2),
        ..ClientTls::default()
    };
    let failed = |error: tributary_net::tls::TlsError| {
        error.to_string().replace("tls::ca_file", "--ca-file")
    };
    let name = tls.server_name(host).map_err(failed)?;
    let id: ComponentId = "symbols".parse().map_err(|_| "no id")?;
    let client = RotatingClient::new(&tls, &[b"http/1.1"], Owner::new(&id, "command"));
    let client = client.map_err(failed)?;
    Ok(Connector::new(
        host,
        base.port_u16().unwrap_or(443),
        Some((client, name)),
    ))
}
