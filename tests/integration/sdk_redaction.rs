//! Secrets sent by a real SDK do not leave the pod: see tests/sdk/README.md.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{Backend, Collector, Signal, grpc_at, within, yaml};
use crate::sdk::{script, told};

/// Secrets that `confide.py` sends, in two parts, so that scanners do not report this file.
const SECRETS: [&str; 6] = [
    concat!("jane.roe", "@example.com"),
    concat!("4111 1111 ", "1111 1111"),
    concat!("AKIA", "IOSFODNN7EXAMPLE"),
    "s3cretpw",
    "janeroe",
    concat!("mF_9.", "B5f-4.1JqM"),
];

const REDACTION: &str = "{allow_all_keys: true, detectors: [email, credit_card, aws_access_key, \
                         url_credentials, home_directory, bearer_token]}";

/// Every byte that was sent over connections to an address.
#[derive(Clone, Default)]
struct Tap(Arc<Mutex<Vec<u8>>>);

impl Tap {
    /// Stands before `upstream`.
    async fn before(upstream: SocketAddr) -> (SocketAddr, Self) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, tap) = (listener.local_addr().unwrap(), Tap::default());
        let all = tap.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(all.clone().pass(client, upstream));
            }
        });
        (address, tap)
    }

    async fn pass(self, client: TcpStream, upstream: SocketAddr) {
        let server = TcpStream::connect(upstream).await.unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let back = tokio::io::copy(&mut from_server, &mut to_client);
        let there = async {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
                self.0.lock().unwrap().extend_from_slice(&buffer[..read]);
                if to_server.write_all(&buffer[..read]).await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::join!(back, there);
    }

    /// Number of secrets that went through.
    fn secrets(&self) -> usize {
        let bytes = self.0.lock().unwrap();
        let has = |secret: &&&str| {
            let mut parts = bytes.windows(secret.len());
            parts.any(|part| part == secret.as_bytes())
        };
        SECRETS.iter().filter(has).count()
    }
}

/// Runs the script against a sidecar. Returns the number of secrets on the wire after the sidecar.
async fn secrets_on_the_wire(python: &str, protocol: &str, processors: &[(&str, &str)]) -> usize {
    let backend = Backend::start().await;
    let (address, tap) = Tap::before(backend.grpc()).await;
    let exporter = grpc_at(address, "compression: none");
    let sidecar = Collector::start(&yaml(processors, &[("otlp_grpc", &exporter)])).await;
    let endpoint = match protocol {
        "grpc" => sidecar.grpc().to_string(),
        _ => format!("http://{}", sidecar.http()),
    };
    let mut command = Command::new(python);
    command
        .arg(script("confide.py"))
        .args([protocol, &endpoint]);
    let run = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = within("the end of the script", run).await.unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let complete = |record: &crate::harness::backend::Record| {
        [Signal::Traces, Signal::Logs]
            .iter()
            .all(|signal| record.telemetry(*signal).next().is_some())
    };
    within("both requests", backend.until(complete)).await;
    sidecar.assert_conservation().await;
    tap.secrets()
}

#[tokio::test]
async fn python_sdk_secrets_never_leave() {
    let Some(python) = told("SDK_PYTHON") else {
        return;
    };
    for protocol in ["grpc", "http"] {
        assert_eq!(
            secrets_on_the_wire(&python, protocol, &[]).await,
            SECRETS.len()
        );
        let redaction = [("redaction", REDACTION)];
        assert_eq!(secrets_on_the_wire(&python, protocol, &redaction).await, 0);
    }
}
