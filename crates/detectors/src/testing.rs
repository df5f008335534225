//! A machine of temporary files, and metadata services on loopback ports.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::time::Instant;
use tributary_net::Owner;
use tributary_net::client::test_server::{TestServer, answer, certificates, header_map};

use crate::{
    AttributeValue, BuiltInDetector, DetectedResource, Detection, DetectionConfig, DetectionError,
    Machine,
};

/// A machine with settings of the detectors.
pub(crate) struct Fixture {
    pub(crate) config: DetectionConfig,
    machine: Machine,
    files: TempDir,
}

impl Fixture {
    /// A machine without metadata services.
    pub(crate) fn new(variables: &[(&str, &str)]) -> Self {
        Self::with_link_local(variables, "http://127.0.0.1:1")
    }

    /// A machine with a metadata service at its link-local address.
    pub(crate) fn at(variables: &[(&str, &str)], service: &MockService) -> Self {
        Self::with_link_local(variables, &service.url)
    }

    /// A pod whose cluster has this API server.
    pub(crate) fn in_pod(variables: &[(&str, &str)], server: &MockService) -> Self {
        let port = server.server.address.port().to_string();
        let mut all = vec![
            ("KUBERNETES_SERVICE_HOST", "127.0.0.1"),
            ("KUBERNETES_SERVICE_PORT", port.as_str()),
        ];
        all.extend(variables);
        let fixture = Self::new(&all);
        let account = "var/run/secrets/kubernetes.io/serviceaccount";
        fixture.write(&format!("{account}/token"), "account\n");
        fixture.write(&format!("{account}/ca.crt"), &server.authority);
        fixture
    }

    fn with_link_local(variables: &[(&str, &str)], link_local: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        Fixture {
            config: DetectionConfig::default(),
            machine: Machine::of_test(variables, files.path(), link_local),
            files,
        }
    }

    pub(crate) fn configure(&mut self, yaml: &str) {
        self.config = serde_yaml::from_str(yaml).unwrap();
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.files.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) async fn detect(
        &self,
        detector: BuiltInDetector,
    ) -> Result<DetectedResource, DetectionError> {
        let owner = Owner::new(&"resource_detection".parse().unwrap(), "processor");
        let detection = Detection {
            config: &self.config,
            machine: &self.machine,
            deadline: Instant::now() + Duration::from_secs(20),
            owner: &owner,
        };
        crate::detect(detector, &detection).await
    }
}

/// Returns the text attributes, sorted by key.
pub(crate) fn text_pairs(found: &DetectedResource) -> Vec<(&str, &str)> {
    let texts = found
        .attributes
        .iter()
        .filter_map(|(key, value)| match value {
            AttributeValue::Text(text) => Some((key.as_str(), text.as_str())),
            _ => None,
        });
    let mut texts: Vec<_> = texts.collect();
    texts.sort_unstable();
    texts
}

/// A metadata service.
pub(crate) struct MockService {
    pub(crate) url: String,
    server: TestServer,
    /// The authority of a TLS server's certificate.
    authority: String,
}

impl MockService {
    /// Starts a service. The function returns status and body for a request such as `GET /path`; without an answer, the
    /// status is 404.
    pub(crate) async fn start(
        answers: impl Fn(&str, &Request<Bytes>) -> Option<(u16, String)> + Send + Sync + 'static,
    ) -> Self {
        Self::start_with_header("content-type", "text/plain", answers).await
    }

    /// Starts a service whose responses have a header.
    pub(crate) async fn start_with_header(
        name: &'static str,
        value: &'static str,
        answers: impl Fn(&str, &Request<Bytes>) -> Option<(u16, String)> + Send + Sync + 'static,
    ) -> Self {
        Self::start_over(None, (name, value), answers).await
    }

    /// Starts a service with TLS.
    pub(crate) async fn start_tls(
        answers: impl Fn(&str, &Request<Bytes>) -> Option<(u16, String)> + Send + Sync + 'static,
    ) -> Self {
        let (authority, certificate, key) = certificates();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let service = Self::start_over(Some(tls), ("content-type", "text/plain"), answers).await;
        MockService {
            authority,
            ..service
        }
    }

    async fn start_over(
        tls: Option<rustls::ServerConfig>,
        header: (&'static str, &'static str),
        answers: impl Fn(&str, &Request<Bytes>) -> Option<(u16, String)> + Send + Sync + 'static,
    ) -> Self {
        let server = TestServer::start(tls, move |request| {
            let path = format!("{} {}", request.method(), request.uri());
            let (status, body) = answers(&path, request).unwrap_or((404, String::new()));
            let header = header_map(&[header]);
            Some(answer(status, header, body.as_bytes(), Default::default()))
        })
        .await;
        MockService {
            url: format!("http://{}", server.address),
            server,
            authority: String::new(),
        }
    }

    /// Returns the number of requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.server.requests.lock().unwrap().len()
    }
}
